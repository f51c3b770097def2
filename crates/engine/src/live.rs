//! This machine, controlled for one workload: sensors, levers and signals behind the [`Machine`] trait.

mod child;
mod counter;
mod levers;
mod sensors;
mod wait;

use std::time::{Duration, Instant};

use gleaner_kernel::lever::LeverError;
use gleaner_kernel::lever::yield_threads::StartError;
use gleaner_kernel::workload::WorkloadSensor;
use gleaner_kernel::{KernelError, Root};
use gleaner_policy::{CpuId, CpuSet, Method, Observation, Setting, Watch};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

pub use child::{Child, SpawnError, spawn};
pub use counter::Counter;
pub use levers::Place;
pub use wait::{ProcessFd, Signals};

use crate::lease::{LeaseBook, LeaseError, Outcome};
use crate::machine::{Machine, Wake};
use levers::Levers;
use sensors::Sensors;

/// What can go wrong while a workload is controlled.
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
    /// The user's progress counter could not be read.
    #[error("cannot read the progress counter {counter}: {reason}")]
    Progress {
        /// The counter.
        counter: String,
        /// What is wrong.
        reason: String,
    },
    /// A process cannot be watched.
    #[error("cannot watch process {pid}: {source}")]
    Process {
        /// Its number.
        pid: i32,
        /// What the kernel answered.
        source: std::io::Error,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was attempted.
        what: &'static str,
        /// What the kernel answered.
        source: std::io::Error,
    },
}

impl LiveError {
    fn io(what: &'static str, errno: nix::errno::Errno) -> Self {
        Self::Io { what, source: errno.into() }
    }
}

/// What a [`LiveMachine`] is made of.
#[derive(Debug)]
pub struct Parts {
    /// The leases; their root is where sensors read.
    pub book: LeaseBook,
    /// How the active set is controlled.
    pub place: Place,
    /// The workload's counters.
    pub workload: WorkloadSensor,
    /// The user's progress counter.
    pub counter: Option<Counter>,
    /// The vCPUs that the workload may use.
    pub allowed: CpuSet,
    /// The signals of this process.
    pub signals: Signals,
    /// The process whose end is the end of the workload; without one, the end of the last process is.
    pub process: Option<(Pid, ProcessFd)>,
    /// Whether the process is our child: signals are then forwarded, otherwise they end the control.
    pub forward: bool,
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
    /// vCPUs whose polling was taken away and that have not halted since, with their halts at that time.
    unsettled: Vec<(CpuId, u64)>,
}

impl LiveMachine {
    /// Begins to watch the workload; nothing is changed yet.
    ///
    /// # Errors
    /// A sensor cannot be opened.
    pub fn new(parts: Parts) -> Result<Self, LiveError> {
        let Parts { book, place, workload, counter, allowed, signals, process, forward } = parts;
        let root: Root = book.root().clone();
        Ok(Self {
            sensors: Sensors::new(&root, workload, counter, allowed.clone())?,
            levers: Levers::new(book, place, allowed.clone()),
            signals,
            process,
            forward,
            in_force: Setting::untouched(&allowed),
            allowed,
            unsettled: Vec::new(),
        })
    }

    /// Puts everything back.
    pub fn close(self) -> Vec<Outcome> {
        self.levers.close()
    }

    fn handle_signals(&mut self) -> Result<Option<Wake>, LiveError> {
        while let Some(arrived) = self.signals.next()? {
            if arrived.signal == Signal::SIGTSTP {
                self.pause()?;
            } else if !self.forward {
                return Ok(Some(Wake::Stop));
            }
            if let (true, false, Some((pid, _))) = (self.forward, arrived.to_group, &self.process) {
                // The workload may just have ended; that is seen next.
                let _ = kill(*pid, arrived.signal);
            }
        }
        Ok(None)
    }

    /// The terminal stops the job: let go of the machine while stopped.
    fn pause(&mut self) -> Result<(), LiveError> {
        let setting = self.in_force.clone();
        let untouched = Setting::untouched(&self.allowed);
        self.apply(&untouched)?;
        kill(Pid::this(), Signal::SIGSTOP).map_err(|e| LiveError::io("stop", e))?;
        self.apply(&setting)?;
        Ok(())
    }

    fn has_ended(&self) -> bool {
        match &self.process {
            Some((_, process)) => process.ended(),
            None => self.sensors.processes() == 0,
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

    fn wait(&mut self, next: Duration, watch: Option<Watch>) -> Result<Wake, LiveError> {
        let end = Instant::now() + next;
        let mut matched = 0;
        loop {
            if self.has_ended() {
                return Ok(Wake::Ended);
            }
            let now = Instant::now();
            if now >= end {
                return Ok(Wake::Observe);
            }
            let look = watch.map_or(end, |w| end.min(now + w.every));
            if wait::wait(&self.signals, self.process.as_ref().map(|(_, p)| p), look)? {
                if let Some(wake) = self.handle_signals()? {
                    return Ok(wake);
                }
                continue;
            }
            if let Some(watch) = watch {
                matched = if watch.matches(self.sensors.runnable()?) { matched + 1 } else { 0 };
                if matched >= watch.times {
                    return Ok(Wake::Observe);
                }
            }
        }
    }

    fn observe(&mut self) -> Result<Observation, LiveError> {
        let mut o = self.sensors.observe(self.levers.yield_threads())?;
        let sensors = &self.sensors;
        self.unsettled.retain(|(cpu, halts)| sensors.halts(*cpu) == *halts);
        o.settled = self.unsettled.is_empty();
        Ok(o)
    }

    fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, LiveError> {
        let polled = self.in_force.retention.method == Method::Haltpoll;
        let sensors = &mut self.sensors;
        let notes = self.levers.apply(setting, || sensors.threads())?;
        if polled && setting.retention.method != Method::Haltpoll {
            self.unsettled = setting.active.iter().map(|cpu| (cpu, self.sensors.halts(cpu))).collect();
        } else if setting.retention.is_on() {
            self.unsettled.clear();
        }
        self.in_force = setting.clone();
        Ok(notes)
    }
}
