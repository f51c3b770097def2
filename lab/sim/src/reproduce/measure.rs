//! What measures are made of: a view of the runs, and quantities of one run.

use std::rc::Rc;

use super::Found;
use super::off::Off;
use super::runs::{Run, Runs, Variant};
use crate::ids::Ns;
use crate::world::{Category, Report, VcpuCounts, VmReport};

/// How a row's quantity follows from the runs; `None` if one of them did not end, or is not there yet.
pub(super) type Measure = Box<dyn Fn(&View<'_>) -> Option<Found>>;

/// A number.
pub(super) fn number(of: impl Fn(&View<'_>) -> Option<f64> + 'static) -> Measure {
    Box::new(move |view| of(view).filter(|n| n.is_finite()).map(Found::Number))
}

/// A direction.
pub(super) fn holds(of: impl Fn(&View<'_>) -> Option<bool> + 'static) -> Measure {
    Box::new(move |view| of(view).map(Found::Holds))
}

/// What "much", "significantly", "far" mean here: a factor of at least this, as a number may deviate by a quarter.
pub(super) const MUCH: f64 = 1.25;
/// What "about the same" means: a ratio or a difference within this.
pub(super) const ABOUT: f64 = 0.1;

/// Whether two values are about equal.
pub(super) fn about(a: f64, b: f64) -> bool {
    (a / b - 1.0).abs() <= ABOUT
}

/// Which of Gleaner's strategies runs where the paper has Gleaner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// The paper's rules.
    Paper,
    /// The product's.
    Adaptive,
}

/// The runs as a measure sees them.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) runs: &'a Runs,
    /// The mechanism that is switched off.
    pub(super) off: Option<Off>,
    pub(super) strategy: Strategy,
    /// Grains of programs that replace the library's.
    pub(super) grains: Option<&'static [(&'static str, Ns)]>,
}

impl<'a> View<'a> {
    /// The model as it is, with the paper's strategy.
    pub(super) const fn new(runs: &'a Runs) -> Self {
        Self { runs, off: None, strategy: Strategy::Paper, grains: None }
    }

    /// The outcome of a run.
    pub(super) fn report(&self, run: Run) -> Option<Rc<Report>> {
        self.runs.report(Variant { run, off: self.off, grains: self.grains })
    }

    /// The value of the axis `system` that stands for a VM with Gleaner.
    pub(super) const fn gleaner(&self) -> &'static str {
        match self.strategy {
            Strategy::Paper => "paper",
            Strategy::Adaptive => "gleaner",
        }
    }
}

/// When the first VM's programs had ended, in seconds.
pub(super) fn seconds(report: &Report) -> Option<f64> {
    Some(report.vms.first()?.finished()? as f64 / 1e9)
}

/// Simulated time, in seconds.
pub(super) fn elapsed(report: &Report) -> f64 {
    report.elapsed as f64 / 1e9
}

/// Operations per second of a VM's programs, over the whole simulation.
pub(super) fn rate(report: &Report, vm: usize) -> Option<f64> {
    let operations: u64 = report.vms.get(vm)?.tasks.iter().map(|t| t.totals.operations).sum();
    Some(operations as f64 / elapsed(report))
}

/// Events per second and vCPU of the first VM.
pub(super) fn per_vcpu_second(report: &Report, of: fn(&VcpuCounts) -> u64) -> f64 {
    let vm = &report.vms[0];
    vm.count(of) as f64 / (elapsed(report) * vm.vcpus.len() as f64)
}

/// A VM's time in `categories`, as a share of its time on pCPUs.
pub(super) fn share(vm: &VmReport, categories: &[Category]) -> f64 {
    let off = [Category::Halted, Category::HostPoll, Category::Steal, Category::Waking];
    let all: Ns = vm.vcpus.iter().map(|v| v.time.iter().sum::<Ns>()).sum();
    let off: Ns = off.iter().map(|c| vm.time(*c)).sum();
    categories.iter().map(|c| vm.time(*c)).sum::<Ns>() as f64 / (all - off).max(1) as f64
}

/// The mean; `None` if a value is missing or there are none. All values are asked for, so that all runs that they need
/// are known at once.
pub(super) fn mean(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let values = all(values)?;
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// All values, if none is missing.
pub(super) fn all<T>(values: impl IntoIterator<Item = Option<T>>) -> Option<Vec<T>> {
    let values: Vec<Option<T>> = values.into_iter().collect();
    values.into_iter().collect()
}

/// Whether something holds for all; `None` if that is not known of one.
pub(super) fn every(values: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    Some(all(values)?.into_iter().all(|holds| holds))
}

/// Whether something holds for one at least; `None` if that is not known of one.
pub(super) fn some(values: impl IntoIterator<Item = Option<bool>>) -> Option<bool> {
    Some(all(values)?.into_iter().any(|holds| holds))
}

/// The middle one of an odd number of values.
pub(super) fn median(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    quantile(&all(values)?, 0.5)
}

pub(super) fn largest(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    all(values)?.into_iter().reduce(f64::max)
}

pub(super) fn smallest(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    all(values)?.into_iter().reduce(f64::min)
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

/// Standard deviation of the values.
pub(super) fn deviation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt()
}

/// Pearson's correlation; `None` if one side does not vary.
pub(super) fn correlation(pairs: &[(f64, f64)]) -> Option<f64> {
    gleaner_proto::result::correlation(pairs).map(|c| c.r)
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
    fn what_is_missing_makes_the_whole_unknown_and_still_asks_for_the_rest() {
        let asked = std::cell::Cell::new(0);
        let of = |value: Option<f64>| {
            asked.set(asked.get() + 1);
            value
        };
        assert_eq!(mean([Some(1.0), None, Some(3.0)].into_iter().map(of)), None);
        assert_eq!(asked.get(), 3);
        assert_eq!(mean([Some(1.0), Some(3.0)]), Some(2.0));
        assert_eq!(
            (every([Some(true), Some(false)]), some([Some(true), Some(false)])),
            (Some(false), Some(true))
        );
        assert_eq!(
            (largest([Some(1.0), Some(2.0)]), smallest([Some(1.0), Some(2.0)])),
            (Some(2.0), Some(1.0))
        );
    }
}
