//! What tracing costs: the kernel's account of the programs, with what that leaves out.

use std::hint::black_box;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use gleaner_kernel::Root;
use gleaner_kernel::stat::StatSensor;
use nix::sys::prctl;
use nix::time::{ClockId, clock_gettime};

use crate::attach::{Probe, RunTime, enable_statistics};
use crate::budget::{Measured, Part, PerRun, switching};

/// Measures what programs cost.
#[derive(Debug)]
pub(crate) struct Meter {
    stat: Option<StatSensor>,
    per_run: PerRun,
    /// When the time in use was last looked at, and what it was.
    seen: (Instant, Duration),
}

/// A measurement that has begun. The kernel keeps account for as long as it lives.
#[derive(Debug)]
pub(crate) struct Begun {
    _statistics: OwnedFd,
    since: Instant,
    before: Vec<(&'static str, RunTime)>,
}

/// A window that was measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OpenFor {
    pub(crate) length: Duration,
    /// The CPU time of the thread that opens and closes one.
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

    /// Begins to measure; `None` where the kernel keeps no account (before Linux 5.8).
    pub(crate) fn begin(probes: &[Probe]) -> Option<Begun> {
        let statistics = enable_statistics()?;
        let before = probes.iter().map(|probe| (probe.program.name, probe.run_time())).collect();
        Some(Begun { _statistics: statistics, since: Instant::now(), before })
    }

    /// What was measured: all the time, or in a window.
    pub(crate) fn end(&mut self, begun: &Begun, probes: &[Probe], window: Option<OpenFor>) -> Measured {
        let elapsed = begun.since.elapsed();
        let in_use = self.in_use();
        // What is attached for the window's sake also runs while that opens and closes.
        let share = |windowed: bool, seconds: f64| {
            let of = window.as_ref().filter(|_| windowed).map_or(elapsed, |window| window.length);
            seconds / (in_use * of.as_secs_f64()).max(1e-9)
        };
        let programs = probes
            .iter()
            .filter_map(|probe| {
                let name = probe.program.name;
                let before = begun.before.iter().find(|(known, _)| *known == name)?.1;
                let ran = probe.run_time().since(before);
                let windowed = probe.program.windowed;
                let share = share(windowed, self.per_run.correct(ran).as_secs_f64());
                Some(Part { name, windowed, share, runs: ran.runs })
            })
            .collect();
        let switching =
            window.as_ref().map_or(0.0, |window| share(true, switching(window.switching, in_use)));
        Measured { elapsed, in_use, programs, switching }
    }

    /// How many vCPUs were in use since this was last asked, one at least. `/proc/stat` counts in 10 ms, so the time
    /// should be a few times as long.
    fn in_use(&mut self) -> f64 {
        let (now, busy) = (Instant::now(), self.busy());
        let (then, before) = std::mem::replace(&mut self.seen, (now, busy));
        let elapsed = (now - then).as_secs_f64().max(1e-9);
        (busy.saturating_sub(before).as_secs_f64() / elapsed).max(1.0)
    }

    /// How long all vCPUs together were busy since boot; zero where that cannot be read.
    fn busy(&mut self) -> Duration {
        let stat = self.stat.as_mut().and_then(|stat| stat.read().ok());
        stat.map(|stat| stat.cpus.iter().map(|(_, times)| times.busy()).sum()).unwrap_or_default()
    }
}

/// The CPU time of the calling thread.
pub(crate) fn own_time() -> Duration {
    // The clock is there on every Linux.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// How often the event is made to happen at a time, and how many times the fastest is looked for.
const EVENTS: u32 = 200;
const TRIES: u32 = 20;

/// Measures with `empty`, a program that does nothing at the event of a thread's change of name, what no account
/// shows. It takes about 5 ms. Zeros where the program cannot be attached.
pub(crate) fn per_run(empty: &mut Probe) -> PerRun {
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

/// How long it takes at best to give this thread the name that it has.
fn rename() -> Duration {
    let Ok(name) = prctl::get_name() else { return Duration::ZERO };
    let batch = || {
        let begin = Instant::now();
        for _ in 0..EVENTS {
            // The name is its own: it cannot be refused.
            let _ = prctl::set_name(black_box(&name));
        }
        begin.elapsed() / EVENTS
    };
    (0..TRIES).map(|_| batch()).min().unwrap_or_default()
}
