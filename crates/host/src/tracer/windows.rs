//! Follows in windows, where following all of the time costs more than the budget. In the pauses between them the programs are
//! detached: where a guest exits all the time, programs that only return still cost a few per cent of its work.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use gleaner_trace::bpf;

use super::{HostTracer, now_ns, programs};
use crate::error::HostError;
use crate::reading::Cost;
use crate::skeleton::types;
use crate::thinning::{FIRST_WINDOW, FIRST_WINDOWS, Thinning, WINDOW};

/// How long the cost is measured.
const COST_TIME: Duration = Duration::from_millis(300);
/// How often the cost is measured anew: other VMs run after a while.
const RENEW: Duration = Duration::from_secs(60);

/// The budget, and what is done to keep it.
#[derive(Debug)]
pub(super) struct Keeping {
    budget: f64,
    measured_at: Instant,
    cost: Cost,
    thinning: Thinning,
    /// When the window or the pause ends.
    until: Instant,
}

/// The clock of the programs, in ns: that of the kernel without the pauses.
pub(super) fn clock(data: &types::bss, monotonic: u64) -> u64 {
    let now = if data.paused == 0 { monotonic } else { data.paused_ns };
    now.saturating_sub(data.skipped_ns)
}

/// When a window ended.
pub(super) fn end_of(data: &types::bss, window: u64) -> u64 {
    let number = usize::try_from(window).unwrap_or_default() % data.window_ends.len();
    data.window_ends.get(number).copied().unwrap_or_default()
}

/// Ends the window.
fn pause(data: &mut types::bss, monotonic: u64) {
    data.paused_ns = monotonic;
    // A program that sees the one sees the other.
    fence(Ordering::SeqCst);
    data.paused = 1;
}

/// Begins the next one.
fn resume(data: &mut types::bss, monotonic: u64) {
    let ended = clock(data, monotonic);
    let number = usize::try_from(data.window).unwrap_or_default() % data.window_ends.len();
    if let Some(end) = data.window_ends.get_mut(number) {
        *end = ended;
    }
    data.resumed_ns = ended;
    data.window += 1;
    data.skipped_ns = monotonic.saturating_sub(ended);
    fence(Ordering::SeqCst);
    data.paused = 0;
}

impl HostTracer {
    /// Measures what the programs cost, and from now on follows only a part of the time if that is more than `budget`, a share
    /// of the time that vCPUs have on pCPUs. It is measured anew each minute. `None` if the kernel has no account of BPF
    /// programs (before Linux 5.8): then nothing is left out.
    ///
    /// From now on, time has to pass in [`HostTracer::wait`], or up to each [`HostTracer::due`].
    ///
    /// # Errors
    /// The maps cannot be read, or the programs cannot be attached again.
    pub fn keep_within(&mut self, budget: f64) -> Result<Option<Cost>, HostError> {
        self.go_on()?;
        let measured = self.measure(COST_TIME).map_err(|error| HostError::Read(bpf::text(&error)))?;
        let Some((cost, used)) = measured else { return Ok(None) };
        let mut thinning = Thinning::new(budget, cost.share);
        for _ in 0..FIRST_WINDOWS {
            let followed = self.rate(FIRST_WINDOW)?;
            self.leave_out();
            let paused = self.rate(FIRST_WINDOW);
            self.take_in();
            thinning.seen(followed, paused?);
        }
        thinning.decide();
        if thinning.is_needed() {
            let started = Instant::now();
            self.pause();
            self.go_on()?;
            thinning.switched(started.elapsed(), used);
            // The first window begins when time passes: a reading before that has all vCPUs at the same time.
            self.pause();
        }
        let now = Instant::now();
        self.keeping = Some(Keeping { budget, measured_at: now, cost, thinning, until: now });
        Ok(self.cost())
    }

    /// What following costs while it lasts, as far as it was measured.
    pub fn cost(&self) -> Option<Cost> {
        let keeping = self.keeping.as_ref()?;
        Some(Cost { share: keeping.thinning.cost(), ..keeping.cost })
    }

    /// When [`HostTracer::turn`] has to be called next, if at all.
    pub fn due(&self) -> Option<Instant> {
        let keeping = self.keeping.as_ref()?;
        let renewed = keeping.measured_at + RENEW;
        Some(if keeping.thinning.is_needed() { renewed.min(keeping.until) } else { renewed })
    }

