//! The machine of an experiment, and whether its clock frequency stayed the same.

use gleaner_kernel::hypervisor::{Hypervisor, HypervisorKind};
use gleaner_kernel::{KernelError, Root};
use gleaner_proto::result::{Environment, Warning};

use super::ExperimentError;
use crate::servers;

/// Relative difference from which the clock frequency counts as changed.
const FREQUENCY_CHANGE: f64 = 0.02;

/// Describes the machine under `root`.
///
/// # Errors
/// One of its files cannot be read or has unexpected content.
pub fn read(root: &Root) -> Result<Environment, ExperimentError> {
    let known = servers::Environment::read(root)?;
    Ok(Environment {
        date: known.date,
        gleaner: env!("CARGO_PKG_VERSION").to_owned(),
        kernel: known.kernel,
        kernel_version: known.kernel_version,
        virtualised: Hypervisor::read(root).kind != HypervisorKind::None,
        hypervisor: known.hypervisor,
        cpu_model: known.cpu_model,
        vcpus: known.vcpus,
        memory_bytes: memory(root)?,
        cpuidle_driver: known.cpuidle_driver,
        cpuidle_governor: known.cpuidle_governor,
        preemption: known.preemption,
        knobs: known.knobs,
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

/// Range of the clock frequencies seen so far, in MHz.
#[derive(Debug, Default)]
pub(super) struct Frequencies {
    seen: Option<(f64, f64)>,
}

impl Frequencies {
    /// Reads every CPU's current frequency. Machines that do not report it count as steady.
    pub(super) fn sample(&mut self, root: &Root) {
        let text = root.read("/proc/cpuinfo").unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with("cpu MHz"));
        for mhz in lines.filter_map(|line| line.split_once(':')?.1.trim().parse::<f64>().ok()) {
            let (min, max) = self.seen.unwrap_or((mhz, mhz));
            self.seen = Some((min.min(mhz), max.max(mhz)));
        }
    }

    pub(super) fn warning(&self) -> Option<Warning> {
        let (min_mhz, max_mhz) = self.seen?;
        (max_mhz > min_mhz * (1.0 + FREQUENCY_CHANGE)).then_some(Warning::Frequency { min_mhz, max_mhz })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_clock_that_moves_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::create_dir(root.path("/proc")).unwrap();
        let mut seen = Frequencies::default();
        seen.sample(&root);
        assert_eq!(seen.warning(), None, "nothing is known");
        for (mhz, moved) in [("2600.0", false), ("2630.5", false), ("1200.0", true)] {
            fs::write(root.path("/proc/cpuinfo"), format!("processor : 0\ncpu MHz\t\t: {mhz}\n")).unwrap();
            seen.sample(&root);
            assert_eq!(seen.warning().is_some(), moved, "{mhz}");
        }
    }

    #[test]
    fn this_machine_is_described() {
        let here = read(&Root::system()).unwrap();
        assert!(here.memory_bytes > 1 << 20 && here.vcpus >= 1, "{here:?}");
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("proc")).unwrap();
        fs::write(dir.path().join("proc/meminfo"), "MemTotal:  8 kB\nMemFree: 1 kB\n").unwrap();
        assert_eq!(memory(&Root::at(dir.path())).unwrap(), 8192);
    }
}
