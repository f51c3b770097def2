//! This machine for one workload, behind the [`Machine`] trait, with this process's signals.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use gleaner_policy::{CpuSet, Observation, Sense, Setting, Watch, WorkloadId};
use nix::sys::signal::{Signal, raise};
use nix::unistd::Pid;

use super::LiveError;
use super::fleet::{Fleet, MemberParts, Moment};
use super::wait::{self, Sender, Signals};
use crate::lease::{LeaseBook, Outcome};
use crate::machine::{Machine, Wait, Wake};

/// The components of a [`LiveMachine`].
#[derive(Debug)]
pub struct Parts {
    /// The leases; sensors read under the same root.
    pub book: LeaseBook,
    /// The workload.
    pub member: MemberParts,
    /// Signals sent to this process.
    pub signals: Signals,
    /// If the workload is a command that this process started, its PID: signals are forwarded to it. Otherwise they end
    /// the control.
    pub child: Option<Pid>,
    /// Prints a sentence for the user at once.
    pub warn: fn(&str),
}

/// This machine, for one workload: a fleet of one.
#[derive(Debug)]
pub struct LiveMachine {
    fleet: Fleet,
    signals: Signals,
    child: Option<Pid>,
    allowed: CpuSet,
    in_force: Setting,
    /// Whether the latest wait was the last one.
    over: bool,
    warn: fn(&str),
}

/// The workload of a [`LiveMachine`].
const ONLY: WorkloadId = WorkloadId(0);

impl LiveMachine {
    /// Starts to observe the workload, without changing anything.
    ///
    /// # Errors
    /// A sensor cannot be opened.
    pub fn new(parts: Parts) -> Result<Self, LiveError> {
        let Parts { book, member, signals, child, warn } = parts;
        let allowed = member.allowed.clone();
        let mut fleet = Fleet::new(book, allowed.clone(), &signals, warn)?;
        fleet.join(ONLY, member)?;
        let in_force = Setting::untouched(&allowed);
        Ok(Self { fleet, signals, child, in_force, allowed, over: false, warn })
    }

    /// Restores everything.
    pub fn close(self) -> Vec<Outcome> {
        self.fleet.close()
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
            if let Some(child) = self.child {
                arrived.forward(child);
            }
            match arrived.number {
                libc::SIGTSTP => self.pause()?,
                // The kernel has already continued the process.
                libc::SIGCONT => {}
                _ if self.child.is_none() => return Ok(Some(Wake::Stop)),
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

    /// See [`Wait::wait`].
    fn wait_until_due(&mut self, next: Duration, watch: Option<Watch>) -> Result<Wake, LiveError> {
        let end = Instant::now() + next;
        self.fleet.watch(ONLY, watch);
        loop {
            if self.fleet.ended(ONLY) {
                return Ok(Wake::Ended);
            }
            if Instant::now() >= end {
                return Ok(Wake::Observe);
            }
            let until = self.fleet.next_sample().map_or(end, |sample| end.min(sample));
            if wait::wait(&self.signals, self.fleet.fds(), until)?
                && let Some(wake) = self.handle_signals()?
            {
                return Ok(wake);
            }
            if !self.fleet.reported()?.is_empty() {
                return Ok(Wake::Observe);
            }
        }
    }
}

impl Machine for LiveMachine {
    type Error = LiveError;

    fn now(&self) -> Duration {
        self.fleet.now()
    }

    fn allowed(&self) -> CpuSet {
        self.allowed.clone()
    }

    /// A command's caller waits for it through Gleaner; a workload that Gleaner attached to has a caller of its
    /// own.
    fn waits_for_workload(&self) -> bool {
        self.child.is_some()
    }

    fn warn(&mut self, sentence: &str) {
        (self.warn)(sentence);
    }

    fn take_notes(&mut self) -> Vec<String> {
        self.fleet.take_notes(ONLY)
    }

    fn sense(&mut self, what: Sense) {
        self.fleet.sense(ONLY, what);
    }

    fn observe(&mut self) -> Result<Observation, LiveError> {
        self.fleet.check_right()?;
        // Reading a progress counter must delay neither a signal nor the end of the workload.
        let signals = [self.signals.as_fd()];
        let urgent = (!self.over).then_some(signals.as_slice());
        Ok(self.fleet.observe_member(ONLY, urgent, Moment::Now)?)
    }

    fn reset_poll_limits(&mut self) -> Result<(), LiveError> {
        Ok(self.fleet.reset_poll_limits()?)
    }

    fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, LiveError> {
        self.fleet.set_active(ONLY, &setting.active)?;
        self.fleet.retain(setting.retention)?;
        self.in_force = setting.clone();
        Ok(self.fleet.take_notes(ONLY))
    }
}

impl Wait for LiveMachine {
    fn wait(&mut self, next: Duration, watch: Option<Watch>) -> Result<Wake, LiveError> {
        let wake = self.wait_until_due(next, watch)?;
        self.over = wake != Wake::Observe;
        Ok(wake)
    }
}
