//! `barrier`: phases of computation, as in PARSEC's streamcluster and the kernels of SPLASH-2x.
//!
//! Synchronisation: every thread computes for the granularity and waits for the others at a barrier, in one
//! of the ways of [`meeting`]. Self-check: in every phase, each thread adds its result and the phase's number
//! to a sum, which must have the expected value.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::amount::operations_per_clock;
use super::meeting::Meeting;
use super::spec::{Granularity, Spec, Threads, Variant};
use super::work::{check, mix, rounds, run_threads, uneven};
use super::{Amount, Kind, Outcome, Settings, WorkloadError};

pub(super) const SPEC: Spec = Spec {
    name: "barrier",
    about: "threads compute for 50 us and meet at a barrier; one operation is one phase",
    variants: &[variant(Kind::Block), variant(Kind::Spin), variant(Kind::SpinThenBlock)],
};

const fn variant(kind: Kind) -> Variant {
    Variant { kind: Some(kind), ..PHASES }
}

/// The parameters of every workload with phases.
pub(super) const PHASES: Variant = Variant {
    kind: None,
    threads: Threads::per_vcpu("threads that meet", 2),
    granularity: Some(Granularity::us("a thread's computation in a phase", 50)),
    imbalance: Some("from the first thread to the last"),
};

pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let meeting = Meeting::new(settings.kind, settings.threads);
    phases(SPEC.name, amount, settings, |_| meeting.wait())
}

/// Runs phases: each thread computes and calls `wait` with the number of the phase, which must return once
/// all threads have called it.
pub(super) fn phases(
    workload: &'static str,
    amount: Amount,
    settings: &Settings,
    wait: impl Fn(u64) + Sync,
) -> Result<Outcome, WorkloadError> {
    let expected = Expected::of(workload, settings);
    // Two alternating sums: while thread 0 checks one, the others can already add to the other.
    let sums = [AtomicU64::new(0), AtomicU64::new(0)];
    // Written only by thread 0, before the barrier of the phase that it names. So every thread that leaves
    // that barrier sees it, and one still leaving the previous barrier is not misled.
    let last_phase = AtomicU64::new(u64::MAX);
    let (phases, elapsed) = run_threads(workload, settings.threads, |index, start| {
        let meter = amount.whole().since(start, operations_per_clock(settings.granularity));
        let mut failed = None;
        let mut phase = 0_u64;
        loop {
            let sum = &sums[usize::from(phase % 2 == 1)];
            sum.fetch_add(contribution(index, settings).wrapping_add(phase), Ordering::Relaxed);
            if index == 0 && (failed.is_some() || !meter.more(phase + 1)) {
                last_phase.store(phase, Ordering::Relaxed);
            }
            wait(phase);
            if index == 0 {
                // No thread adds to this sum before thread 0 has passed the next barrier.
                failed = failed.or(expected.check(phase, sum.swap(0, Ordering::Relaxed)).err());
            }
            phase += 1;
            if last_phase.load(Ordering::Relaxed) < phase {
                return failed.map_or(Ok(phase), Err);
            }
        }
    })?;
    let operations = phases.first().copied().unwrap_or(0);
    Ok(Outcome { operations, elapsed, checks: operations })
}

/// The result of thread `index` in each phase.
fn contribution(index: usize, settings: &Settings) -> u64 {
    let time = uneven(settings.granularity, settings.imbalance, index, settings.threads);
    mix(black_box(index as u64), rounds(time))
}

/// The expected sums.
struct Expected {
    workload: &'static str,
    threads: u64,
    contributions: u64,
}

impl Expected {
    fn of(workload: &'static str, settings: &Settings) -> Self {
        let contributions = (0..settings.threads).map(|index| contribution(index, settings));
        let contributions = contributions.fold(0, u64::wrapping_add);
        Self { workload, threads: settings.threads as u64, contributions }
    }

    fn check(&self, phase: u64, sum: u64) -> Result<(), WorkloadError> {
        let expected = self.contributions.wrapping_add(phase.wrapping_mul(self.threads));
        check(self.workload, "sum of a phase", expected, sum)
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    fn settings() -> Settings {
        SPEC.settings(&"threads=2 granularity=20us".parse().unwrap()).unwrap()
    }

    #[test]
    fn notices_a_thread_that_did_not_take_part() {
        let settings = settings();
        let expected = Expected::of("w", &settings);
        let [first, second] = [0, 1].map(|index| contribution(index, &settings));
        let whole = first.wrapping_add(second).wrapping_add(2 * 7);
        assert!(expected.check(7, whole).is_ok());
        assert!(expected.check(8, whole).is_err());
        assert!(expected.check(7, first.wrapping_add(7)).is_err());
    }

    #[test]
    fn notices_a_barrier_that_does_not_wait() {
        let amount = Amount::Operations(NonZeroU64::new(100_000).unwrap());
        let error = phases("w", amount, &settings(), |_| {}).unwrap_err().to_string();
        assert!(error.contains("wrong sum of a phase"), "{error}");
    }
}
