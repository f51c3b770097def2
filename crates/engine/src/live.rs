//! This machine, controlled for one workload: sensors, levers and signals behind the [`Machine`] trait.

mod child;
mod counter;
mod fleet;
mod levers;
mod overload;
mod sensors;
mod sockets;
mod wait;
mod waiting;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use gleaner_kernel::idle::IdleSensor;
use gleaner_kernel::lever::LeverError;
use gleaner_kernel::lever::yield_threads::StartError;
use gleaner_kernel::stat::StatSensor;
use gleaner_kernel::workload::WorkloadSensor;
use gleaner_kernel::{KernelError, Root};
use gleaner_policy::{CpuId, CpuSet, Method, Observation, Overload, Retention, Setting, Watch};
use nix::sys::signal::{Signal, raise};
use nix::unistd::Pid;

pub use child::{Child, SpawnError, become_command, spawn, wait_for_exit};
pub use counter::Counter;
pub use fleet::{Fleet, FleetError, MemberParts};
pub use levers::ActiveSetLever;
pub use overload::{OverloadQuery, OverloadWatch};
pub use sockets::TrafficSensor;
pub use wait::{ProcessFd, Signals};
pub use waiting::WaitingSensor;

use crate::lease::{LeaseBook, LeaseError, Outcome};
use crate::machine::{Machine, Wait, Wake};
use counter::CounterReader;
use levers::Levers;
use overload::{OverloadMonitor, Samples};
use sensors::Sensors;
use sockets::Traffic;
use wait::Sender;
use waiting::Waits;

