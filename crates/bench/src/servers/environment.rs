//! What the numbers were measured on.

use std::fs;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// The machine, as far as it decides wake-up costs. Empty strings where the system does not say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// Start of the run, UTC, ISO 8601.
    pub date: String,
    /// `uname -r`.
    pub kernel: String,
    /// `uname -v`; it names the preemption model it was built with.
    pub kernel_version: String,
    /// Preemption model chosen at boot (`preempt=` on the kernel command line), or `not given`.
    pub preempt: String,
    /// Model name of the first CPU.
    pub cpu_model: String,
    /// How many vCPUs are online.
    pub vcpus: usize,
    /// The hypervisor's signature, e.g. `KVMKVMKVM`; `none` on bare metal.
    pub hypervisor: String,
    /// cpuidle's driver.
    pub cpuidle_driver: String,
    /// cpuidle's governor.
    pub cpuidle_governor: String,
}

impl Environment {
    /// Looks at this machine.
    pub fn of_this_machine() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let value = cpuinfo.lines().find(|line| line.starts_with(name))?.split_once(':')?.1;
            Some(value.trim().to_owned())
        };
        let cmdline = read("/proc/cmdline");
        let preempt = cmdline.split_whitespace().find_map(|word| word.strip_prefix("preempt="));
        Self {
            date: iso8601(SystemTime::now()),
            kernel: read("/proc/sys/kernel/osrelease"),
            kernel_version: read("/proc/sys/kernel/version"),
            preempt: preempt.unwrap_or("not given").to_owned(),
            cpu_model: field("model name").unwrap_or_default(),
            vcpus: std::thread::available_parallelism().map_or(1, usize::from),
            hypervisor: hypervisor(field("flags").unwrap_or_default().contains("hypervisor")),
            cpuidle_driver: read("/sys/devices/system/cpu/cpuidle/current_driver"),
            cpuidle_governor: read("/sys/devices/system/cpu/cpuidle/current_governor"),
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The signature in CPUID leaf `0x4000_0000` (Documentation/virt/kvm/x86/cpuid.rst).
#[cfg(target_arch = "x86_64")]
fn hypervisor(present: bool) -> String {
    if !present {
        return String::from("none");
    }
    let leaf = std::arch::x86_64::__cpuid(0x4000_0000);
    let bytes = [leaf.ebx, leaf.ecx, leaf.edx].map(u32::to_le_bytes).concat();
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

#[cfg(not(target_arch = "x86_64"))]
fn hypervisor(_present: bool) -> String {
    read("/sys/hypervisor/type")
}

/// Seconds since 1970 as a UTC date (Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
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
        let here = Environment::of_this_machine();
        assert!(here.vcpus >= 1 && !here.kernel.is_empty(), "{here:?}");
    }
}
