//! How long a workload's threads wait from wake-up to running, cheaply enough to measure it during trials.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use gleaner_kernel::Root;
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Iter, IterOpts, Link};

use crate::Histogram;
use crate::load::object_place;
use crate::read::sum;
use crate::scope::{Resolved, Scope, set_scope};
use crate::tracer::TraceError;
use crate::unavailable::{NotAvailable, Rights, from_load, text};
use crate::waiting_skeleton::{WaitingSkel, WaitingSkelBuilder, types};
use crate::window::programs_clock;

/// Up to this many wake-ups per second, every latency is measured; above it, a sample: 200 in 10 ms are enough, and
/// each costs some 100 ns.
const MAX_SAMPLED_RATE: f64 = 20_000.0;
/// At least one wake-up in 1 << this is sampled.
const MAX_BURST_BITS: u32 = 6;

/// Wake-up latencies in a time span.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Number of wake-ups, sampled or not.
    pub wake_ups: u64,
    /// Latencies that ended in the span, also of threads that were woken just before it; only a sample if there are very
    /// many wake-ups.
    pub known: Histogram,
}

impl Latencies {
    /// Sum of all latencies, extrapolated from the known ones; `None` if none is known.
    pub fn total(&self) -> Option<Duration> {
        let mean =
            (self.known.count > 0).then(|| self.known.total().as_secs_f64() / self.known.count as f64)?;
        Some(Duration::try_from_secs_f64(mean * self.wake_ups as f64).unwrap_or(Duration::MAX))
    }
}

/// Measures wake-up latencies with short programs at wake-ups and switches (`src/bpf/waiting.bpf.c`). Dropping it frees
/// everything, as does the end of the process.
pub struct LatencySensor {
    skel: WaitingSkel<'static>,
    /// Links of the attached programs.
    links: Vec<Link>,
    is_tree: bool,
    armed: bool,
    /// Time of the latest reading, and the counters then.
    last: (Instant, Counted),
}

/// Counters since the programs were loaded.
#[derive(Debug, Clone, Default)]
struct Counted {
    woken: u64,
    known: Histogram,
}

impl fmt::Debug for LatencySensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LatencySensor").field("armed", &self.armed).finish_non_exhaustive()
    }
}

impl LatencySensor {
    /// Loads the programs for the threads of `scope`; nothing is attached yet.
    ///
    /// # Errors
    /// There is no such scope, or measuring is not possible here.
    pub fn load(scope: &Scope) -> Result<Self, TraceError> {
        libbpf_rs::set_print(None);
        let scope = scope.resolve(&Root::system())?;
        let skel = load(&scope).map_err(|error| refused(&error))?;
        Ok(Self {
            skel,
            links: Vec::new(),
            is_tree: scope.is_tree(),
            armed: false,
            last: (Instant::now(), Counted::default()),
        })
    }

    /// Measures from now on. The first time, this attaches the programs, for which the kernel patches its code and
    /// interrupts every vCPU: about a millisecond. Later it is a write to memory and a reading.
    ///
    /// # Errors
    /// A program cannot be attached.
    pub fn arm(&mut self) -> Result<(), NotAvailable> {
        if self.links.is_empty() {
            self.attach()?;
        }
        self.armed = true;
        // Before the programs count, so that no wake-up is before the reading and its end after it.
        self.read();
        self.enable(true);
        Ok(())
    }

    /// Stops measuring until armed again. The programs stay attached and cost some 30 ns per event.
    pub fn disarm(&mut self) {
        self.enable(false);
        self.armed = false;
    }

    /// Detaches the programs, which then cost nothing. Takes as long as attaching them.
    pub fn detach(&mut self) {
        self.disarm();
        self.links.clear();
    }

    /// The wake-ups since arming or the last call; `None` if not armed. Takes some tens of microseconds.
    pub fn read(&mut self) -> Option<Latencies> {
        if !self.armed {
            return None;
        }
        let counted = self.counted().ok()?;
        let now = Instant::now();
        let (before, earlier) = std::mem::replace(&mut self.last, (now, counted));
        let counted = &self.last.1;
        let latencies = Latencies {
            wake_ups: counted.woken.saturating_sub(earlier.woken),
            known: counted.known.since(&earlier.known),
        };
        let rate = latencies.wake_ups as f64 / now.duration_since(before).as_secs_f64().max(1e-3);
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.burst_bits = burst_bits(rate);
        }
        Some(latencies)
    }

    fn attach(&mut self) -> Result<(), NotAvailable> {
        let progs = &self.skel.progs;
        if self.is_tree {
            // New threads must be recognised before existing ones are listed.
            self.links.push(progs.on_fork.attach_trace().map_err(|error| refused(&error))?);
            let first_pass =
                progs.first_pass.attach_iter_with_opts(IterOpts::None).map_err(|error| refused(&error))?;
            run_through(&first_pass).map_err(|error| refused(&error))?;
        }
        for program in [&progs.on_switch, &progs.on_waking] {
            self.links.push(program.attach_trace().map_err(|error| refused(&error))?);
        }
        Ok(())
    }

    fn enable(&mut self, on: bool) {
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.armed_ns = u64::try_from(programs_clock().as_nanos()).unwrap_or(u64::MAX);
            data.enabled = on.into();
        }
    }

    fn counted(&self) -> libbpf_rs::Result<Counted> {
        let types::waits { woken, latencies } = sum::<types::waits>(&self.skel.maps.waits, &0_u32)?;
        let known = Histogram::new(latencies.count, latencies.total_ns, &latencies.buckets);
        Ok(Counted { woken, known })
    }
}

/// log2 of the sampling ratio for `rate` wake-ups per second.
fn burst_bits(rate: f64) -> u32 {
    (0..MAX_BURST_BITS).find(|bits| rate <= MAX_SAMPLED_RATE * f64::from(1 << bits)).unwrap_or(MAX_BURST_BITS)
}

fn load(scope: &Resolved) -> libbpf_rs::Result<WaitingSkel<'static>> {
    let mut open = WaitingSkelBuilder::default().open(object_place())?;
    set_scope!(open, scope);
    open.load()
}

/// Runs an iterator over every thread. It prints nothing.
pub(crate) fn run_through(iterator: &Link) -> libbpf_rs::Result<()> {
    io::copy(&mut Iter::new(iterator)?, &mut io::sink()).map(drop).map_err(libbpf_rs::Error::from)
}

fn refused(error: &libbpf_rs::Error) -> NotAvailable {
    let why = from_load("waiting", error.kind(), text(error), Rights::now());
    NotAvailable::new("wake-up latencies", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_counts_as_what_is() {
        let known = Histogram { count: 10, total_ns: 1000, ..Histogram::default() };
        let latencies = Latencies { wake_ups: 40, known };
        assert_eq!(latencies.total(), Some(Duration::from_micros(4)));
        assert_eq!(Latencies { wake_ups: 40, ..Latencies::default() }.total(), None);
    }

    #[test]
    fn more_wake_ups_are_sampled_more_rarely() {
        let bits = [0.0, 19_000.0, 21_000.0, 39_000.0, 70_000.0, 1e12].map(burst_bits);
        assert_eq!(bits, [0, 0, 1, 1, 2, MAX_BURST_BITS]);
    }
}
