//! The times in which threads and vCPUs are followed: `struct window` of `src/bpf/state.bpf.h`.

use std::time::{Duration, Instant};

use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use nix::time::{ClockId, clock_gettime};

/// The programs' window, and for how long the windows up to now stand.
#[derive(Debug)]
pub(crate) struct Window {
    map: MapHandle,
    begin_ns: u64,
    last: [u64; 3],
    open: Option<Open>,
    covered: Duration,
}

#[derive(Debug)]
struct Open {
    since: Instant,
    weight: u32,
}

impl Window {
    /// Over the map that holds it; closed.
    pub(crate) fn new(map: MapHandle) -> Self {
        Self { map, begin_ns: 0, last: [0; 3], open: None, covered: Duration::ZERO }
    }

    /// Opens it: what is seen within counts `weight` times. Programs that work within must be attached before.
    ///
    /// # Errors
    /// The kernel's answer.
    pub(crate) fn open(&mut self, weight: u32) -> libbpf_rs::Result<()> {
        // First when it begins, then that it is open: a program reads both without a lock.
        self.begin_ns = clock_ns();
        self.write(0)?;
        self.write(weight)?;
        self.open = Some(Open { since: Instant::now(), weight });
        Ok(())
    }

    /// Closes it. How long it was open.
    ///
    /// # Errors
    /// The kernel's answer.
    pub(crate) fn close(&mut self) -> libbpf_rs::Result<Duration> {
        let Some(open) = self.open.take() else { return Ok(Duration::ZERO) };
        let length = open.since.elapsed();
        self.last = [self.begin_ns, clock_ns(), open.weight.into()];
        self.covered += length * open.weight;
        self.write(0)?;
        Ok(length)
    }

    /// The time for which stands what was seen up to now.
    pub(crate) fn covered(&self) -> Duration {
        self.covered + self.open.as_ref().map_or(Duration::ZERO, |open| open.since.elapsed() * open.weight)
    }

    fn write(&self, weight: u32) -> libbpf_rs::Result<()> {
        let [last_begin, last_end, last_weight] = self.last;
        let words = [self.begin_ns, weight.into(), last_begin, last_end, last_weight];
        let bytes: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        self.map.update(&0_u32.to_ne_bytes(), &bytes, MapFlags::ANY)
    }
}

/// The clock of the programs, `bpf_ktime_get_ns`.
pub(crate) fn programs_clock() -> Duration {
    // It is there on every Linux.
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

fn clock_ns() -> u64 {
    u64::try_from(programs_clock().as_nanos()).unwrap_or(u64::MAX)
}
