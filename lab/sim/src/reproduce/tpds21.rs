//! The TPDS'21 paper: 26 benchmarks on 4 to 64 vCPUs, natively and in VMs, alone and beside a second VM with the same;
//! pinned vCPUs, Linux 4.15. Overheads are in per cent where the rows state numbers, and shares in the code.

mod categories;
mod figures;
mod host;
mod measured;
mod overcommitted;
mod overview;

pub(super) use figures::figures;

use super::measure::{Measure, View, all, mean};
use super::off::Off;
use super::runs::Run;
use crate::cost::Costs;
use measured::Measured;

/// vCPU counts (§4.1).
const SIZES: [u32; 5] = [4, 8, 16, 32, 64];

/// The paper's categories of benchmarks (§6).
const NEGLIGIBLE: [&str; 12] = [
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
const HIGH_GUEST: [&str; 6] = ["blackscholes", "canneal", "fluidanimate", "ocean_cp", "ocean_ncp", "radix"];
const HIGH_HOST: [&str; 5] = ["bodytrack", "dedup", "facesim", "vips", "volrend"];
const HIGH_OVERCOMMITTED: [&str; 5] = ["lu_cb", "streamcluster", "vips", "volrend", "x264"];

/// Overheads up to this are called negligible here, and those above it high; the paper only gives a variance of 5 %
/// between runs (§8).
const NEGLIGIBLE_OVERHEAD: f64 = 0.1;

/// All benchmarks, each once.
fn benchmarks() -> Vec<&'static str> {
    let mut all = [&NEGLIGIBLE[..], &HIGH_GUEST, &HIGH_HOST, &HIGH_OVERCOMMITTED].concat();
    all.sort_unstable();
    all.dedup();
    all
}

/// What is compared (§4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scenario {
    /// One VM with the benchmark alone.
    Undercommitted,
    /// Two VMs on the cores against one native instance.
    Overcommitted,
    /// Two VMs on the cores against two native instances.
    OvercommittedBase2,
}

use Scenario::{Overcommitted, OvercommittedBase2, Undercommitted};

impl Scenario {
    const ALL: [Self; 3] = [Undercommitted, Overcommitted, OvercommittedBase2];

    const fn name(self) -> &'static str {
        match self {
            Undercommitted => "UC",
            Overcommitted => "OC",
            OvercommittedBase2 => "OC2",
        }
    }

    /// Number of VMs.
    const fn vms(self) -> u32 {
        match self {
            Undercommitted => 1,
            Overcommitted | OvercommittedBase2 => 2,
        }
    }
}

/// Which systems run (the axis `systems` of the files).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Systems {
    Study,
    NoHaltPolling,
    NoPauseLoops,
    NoPvLocks,
    Newer,
    BlockingVolrend,
    Old,
}

impl Systems {
    const fn name(self) -> &'static str {
        match self {
            Self::Study => "2018",
            Self::NoHaltPolling => "2018, no halt polling",
            Self::NoPauseLoops => "2018, no pause-loop exits",
            Self::NoPvLocks => "2018, no paravirtual locks",
            Self::Newer => "newer",
            Self::BlockingVolrend => "2018, volrend that blocks",
            Self::Old => "2013",
        }
    }

    /// The native systems that they are compared with.
    const fn native(self) -> &'static str {
        match self {
            Self::Old => "2013",
            _ => "2018",
        }
    }
}

/// The overhead of virtualisation, as shares.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Overhead {
    /// `δη_t` (§3.2): growth of the run time, given the share of the cores that the VM can use.
    time: f64,
    /// `δη_r` (§3.1): growth of the cycles.
    cycles: f64,
}

impl Overhead {
    /// ω (§5.2): how much of the cycle overhead shows in the run time.
    fn impact(self) -> f64 {
        (1.0 + self.time) / (1.0 + self.cycles)
    }
}

/// The study's runs as a measure sees them.
#[derive(Clone, Copy)]
struct Study<'a>(&'a View<'a>);

