//! Follows in windows, where following all of the time costs more than the budget. The programs stay attached in the pauses
//! between them, and return at once: attaching patches the kernel's code on all pCPUs.

use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

use gleaner_trace::bpf;

use super::{HostTracer, now_ns};
use crate::error::HostError;
use crate::reading::Cost;
use crate::skeleton::types;
use crate::thinning::{FIRST_WINDOWS, Thinning, WINDOW};

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
    /// Exits per second in the latest window.
    followed: f64,
    /// When the window or the pause began, and the exits until then.
    since: (Instant, u64),
    /// When it ends.
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
    /// The maps cannot be read.
    pub fn keep_within(&mut self, budget: f64) -> Result<Option<Cost>, HostError> {
        self.resume();
        let Some(cost) = self.measure(COST_TIME).map_err(|error| HostError::Read(bpf::text(&error)))? else {
            return Ok(None);
        };
        let now = Instant::now();
        self.keeping = Some(Keeping {
            budget,
            measured_at: now,
            cost,
            thinning: Thinning::new(budget, cost.share),
            followed: 0.0,
            since: (now, self.exits()?),
            until: now + WINDOW,
        });
        for _ in 0..FIRST_WINDOWS {
            std::thread::sleep(WINDOW);
            self.pause()?;
            std::thread::sleep(WINDOW);
            self.go_on()?;
        }
        if let Some(keeping) = &mut self.keeping {
            keeping.thinning.decide();
        }
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
    /// The maps cannot be read.
    pub fn turn(&mut self) -> Result<(), HostError> {
        let Some(keeping) = self.keeping.as_ref().filter(|_| self.due() <= Some(Instant::now())) else {
            return Ok(());
        };
        if keeping.measured_at.elapsed() >= RENEW {
            let budget = keeping.budget;
            return self.keep_within(budget).map(|_| ());
        }
        if self.is_paused() { self.go_on() } else { self.pause() }
    }

    /// Lets `time` pass.
    ///
    /// # Errors
    /// The maps cannot be read.
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

    fn is_paused(&self) -> bool {
        self.skel.maps.bss_data.as_deref().is_some_and(|data| data.paused != 0)
    }

    /// Ends a window.
    pub(super) fn pause(&mut self) -> Result<(), HostError> {
        let exits = self.exits()?;
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            pause(data, now_ns());
        }
        if let Some(keeping) = &mut self.keeping {
            keeping.followed = keeping.passed(exits);
            keeping.until = keeping.since.0 + keeping.thinning.pause();
        }
        Ok(())
    }

    /// Ends a pause.
    pub(super) fn go_on(&mut self) -> Result<(), HostError> {
        let exits = self.exits()?;
        self.resume();
        if let Some(keeping) = &mut self.keeping {
            let paused = keeping.passed(exits);
            keeping.thinning.seen(keeping.followed, paused);
            keeping.until = keeping.since.0 + WINDOW;
        }
        Ok(())
    }

    fn resume(&mut self) {
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut().filter(|data| data.paused != 0) {
            resume(data, now_ns());
        }
    }

    /// The exits of all vCPUs since the start, those in pauses among them.
    fn exits(&self) -> Result<u64, HostError> {
        let counted = bpf::per_vcpu::<types::pcpu>(&self.skel.maps.pcpus, &0_u32);
        let counted = counted.map_err(|error| HostError::Read(bpf::text(&error)))?;
        Ok(counted.iter().map(|pcpu| pcpu.exits).sum())
    }
}

impl Keeping {
    /// Exits per second since the window or the pause began, with which the next one begins.
    fn passed(&mut self, exits: u64) -> f64 {
        let now = Instant::now();
        let (started, before) = std::mem::replace(&mut self.since, (now, exits));
        exits.saturating_sub(before) as f64 / (now - started).as_secs_f64().max(1e-9)
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
