//! Why something is not available, in words that a user can act on.

use std::path::PathBuf;

use serde::Serialize;

use crate::KernelError;

/// Why a sensor or lever is not available here. The text includes the remedy, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "reason", rename_all = "kebab-case")]
pub enum Absence {
    /// An idle vCPU just halts: no governor decides, and latency requests have no effect.
    #[error(
        "no cpuidle driver is loaded (current_driver = none): PM QoS and haltpoll have nothing to act on; on KVM, \
         `modprobe cpuidle-haltpoll force=1` loads one"
    )]
    NoCpuidleDriver,
    /// Another governor than haltpoll is in use.
    #[error(
        "the cpuidle governor is `{governor}`, not haltpoll: its parameters are ignored; on KVM, \
         `modprobe cpuidle-haltpoll force=1` brings driver and governor"
    )]
    OtherGovernor {
        /// The governor in use; `none` if there is none.
        governor: String,
    },
    /// This user lacks the permission.
    #[error("{} is refused to this user: run as root or grant CAP_DAC_OVERRIDE", path.display())]
    NotPermitted {
        /// The file that is not accessible.
        path: PathBuf,
    },
    /// The file system is mounted read-only.
    #[error("{} lies on a read-only mount, as in most containers: run on the machine itself or mount it writable",
        path.display())]
    ReadOnly {
        /// The file on that mount.
        path: PathBuf,
    },
    /// No hierarchy has the controller.
    #[error("cgroup v1 {controller} is not mounted")]
    NoCgroupV1 {
        /// Name of the controller.
        controller: &'static str,
    },
    /// There is no v2 hierarchy.
    #[error("cgroup v2 is not mounted: `mount -t cgroup2 none /sys/fs/cgroup/unified` would")]
    NoCgroupV2,
    /// The v2 hierarchy lacks the controller.
    #[error(
        "the cgroup v2 hierarchy at {} has no {controller} controller: it is bound to cgroup v1 or disabled; boot \
         with `systemd.unified_cgroup_hierarchy=1` to have it", path.display()
    )]
    ControllerMissing {
        /// Mount point of the hierarchy.
        path: PathBuf,
        /// Name of the controller.
        controller: &'static str,
    },
    /// No hierarchy of either version accounts CPU time.
    #[error("neither cgroup v2 nor the v1 cpuacct controller is mounted: CPU time is summed over processes")]
    NoCgroupAccounting,
    /// The running kernel lacks it.
    #[error("the kernel was built without {option}: {} is missing or counts nothing", path.display())]
    NotBuilt {
        /// The kernel's configuration option.
        option: &'static str,
        /// The file that shows it.
        path: PathBuf,
    },
    /// Built in, but switched off.
    #[error("it is switched off: boot with `{parameter}` on the kernel's command line")]
    SwitchedOff {
        /// The boot parameter that enables it.
        parameter: &'static str,
    },
    /// The hypervisor does not report how long its vCPUs waited.
    #[error("the hypervisor does not report steal time: it shows as 0, whatever the host does")]
    NoStealTime,
    /// Any other error while probing.
    #[error("{problem}")]
    Unusable {
        /// The error, with its path.
        problem: String,
    },
}

impl From<&KernelError> for Absence {
    fn from(error: &KernelError) -> Self {
        let path = error.path().to_owned();
        if error.is_denied() {
            Self::NotPermitted { path }
        } else if error.is_read_only() {
            Self::ReadOnly { path }
        } else {
            Self::Unusable { problem: error.to_string() }
        }
    }
}
