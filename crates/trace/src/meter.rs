//! Measures what tracing costs, from the kernel's statistics and what they leave out.

use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gleaner_kernel::Root;
use gleaner_kernel::stat::StatSensor;
use nix::sys::prctl;
use nix::time::{ClockId, clock_gettime};

use crate::attach::{Attachment, Probe, RunTime, enable_statistics};
use crate::budget::{Measured, Part, PerRun, switching};

#[derive(Debug)]
pub(crate) struct Meter {
    stat: Option<StatSensor>,
    per_run: PerRun,
    /// Time of the latest sample of the busy time, and its value.
    seen: (Instant, Duration),
}

/// A measurement in progress. The kernel keeps statistics until it is dropped.
#[derive(Debug)]
pub(crate) struct Started {
    _statistics: OwnedFd,
    since: Instant,
    before: Vec<(&'static str, RunTime)>,
}

/// A measured window.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenFor {
    pub(crate) length: Duration,
    /// CPU time of the thread that opens and closes a window.
    pub(crate) switching: Duration,
}

impl Meter {
    pub(crate) fn new(per_run: PerRun) -> Self {
        let mut meter = Self {
            stat: StatSensor::new(&Root::system()).ok(),
            per_run,
            seen: (Instant::now(), Duration::ZERO),
        };
        meter.seen.1 = meter.busy();
        meter
    }

    /// Starts a measurement; `None` if the kernel has no statistics (before Linux 5.8).
    pub(crate) fn start(probes: &[Probe]) -> Option<Started> {
        let statistics = enable_statistics()?;
        let before = probes.iter().map(|probe| (probe.program.name, probe.attachment.run_time())).collect();
        Some(Started { _statistics: statistics, since: Instant::now(), before })
    }

    /// The measurement since `started`, made in a window or without any.
    pub(crate) fn end(&mut self, started: &Started, probes: &[Probe], window: Option<OpenFor>) -> Measured {
        let elapsed = started.since.elapsed();
        let in_use = self.in_use();
        // Programs attached for the window also run while it opens and closes.
        let share = |windowed: bool, seconds: f64| {
            let of = window.as_ref().filter(|_| windowed).map_or(elapsed, |window| window.length);
            seconds / (in_use * of.as_secs_f64()).max(1e-9)
        };
        let programs = probes
            .iter()
            .filter_map(|probe| {
                let name = probe.program.name;
                let before = started.before.iter().find(|(known, _)| *known == name)?.1;
                let ran = probe.attachment.run_time().since(before);
                let windowed = probe.program.windowed;
                let share = share(windowed, self.per_run.correct(ran).as_secs_f64());
                Some(Part { name, windowed, share, runs: ran.runs })
            })
            .collect();
        let switching =
            window.as_ref().map_or(0.0, |window| share(true, switching(window.switching, in_use)));
        Measured { elapsed, in_use, programs, switching }
    }

    /// Mean number of vCPUs in use since the last call, at least one. `/proc/stat` has a resolution of 10 ms, so calls
    /// should be a few times that apart.
    fn in_use(&mut self) -> f64 {
        let (now, busy) = (Instant::now(), self.busy());
        let (then, before) = std::mem::replace(&mut self.seen, (now, busy));
        let elapsed = (now - then).as_secs_f64().max(1e-9);
        (busy.saturating_sub(before).as_secs_f64() / elapsed).max(1.0)
    }

    /// Total busy time of all vCPUs since boot; zero if it cannot be read.
    fn busy(&mut self) -> Duration {
        let stat = self.stat.as_mut().and_then(|stat| stat.read().ok());
        stat.map(|stat| stat.cpus.iter().map(|(_, times)| times.busy()).sum()).unwrap_or_default()
    }
}

/// CPU time of the calling thread.
pub(crate) fn own_time() -> Duration {
    // Every Linux has this clock.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Events per batch; the fastest of `TRIES` batches counts.
const EVENTS: u32 = 200;
const TRIES: u32 = 20;

/// Measures the overhead that no statistics show, using `empty`, a program that does nothing when a thread is renamed.
/// Takes about 5 ms. Zeros if the program cannot be attached.
pub(crate) fn per_run(empty: &mut Attachment) -> PerRun {
    let without = rename();
    if empty.attach().is_err() {
        return PerRun::default();
    }
    let with = rename();
    let statistics = enable_statistics();
    let before = empty.run_time();
    rename();
    let ran = empty.run_time().since(before);
    drop(statistics);
    empty.detach();
    let runs = u32::try_from(ran.runs).unwrap_or(u32::MAX);
    PerRun { clock: ran.time.checked_div(runs).unwrap_or_default(), entry: with.saturating_sub(without) }
}

/// Shortest time that it takes to rename this thread to its own name.
fn rename() -> Duration {
    let Ok(name) = prctl::get_name() else { return Duration::ZERO };
    let batch = || {
        let start = Instant::now();
        for _ in 0..EVENTS {
            // The current name is valid, so this cannot fail.
            let _ = prctl::set_name(black_box(&name));
        }
        start.elapsed() / EVENTS
    };
    (0..TRIES).map(|_| batch()).min().unwrap_or_default()
}
