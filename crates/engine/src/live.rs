//! This machine, controlled: for one workload by a [`LiveMachine`], for any number of them by a [`Fleet`].

mod active_set;
mod child;
mod chosen;
mod counter;
mod fleet;
mod found;
mod holdings;
mod machine;
mod member;
mod overload;
mod retention;
mod sensors;
mod set_lever;
mod settling;
mod sockets;
mod unit_set;
mod vcpus;
mod wait;
mod waiting;

use gleaner_kernel::idle::IdleSensor;
use gleaner_kernel::lever::LeverError;
use gleaner_kernel::lever::yield_threads::StartError;
use gleaner_kernel::stat::StatSensor;
use gleaner_kernel::{KernelError, Root};
use nix::unistd::Pid;

pub use child::{Child, SpawnError, become_command, spawn, wait_for_exit};
pub use counter::Counter;
pub use fleet::{Fleet, FleetError, MemberParts};
pub use found::{Found, FoundError, group_sensor, quotas};
pub use machine::{LiveMachine, Parts};
pub use overload::{OverloadQuery, OverloadWatch};
pub use set_lever::ActiveSetLever;
pub use sockets::TrafficSensor;
pub use unit_set::UnitSet;
pub use wait::{ProcessFd, Signals};
pub use waiting::WaitingSensor;

use crate::lease::LeaseError;

/// What can fail while a workload is controlled.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A sensor failed.
    #[error(transparent)]
    Sensor(#[from] KernelError),
    /// A lever failed.
    #[error(transparent)]
    Lever(#[from] LeverError),
    /// A lease could not be taken.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The yield threads could not be started.
    #[error(transparent)]
    Yield(#[from] StartError),
    /// A process cannot be waited for.
    #[error("cannot watch process {pid}: {source}")]
    Process {
        /// PID of the process.
        pid: i32,
        /// The kernel's error.
        r#source: std::io::Error,
    },
    /// The workload has ended.
    #[error("the workload has ended")]
    Ended,
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation, as a verb phrase.
        what: &'static str,
        /// The kernel's error.
        r#source: std::io::Error,
    },
}

impl LiveError {
    fn io(what: &'static str, errno: nix::errno::Errno) -> Self {
        Self::Io { what, source: errno.into() }
    }

    /// Whether what was read or changed no longer exists.
    fn is_gone(&self) -> bool {
        match self {
            Self::Sensor(error) => error.is_gone(),
            Self::Lever(error) => error.is_gone(),
            Self::Lease(error) => error.is_gone(),
            Self::Ended => true,
            Self::Yield(_) | Self::Process { .. } | Self::Io { .. } => false,
        }
    }
}

/// Checks whether workloads can be observed here, as far as that is known without one.
///
/// # Errors
/// A sensor that every workload needs is missing.
pub fn check(root: &Root) -> Result<(), LiveError> {
    IdleSensor::new(root)?.read()?;
    StatSensor::new(root)?.read()?;
    ProcessFd::open(Pid::this()).map(drop)
}
