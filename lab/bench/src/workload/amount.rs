//! How much a workload does: for a time, or a number of operations.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::runner::interrupted;

/// How much a workload does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Amount {
    /// As much as possible in this time, or until a [watched](crate::runner::watch) signal; the result is its
    /// throughput. A workload completes the operation that is in progress when the time ends.
    Time(Duration),
    /// This many operations; the result is the time that they took, as reported by the papers. `wake` does up
    /// to three more.
    Operations(NonZeroU64),
}

impl Amount {
    /// The part of one of `of` independent threads: the whole time, or its share of the operations.
    pub(super) fn share(self, index: usize, of: usize) -> Share {
        match self {
            Self::Time(duration) => Share::Time(duration),
            Self::Operations(n) => {
                let (n, index, of) = (n.get(), index as u64, (of as u64).max(1));
                Share::Operations(n / of + u64::from(index < n % of))
            }
        }
    }

    /// The whole amount, for workloads in which one thread decides for all.
    pub(super) fn whole(self) -> Share {
        self.share(0, 1)
    }
}

/// One thread's part of an [`Amount`]; with more threads than operations, it can be empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    Time(Duration),
    Operations(u64),
}

impl Share {
    /// Time counts from `start`, which is the same for all threads: one that gets no CPU time at first must
    /// not run for longer. The clock is read once per `operations_per_clock` operations: often enough to end
    /// in time, but rarely enough to cost nothing.
    pub(super) fn since(self, start: Instant, operations_per_clock: u64) -> WorkMeter {
        WorkMeter { share: self, start, operations_per_clock }
    }
}

/// Decides whether a thread continues.
pub(super) struct WorkMeter {
    share: Share,
    start: Instant,
    operations_per_clock: u64,
}

impl WorkMeter {
    /// Whether there is more to do after `done` operations.
    pub(super) fn more(&self, done: u64) -> bool {
        match self.share {
            Share::Time(duration) => {
                !done.is_multiple_of(self.operations_per_clock)
                    || (self.start.elapsed() < duration && !interrupted())
            }
            Share::Operations(n) => done < n,
        }
    }
}

/// How often to read the clock if one operation computes for `granularity`: about every 20 us.
pub(super) fn operations_per_clock(granularity: Duration) -> u64 {
    let every = Duration::from_micros(20);
    u64::try_from(every.as_nanos() / granularity.as_nanos().max(1)).unwrap_or(1).clamp(1, 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up() {
        for (n, threads) in [(1, 4), (10, 3), (12, 4), (1_000_003, 16)] {
            let amount = Amount::Operations(NonZeroU64::new(n).unwrap());
            let shares = (0..threads).map(|index| match amount.share(index, threads) {
                Share::Operations(n) => n,
                Share::Time(_) => panic!("not a time"),
            });
            assert_eq!(shares.sum::<u64>(), n);
        }
        let time = Amount::Time(Duration::from_secs(1));
        assert_eq!(time.share(1, 4), time.whole());
    }

    #[test]
    fn a_meter_ends_with_its_operations_or_its_time() {
        let meter = Share::Operations(3).since(Instant::now(), 2);
        assert_eq!([0, 2, 3, 4].map(|done| meter.more(done)), [true, true, false, false]);
        let meter = Share::Time(Duration::ZERO).since(Instant::now(), 4);
        assert_eq!([0, 1, 4, 5].map(|done| meter.more(done)), [false, true, false, true]);
        assert!(Share::Time(Duration::from_secs(3600)).since(Instant::now(), 1).more(4));
    }

    #[test]
    fn the_clock_is_read_about_every_20_us() {
        let us = Duration::from_micros;
        assert_eq!([0, 1, 5, 50].map(|g| operations_per_clock(us(g))), [16, 16, 4, 1]);
    }
}
