//! Holds what the parts of each vCPU's time add up to against the wall time between readings. No I/O.

use std::collections::BTreeMap;

/// A thread that is a vCPU: process, thread, and its first event, since numbers are used again.
pub(super) type Identity = (u32, u32, u64);

/// A vCPU in a reading.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Seen {
    pub(super) identity: Identity,
    /// Whether its thread has ended.
    pub(super) ended: bool,
    /// The sum of all parts of its time, in ns.
    pub(super) total_ns: u64,
}

/// When a reading began and ended, in ns: each vCPU was read some time in between.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Taken {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
}

#[derive(Debug)]
struct Followed {
    first: Taken,
    first_total_ns: u64,
    /// The latest reading in which it had not ended.
    alive: Taken,
    ended: bool,
}

/// The vCPUs so far.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    vcpus: BTreeMap<Identity, Followed>,
    /// How often a sum was held against the wall time.
    pub(super) compared: usize,
    /// The largest share of the wall time by which a sum was too large or too small.
    pub(super) worst: f64,
    /// The longest reading, in ns.
    pub(super) longest_ns: u64,
}

impl Ledger {
    /// Adds a reading.
    pub(super) fn add(&mut self, taken: Taken, vcpus: impl IntoIterator<Item = Seen>) {
        self.longest_ns = self.longest_ns.max(taken.until_ns.saturating_sub(taken.from_ns));
        for seen in vcpus {
            let Some(followed) = self.vcpus.get_mut(&seen.identity) else {
                let (first_total_ns, ended) = (seen.total_ns, seen.ended);
                let followed = Followed { first: taken, first_total_ns, alive: taken, ended };
                self.vcpus.insert(seen.identity, followed);
                continue;
            };
            self.worst = self.worst.max(followed.deviation(taken, &seen));
            self.compared += 1;
            followed.ended |= seen.ended;
            if !followed.ended {
                followed.alive = taken;
            }
        }
    }

    /// vCPUs that have ended.
    pub(super) fn ended(&self) -> usize {
        self.vcpus.values().filter(|vcpu| vcpu.ended).count()
    }

    /// vCPUs that have not ended as far as was seen.
    pub(super) fn alive(&self) -> usize {
        self.vcpus.len() - self.ended()
    }
}

impl Followed {
    /// By how much what was added up since the first reading is outside of the wall time since then, as a share of that.
    fn deviation(&self, taken: Taken, seen: &Seen) -> f64 {
        // It ended after it was seen alive.
        let least_until = if seen.ended { self.alive.from_ns } else { taken.from_ns };
        let least = least_until as f64 - self.first.until_ns as f64;
        let most = taken.until_ns as f64 - self.first.from_ns as f64;
        let grown = seen.total_ns as f64 - self.first_total_ns as f64;
        // What has become less was nothing but lost, even if no time has to have passed.
        let outside = (least.max(0.0) - grown).max(grown - most).max(0.0);
        outside / most
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Identity = (10, 11, 5);

    fn taken(from_ns: u64) -> Taken {
        Taken { from_ns, until_ns: from_ns + 10 }
    }

    fn seen(total_ns: u64, ended: bool) -> [Seen; 1] {
        [Seen { identity: ONE, ended, total_ns }]
    }

    /// Of a vCPU that is seen after 1000 ns with 300, and then with this after 2000.
    fn worst(total_ns: u64, ended: bool) -> f64 {
        let mut ledger = Ledger::default();
        ledger.add(taken(1000), seen(300, false));
        ledger.add(taken(2000), seen(total_ns, ended));
        assert_eq!((ledger.compared, ledger.longest_ns), (1, 10));
        ledger.worst
    }

    #[test]
    fn a_sum_may_grow_by_the_time_between_the_readings() {
        for grown in [990, 1000, 1010] {
            assert!(worst(300 + grown, false) <= 0.0, "{grown}");
        }
        assert!((worst(300 + 1030, false) - 20.0 / 1010.0).abs() < 1e-9);
        assert!((worst(300 + 970, false) - 20.0 / 1010.0).abs() < 1e-9);
        assert!(worst(0, false) > 1.0, "less than before");
    }

    #[test]
    fn one_that_ended_may_have_done_so_at_once_but_not_later() {
        for grown in [0, 500, 1010] {
            assert!(worst(300 + grown, true) <= 0.0, "{grown}");
        }
        assert!(worst(300 + 1030, true) > 0.01);
        assert!(worst(200, true) > 0.01, "less than before");
    }

    #[test]
    fn sums_are_held_against_all_of_the_time_since_the_first_reading() {
        let mut ledger = Ledger::default();
        ledger.add(taken(1000), seen(0, false));
        // 10 ns are missing each time: more than the readings leave room for from the third one on.
        for reading in 1..=4 {
            ledger.add(taken(1000 + 1000 * reading), seen(990 * reading, false));
        }
        assert!((ledger.worst - 30.0 / 4010.0).abs() < 1e-9, "{}", ledger.worst);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_vcpu() {
        let mut ledger = Ledger::default();
        ledger.add(taken(1000), seen(700, false));
        ledger.add(taken(2000), seen(1000, true));
        let again = Seen { identity: (10, 11, 1500), ended: false, total_ns: 500 };
        ledger.add(taken(2000), [again]);
        assert_eq!((ledger.ended(), ledger.alive()), (1, 1));
        assert!(ledger.worst <= 0.0, "{}", ledger.worst);
    }
}
