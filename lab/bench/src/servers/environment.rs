//! The machine of a run.

use std::fmt;
use std::time::SystemTime;

use gleaner_kernel::Root;
use gleaner_kernel::hypervisor::Hypervisor;
use gleaner_kernel::idle::CpuIdle;
use gleaner_kernel::preempt::Preemption;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::error::Result;
use super::kernel_settings::{self, KernelSettings};

/// Properties of the machine that affect wake-up costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Start of the run, UTC, ISO 8601.
    pub date: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -v`.
    pub kernel_version: String,
    /// The preemption model, and where it was found.
    pub preemption: String,
    /// Model name of the first CPU; empty if the kernel does not report it.
    pub cpu_model: String,
    /// Number of vCPUs that this process may use.
    pub vcpus: usize,
    /// The hypervisor below this kernel.
    pub hypervisor: String,
    /// cpuidle driver, or `none`.
    pub cpuidle_driver: String,
    /// cpuidle governor, or `none`.
    pub cpuidle_governor: String,
    /// The settings that Gleaner changes, as they were before the run and must be before each cell.
    pub knobs: KernelSettings,
}

impl Environment {
    /// Describes the machine under `root`.
    ///
    /// # Errors
    /// If a file that every Linux has cannot be read.
    pub fn read(root: &Root) -> Result<Self> {
        let cpuinfo = root.read("/proc/cpuinfo")?;
        let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
        let model = model.and_then(|line| line.split_once(':')).map_or("", |(_, name)| name.trim());
        let preemption = Preemption::read(root);
        let idle = CpuIdle::read(root)?;
        let or_none = |name: Option<String>| name.unwrap_or_else(|| String::from("none"));
        Ok(Self {
            date: iso8601(SystemTime::now()),
            kernel: root.read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            kernel_version: root.read("/proc/sys/kernel/version")?.trim().to_owned(),
            preemption: format!("{} ({})", preemption.mode, preemption.source),
            cpu_model: model.to_owned(),
            vcpus: std::thread::available_parallelism().map_or(1, usize::from),
            hypervisor: Hypervisor::read(root).kind.to_string(),
            cpuidle_driver: or_none(idle.driver),
            cpuidle_governor: or_none(idle.governor),
            knobs: kernel_settings::read(root)?,
        })
    }
}

impl fmt::Display for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, cpu_model, vcpus, hypervisor, .. } = self;
        write!(f, "Linux {kernel}, {cpu_model}, {vcpus} vCPUs, hypervisor {hypervisor}")
    }
}

/// A time as a UTC date.
pub(super) fn iso8601(time: SystemTime) -> String {
    let at = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_described() {
        let here = Environment::read(&Root::system()).unwrap();
        assert!(here.vcpus >= 1 && !here.kernel.is_empty() && !here.preemption.is_empty(), "{here:?}");
    }
}
