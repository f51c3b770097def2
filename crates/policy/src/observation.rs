//! The policy's input: one interval of the machine and the workload, as differences.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{CpuId, CpuSet, Measurement, Overload};

/// A shorter interval has no meaningful averages: neither of the load nor of §5's quantities.
const MIN_AVERAGE_PERIOD: Duration = Duration::from_millis(10);

/// One interval between two observations. All counts and times are differences over the interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// End of the interval, since the driver started.
    pub at: Duration,
    /// The length of the interval.
    pub period: Duration,
    /// The vCPUs that are online and that the workload's owner allows it to use.
    pub vcpus: Vec<VcpuInterval>,
    /// The workload's share of the interval.
    pub workload: WorkloadInterval,
    /// Runnable threads at the end of the interval, on the whole machine, the observer excluded.
    pub runnable: u32,
    /// The run-queue overload that ended the interval early, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overload: Option<Overload>,
    /// Share of the interval (0..=1) in which the CPU quota throttled the workload.
    pub throttled: f64,
    /// Whether the setting was in effect on every active vCPU for the whole interval. A vCPU keeps polling by
    /// an earlier limit until it halts once.
    pub settled: bool,
    /// CPU time that taking this observation cost the observer.
    pub cost: Duration,
}

/// One vCPU during the interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct VcpuInterval {
    /// The vCPU described.
    pub cpu: CpuId,
    /// Idle periods that ended in a halt.
    pub halts: u64,
    /// Time spent halted.
    pub halt_time: Duration,
    /// Idle periods that started with retention (polling or a yield thread), halted afterwards or not.
    pub polls: u64,
    /// Time spent retained: polling or in a yield thread.
    pub poll_time: Duration,
    /// Time in which the vCPU was runnable but the host ran something else.
    pub steal: Duration,
}

impl VcpuInterval {
    /// Time without work: halted or retained.
    pub fn idle_time(&self) -> Duration {
        self.halt_time + self.poll_time
    }

    /// Number of idle periods. A retained period that times out counts as a poll and as a halt, so this is the
    /// larger of the two.
    pub fn idle_periods(&self) -> u64 {
        self.halts.max(self.polls)
    }
}

/// The workload during the interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadInterval {
    /// CPU time of all threads (the paper's `T_work`).
    pub cpu_time: Duration,
    /// User-mode CPU time, as sampled by the kernel's tick.
    pub user_time: Duration,
    /// Time that runnable threads waited for a vCPU.
    pub run_delay: Duration,
    /// Times a thread left a vCPU (the paper's `S_work`).
    pub switches: u64,
    /// Bytes moved by read- and write-like system calls; `None` if the kernel does not count them.
    pub moved_bytes: Option<u64>,
    /// The increase of the user's progress counter.
    pub counter: Option<f64>,
    /// Threads at the end of the interval.
    pub threads: u32,
    /// Those of them that ran in it, at least; `None` if that was not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<u32>,
    /// Wake-to-run latency of its threads; `None` if it is neither traced nor estimated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    /// What its threads sent through sockets; `None` unless counted for the whole interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<Sockets>,
    /// Whether it is not known yet which signal shows its progress, or that one is not counted yet. That takes some tens of
    /// milliseconds, in which nothing is tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
}

/// What the workload's threads sent through sockets in one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// Calls that sent at least one byte.
    pub messages: u64,
    /// Bytes in these calls.
    pub bytes: u64,
}

/// Wake-to-run latency of the workload's threads in one interval: from a thread's wake-up until it runs.
/// Waiting after a preemption is not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Wake-ups that ended in the interval, extrapolated if only a sample was traced.
    pub wake_ups: u64,
    /// The sum of their latencies, extrapolated likewise.
    pub total: Duration,
    /// The 99th percentile. Traced, it comes from a histogram whose buckets are an eighth of their value wide;
    /// with fewer than a hundred wake-ups it is about the longest of them. Estimated, it is the mean, since an
    /// estimate has no spread.
    pub tail: Duration,
    /// How the numbers were found.
    pub source: WaitingSource,
}

/// How [`Waiting`] was found. Traced and estimated values must not be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WaitingSource {
    /// Measured by BPF programs at wake-ups and context switches.
    Traced,
    /// The kernel's run delay, plus the calibrated cost of a wake-up for each halt.
    Estimated,
}

