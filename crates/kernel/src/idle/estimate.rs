//! Idle counters without a cpuidle driver, derived from `/proc/stat`.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_policy::CpuId;

use super::{IdleCounters, IdleSource};
use crate::stat::{StatSensor, SystemStat};
use crate::{KernelError, Root};

/// Derives halts from context switches, and accumulates them so that they only grow.
///
/// Halted time is the idle time of `/proc/stat`, exact to a tick. An idle period takes one switch to the idle
/// task and one away from it, so half of all switches is an **upper bound** of all CPUs' halts. It is tight for
/// programs that hand off by blocking, where nearly every switch is to or from idle. The bound is divided among
/// the CPUs in proportion to their idle time since the last read. Too many halts make idle periods seem too
/// short, but only on a machine busy enough to switch between threads, where there is little idle time to gain.
#[derive(Debug)]
pub(super) struct Estimator {
    stat: StatSensor,
    last: SystemStat,
    halts: BTreeMap<CpuId, f64>,
    /// Switches not matched to idle time yet: of reads every few ms, most see no tick.
    unassigned: u64,
}

impl Estimator {
    pub(super) fn new(root: &Root) -> Result<Self, KernelError> {
        let mut stat = StatSensor::new(root)?;
        let last = stat.read()?;
        Ok(Self { stat, last, halts: BTreeMap::new(), unassigned: 0 })
    }

    pub(super) fn read(&mut self) -> Result<Vec<IdleCounters>, KernelError> {
        let now = self.stat.read()?;
        self.unassigned += now.switches.saturating_sub(self.last.switches);
        let before: BTreeMap<_, _> = self.last.cpus.iter().copied().collect();
        let mut idle = Vec::with_capacity(now.cpus.len());
        let mut passed = Duration::ZERO;
        for (cpu, times) in &now.cpus {
            // A CPU that just came online has no earlier reading.
            let then = before.get(cpu).copied().unwrap_or(*times);
            idle.push((*cpu, times.not_busy().saturating_sub(then.not_busy()).as_secs_f64()));
            passed += times.total().saturating_sub(then.total());
        }
        let all: f64 = idle.iter().map(|(_, idle)| idle).sum();
        if all > 0.0 {
            for (cpu, idle) in idle {
                *self.halts.entry(cpu).or_default() += self.unassigned as f64 / 2.0 * idle / all;
            }
            self.unassigned = 0;
        } else if !passed.is_zero() {
            // Every tick that passed was busy: those switches were between threads.
            self.unassigned = 0;
        }
        let counters = now.cpus.iter().map(|(cpu, times)| self.counters(*cpu, times.not_busy())).collect();
        self.last = now;
        Ok(counters)
    }

    fn counters(&self, cpu: CpuId, halt_time: Duration) -> IdleCounters {
        // Never negative, and far below 2^53.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let halts = self.halts.get(&cpu).copied().unwrap_or_default() as u64;
        let source = IdleSource::Estimate;
        IdleCounters { cpu, halts, halt_time, polls: 0, poll_time: Duration::ZERO, source }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CPUS, IdleSensor};
    use super::*;
    use crate::testing::{fake, put};

    fn put_stat(root: &Root, busy: [u64; 2], idle: [u64; 2], switches: u64) {
        let cpu = |n: usize| format!("cpu{n} {} 0 0 {} 0 0 0 0 0 0\n", busy[n], idle[n]);
        put(root, "/proc/stat", &format!("{}{}ctxt {switches}\n", cpu(0), cpu(1)));
    }

    #[test]
    fn halts_are_half_the_switches_shared_by_idle_time() {
        let (_dir, root) = fake();
        put(&root, &format!("{CPUS}/online"), "0-1\n");
        put(&root, "/proc/loadavg", "0 0 0 1/1 1\n");
        put_stat(&root, [0, 0], [100, 100], 5000);
        let mut sensor = IdleSensor::new(&root).unwrap();
        let halts =
            |sensor: &mut IdleSensor| sensor.read().unwrap().iter().map(|c| c.halts).collect::<Vec<_>>();

        put_stat(&root, [0, 0], [130, 110], 5400);
        let read = sensor.read().unwrap();
        assert_eq!(read[0].source, IdleSource::Estimate);
        assert_eq!(read[0].halt_time, Duration::from_millis(1300));
        assert_eq!((read[0].halts, read[1].halts, read[0].polls), (150, 50, 0));

        put_stat(&root, [0, 0], [130, 110], 5600);
        assert_eq!(halts(&mut sensor), [150, 50], "no tick passed: the switches wait");
        put_stat(&root, [0, 0], [130, 120], 5600);
        assert_eq!(halts(&mut sensor), [150, 150], "and go where idle time appears");

        put_stat(&root, [9, 9], [130, 120], 9000);
        assert_eq!(halts(&mut sensor), [150, 150], "busy ticks only: switches between threads");
        put_stat(&root, [9, 9], [140, 120], 9002);
        assert_eq!(halts(&mut sensor), [151, 150]);
    }
}