/// What can fail while a workload is controlled.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A sensor failed.
    #[error(transparent)]
    Sensor(#[from] KernelError),
    /// A lever failed.
    #[error(transparent)]
    Lever(#[from] LeverError),
    /// A lease could not be taken.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The yield threads could not be started.
    #[error(transparent)]
    Yield(#[from] StartError),
    /// A process cannot be waited for.
    #[error("cannot watch process {pid}: {source}")]
    Process {
        /// PID of the process.
        pid: i32,
        /// The kernel's error.
        r#source: std::io::Error,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// The operation, as a verb phrase.
        what: &'static str,
        /// The kernel's error.
        r#source: std::io::Error,
    },
}

impl LiveError {
    fn io(what: &'static str, errno: nix::errno::Errno) -> Self {
        Self::Io { what, source: errno.into() }
    }
}

/// The components of a [`LiveMachine`].
#[derive(Debug)]
pub struct Parts {
    /// The leases; sensors read under the same root.
    pub book: LeaseBook,
    /// How the active set is controlled.
    pub place: ActiveSetLever,
    /// The workload's counters.
    pub workload: WorkloadSensor,
    /// The user's progress counter.
    pub counter: Option<Counter>,
    /// The vCPUs that the workload is allowed to use.
    pub allowed: CpuSet,
    /// Signals sent to this process.
    pub signals: Signals,
    /// The process whose end is the workload's end; without one, that is the end of its last process.
    pub process: Option<(Pid, ProcessFd)>,
    /// Whether the process is our child: then signals are forwarded to it, otherwise they end the control.
    pub forward: bool,
    /// Reports overload of a smaller set, if available.
    pub overloads: Option<Box<dyn OverloadWatch>>,
    /// Measures how long the workload's threads wait after a wake-up, if available.
    pub waiting: Option<Box<dyn WaitingSensor>>,
    /// Counts the workload's socket traffic, if available.
    pub traffic: Option<Box<dyn TrafficSensor>>,
    /// The cost of waking a halted vCPU, to estimate what is not measured.
    pub wake_cost: Duration,
    /// Prints a sentence for the user at once.
    pub warn: fn(&str),
}

/// This machine, for one workload.
#[derive(Debug)]
pub struct LiveMachine {
    sensors: Sensors,
    levers: Levers,
    signals: Signals,
    process: Option<(Pid, ProcessFd)>,
    forward: bool,
    allowed: CpuSet,
    in_force: Setting,
    /// vCPUs that have not halted since their polling was turned off, each with its halts at that time.
    unsettled: Vec<(CpuId, u64)>,
    /// How long these poll before they halt.
    polled: Duration,
    overload_monitor: OverloadMonitor,
    /// The overload that ended the latest wait.
    overload: Option<Overload>,
    /// Whether the latest wait was the last one.
    over: bool,
    warn: fn(&str),
}

/// Checks whether workloads can be observed here, as far as that is known without one.
///
/// # Errors
/// A sensor that every workload needs is missing.
pub fn check(root: &Root) -> Result<(), LiveError> {
    IdleSensor::new(root)?.read()?;
    StatSensor::new(root)?.read()?;
    ProcessFd::open(Pid::this()).map(drop)
}

impl LiveMachine {
    /// Starts to observe the workload, without changing anything.
    ///
    /// # Errors
    /// A sensor cannot be opened.
    pub fn new(parts: Parts) -> Result<Self, LiveError> {
        let Parts { book, place, workload, counter, allowed, signals, process, forward, .. } = parts;
        let (overloads, warn) = (parts.overloads, parts.warn);
        let (waits, traffic) = (Waits::new(parts.waiting, parts.wake_cost), Traffic::new(parts.traffic));
        let root: Root = book.root().clone();
        let counter = counter.map(|counter| CounterReader::new(counter, signals.before(), warn));
        Ok(Self {
            sensors: Sensors::new(&root, workload, counter, (waits, traffic), allowed.clone())?,
            levers: Levers::new(book, place, allowed.clone()),
            signals,
            process,
            forward,
            in_force: Setting::untouched(&allowed),
            allowed,
            unsettled: Vec::new(),
            polled: Duration::ZERO,
            overload_monitor: OverloadMonitor::new(overloads),
            overload: None,
            over: false,
            warn,
        })
    }

    /// Restores everything.
    pub fn close(self) -> Vec<Outcome> {
        self.levers.close()
    }

    fn handle_signals(&mut self) -> Result<Option<Wake>, LiveError> {
        while let Some(arrived) = self.signals.next()? {
            match arrived.sender {
                // The failed write reports it.
                Sender::OwnWrite => continue,
                // The next one is SIGKILL: release everything now.
                Sender::OwnCpuTime => return Ok(Some(Wake::Stop)),
                Sender::Terminal | Sender::Other => {}
            }
            if let (true, Some((pid, _))) = (self.forward, &self.process) {
                arrived.forward(*pid);
            }
            match arrived.number {
                libc::SIGTSTP => self.pause()?,
                // The kernel has already continued the process.
                libc::SIGCONT => {}
                _ if !self.forward => return Ok(Some(Wake::Stop)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// The terminal stops the job: no setting stays in force while it is stopped.
    fn pause(&mut self) -> Result<(), LiveError> {
        let setting = self.in_force.clone();
        let untouched = Setting::untouched(&self.allowed);
        self.apply(&untouched)?;
        raise(Signal::SIGSTOP).map_err(|e| LiveError::io("stop", e))?;
        self.apply(&setting)?;
        Ok(())
    }

    /// Removes vCPUs that have halted since their polling was turned off.
    fn remove_halted(&mut self) -> Result<(), LiveError> {
        if !self.unsettled.is_empty() {
            let now = self.sensors.read_halts()?;
            self.unsettled.retain(|known| now.contains(known));
        }
        Ok(())
    }

    /// Waits, within bounds, until the vCPUs `of` have halted.
    fn await_halts(&mut self, of: &[CpuId]) -> Result<(), LiveError> {
        // The longest poll limit that a latency request leaves behind (a sixteenth of a tick at 100 Hz), and
        // the same again.
        let end = Instant::now() + self.polled.max(Duration::from_micros(750)) + Duration::from_micros(750);
        while self.unsettled.iter().any(|(cpu, _)| of.contains(cpu)) && Instant::now() < end {
            std::thread::sleep(Duration::from_micros(200));
            self.remove_halted()?;
        }
        Ok(())
    }

    fn has_ended(&self) -> bool {
        match &self.process {
            Some((_, process)) => process.ended(),
            None => self.sensors.processes() == 0 || !self.sensors.has_workload(),
        }
    }

    /// See [`Wait::wait`].
    fn wait_until_due(&mut self, next: Duration, watch: Option<Watch>) -> Result<Wake, LiveError> {
        let end = Instant::now() + next;
        let Retention { method, limit } = self.in_force.retention;
        let polled = if method == Method::Haltpoll { limit } else { Duration::ZERO };
        let reported = self.overload_monitor.arm(watch, &self.in_force.active, polled);
        let mut samples = watch.filter(|_| !reported).map(Samples::new);
        loop {
            if self.has_ended() {
                return Ok(Wake::Ended);
            }
            let now = Instant::now();
            if now >= end {
                return Ok(Wake::Observe);
            }
            let until = samples.as_ref().map_or(end, |samples| end.min(now + samples.every()));
            let process = self.process.as_ref().map(|(_, process)| process);
            if wait::wait(&self.signals, process, self.overload_monitor.fd(), until)? {
                if let Some(wake) = self.handle_signals()? {
                    return Ok(wake);
                }
                self.overload = self.overload_monitor.reported();
                if self.overload.is_some() {
                    return Ok(Wake::Observe);
                }
                continue;
            }
            if let Some(samples) = &mut samples {
                let sensors = &mut self.sensors;
                let (enough, overload) = samples.take(sensors.runnable()?, || sensors.run_delay())?;
                if enough {
                    self.overload = overload;
                    return Ok(Wake::Observe);
                }
            }
        }
    }
}

impl Machine for LiveMachine {
    type Error = LiveError;

    fn now(&self) -> Duration {
        self.sensors.now()
    }

    fn allowed(&self) -> CpuSet {
        self.allowed.clone()
    }

    /// A command's caller waits for it through Gleaner; a workload that Gleaner attached to has a caller of its
    /// own.
    fn waits_for_workload(&self) -> bool {
        self.forward
    }

    fn warn(&mut self, sentence: &str) {
        (self.warn)(sentence);
    }

    fn take_notes(&mut self) -> Vec<String> {
        self.overload_monitor.take_note().into_iter().chain(self.sensors.take_notes()).collect()
    }

    fn sense_waiting(&mut self, wanted: bool) {
        self.sensors.waits().set_wanted(wanted);
    }

    fn observe(&mut self) -> Result<Observation, LiveError> {
        self.levers.check_right(self.sensors.now())?;
        // Reading a progress counter must delay neither a signal nor the end of the workload.
        let mut urgent = vec![self.signals.as_fd()];
        urgent.extend(self.process.as_ref().map(|(_, process)| process.as_fd()));
        let urgent = (!self.over).then_some(urgent.as_slice());
        let mut o = self.sensors.observe(self.levers.yield_threads(), urgent)?;
        self.remove_halted()?;
        o.settled = self.unsettled.is_empty();
        o.overload = self.overload.take();
        Ok(o)
    }

    /// A vCPU with nothing to run halts once its poll limit has passed, and that resets the limit: so each half
    /// of the active vCPUs is vacated in turn until all of it has halted. Other programs can keep a vCPU from
    /// halting; the wait is bounded, and the next observation reports such a vCPU as not settled.
    fn reset_poll_limits(&mut self) -> Result<(), LiveError> {
        let active: Vec<CpuId> = self.in_force.active.iter().collect();
        if active.len() < 2
            || self.unsettled.is_empty()
            || self.sensors.threads()?.len() > self.levers.most_threads()
        {
            return Ok(());
        }
        let (low, high) = active.split_at(active.len() / 2);
        for half in [high, low] {
            let sensors = &mut self.sensors;
            self.levers.vacate(&half.iter().copied().collect(), || sensors.threads())?;
            self.await_halts(half)?;
        }
        let sensors = &mut self.sensors;
        self.levers.reoccupy(|| sensors.threads())
    }

    fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, LiveError> {
        let polls = |method| matches!(method, Method::Haltpoll | Method::QosPoll);
        let polled = polls(self.in_force.retention.method);
        let sensors = &mut self.sensors;
        let notes = self.levers.apply(setting, || sensors.threads())?;
        if polled && !polls(setting.retention.method) {
            let halts = self.sensors.read_halts()?;
            self.polled = self.in_force.retention.limit;
            self.unsettled = halts.into_iter().filter(|(cpu, _)| setting.active.contains(*cpu)).collect();
        } else if polls(setting.retention.method) {
            self.unsettled.clear();
        }
        self.in_force = setting.clone();
        Ok(notes)
    }
}

impl Wait for LiveMachine {
    fn wait(&mut self, next: Duration, watch: Option<Watch>) -> Result<Wake, LiveError> {
        let wake = self.wait_until_due(next, watch)?;
        self.over = wake != Wake::Observe;
        Ok(wake)
    }
}
