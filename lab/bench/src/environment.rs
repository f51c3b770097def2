//! The machine of a run, and the kernel settings that Gleaner changes on it.

pub(crate) mod kernel_settings;

use std::time::SystemTime;

use gleaner_kernel::hypervisor::{Hypervisor, HypervisorKind};
use gleaner_kernel::idle::CpuIdle;
use gleaner_kernel::preempt::Preemption;
use gleaner_kernel::{KernelError, Root};
use gleaner_proto::result::Environment;
use jiff::Timestamp;

pub use kernel_settings::SettingError;

/// Describes the machine under `root`, as it is now.
///
/// # Errors
/// A file that every Linux has cannot be read, or has unexpected content.
pub fn read(root: &Root) -> Result<Environment, KernelError> {
    let cpuinfo = root.read("/proc/cpuinfo")?;
    let model = cpuinfo.lines().find(|line| line.starts_with("model name"));
    let model = model.and_then(|line| line.split_once(':')).map_or("", |(_, name)| name.trim());
    let preemption = Preemption::read(root);
    let idle = CpuIdle::read(root)?;
    let hypervisor = Hypervisor::read(root).kind;
    let or_none = |name: Option<String>| name.unwrap_or_else(|| String::from("none"));
    Ok(Environment {
        date: iso8601(SystemTime::now()),
        gleaner: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: root.read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
        kernel_version: root.read("/proc/sys/kernel/version")?.trim().to_owned(),
        hypervisor: hypervisor.to_string(),
        virtualised: hypervisor != HypervisorKind::None,
        cpu_model: model.to_owned(),
        vcpus: std::thread::available_parallelism().map_or(1, usize::from),
        memory_bytes: memory(root)?,
        cpuidle_driver: or_none(idle.driver),
        cpuidle_governor: or_none(idle.governor),
        preemption: format!("{} ({})", preemption.mode, preemption.source),
        knobs: kernel_settings::read(root)?,
    })
}

/// `MemTotal:       8145980 kB`.
fn memory(root: &Root) -> Result<u64, KernelError> {
    const MEMINFO: &str = "/proc/meminfo";
    let text = root.read(MEMINFO)?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.strip_suffix("kB"));
    let total: Option<u64> = total.and_then(|kib| kib.trim().parse().ok());
    let what = "a line `MemTotal: N kB`";
    total.map(|kib| kib * 1024).ok_or_else(|| KernelError::parse(root.path(MEMINFO), what, &text))
}

/// A time as a UTC date.
pub(crate) fn iso8601(time: SystemTime) -> String {
    let at = Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn this_machine_is_described() {
        let here = read(&Root::system()).unwrap();
        assert!(here.vcpus >= 1 && !here.kernel.is_empty() && !here.preemption.is_empty(), "{here:?}");
        assert!(here.memory_bytes > 1 << 20, "{here:?}");
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        fs::write(dir.path().join("proc/meminfo"), "MemTotal:  8 kB\nMemFree: 1 kB\n").unwrap();
        assert_eq!(memory(&Root::at(dir.path())).unwrap(), 8192);
    }
}
