//! How long the workload's threads wait from wake-up to running: measured in the kernel if possible, else
//! estimated.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use gleaner_policy::{VcpuInterval, Waiting, WaitingSource, WorkloadInterval};

/// Measures the wake-to-run latencies of one workload. Ends with the process, however that ends.
pub trait WaitingSensor: fmt::Debug {
    /// Measures from now on. The first call may take tens of milliseconds, later ones must not.
    ///
    /// # Errors
    /// It is not available here; the text says why. It is not tried again.
    fn arm(&mut self) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Stops measuring until it is armed again; the overhead is negligible meanwhile.
    fn disarm(&mut self);

    /// The latencies since it was armed or last read; `None` if they cannot be read.
    fn read(&mut self) -> Option<Waiting>;
}

/// The workload's waiting, from the best available source.
#[derive(Debug)]
pub(super) struct Waits {
    sensor: Option<Box<dyn WaitingSensor>>,
    /// The cost of waking a halted vCPU.
    wake_cost: Duration,
    wanted: bool,
    armed: bool,
    note: Option<String>,
}

impl Waits {
    pub(super) fn new(sensor: Option<Box<dyn WaitingSensor>>, wake_cost: Duration) -> Self {
        Self { sensor, wake_cost, wanted: false, armed: false, note: None }
    }

    /// Whether the sensor should measure, from the next interval on. Without it waiting is estimated.
    pub(super) fn set_wanted(&mut self, wanted: bool) {
        self.wanted = wanted;
    }

    /// The waiting of the interval that ends now. Arms and disarms the sensor, so that it always measures whole
    /// intervals.
    pub(super) fn observe(&mut self, workload: &WorkloadInterval, vcpus: &[VcpuInterval]) -> Waiting {
        let traced = self.sensor.as_mut().filter(|_| self.armed).and_then(|sensor| sensor.read());
        self.update_arming();
        traced.unwrap_or_else(|| estimate(workload, vcpus, self.wake_cost))
    }

    pub(super) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn update_arming(&mut self) {
        let Some(sensor) = &mut self.sensor else { return };
        match (self.wanted, self.armed) {
            (true, false) => match sensor.arm() {
                Ok(()) => self.armed = true,
                Err(error) => {
                    self.note =
                        Some(format!("{error}; how long threads wait after a wake-up is estimated instead"));
                    self.sensor = None;
                }
            },
            (false, true) => {
                sensor.disarm();
                self.armed = false;
            }
            _ => {}
        }
    }
}

/// Estimates the waiting of an interval from counters alone.
///
/// The kernel's run delay starts when a thread is put on a run queue (`sched_info_enqueue`,
/// `kernel/sched/stats.h`). A remote wake-up of an idle vCPU only puts the thread on that vCPU's wake list
/// (`ttwu_queue_cond`, `kernel/sched/core.c`); the vCPU moves it to its run queue once the interrupt has ended
/// its halt (`sched_ttwu_pending`). So run delay omits exactly what a halt costs. That is added: `wake_cost`
/// for each halt that a wake-up of the workload can have ended, but for no more halts than there were switches
/// to its threads.
///
/// The estimate is too high where wake-ups of other programs, timers or interrupts ended the halts, where
/// threads are preempted, since run delay includes their return, too, and by the few microseconds from queue to
/// switch, which both parts contain.
fn estimate(workload: &WorkloadInterval, vcpus: &[VcpuInterval], wake_cost: Duration) -> Waiting {
    let halts: u64 = vcpus.iter().map(|vcpu| vcpu.halts).fold(0, u64::saturating_add);
    let from_halt = wake_cost.as_nanos().saturating_mul(u128::from(halts.min(workload.switches)));
    let from_halt = Duration::from_nanos(u64::try_from(from_halt).unwrap_or(u64::MAX));
    let waiting = Waiting {
        wake_ups: workload.switches,
        total: workload.run_delay.saturating_add(from_halt),
        tail: Duration::ZERO,
        source: WaitingSource::Estimated,
    };
    Waiting { tail: waiting.mean(), ..waiting }
}

#[cfg(test)]
mod tests;
