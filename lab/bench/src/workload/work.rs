//! Shared by the workloads: a unit of computation, a common start for threads, and the comparison of results.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::WorkloadError;

/// Rounds of [`mix`] that take about one microsecond on a current server core.
const ROUNDS_PER_US: u32 = 600;

/// A chain of dependent arithmetic on `seed`: neither compiler nor core can shorten it, and the result proves
/// that every round was done. A round resembles the first step of `SplitMix64`'s finaliser.
pub(super) fn mix(seed: u64, rounds: u32) -> u64 {
    (0..rounds).fold(seed, |x, _| (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(1))
}

/// Number of rounds of [`mix`] that take about this time.
pub(super) fn rounds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos() * u128::from(ROUNDS_PER_US) / 1000).unwrap_or(u32::MAX)
}

/// Computation of piece `index` of `of` with this imbalance: from 1 − `imbalance` times the mean for the
/// first to 1 + `imbalance` times for the last, in equal steps, which preserves the mean.
pub(super) fn uneven(mean: Duration, imbalance: f64, index: usize, of: usize) -> Duration {
    let last = of.saturating_sub(1).max(1) as f64;
    let place = if of > 1 { 2.0 * index as f64 / last - 1.0 } else { 0.0 };
    mean.mul_f64((1.0 + imbalance * place).max(0.0))
}

/// Fails unless `found` is as expected.
pub(super) fn check<T: Copy + PartialEq + Display>(
    workload: &'static str,
    what: &'static str,
    expected: T,
    found: T,
) -> Result<(), WorkloadError> {
    if expected == found {
        return Ok(());
    }
    let (expected, found) = (expected.to_string(), found.to_string());
    Err(WorkloadError::Wrong { workload, what, expected, found })
}

/// Runs `body(0, start)` to `body(count - 1, start)` in separate threads, all of which start at `start`.
/// Returns their results in that order, and the time until the last one ended. If a thread cannot be started,
/// none runs: others might wait for it.
pub(super) fn run_threads<T: Send>(
    workload: &'static str,
    count: usize,
    body: impl Fn(usize, Instant) -> Result<T, WorkloadError> + Sync,
) -> Result<(Vec<T>, Duration), WorkloadError> {
    // Held until every thread exists; protects the start time.
    let gate = Mutex::new(None);
    thread::scope(|scope| {
        let mut open = gate.lock().unwrap_or_else(PoisonError::into_inner);
        let mut threads = Vec::with_capacity(count);
        for index in 0..count {
            let (gate, body) = (&gate, &body);
            let started =
                thread::Builder::new().name(format!("{workload}/{index}")).spawn_scoped(scope, move || {
                    let start: Option<Instant> = *gate.lock().unwrap_or_else(PoisonError::into_inner);
                    start.map(|start| body(index, start)).transpose()
                });
            match started {
                Ok(thread) => threads.push(thread),
                Err(source) => return Err(WorkloadError::Spawn { workload, index, source }),
            }
        }
        let start = Instant::now();
        *open = Some(start);
        drop(open);
        let ended: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
        let elapsed = start.elapsed();
        let mut results = Vec::with_capacity(count);
        for (index, result) in ended.into_iter().enumerate() {
            results.extend(result.map_err(|_| WorkloadError::Panicked { workload, index })??);
        }
        Ok((results, elapsed))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_round_changes_the_result() {
        assert_ne!(mix(7, 100), mix(7, 99));
        assert_eq!(mix(mix(7, 60), 40), mix(7, 100));
    }

    #[test]
    fn uneven_pieces_keep_their_mean() {
        let mean = Duration::from_micros(100);
        let pieces = |imbalance| [0, 1, 2].map(|i| uneven(mean, imbalance, i, 3).as_micros());
        assert_eq!(pieces(0.0), [100, 100, 100]);
        assert_eq!(pieces(0.25), [75, 100, 125]);
        assert_eq!(pieces(1.0), [0, 100, 200]);
        assert_eq!(uneven(mean, 1.0, 0, 1), mean);
        assert_eq!(rounds(mean), 60_000);
    }

    #[test]
    fn names_the_difference() {
        assert!(check("w", "sum", 3, 3).is_ok());
        let error = check("w", "sum", 3, 4).unwrap_err().to_string();
        assert_eq!(error, "workload w: wrong sum: expected 3, found 4");
    }

    #[test]
    fn results_come_in_order_and_failures_are_passed_on() {
        let (results, _) = run_threads("w", 3, |index, _| Ok(index * 2)).unwrap();
        assert_eq!(results, [0, 2, 4]);
        let error = run_threads("w", 3, |index, _| check("w", "index", 0, index)).unwrap_err();
        assert!(matches!(error, WorkloadError::Wrong { .. }), "{error}");
    }
}
