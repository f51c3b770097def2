//! A thread that keeps tracing within its budget: measures, opens and closes windows, detaches programs, ends tracing.

use std::hash::{BuildHasher as _, RandomState};
use std::ops::ControlFlow::{self, Break, Continue};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{io, thread};

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::attach::Probe;
use crate::budget::{Budget, Cost, MAX_ONE_IN, Measured, PerRun, Verdict, WINDOW};
use crate::meter::{Meter, OpenFor, own_time};
use crate::received::Received;
use crate::unavailable::{NotAvailable, Reason};
use crate::window::Window;

/// Length of a measurement without windows; `/proc/stat` has a resolution of 10 ms.
const MEASUREMENT_TIME: Duration = Duration::from_millis(200);
/// Longest time between two measurements, limited by how long tracing has lasted: a measurement costs two clock
/// readings per run, and starting and ending it patches the kernel's code.
const MAX_PAUSE: Duration = Duration::from_millis(2800);

/// What is counted while tracing goes on.
#[derive(Debug)]
pub(crate) struct Counters {
    pub(crate) window: Window,
    pub(crate) received: Received,
}

/// The state that readers share with the thread: counters mean nothing without knowing what the windows stand for.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) window: Window,
    pub(crate) received: Received,
    pub(crate) cost: Cost,
    pub(crate) one_in: u32,
    pub(crate) missing: Vec<NotAvailable>,
    /// When tracing ended because it cost too much.
    pub(crate) detached: Option<Instant>,
    stop: bool,
}

#[derive(Debug)]
struct Shared {
    status: Mutex<Status>,
    stopped: Condvar,
}

/// The budget thread. Dropping it detaches everything.
#[derive(Debug)]
pub(crate) struct BudgetThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl BudgetThread {
    /// Takes over attached programs and their open window.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        budget: Budget,
        probes: Vec<Probe>,
        counters: Counters,
        per_run: PerRun,
        missing: Vec<NotAvailable>,
    ) -> io::Result<Self> {
        let Counters { window, received } = counters;
        let status = Status {
            window,
            received,
            cost: Cost::default(),
            one_in: 1,
            missing,
            detached: None,
            stop: false,
        };
        let shared = Arc::new(Shared { status: Mutex::new(status), stopped: Condvar::new() });
        let worker = Worker {
            budget,
            probes,
            meter: Meter::new(per_run),
            shared: Arc::clone(&shared),
            switching: Duration::ZERO,
            started: Instant::now(),
            measured: Instant::now(),
            random: RandomState::new(),
            windows: 0,
        };
        // Signals are for other threads; the new one inherits this mask.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let thread = thread::Builder::new().name("gleaner-budget".to_owned()).spawn(move || worker.run());
        mask.thread_set_mask()?;
        let thread = thread?;
        Ok(Self { shared, thread: Some(thread) })
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.shared.status()
    }
}

impl Drop for BudgetThread {
    fn drop(&mut self) {
        self.shared.status().stop = true;
        self.shared.stopped.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic has detached its programs.
            let _ = thread.join();
        }
    }
}

impl Status {
    /// Stops counting.
    fn end(&mut self) {
        self.received.end();
        self.detached = Some(Instant::now());
    }
}

impl Shared {
    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits; `Break` once the tracer is dropped.
    fn wait(&self, time: Duration) -> ControlFlow<()> {
        let status = self.status();
        let waited = self.stopped.wait_timeout_while(status, time, |status| !status.stop);
        let (status, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if status.stop { Break(()) } else { Continue(()) }
    }
}

/// State of the budget thread.
struct Worker {
    budget: Budget,
    probes: Vec<Probe>,
    meter: Meter,
    shared: Arc<Shared>,
    /// CPU time for opening and closing the previous window.
    switching: Duration,
    started: Instant,
    /// Time of the latest measurement.
    measured: Instant,
    random: RandomState,
    windows: u64,
}

impl Worker {
    fn run(mut self) {
        while let Continue(()) = self.round() {}
        let mut status = self.shared.status();
        if !status.stop && status.detached.is_none() {
            // The programs' window can no longer be changed.
            status.end();
            let why = Reason::Forbidden { detail: "the programs' window cannot be written".to_owned() };
            status.missing.push(NotAvailable::new("everything from now on", why));
        }
    }

    /// One measurement, or one window.
    fn round(&mut self) -> ControlFlow<()> {
        let one_in = self.shared.status().one_in;
        let measured = if one_in == 1 { self.measure_attached()? } else { self.window(one_in)? };
        let Some(measured) = measured else { return Continue(()) };
        self.decide(&measured, one_in)
    }

    /// Measures while everything is attached.
    fn measure_attached(&mut self) -> ControlFlow<(), Option<Measured>> {
        let started = Meter::start(&self.probes);
        self.shared.wait(MEASUREMENT_TIME)?;
        let measured = started.map(|started| self.meter.end(&started, &self.probes, None));
        if measured.as_ref().is_none_or(|m| m.cost(1).share <= self.budget.sample_above) {
            self.shared.wait(self.pause())?;
        }
        Continue(measured)
    }

    fn pause(&self) -> Duration {
        MAX_PAUSE.min(self.started.elapsed())
    }

