//! The windows in which threads and vCPUs are traced.

use std::time::{Duration, Instant};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use nix::time::{ClockId, clock_gettime};

use crate::plain::as_bytes;
use crate::skeleton::types::window;

/// The programs' window, and the time that all windows so far stand for.
#[derive(Debug)]
pub(crate) struct Window {
    map: MapHandle,
    /// As the programs see it.
    seen: window,
    open: Option<Open>,
    covered: Duration,
}

#[derive(Debug)]
struct Open {
    since: Instant,
    weight: u32,
}

impl Window {
    /// A closed window in `map`.
    pub(crate) fn new(map: MapHandle) -> Self {
        Self { map, seen: window::default(), open: None, covered: Duration::ZERO }
    }

    /// Opens the window, in which everything counts `weight` times. Attach the programs that run inside it before.
    ///
    /// # Errors
    /// The map cannot be written.
    pub(crate) fn open(&mut self, weight: u32) -> libbpf_rs::Result<()> {
        // The start goes first, then the weight that opens it: programs read both without a lock.
        self.seen.start_ns = clock_ns();
        self.write(0)?;
        self.write(weight)?;
        self.open = Some(Open { since: Instant::now(), weight });
        Ok(())
    }

    /// Closes the window. Returns how long it was open.
    ///
    /// # Errors
    /// The map cannot be written.
    pub(crate) fn close(&mut self) -> libbpf_rs::Result<Duration> {
        let Some(open) = self.open.take() else { return Ok(Duration::ZERO) };
        let length = open.since.elapsed();
        self.seen.last_start_ns = self.seen.start_ns;
        self.seen.last_end_ns = clock_ns();
        self.seen.last_weight = open.weight.into();
        self.covered += length * open.weight;
        self.write(0)?;
        Ok(length)
    }

    /// The time that the counts so far stand for.
    pub(crate) fn covered(&self) -> Duration {
        self.covered + self.open.as_ref().map_or(Duration::ZERO, |open| open.since.elapsed() * open.weight)
    }

    fn write(&mut self, weight: u32) -> libbpf_rs::Result<()> {
        self.seen.weight = weight.into();
        self.map.update(&0_u32.to_ne_bytes(), as_bytes(&self.seen), MapFlags::ANY)
    }
}

/// The programs' clock, `bpf_ktime_get_ns`.
pub(crate) fn programs_clock() -> Duration {
    // Every Linux has this clock.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

fn clock_ns() -> u64 {
    u64::try_from(programs_clock().as_nanos()).unwrap_or(u64::MAX)
}
