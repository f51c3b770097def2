//! What the numbers were measured on.

use std::time::{Duration, SystemTime};

use gleaner_kernel::Root;
use gleaner_kernel::hypervisor::Hypervisor;
use gleaner_kernel::idle::CpuIdle;
use gleaner_kernel::preempt::Preemption;
use serde::{Deserialize, Serialize};

use super::Result;
use super::knobs::{self, Knobs};

/// The machine, as far as it decides wake-up costs.
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
    /// Model name of the first CPU; empty if the kernel does not say.
    pub cpu_model: String,
    /// How many vCPUs this process may use.
    pub vcpus: usize,
    /// The hypervisor below this kernel.
    pub hypervisor: String,
    /// cpuidle's driver, or `none`.
    pub cpuidle_driver: String,
    /// cpuidle's governor, or `none`.
    pub cpuidle_governor: String,
    /// The settings that Gleaner changes, as they were before the run and before each of its cells.
    pub knobs: Knobs,
}

impl Environment {
    /// Looks at the machine under `root`.
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
            knobs: knobs::read(root)?,
        })
    }
}

/// A moment as a UTC date (Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
fn iso8601(time: SystemTime) -> String {
    let seconds = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs();
    let (days, clock) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (clock / 3_600, clock / 60 % 60, clock % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_date_u() {
        let at = |seconds| iso8601(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_700_000_000), "2023-11-14T22:13:20Z");
    }

    #[test]
    fn this_machine_is_described() {
        let here = Environment::read(&Root::system()).unwrap();
        assert!(here.vcpus >= 1 && !here.kernel.is_empty() && !here.preemption.is_empty(), "{here:?}");
    }
}
