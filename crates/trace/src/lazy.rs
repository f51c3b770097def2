//! The sensors that the engine takes, made of this crate's: nothing is loaded before it is first needed.

mod overload;
mod sockets;
mod waiting;
mod wakers;

pub use overload::overload_watch;
pub use sockets::traffic_sensor;
pub use waiting::waiting_sensor;
pub use wakers::{WakerCount, count_wakers};
