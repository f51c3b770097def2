//! The ASPLOS'13 paper: eight cores, an 8-vCPU VM with a parallel program, neighbours, Linux 3.2.

mod alone;
mod figures;
mod parallel_vms;
mod sequential;

use std::rc::Rc;

pub(super) use figures::figures;

use super::measure::{Measure, View, mean, seconds};
use super::runs::Run;
use crate::library::SUITES;
use crate::world::Report;

/// Seeds over which results are averaged; the paper has three runs at least (§4).
const SEEDS: [u32; 3] = [1, 2, 3];

/// The programs that communicate little (§3.1.1).
const QUIET: [&str; 3] = ["blackscholes", "freqmine", "raytrace"];

fn parsec() -> impl Iterator<Item = &'static str> {
    SUITES.iter().filter(|p| p.suite == "parsec").map(|p| p.name)
}

fn communicating() -> impl Iterator<Item = &'static str> {
    parsec().filter(|p| !QUIET.contains(p))
}

/// A program and what is beside it.
#[derive(Debug, Clone)]
struct Mix(Run);

impl Mix {
    fn alone(program: &str) -> Self {
        Self(Run::of("asplos13-alone").with("vm.parallel.program.0.name", program))
    }

    /// Beside four sequential VMs.
    fn sequential(program: &str, scheme: &str) -> Self {
        Self(
            Run::of("asplos13-sequential").with("vm.parallel.program.0.name", program).with("scheme", scheme),
        )
    }

    /// The same with exits for pause loops.
    fn with_exits(program: &str, scheme: &str) -> Self {
        Self(Self::sequential(program, scheme).0.with("host.directed_yield", "round-robin"))
    }

    /// Beside four sequential VMs, in a guest that delays its interrupts.
    fn delayed(program: &str, scheme: &str) -> Self {
        Self(Self::sequential(program, scheme).0.with("vm.parallel.wake_queue", "true"))
    }

    /// Beside another parallel VM.
    fn parallel(program: &str, other: &str, scheme: &str) -> Self {
        let run = Run::of("asplos13-parallel").with("vm.parallel.program.0.name", program);
        Self(run.with("vm.other.program.0.name", other).with("scheme", scheme))
    }

    /// The same with another value of an axis.
    fn with(self, axis: &'static str, value: &str) -> Self {
        Self(self.0.with(axis, value))
    }

    /// Mean over the seeds of a quantity of a run.
    fn mean(&self, view: &View<'_>, of: impl Fn(&Report) -> Option<f64>) -> Option<f64> {
        let report =
            |seed: u32| -> Option<Rc<Report>> { view.report(self.0.clone().with("seed", seed.to_string())) };
        mean(SEEDS.map(|seed| of(&*report(seed)?)))
    }

    /// Mean run time in seconds.
    fn time(&self, view: &View<'_>) -> Option<f64> {
        self.mean(view, seconds)
    }
}

/// Gain in speed from `before` to `after`, in per cent.
fn gain(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    Some(100.0 * (before? / after? - 1.0))
}

/// How much less `after` is than `before`, in per cent; `None` if there was nothing before.
fn reduction(before: Option<f64>, after: Option<f64>) -> Option<f64> {
    let (before, after) = (before?, after?);
    (before > 0.0).then(|| 100.0 * (1.0 - after / before))
}

/// How the row called `id` is measured.
pub(super) fn measure(id: &str) -> Option<Measure> {
    alone::measure(id)
        .or_else(|| alone::table_1(id))
        .or_else(|| sequential::measure(id))
        .or_else(|| parallel_vms::measure(id))
}