impl Study<'_> {
    fn measured(self, run: Run, costs: Costs) -> Option<Measured> {
        Measured::of(&*self.0.report(run)?, costs)
    }

    fn native(self, program: &str, cpus: u32, instances: u32) -> Option<Measured> {
        self.native_on(program, cpus, instances, "2018")
    }

    fn native_on(self, program: &str, cpus: u32, instances: u32, systems: &str) -> Option<Measured> {
        let file = if instances == 2 { "tpds21-native-twice" } else { "tpds21-native" };
        let run = Run::of(file).with("vm.a.program.*.name", program);
        self.measured(run.with("size", cpus.to_string()).with("systems", systems), Costs::ATC14_NATIVE)
    }

    /// In VMs of the study's systems.
    fn vm(self, program: &str, cpus: u32, scenario: Scenario) -> Option<Measured> {
        self.vm_on(program, cpus, scenario, Systems::Study)
    }

    fn vm_on(self, program: &str, cpus: u32, scenario: Scenario, systems: Systems) -> Option<Measured> {
        let run = Run::of("tpds21-vms")
            .with("vm.a.program.*.name", program)
            .with("vm.a.count", scenario.vms().to_string());
        let costs = if self.0.off == Some(Off::Hypervisor) { Costs::ATC14_NATIVE } else { Costs::TPDS21_VM };
        self.measured(run.with("size", cpus.to_string()).with("systems", systems.name()), costs)
    }

    fn overhead(self, program: &str, cpus: u32, scenario: Scenario) -> Option<Overhead> {
        self.overhead_on(program, cpus, scenario, Systems::Study)
    }

    fn overhead_on(self, program: &str, cpus: u32, scenario: Scenario, systems: Systems) -> Option<Overhead> {
        let instances = if scenario == OvercommittedBase2 { 2 } else { 1 };
        let vm = self.vm_on(program, cpus, scenario, systems);
        let native = self.native_on(program, cpus, instances, systems.native());
        let (vm, native) = (vm?, native?);
        // γ_v / γ_p: each of two VMs has half of the cores; without the other one it has all.
        let shares = scenario == Overcommitted && self.0.off != Some(Off::Neighbours);
        let share = if shares { 0.5 } else { 1.0 };
        Some(Overhead { time: vm.time * share / native.time - 1.0, cycles: vm.cycles / native.cycles - 1.0 })
    }

    /// `δη_r` or another measure of one benchmark, as the mean over the sizes.
    fn over_sizes(self, program: &str, scenario: Scenario, of: impl Fn(Overhead) -> f64) -> Option<f64> {
        mean(SIZES.map(|cpus| self.overhead(program, cpus, scenario).map(&of)))
    }

    fn cycles(self, program: &str, scenario: Scenario) -> Option<f64> {
        self.over_sizes(program, scenario, |o| o.cycles)
    }

    /// The measure of every benchmark at one size.
    fn over_benchmarks(
        self,
        cpus: u32,
        scenario: Scenario,
        of: impl Fn(Overhead) -> f64,
    ) -> Option<Vec<f64>> {
        all(benchmarks().into_iter().map(|p| self.overhead(p, cpus, scenario).map(&of)))
    }

    /// The mean of the benchmarks with high host overhead at one size.
    fn high_host(self, cpus: u32, scenario: Scenario, of: impl Fn(Overhead) -> f64) -> Option<f64> {
        mean(HIGH_HOST.map(|p| self.overhead(p, cpus, scenario).map(&of)))
    }

    /// What halt polling takes off `δη_t` and adds to `δη_r`.
    fn polling_gain(self, program: &str, cpus: u32, scenario: Scenario) -> Option<Overhead> {
        let with = self.overhead(program, cpus, scenario);
        let without = self.overhead_on(program, cpus, scenario, Systems::NoHaltPolling);
        let (with, without) = (with?, without?);
        Some(Overhead { time: without.time - with.time, cycles: with.cycles - without.cycles })
    }
}

/// How the row called `id` is measured.
pub(super) fn measure(id: &str) -> Option<Measure> {
    overview::measure(id)
        .or_else(|| categories::measure(id))
        .or_else(|| host::measure(id))
        .or_else(|| overcommitted::measure(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_benchmarks_are_the_papers_26_and_in_the_library() {
        assert_eq!(benchmarks().len(), 26);
        assert!(benchmarks().into_iter().all(|name| crate::library::by_name(name).is_some()));
    }
}
