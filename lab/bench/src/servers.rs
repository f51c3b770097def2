//! Real servers under load.
//!
//! A *row* is a server with a load ([`rows`]), a [mode](crate::mode::Mode) is how it is started: plainly, under
//! `gleaner run`, or under one fixed setting. A *cell* measures a row in a mode, in its own process, which
//! starts server and client, waits until the server is ready, lets the client warm up and then measures one
//! window ([`measure`]). [`experiment`](crate::experiment) interleaves the cells.

mod cell;
mod context;
mod error;
pub(crate) mod launch;
pub(crate) mod log;
mod machine;
mod mariadb;
mod memcached;
mod nginx;
mod own;
mod postgres;
mod programs;
mod rate;
mod redis;
mod rows;
pub(crate) mod running;
mod sample;
mod window;

pub use cell::{measure, prepare, with_mariadb};
pub use error::{Result, ServersError};
pub use rate::watch;
pub(crate) use rows::check_programs;
pub use rows::{ROWS, Row, find, load};
pub use sample::{Measured, Sample};
pub use window::Window;
