//! All runs of the study, and the paper's measures for them (§3).

use std::collections::{BTreeMap, BTreeSet};

use super::machine::{Measured, Setup};
use crate::parallel;

/// vCPU counts (§4.1).
pub(super) const SIZES: [u32; 5] = [4, 8, 16, 32, 64];

/// The paper's categories of benchmarks (§6).
pub(super) const NEGLIGIBLE: [&str; 12] = [
    "barnes",
    "ferret",
    "fft",
    "fmm",
    "freqmine",
    "lu_ncb",
    "raytrace",
    "radiosity",
    "s.raytrace",
    "swaptions",
    "water_nsquared",
    "water_spatial",
];
pub(super) const HIGH_GUEST: [&str; 6] =
    ["blackscholes", "canneal", "fluidanimate", "ocean_cp", "ocean_ncp", "radix"];
pub(super) const HIGH_HOST: [&str; 5] = ["bodytrack", "dedup", "facesim", "vips", "volrend"];
pub(super) const HIGH_OVERCOMMITTED: [&str; 5] = ["lu_cb", "streamcluster", "vips", "volrend", "x264"];

pub(super) fn benchmarks() -> BTreeSet<&'static str> {
    NEGLIGIBLE.into_iter().chain(HIGH_GUEST).chain(HIGH_HOST).chain(HIGH_OVERCOMMITTED).collect()
}

/// What is compared (§4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scenario {
    /// One VM with the benchmark alone.
    Undercommitted,
    /// Two VMs on the cores against one native instance.
    Overcommitted,
    /// Two VMs on the cores against two native instances.
    OvercommittedBase2,
}

impl Scenario {
    pub(super) const ALL: [Self; 3] = [Self::Undercommitted, Self::Overcommitted, Self::OvercommittedBase2];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Undercommitted => "UC",
            Self::Overcommitted => "OC",
            Self::OvercommittedBase2 => "OC2",
        }
    }
}

/// The overhead of virtualisation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Overhead {
    /// `δη_t` (§3.2): growth of the run time, given the share of the cores that the VM can use.
    pub(super) time: f64,
    /// `δη_r` (§3.1): growth of the cycles.
    pub(super) cycles: f64,
}

impl Overhead {
    /// ω (§5.2): how much of the cycle overhead shows in the run time.
    pub(super) fn impact(self) -> f64 {
        (1.0 + self.time) / (1.0 + self.cycles)
    }
}

pub(super) struct Study(BTreeMap<Setup, Option<Measured>>);

impl Study {
    /// Performs all runs that the paper's figures need.
    pub(super) fn new(progress: &mut dyn FnMut(&str)) -> Self {
        let mut setups = BTreeSet::new();
        for program in benchmarks() {
            for cpus in [1].into_iter().chain(SIZES) {
                for pair in [false, true] {
                    setups.extend([Setup::native(program, cpus, pair), Setup::vm(program, cpus, pair)]);
                }
            }
        }
        for program in HIGH_HOST {
            let sets = SIZES.into_iter().flat_map(|cpus| [false, true].map(|pair| (cpus, pair)));
            setups.extend(sets.map(|(cpus, pair)| without_halt_polling(program, cpus, pair)));
        }
        setups.extend([blocking_volrend(), patched("x264"), dedup_without_ple()]);
        setups.insert(Setup { old: true, ..Setup::native("dedup", 16, false) });
        let setups: Vec<Setup> = setups.into_iter().collect();
        progress(&format!("§4: {} simulations with up to 128 vCPUs", setups.len()));
        let measured = parallel::on_all_cores(&setups, Setup::run);
        Self(setups.into_iter().zip(measured).collect())
    }

    pub(super) fn get(&self, setup: Setup) -> Option<&Measured> {
        self.0.get(&setup)?.as_ref()
    }

    /// The scenario's run in VMs.
    pub(super) fn vm(&self, program: &'static str, cpus: u32, scenario: Scenario) -> Option<&Measured> {
        self.get(Setup::vm(program, cpus, scenario != Scenario::Undercommitted))
    }

    pub(super) fn overhead(&self, program: &'static str, cpus: u32, scenario: Scenario) -> Option<Overhead> {
        self.overhead_of(Setup::vm(program, cpus, scenario != Scenario::Undercommitted), scenario)
    }

    /// Overhead of `setup` over the same setup run natively.
    pub(super) fn overhead_of(&self, setup: Setup, scenario: Scenario) -> Option<Overhead> {
        let v = self.get(setup)?;
        let pair = scenario == Scenario::OvercommittedBase2;
        let p = self.get(Setup { old: setup.old, ..Setup::native(setup.program, setup.cpus, pair) })?;
        // γ_v / γ_p: each of two VMs has half of the cores.
        let share = if scenario == Scenario::Overcommitted { 0.5 } else { 1.0 };
        Some(Overhead { time: v.time * share / p.time - 1.0, cycles: v.cycles / p.cycles - 1.0 })
    }

    /// `δη_r` or another measure of one benchmark at every size.
    pub(super) fn over_sizes(
        &self,
        program: &'static str,
        scenario: Scenario,
        of: impl Fn(Overhead) -> f64,
    ) -> Vec<f64> {
        SIZES.iter().filter_map(|cpus| self.overhead(program, *cpus, scenario)).map(of).collect()
    }

    /// The measure of every benchmark at one size.
    pub(super) fn over_benchmarks(
        &self,
        cpus: u32,
        scenario: Scenario,
        of: impl Fn(Overhead) -> f64,
    ) -> Vec<f64> {
        benchmarks().into_iter().filter_map(|p| self.overhead(p, cpus, scenario)).map(of).collect()
    }
}

pub(super) fn without_halt_polling(program: &'static str, cpus: u32, pair: bool) -> Setup {
    Setup { halt_polling: false, ..Setup::vm(program, cpus, pair) }
}

pub(super) fn blocking_volrend() -> Setup {
    Setup { blocking: true, ..Setup::vm("volrend", 64, true) }
}

/// With shootdowns that leave out preempted vCPUs.
pub(super) fn patched(program: &'static str) -> Setup {
    Setup { pv_tlb: true, ..Setup::vm(program, 64, true) }
}

/// dedup "half a decade ago" (§6.2.3): on the ATC'14 paper's systems, without pause-loop exiting.
pub(super) fn dedup_without_ple() -> Setup {
    Setup { ple: false, halt_polling: false, old: true, ..Setup::vm("dedup", 16, true) }
}

pub(super) fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

pub(super) fn largest(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    values.into_iter().reduce(f64::max)
}

/// The `q`-quantile of `values`, linearly interpolated.
pub(super) fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().checked_sub(1)?) as f64 * q;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index into the values")]
    let below = at.floor() as usize;
    let next = sorted.get(below + 1).unwrap_or(&sorted[below]);
    Some(sorted[below] + (next - sorted[below]) * (at - at.floor()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_between_the_values() {
        assert_eq!(quantile(&[3.0, 1.0, 2.0], 0.5), Some(2.0));
        assert_eq!(quantile(&[1.0, 2.0], 0.25), Some(1.25));
        assert_eq!(quantile(&[5.0], 1.0), Some(5.0));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn the_benchmarks_are_the_papers_26_and_in_the_library() {
        assert_eq!(benchmarks().len(), 26);
        assert!(benchmarks().into_iter().all(|name| crate::library::by_name(name).is_some()));
    }
}
