//! `compute`: plain computation on every vCPU.
//!
//! Synchronisation: none, so Gleaner must not slow it down. Self-check: every sieve must find the 9592 primes
//! below 100000.

use std::hint::black_box;

use super::spec::{Spec, Threads, Variant};
use super::work::{check, run_threads};
use super::{Amount, Outcome, Settings, WorkloadError};

pub(super) const SPEC: Spec = Spec {
    name: "compute",
    about: "every thread counts the primes below 100000 on its own; one operation is one sieve",
    variants: &[Variant {
        kind: None,
        threads: Threads::per_vcpu("threads", 1),
        granularity: None,
        imbalance: None,
    }],
};

const LIMIT: usize = 100_000;
const PRIMES_BELOW_LIMIT: usize = 9_592;

pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let (sieves, elapsed) = run_threads(SPEC.name, settings.threads, |index, start| {
        let mut composite = vec![false; LIMIT];
        let mut sieves = 0_u64;
        // One sieve takes some 100 us, so reading the clock costs nothing in comparison.
        let meter = amount.share(index, settings.threads).since(start, 1);
        while meter.more(sieves) {
            check_count(count_primes(black_box(&mut composite)))?;
            sieves += 1;
        }
        Ok(sieves)
    })?;
    let operations = sieves.iter().sum();
    Ok(Outcome { operations, elapsed, checks: operations })
}

fn check_count(found: usize) -> Result<(), WorkloadError> {
    check(SPEC.name, "number of primes", PRIMES_BELOW_LIMIT, found)
}

/// Counts the primes below `composite.len()` with the sieve of Eratosthenes in `composite`.
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
