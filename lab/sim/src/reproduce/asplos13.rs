//! The ASPLOS'13 paper: eight cores, an 8-vCPU VM with a parallel program, neighbours, Linux 3.2.

mod alone;
mod barriers;
mod figures;
mod mixes;
mod sensitivity;
mod sequential;

use std::rc::Rc;

pub(super) use figures::figures;

use super::measure::{Measure, View, mean, seconds};
use super::runs::Run;
use crate::library::SUITES;
use crate::world::{Report, VcpuCounts};

/// Runs with other seeds of which a result is the mean: the paper's least (§4).
const RUNS: u32 = 3;

/// The programs that communicate little (§3.1.1).
const QUIET: [&str; 3] = ["blackscholes", "freqmine", "raytrace"];

/// Programs that the paper runs with pause-loop exits (Table 2).
const WITH_EXITS: [&str; 4] = ["streamcluster", "facesim", "ferret", "vips"];

fn parsec() -> impl Iterator<Item = &'static str> {
    SUITES.iter().filter(|p| p.suite == "parsec").map(|p| p.name)
}

fn communicating() -> impl Iterator<Item = &'static str> {
    parsec().filter(|p| !QUIET.contains(p))
}

/// A program and what is beside it.
#[derive(Debug, Clone)]
struct Mix {
    run: Run,
    /// Runs of which results are means.
    runs: u32,
}

impl Mix {
    /// The first VM's program in a scenario file.
    fn of(file: &'static str, program: &str) -> Self {
        Self { run: Run::of(file).with("vm.parallel.program.0.name", program), runs: RUNS }
    }

    fn alone(program: &str) -> Self {
        Self::of("asplos13-alone", program)
    }

    /// Beside another parallel VM, under the baseline.
    fn beside(program: &str, other: &str) -> Self {
        Self::of("asplos13-parallel", program).with("vm.other.program.0.name", other)
    }

    /// Beside four sequential VMs.
    fn sequential(program: &str, scheme: &str) -> Self {
        Self::of("asplos13-figure8", program).with("scheme", scheme)
    }

    /// Beside another parallel VM.
    fn parallel(program: &str, other: &str, scheme: &str) -> Self {
        Self::of("asplos13-figure9", program).with("vm.other.program.0.name", other).with("scheme", scheme)
    }

    /// Beside four sequential VMs, with exits for pause loops.
    fn with_exits(program: &str, scheme: &str) -> Self {
        Self::of("asplos13-figure11", program).with("scheme", scheme)
    }

    /// Beside four sequential VMs, in a guest that delays its interrupts.
    fn delayed(program: &str, scheme: &str) -> Self {
        let mix = Self::of("asplos13-figure12", program).with("scheme", scheme);
        mix.with("vm.parallel.wake_queue", "true")
    }

    /// The same with another value of an axis.
    fn with(self, axis: &'static str, value: &str) -> Self {
        Self { run: self.run.with(axis, value), ..self }
    }

    /// Mean over the seeds of a quantity of a run.
    fn mean(&self, view: &View<'_>, of: impl Fn(&Report) -> Option<f64>) -> Option<f64> {
        let report = |seed: u32| -> Option<Rc<Report>> {
            view.report(self.run.clone().with("seed", seed.to_string()))
        };
        mean((1..=self.runs).map(|seed| of(&*report(seed)?)))
    }

    /// Mean of a counter of the first VM.
    fn count(&self, view: &View<'_>, of: fn(&VcpuCounts) -> u64) -> Option<f64> {
        self.mean(view, |r| Some(r.vms[0].count(of) as f64))
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
        .or_else(|| sensitivity::measure(id))
        .or_else(|| mixes::measure(id))
        .or_else(|| barriers::measure(id))
}
