//! Where the vCPUs' time went, bucket by bucket.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_kernel::stat::CpuTimes;
use gleaner_policy::CpuId;
use gleaner_proto::diagnosis::{Lane, Spent, Timeline};
use gleaner_trace::VcpuTime;

const MIN_BUCKET: Duration = Duration::from_millis(50);
/// Beyond this many buckets, every other one is dropped and the rest last twice as long.
const MAX_BUCKETS: usize = 400;

/// What one vCPU has spent so far.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    workload: Duration,
    polling: Duration,
    halted: Duration,
    steal: Duration,
}

#[derive(Debug)]
struct Reading {
    at: Duration,
    sums: BTreeMap<CpuId, Sum>,
}

/// Keeps every reading of a short run, and ever fewer of a longer one.
#[derive(Debug)]
pub(super) struct Readings {
    kept: Vec<Reading>,
    interval: Duration,
}

impl Readings {
    pub(super) fn new() -> Self {
        Self { kept: Vec::new(), interval: MIN_BUCKET }
    }

    /// Whether a reading at this time is due.
    pub(super) fn is_due(&self, at: Duration) -> bool {
        // Samples come a little early or late.
        self.kept.last().is_none_or(|last| at >= last.at + self.interval * 9 / 10)
    }

    /// Keeps a reading; `at` counts from the start and must rise.
    pub(super) fn add(&mut self, at: Duration, times: &[VcpuTime], stat: &[(CpuId, CpuTimes)]) {
        let steal =
            |cpu| stat.iter().find(|(other, _)| *other == cpu).map_or(Duration::ZERO, |(_, t)| t.steal);
        let sum = |time: &VcpuTime| Sum {
            workload: time.scope,
            polling: time.polling,
            halted: time.halted,
            steal: steal(time.cpu),
        };
        self.kept.push(Reading { at, sums: times.iter().map(|time| (time.cpu, sum(time))).collect() });
        if self.kept.len() > MAX_BUCKETS {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.interval *= 2;
        }
    }

    pub(super) fn timeline(&self) -> Timeline {
        // Readings without vCPUs are from after the end of tracing.
        let kept: Vec<&Reading> = self.kept.iter().filter(|reading| !reading.sums.is_empty()).collect();
        let Some(last) = kept.last() else { return Timeline::default() };
        let lane = |cpu: &CpuId| Lane {
            vcpu: cpu.0,
            buckets: kept.windows(2).map(|pair| bucket(*cpu, pair[0], pair[1])).collect(),
        };
        Timeline {
            edges_s: kept.iter().map(|reading| reading.at.as_secs_f64()).collect(),
            lanes: last.sums.keys().map(lane).collect(),
        }
    }
}

/// All zeros if the vCPU was offline at either end.
fn bucket(cpu: CpuId, from: &Reading, to: &Reading) -> Spent {
    let (Some(before), Some(after)) = (from.sums.get(&cpu), to.sums.get(&cpu)) else {
        return Spent::default();
    };
    let elapsed = to.at.saturating_sub(from.at).as_secs_f64().max(1e-9);
    let share = |of: fn(&Sum) -> Duration| of(after).saturating_sub(of(before)).as_secs_f64() / elapsed;
    let halted = share(|sum| sum.halted).min(1.0);
    let polling = share(|sum| sum.polling).min(1.0 - halted);
    // The workload's time lags by up to a tick, and can be an estimate.
    let workload = share(|sum| sum.workload).min(1.0 - halted - polling);
    Spent {
        workload,
        others: 1.0 - halted - polling - workload,
        polling,
        halted,
        steal: share(|sum| sum.steal).min(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(cpu: u32, [scope, polling, halted]: [u64; 3]) -> VcpuTime {
        let [scope, polling, halted] = [scope, polling, halted].map(Duration::from_millis);
        VcpuTime { cpu: CpuId(cpu), scope, polling, halted }
    }

    fn stat(steal_ms: u64) -> Vec<(CpuId, CpuTimes)> {
        vec![(CpuId(0), CpuTimes { steal: Duration::from_millis(steal_ms), ..CpuTimes::default() })]
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9
    }

    #[test]
    fn buckets_are_what_came_between_two_readings() {
        let mut readings = Readings::new();
        let ms = Duration::from_millis;
        readings.add(ms(0), &[time(0, [5, 0, 100])], &stat(10));
        readings.add(ms(50), &[time(0, [25, 5, 115]), time(1, [0, 0, 9])], &stat(20));
        // More time than has passed: the workload's share is reduced, being the least certain.
        readings.add(ms(100), &[time(0, [85, 5, 155]), time(1, [0, 50, 9])], &stat(20));
        let timeline = readings.timeline();
        assert_eq!(timeline.edges_s, [0.0, 0.05, 0.1]);
        assert!(close(timeline.resolution_s(), 0.05));
        let Spent { workload, others, polling, halted, steal } = timeline.lanes[0].buckets[0];
        assert!(close(workload, 0.4) && close(others, 0.2) && close(polling, 0.1) && close(halted, 0.3));
        assert!(close(steal, 0.2));
        let second = timeline.lanes[0].buckets[1];
        assert!(close(second.halted, 0.8) && close(second.workload, 0.2) && close(second.others, 0.0));
        // The second vCPU came online later.
        assert_eq!(timeline.lanes[1].buckets[0], Spent::default());
        assert!(close(timeline.lanes[1].buckets[1].polling, 1.0));
    }

    #[test]
    fn a_long_run_has_longer_buckets() {
        let mut readings = Readings::new();
        let (mut at, mut samples) = (Duration::ZERO, 0_u32);
        while at < Duration::from_secs(3600) {
            if readings.is_due(at) {
                let busy = u64::try_from(at.as_millis()).unwrap() / 2;
                readings.add(at, &[time(0, [busy, 0, busy])], &[]);
                samples += 1;
            }
            at += Duration::from_millis(50);
        }
        let timeline = readings.timeline();
        let buckets = &timeline.lanes[0].buckets;
        assert!(buckets.len() > MAX_BUCKETS / 4 && buckets.len() <= MAX_BUCKETS, "{}", buckets.len());
        assert!(samples < 5000, "{samples} readings in an hour");
        assert!(buckets.iter().all(|spent| close(spent.workload, 0.5)), "nothing is lost between them");
    }

    #[test]
    fn nothing_is_shown_where_nothing_was_traced() {
        let mut readings = Readings::new();
        readings.add(Duration::ZERO, &[], &[]);
        assert_eq!(readings.timeline(), Timeline::default());
    }
}
