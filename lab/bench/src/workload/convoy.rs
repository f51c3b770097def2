//! `convoy`: threads queue for one lock, as in `sysbench threads`.
//!
//! Synchronisation: one `pthread` mutex. Its holder yields inside the critical section, so the others fall
//! asleep on the lock, and it locks again right after unlocking. This is the counter-example: the faster a
//! waiter wakes up, the sooner it contends for the lock again, and the fewer sections get done. Self-check: a
//! counter protected only by the mutex must equal the number of critical sections.

use std::thread;

use super::mutex::PthreadMutex;
use super::spec::{Spec, Threads, Variant};
use super::work::{check, run_threads};
use super::{Amount, Outcome, Settings, WorkloadError};

pub(super) const SPEC: Spec = Spec {
    name: "convoy",
    about: "threads take one pthread mutex, yield inside and lock again at once, as sysbench threads do; \
            one operation is one critical section",
    variants: &[Variant {
        kind: None,
        threads: Threads::fixed("threads on the lock", 2, 1),
        granularity: None,
        imbalance: None,
    }],
};

/// The clock is read once per this many critical sections.
const SECTIONS_PER_CLOCK: u64 = 16;

pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let counter = PthreadMutex::new(0_u64);
    let (sections, elapsed) = run_threads(SPEC.name, settings.threads, |index, start| {
        let meter = amount.share(index, settings.threads).since(start, SECTIONS_PER_CLOCK);
        let mut sections = 0_u64;
        while meter.more(sections) {
            counter.section(|counter| {
                // Read and written on either side of the yield: two holders at once would lose counts.
                let before = *counter;
                thread::yield_now();
                *counter = before + 1;
            });
            sections += 1;
        }
        Ok(sections)
    })?;
    let operations = sections.iter().sum();
    check_counter(operations, counter.section(|counter| *counter))?;
    Ok(Outcome { operations, elapsed, checks: 1 })
}

fn check_counter(sections: u64, counter: u64) -> Result<(), WorkloadError> {
    check(SPEC.name, "count of critical sections", sections, counter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_a_lost_count() {
        assert!(check_counter(5, 5).is_ok());
        assert!(check_counter(5, 4).is_err());
    }
}