impl Waiting {
    /// The mean latency of a wake-up; zero wake-ups count as one.
    pub fn mean(&self) -> Duration {
        let mean = self.total.as_nanos() / u128::from(self.wake_ups.max(1));
        Duration::from_nanos(u64::try_from(mean).unwrap_or(u64::MAX))
    }
}

impl Observation {
    /// The vCPUs that the workload is allowed to use.
    pub fn allowed(&self) -> CpuSet {
        self.vcpus.iter().map(|v| v.cpu).collect()
    }

    /// Whether the interval is long enough for averages.
    pub(crate) fn is_average(&self) -> bool {
        self.period >= MIN_AVERAGE_PERIOD
    }

    /// CPU time of the workload per second of wall time: 1.0 is one vCPU's worth.
    pub fn load(&self) -> f64 {
        rate(self.workload.cpu_time.as_secs_f64(), self.period)
    }

    /// Idle periods per second that ended in a halt, on the active vCPUs.
    pub fn halt_rate(&self, active: &CpuSet) -> f64 {
        rate(self.sum(active, |v| v.halts as f64), self.period)
    }

    /// The quantities of the paper's §5 for the vCPUs in `active`.
    pub fn measurement(&self, active: &CpuSet) -> Measurement {
        // Of the time that the host gave it: steal is neither work nor room for it.
        let busy = |v: &VcpuInterval| {
            let idle = rate(v.idle_time().as_secs_f64(), self.period.saturating_sub(v.steal));
            (1.0 - idle).clamp(0.0, 1.0)
        };
        let n = active.len();
        let total_busy = self.sum(active, busy);
        let max = self.on(active).map(busy).fold(0.0, f64::max);
        Measurement {
            active: n,
            t_work: self.workload.cpu_time,
            s_work: self.workload.switches,
            t_idle: self.on(active).map(VcpuInterval::idle_time).sum(),
            s_idle: self.on(active).map(VcpuInterval::idle_periods).sum(),
            utilization: total_busy / n.max(1) as f64,
            max_utilization: max,
        }
    }

    /// The intervals of the vCPUs in `active`.
    pub(crate) fn on<'a>(&'a self, active: &'a CpuSet) -> impl Iterator<Item = &'a VcpuInterval> {
        self.vcpus.iter().filter(|v| active.contains(v.cpu))
    }

    fn sum(&self, active: &CpuSet, of: impl Fn(&VcpuInterval) -> f64) -> f64 {
        self.on(active).map(of).sum()
    }
}

fn rate(amount: f64, period: Duration) -> f64 {
    if period.is_zero() { 0.0 } else { amount / period.as_secs_f64() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn journals_from_before_there_were_sockets_can_be_read_and_they_survive_a_journal() {
        let without = WorkloadInterval::default();
        let text = serde_json::to_string(&without).unwrap();
        assert!(!text.contains("sockets"), "{text}");
        assert_eq!(serde_json::from_str::<WorkloadInterval>(&text).unwrap(), without);
        let sockets = Sockets { messages: 1, bytes: u64::MAX };
        let with = WorkloadInterval { sockets: Some(sockets), ..without };
        let text = serde_json::to_string(&with).unwrap();
        assert_eq!(serde_json::from_str::<WorkloadInterval>(&text).unwrap(), with);
    }

    #[test]
    fn journals_from_before_there_was_waiting_can_be_read_and_it_survives_a_journal() {
        let without = WorkloadInterval::default();
        let text = serde_json::to_string(&without).unwrap();
        assert!(!text.contains("waiting"), "{text}");
        assert_eq!(serde_json::from_str::<WorkloadInterval>(&text).unwrap(), without);
        let waiting = Waiting {
            wake_ups: 4,
            total: Duration::from_micros(10),
            tail: Duration::from_micros(7),
            source: WaitingSource::Traced,
        };
        let with = WorkloadInterval { waiting: Some(waiting), ..without };
        let text = serde_json::to_string(&with).unwrap();
        assert_eq!(serde_json::from_str::<WorkloadInterval>(&text).unwrap(), with);
        assert_eq!(waiting.mean(), Duration::from_nanos(2500));
        let (wake_ups, total) = (0, Duration::MAX);
        assert!(Waiting { wake_ups, total, ..waiting }.mean() > waiting.mean());
    }
}
