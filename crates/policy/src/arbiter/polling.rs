//! How much of the machine's time idle vCPUs spend polling.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::{CpuId, Observation};

/// Polling takes no more than its share of any such time.
const WINDOW: Duration = Duration::from_secs(10);
/// What is observed within such a time is one entry.
const RESOLUTION: Duration = Duration::from_millis(100);

/// The polling time of all vCPUs in the latest [`WINDOW`], from the observations of all workloads.
#[derive(Debug, Default)]
pub(super) struct PollingTime {
    /// Until when a vCPU's polling is known. Intervals of different workloads overlap.
    known: BTreeMap<CpuId, Duration>,
    /// vCPU seconds of polling, by the time at which they were observed first.
    polled: VecDeque<(Duration, f64)>,
    /// See [`PollingTime::is_used_up`].
    is_used_up: bool,
}

impl PollingTime {
    pub(super) fn observe(&mut self, o: &Observation) {
        let mut polled = 0.0;
        for v in &o.vcpus {
            let known = self.known.entry(v.cpu).or_default();
            let news = o.at.saturating_sub(*known).min(o.period).as_secs_f64();
            let share = v.poll_time.as_secs_f64() / o.period.as_secs_f64().max(1e-6);
            polled += share.min(1.0) * news;
            *known = o.at.max(*known);
        }
        match self.polled.back_mut() {
            Some((at, sum)) if o.at.saturating_sub(*at) < RESOLUTION => *sum += polled,
            _ => self.polled.push_back((o.at, polled)),
        }
        while self.polled.front().is_some_and(|(at, _)| *at + WINDOW <= o.at) {
            self.polled.pop_front();
        }
    }

    /// The share of the time of `vcpus` vCPUs that was spent polling.
    pub(super) fn share(&self, vcpus: usize) -> f64 {
        let sum: f64 = self.polled.iter().map(|(_, polled)| polled).sum();
        sum / WINDOW.as_secs_f64() / vcpus.max(1) as f64
    }

    /// Compares the share with the largest one, `most`.
    pub(super) fn check(&mut self, vcpus: usize, most: f64) {
        self.is_used_up = self.share(vcpus) > if self.is_used_up { most / 2.0 } else { most };
    }

    /// Whether nothing may poll: from when the largest share is exceeded until half of it is free.
    pub(super) fn is_used_up(&self) -> bool {
        self.is_used_up
    }

    /// How long all vCPUs can poll until the share `most` is used up.
    pub(super) fn left(&self, vcpus: usize, most: f64) -> Duration {
        if most < 1.0 {
            WINDOW.mul_f64((most - self.share(vcpus)).max(0.0)).max(RESOLUTION)
        } else {
            Duration::MAX
        }
    }
}
