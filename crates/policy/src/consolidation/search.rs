//! Searches for the smallest set that fine-grained work needs, among any number of vCPUs.
//!
//! §5 removes one vCPU at a time. With many vCPUs that is slow, and it might never start: threads that wake
//! each other gain nothing until they share one vCPU, and then everything. So the first step goes to the fewest
//! vCPUs that the load fits on. If those are too few, the search goes half the way back, and so on: a set that
//! did harm was too small, one that changed nothing too large. Near its end it takes single steps, as §5 does;
//! from two vCPUs its only step is §5's.

/// What the guard found on a smaller set that was not proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Less progress, or none that could be compared: the set was too small.
    Harm,
    /// About as much progress: the set was too large to make a difference.
    NoGain,
}

/// The sizes still worth a trial: those between two bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Search {
    /// Sets of at most this size did harm; 0 if none is known.
    harmful: usize,
    /// Sets of at least this size gain nothing over the present one.
    useless: usize,
}

impl Search {
    pub(super) fn new() -> Self {
        Self { harmful: 0, useless: usize::MAX }
    }

    /// The next size to try with `active` vCPUs, for a load that fits on `least`; `None` if no size is left.
    pub(super) fn next(&self, active: usize, least: usize) -> Option<usize> {
        let below = self.useless.min(active);
        let lowest = least.max(self.harmful + 1);
        if lowest >= below {
            return None;
        }
        Some(if self.is_untried() { lowest } else { lowest.max(self.harmful.midpoint(below)) })
    }

    /// The bounds between which the search continues on `active` vCPUs, both exclusive.
    pub(super) fn bounds(&self, active: usize) -> (usize, usize) {
        (self.harmful, self.useless.min(active))
    }

    fn is_untried(&self) -> bool {
        *self == Self::new()
    }

    /// A set of `size` vCPUs was not proven. If even the smallest gained nothing, larger ones still can:
    /// slightly less waiting and slightly less parallelism can cancel out.
    pub(super) fn refuted(&mut self, size: usize, finding: Finding) {
        match finding {
            Finding::NoGain if self.is_untried() => self.harmful = size,
            Finding::Harm => self.harmful = self.harmful.max(size),
            Finding::NoGain => self.useless = self.useless.min(size),
        }
    }

    /// A set was proven. Compared with it, no size is known to be useless; what did harm still would.
    pub(super) fn proven(&mut self) {
        self.useless = usize::MAX;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Searches from `all` vCPUs, for a load that fits on `least` and makes `progress(n)` on n vCPUs; returns
    /// the sizes in the order of their trials, and the last that was proven.
    fn search(all: usize, least: usize, progress: impl Fn(usize) -> f64) -> (Vec<usize>, usize) {
        let (mut search, mut active, mut tried) = (Search::new(), all, Vec::new());
        while let Some(size) = search.next(active, least.min(active)) {
            tried.push(size);
            let ratio = progress(size) / progress(active);
            if ratio > 1.02 {
                active = size;
                search.proven();
            } else {
                search.refuted(size, if ratio < 0.95 { Finding::Harm } else { Finding::NoGain });
            }
        }
        (tried, active)
    }

    #[test]
    fn from_two_vcpus_there_is_one_step() {
        assert_eq!(search(2, 1, |n| 1.0 / n as f64), (vec![1], 1));
        assert_eq!(search(2, 1, |n| n as f64), (vec![1], 2));
        assert_eq!(search(2, 2, |n| 1.0 / n as f64), (vec![], 2));
    }

    #[test]
    fn work_that_gains_only_where_its_threads_share_a_vcpu_is_found_at_once() {
        // Requests over a socket, measured on 8 vCPUs: as slow on 2 as on 8.
        assert_eq!(search(8, 1, |n| if n == 1 { 4.0 } else { 1.0 }), (vec![1], 1));
        // Where nothing matters, little is tried.
        assert_eq!(search(8, 1, |_| 1.0), (vec![1, 4, 2], 8));
    }

    #[test]
    fn a_step_that_was_too_large_goes_half_the_way_back() {
        const PROGRESS: [f64; 8] = [0.6, 0.7, 1.2, 2.0, 1.8, 1.6, 1.3, 1.0];
        assert_eq!(search(8, 1, |n| PROGRESS[n - 1]), (vec![1, 4, 2, 3], 4));
    }

    #[test]
    fn between_harm_and_no_gain_it_closes_in() {
        // Three vCPUs are best, one is too few, and more than four make no difference.
        const PROGRESS: [f64; 16] =
            [0.5, 0.9, 1.4, 1.2, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(search(16, 1, |n| PROGRESS[n - 1]), (vec![1, 8, 4, 2, 3], 3));
    }

    #[test]
    fn work_that_needs_every_vcpu_keeps_them_after_few_trials() {
        for all in [4_usize, 8, 16, 64, 96] {
            let (tried, kept) = search(all, 1, |n| n as f64);
            assert_eq!(kept, all);
            assert!(tried.len() <= all.ilog2() as usize + 2, "{all}: {tried:?}");
        }
    }

    proptest! {
        #[test]
        fn every_trial_is_a_smaller_set_of_its_own_and_they_end(
            all in 1usize..200,
            least in 1usize..200,
            outcomes in proptest::collection::vec(0u8..3, 0..40),
        ) {
            let (mut search, mut active) = (Search::new(), all);
            let mut tried = std::collections::BTreeSet::new();
            for outcome in outcomes {
                let Some(size) = search.next(active, least) else { break };
                prop_assert!((least..active).contains(&size), "{size}");
                prop_assert!(tried.insert(size), "{size} twice");
                match outcome {
                    0 => {
                        active = size;
                        search.proven();
                    }
                    1 => search.refuted(size, Finding::Harm),
                    _ => search.refuted(size, Finding::NoGain),
                }
            }
            prop_assert!(tried.len() <= all.ilog2() as usize * 2 + 2, "{tried:?}");
        }
    }
}
