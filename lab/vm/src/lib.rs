//! Virtual machines that prove claims about Gleaner: many vCPUs, other kernels, systemd, neighbours, a KVM host.
//!
//! Images are built from Debian's packages ([`image`]), machines are described and controlled by [`vm`].
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
pub mod sections;
pub mod table;
mod tool;
pub mod vm;
mod wire;

pub use error::{Error, Result};
pub use image::Image;
pub use kernel::Kernel;
pub use vm::{Cpus, Guest, Job, Lab, Output, Step, VmSpec};
pub use wire::Exit;
