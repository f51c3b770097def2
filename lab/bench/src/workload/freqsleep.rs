//! `freqsleep`: threads that sleep as briefly as possible, all the time; the paper's co-runner with frequent
//! vCPU switches (§3.2: a thread on each core that repeatedly calls `nanosleep(1)`).
//!
//! Synchronisation: none between threads; each waits for a timer. A sleep of 1 ns lasts as long as the timer
//! slack, 50 us by default. Self-check: every computation must yield the precomputed value, and the monotonic
//! clock must have advanced by at least the time slept.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use super::spec::{Granularity, Spec, Threads, Variant};
use super::work::{check, mix, rounds, run_threads};
use super::{Amount, Outcome, Settings, WorkloadError};

pub(super) const SPEC: Spec = Spec {
    name: "freqsleep",
    about: "every thread computes for 1 us and sleeps for 1 ns, again and again; one operation is one sleep",
    variants: &[Variant {
        kind: None,
        threads: Threads::per_vcpu("threads", 1),
        granularity: Some(Granularity::us("a thread's computation between two sleeps", 1)),
        imbalance: None,
    }],
};

const SLEEP: Duration = Duration::from_nanos(1);

/// Number of different inputs of the computation.
const SEEDS: u8 = 8;

pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let rounds = rounds(settings.granularity);
    let expected: Vec<u64> = (0..SEEDS).map(|seed| mix(seed.into(), rounds)).collect();
    let (sleeps, elapsed) = run_threads(SPEC.name, settings.threads, |index, start| {
        let meter = amount.share(index, settings.threads).since(start, 1);
        let mut sleeps = 0;
        for (seed, expected) in (0..).zip(&expected).cycle() {
            if !meter.more(sleeps) {
                break;
            }
            check_value(*expected, mix(black_box(seed), rounds))?;
            let asleep = Instant::now();
            thread::sleep(SLEEP);
            check_sleep(asleep.elapsed())?;
            sleeps += 1;
        }
        Ok(sleeps)
    })?;
    let operations = sleeps.iter().sum();
    Ok(Outcome { operations, elapsed, checks: operations })
}

fn check_value(expected: u64, found: u64) -> Result<(), WorkloadError> {
    check(SPEC.name, "value of a computation", expected, found)
}

fn check_sleep(slept: Duration) -> Result<(), WorkloadError> {
    check(SPEC.name, "sleep of at least 1 ns", true, slept >= SLEEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_a_wrong_value_and_a_sleep_that_was_none() {
        assert!(check_value(mix(3, 600), mix(3, 600)).is_ok());
        assert!(check_value(mix(3, 600), mix(3, 599)).is_err());
        assert!(check_sleep(SLEEP).is_ok());
        assert!(check_sleep(Duration::ZERO).is_err());
    }
}