    /// Ends a window or a pause, or measures what following costs now, whichever is due.
    ///
    /// # Errors
    /// The maps cannot be read, or the programs cannot be attached again.
    pub fn turn(&mut self) -> Result<(), HostError> {
        let Some(keeping) = self.keeping.as_ref().filter(|_| self.due() <= Some(Instant::now())) else {
            return Ok(());
        };
        if keeping.measured_at.elapsed() >= RENEW {
            let budget = keeping.budget;
            return self.keep_within(budget).map(|_| ());
        }
        if self.is_paused() {
            return self.go_on();
        }
        self.pause();
        Ok(())
    }

    /// Lets `time` pass.
    ///
    /// # Errors
    /// The maps cannot be read, or the programs cannot be attached again.
    pub fn wait(&mut self, time: Duration) -> Result<(), HostError> {
        let end = Instant::now() + time;
        loop {
            let until = self.due().map_or(end, |due| due.min(end));
            std::thread::sleep(until.saturating_duration_since(Instant::now()));
            if until == end {
                return Ok(());
            }
            self.turn()?;
        }
    }

    /// Ends a window, if there are windows. The clock stands still from then on: however long a reading takes, the times of all
    /// vCPUs are up to the same moment.
    pub(super) fn end_window(&mut self) {
        let windows = self.keeping.as_ref().is_some_and(|keeping| keeping.thinning.is_needed());
        if windows && !self.is_paused() {
            self.pause();
        }
    }

    /// Ends a window.
    pub(super) fn pause(&mut self) {
        self.leave_out();
        programs::detach_all(&mut self.programs);
        if let Some(keeping) = &mut self.keeping {
            keeping.until = Instant::now() + keeping.thinning.pause();
        }
    }

    /// Ends a pause.
    pub(super) fn go_on(&mut self) -> Result<(), HostError> {
        programs::attach_all(&mut self.programs, &self.skel)
            .map_err(|error| HostError::Attach(bpf::text(&error)))?;
        self.take_in();
        if let Some(keeping) = &mut self.keeping {
            keeping.until = Instant::now() + WINDOW;
        }
        Ok(())
    }

    /// The programs return at once.
    fn leave_out(&mut self) {
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut().filter(|data| data.paused == 0) {
            pause(data, now_ns());
        }
    }

    fn take_in(&mut self) {
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut().filter(|data| data.paused != 0) {
            resume(data, now_ns());
        }
    }

    fn is_paused(&self) -> bool {
        self.skel.maps.bss_data.as_deref().is_some_and(|data| data.paused != 0)
    }

    /// Exits per second while `time` passes.
    fn rate(&self, time: Duration) -> Result<f64, HostError> {
        let (started, before) = (Instant::now(), self.exits()?);
        std::thread::sleep(time);
        let exits = self.exits()?.saturating_sub(before);
        Ok(exits as f64 / started.elapsed().as_secs_f64())
    }

    /// The exits of all vCPUs since the start, those in pauses among them.
    fn exits(&self) -> Result<u64, HostError> {
        let counted = bpf::per_vcpu::<types::pcpu>(&self.skel.maps.pcpus, &0_u32);
        let counted = counted.map_err(|error| HostError::Read(bpf::text(&error)))?;
        Ok(counted.iter().map(|pcpu| pcpu.exits).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_stands_still_in_pauses() {
        let mut data = types::bss {
            started_ns: 0,
            window: 0,
            paused: 0,
            paused_ns: 0,
            skipped_ns: 0,
            resumed_ns: 0,
            window_ends: [0; 64],
            slots_taken: 0,
        };
        assert_eq!(clock(&data, 1000), 1000);
        pause(&mut data, 1500);
        assert_eq!(clock(&data, 1900), 1500);
        resume(&mut data, 2500);
        assert_eq!((clock(&data, 2500), clock(&data, 2600)), (1500, 1600));
        assert_eq!((data.window, data.resumed_ns, end_of(&data, 0)), (1, 1500, 1500));
        pause(&mut data, 3000);
        resume(&mut data, 10_000);
        assert_eq!((clock(&data, 10_100), end_of(&data, 1)), (2100, 2000));
        // Only the latest ends are known.
        for window in 2..70 {
            let now = 10_000 + 10 * window;
            pause(&mut data, now);
            resume(&mut data, now);
        }
        assert_eq!(end_of(&data, 1), end_of(&data, 65));
    }
}
