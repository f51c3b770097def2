//! Virtual machines in which Gleaner is proven: many vCPUs, other kernels, systemd, neighbours, a KVM host.
//!
//! Images are made of Debian's packages ([`image`]), machines are described and spoken to ([`vm`]).
//! `lab/README.md` says how to add a claim.

pub mod agent;
mod archive;
pub mod cache;
pub mod claims;
mod debian;
mod emulator;
pub mod error;
pub mod image;
pub mod kernel;
pub mod payload;
pub mod table;
mod tool;
pub mod vm;
mod wire;

pub use error::{Error, Result};
pub use image::Image;
pub use kernel::Kernel;
pub use vm::{Cpus, Guest, Job, Lab, Output, Step, VmSpec};
pub use wire::Exit;
