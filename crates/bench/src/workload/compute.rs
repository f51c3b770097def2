//! `compute`: plain computation on every vCPU.
//!
//! Synchronisation: none; what Gleaner does must not slow it down. Self-check: every sieve must find the
//! 9592 primes below 100000.

use std::hint::black_box;
use std::time::{Duration, Instant};

use super::work::{check, run_threads};
use super::{Outcome, WorkloadError};

pub(super) const NAME: &str = "compute";

const LIMIT: usize = 100_000;
const PRIMES_BELOW_LIMIT: usize = 9_592;

pub(super) fn run(duration: Duration, threads: usize) -> Result<Outcome, WorkloadError> {
    let (sieves, elapsed) = run_threads(NAME, threads, |_| {
        let start = Instant::now();
        let mut composite = vec![false; LIMIT];
        let mut sieves = 0_u64;
        // One sieve takes some 100 us, so the clock costs nothing in comparison.
        while start.elapsed() < duration {
            check_count(count_primes(black_box(&mut composite)))?;
            sieves += 1;
        }
        Ok(sieves)
    })?;
    let operations = sieves.iter().sum();
    Ok(Outcome { operations, elapsed, checks: operations })
}

fn check_count(found: usize) -> Result<(), WorkloadError> {
    check(NAME, "number of primes", PRIMES_BELOW_LIMIT, found)
}

/// The primes below `composite.len()`, by the sieve of Eratosthenes in `composite`.
fn count_primes(composite: &mut [bool]) -> usize {
    composite.fill(false);
    let mut primes = 0;
    for n in 2..composite.len() {
        if !composite[n] {
            primes += 1;
            for multiple in (n * n..composite.len()).step_by(n) {
                composite[multiple] = true;
            }
        }
    }
    primes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_primes() {
        assert_eq!(count_primes(&mut [true; 30]), 10);
        check_count(count_primes(&mut vec![false; LIMIT])).unwrap();
    }

    #[test]
    fn notices_a_wrong_count() {
        assert!(check_count(PRIMES_BELOW_LIMIT - 1).is_err());
    }
}
