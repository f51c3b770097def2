//! Whether the machine's clock frequency stayed the same.

use gleaner_kernel::Root;
use gleaner_proto::result::Warning;

/// Relative difference from which the clock frequency counts as changed.
const FREQUENCY_CHANGE: f64 = 0.02;

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
}