    /// Opens a window at a random place in the time that it stands for, so that periodic events are not seen always or
    /// never. Measures the cost now and then.
    fn window(&mut self, one_in: u32) -> ControlFlow<(), Option<Measured>> {
        let rest = WINDOW * (one_in - 1);
        let before = rest.mul_f64(self.random_fraction());
        self.shared.wait(before)?;
        let started_at = own_time();
        let started = (self.measured.elapsed() >= self.pause()).then(|| Meter::start(&self.probes)).flatten();
        for probe in &mut self.probes {
            if probe.program.windowed {
                // It was attached before. If it cannot be now, it is missing in this window.
                let _ = probe.attachment.attach();
            }
        }
        let opened = self.shared.status().window.open(one_in);
        let opening = own_time().saturating_sub(started_at);
        self.shared.wait(WINDOW)?;
        let started_at = own_time();
        let length = self.shared.status().window.close();
        let (Ok(()), Ok(length)) = (opened, length) else { return Break(()) };
        let measured = started.map(|started| {
            let opened = OpenFor { length, switching: self.switching };
            self.measured = Instant::now();
            self.meter.end(&started, &self.probes, Some(opened))
        });
        self.detach_windowed();
        if measured.is_none() {
            self.switching = opening + (own_time().saturating_sub(started_at));
        }
        // A window that was open for longer stands for more.
        self.shared.wait((length * one_in).saturating_sub(before + length))?;
        Continue(measured)
    }

    fn detach_windowed(&mut self) {
        self.probes
            .iter_mut()
            .filter(|probe| probe.program.windowed)
            .for_each(|probe| probe.attachment.detach());
    }

    /// A new number between 0 and 1.
    fn random_fraction(&mut self) -> f64 {
        self.windows += 1;
        self.random.hash_one(self.windows) as f64 / u64::MAX as f64
    }

    fn decide(&mut self, measured: &Measured, one_in: u32) -> ControlFlow<()> {
        let verdict = self.budget.judge(measured, one_in);
        self.shared.status().cost = measured.cost(one_in);
        match verdict {
            Verdict::Always if one_in == 1 => Continue(()),
            Verdict::Always => self.trace_always(),
            Verdict::Windows(_) if one_in == 1 => self.start_windows(measured),
            Verdict::Windows(next) => self.trace_in_windows(measured, next),
            Verdict::Shed => {
                self.shed(measured, one_in);
                self.trace_in_windows(measured, MAX_ONE_IN)
            }
            Verdict::Detach => {
                self.end(measured, one_in);
                Break(())
            }
        }
    }

    fn trace_always(&mut self) -> ControlFlow<()> {
        for probe in &mut self.probes {
            if let Err(error) = probe.attachment.attach() {
                let what = probe.program.what();
                let why =
                    Reason::Rejected { program: probe.program.name.to_owned(), detail: error.to_string() };
                self.shared.status().missing.push(NotAvailable::new(what, why));
            }
        }
        let mut status = self.shared.status();
        status.one_in = 1;
        if status.window.open(1).is_ok() { Continue(()) } else { Break(()) }
    }

    /// The first detaching shows what windows cost, and so how rare they must be.
    fn start_windows(&mut self, measured: &Measured) -> ControlFlow<()> {
        if self.shared.status().window.close().is_err() {
            return Break(());
        }
        let started_at = own_time();
        self.detach_windowed();
        // Attaching takes as long as detaching.
        self.switching = (own_time().saturating_sub(started_at)) * 2;
        let measured = measured.clone().switched(self.switching);
        let next = match self.budget.judge(&measured, 1) {
            Verdict::Windows(next) => next,
            _ => MAX_ONE_IN,
        };
        self.trace_in_windows(&measured, next)
    }

    fn trace_in_windows(&mut self, measured: &Measured, next: u32) -> ControlFlow<()> {
        let mut status = self.shared.status();
        status.one_in = next;
        status.cost = measured.cost(next);
        Continue(())
    }

    /// Detaches the costliest optional program that windows do not detach. One that costs next to nothing stays:
    /// detaching it would not help.
    fn shed(&mut self, measured: &Measured, one_in: u32) {
        let cost = measured.cost(one_in);
        let min_share = (cost.share - cost.windows) / 20.0;
        let shares = measured.programs.iter().filter(|share| !share.windowed);
        let detachable =
            |name: &str| self.probes.iter().position(|p| p.program.name == name && p.program.gives.is_some());
        let costliest = shares
            .filter_map(|share| Some((detachable(share.name)?, share.share)))
            .filter(|(_, share)| *share > min_share)
            .max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((index, share)) = costliest else { return };
        let probe = self.probes.swap_remove(index);
        let what = probe.program.what();
        drop(probe);
        let detail = format!(
            "it cost {:.2} % of the CPU time in use and was given up, since tracing is allowed to cost {:.1} % in all",
            100.0 * share,
            100.0 * self.budget.sample_above
        );
        self.shared.status().missing.push(NotAvailable::new(what, Reason::TooExpensive { detail }));
    }

    fn end(&mut self, measured: &Measured, one_in: u32) {
        self.probes.clear();
        let mut status = self.shared.status();
        status.end();
        let detail = format!(
            "tracing cost {:.1} % of the CPU time in use although it followed threads for one {one_in}th of the time only, \
             more than the {:.1} % allowed: it has ended",
            100.0 * measured.cost(one_in).share,
            100.0 * self.budget.detach_above,
        );
        status.missing.push(NotAvailable::new("everything from now on", Reason::TooExpensive { detail }));
    }
}
