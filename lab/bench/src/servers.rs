//! Real servers under different settings: the benchmark behind `docs/benchmarks.md`.
//!
//! A *row* is a server with a load ([`rows`]), a [mode](crate::mode::Mode) is how it is started: plainly, under
//! `gleaner run`, or under one fixed setting. A *cell* measures a row in a mode, in its own process, which
//! starts server and client, waits until the server is ready, lets the client warm up and then measures one
//! window ([`measure`]). [`run`] interleaves the cells, and [`Report`] holds the results.

mod cell;
mod context;
mod error;
pub(crate) mod launch;
pub(crate) mod log;
mod machine;
mod mariadb;
mod markdown;
mod memcached;
mod nginx;
mod numbers;
mod own;
mod part;
mod postgres;
mod programs;
mod rate;
mod redis;
mod report;
mod rows;
pub(crate) mod running;
mod sample;
mod suite;
mod update;
mod window;

pub use cell::{measure, prepare, with_mariadb};
pub use error::{Result, ServersError};
pub use machine::CpuUse;
pub use part::Part;
pub use rate::watch;
pub use report::{LatencyMode, LatencyReport, ModeReport, Report, RowReport};
pub use rows::{Class, Placement, ROWS, Row, find, load};
pub use sample::{Latency, Measured, Sample};
pub(crate) use suite::measure_apart;
pub use suite::{Options, STANDARD_MODES, run};
pub use window::Window;
