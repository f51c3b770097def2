//! What one sampling period shows of a workload on its active vCPUs (paper §5 and the end of §6).

use std::time::Duration;

/// Sums over all active vCPUs in one period. Yield threads count as idle time, never as work.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Measurement {
    /// The number of active vCPUs, the paper's `N`.
    pub active: usize,
    /// CPU time of the workload's threads, `T_work`.
    pub t_work: Duration,
    /// Context switches of the workload's threads, `S_work`.
    pub s_work: u64,
    /// Idle time of the active vCPUs, polled or halted, `T_idle`.
    pub t_idle: Duration,
    /// Idle periods of the active vCPUs, the paper's `S_yield`.
    pub s_idle: u64,
    /// The share of an active vCPU's time that the workload got, 0..=1, averaged over the active vCPUs.
    pub utilization: f64,
    /// The same share on the busiest active vCPU, 0..=1.
    pub max_utilization: f64,
}

impl Measurement {
    /// The same with the CPU time spent waking halted vCPUs as idle time: `waker_cost` for each idle period that a thread of
    /// the workload can have ended. On one vCPU fewer these threads would wake each other without it.
    #[must_use]
    pub fn without_wake_ups(&self, waker_cost: Duration) -> Self {
        let waking = scale(waker_cost, self.s_idle.min(self.s_work) as f64).min(self.t_work);
        Self { t_work: self.t_work.saturating_sub(waking), t_idle: self.t_idle + waking, ..*self }
    }

    /// `l_comp`: mean computation between two idle periods of a vCPU. `None` without an idle period.
    pub fn l_comp(&self) -> Option<Duration> {
        mean(self.t_work, self.s_idle)
    }

    /// `g_comp`: mean computation between two synchronisation points of a thread. `None` if no thread was
    /// switched out.
    pub fn g_comp(&self) -> Option<Duration> {
        mean(self.t_work, self.s_work)
    }

    /// `l_idle`: mean length of an idle period. `None` without an idle period.
    pub fn l_idle(&self) -> Option<Duration> {
        mean(self.t_idle, self.s_idle)
    }

    /// The workload's utilisation summed over its vCPUs: the mean times `N`. Unlike the mean, it stays the same
    /// when the same work is done on fewer vCPUs.
    pub fn total_utilization(&self) -> f64 {
        self.utilization * self.active as f64
    }
}

/// `total / count`; None if `count` is 0.
fn mean(total: Duration, count: u64) -> Option<Duration> {
    let nanos = total.as_nanos().checked_div(u128::from(count))?;
    Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
}

/// `duration · factor`, at most [`Duration::MAX`]; [`Duration::ZERO`] for a negative factor.
pub(crate) fn scale(duration: Duration, factor: f64) -> Duration {
    let seconds = (duration.as_secs_f64() * factor).max(0.0);
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
}
