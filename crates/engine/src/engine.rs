//! The loop: wait, observe, decide, journal, apply.

mod account;

use std::time::Duration;

use gleaner_policy::{Decision, Observation, Policy, Setting, Watch};
use gleaner_proto::journal::{Names, Summary};

pub use self::account::Account;
use crate::journal::Journal;
use crate::machine::{Machine, Wait, Wake};

/// Time until the first observation: long enough for the program to be running.
pub const FIRST_SAMPLE: Duration = Duration::from_millis(10);
/// Time between observations once nothing is controlled any more.
const UNCONTROLLED_INTERVAL: Duration = Duration::from_millis(500);

/// Drives `policy` on `machine` until the workload ends or the user asks to stop, then restores the machine.
pub fn run<M: Wait>(machine: &mut M, policy: &mut Policy, journal: &mut Journal) -> Summary {
    let mut run = Run::new(machine, policy, journal);
    let mut pause = run.start(machine);
    while let Some(Pause { length, watch }) = pause {
        let wake = machine.wait(length, watch);
        pause = run.resume(machine, wake);
    }
    run.end(machine)
}

/// One run of a policy on a machine, from pause to pause. The driver lets the time pass in between, so that one
/// thread can drive many runs.
///
/// When a lever or sensor fails, the untouched setting is put in force and held for the rest of the run: a
/// setting that cannot be controlled cannot be proven either. Unless a caller waits for the workload through
/// Gleaner ([`Machine::waits_for_workload`]), the run ends there.
#[derive(Debug)]
pub struct Run<'a> {
    policy: &'a mut Policy,
    journal: &'a mut Journal,
    account: Account,
    untouched: Setting,
    in_force: Setting,
    /// After a failure: the workload is observed to its end, but not controlled.
    observes_only: bool,
}

/// How long a run wants to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Let this much time pass...
    pub length: Duration,
    /// ...unless this happens first.
    pub watch: Option<Watch>,
}

impl<'a> Run<'a> {
    /// A run that has changed nothing yet.
    pub fn new<M: Machine>(machine: &M, policy: &'a mut Policy, journal: &'a mut Journal) -> Self {
        let untouched = Setting::untouched(&machine.allowed());
        let account = Account::new(policy.fixed().cloned());
        Self { policy, journal, account, in_force: untouched.clone(), untouched, observes_only: false }
    }

    /// Puts the first setting in force. `None`, here and below, means that the run is over: call [`Run::end`].
    pub fn start<M: Machine>(&mut self, machine: &mut M) -> Option<Pause> {
        let first = Decision { setting: self.policy.setting(), next: FIRST_SAMPLE, ..Decision::default() };
        let pause = self.carry_out(machine, first);
        self.release_on_failure(machine, pause.map(Some))
    }

    /// Continues after a pause; `wake` says how it ended.
    pub fn resume<M: Machine>(&mut self, machine: &mut M, wake: Result<Wake, M::Error>) -> Option<Pause> {
        self.take_notes(machine);
        if self.observes_only {
            return matches!(wake, Ok(Wake::Observe)).then(|| self.observe_only(machine));
        }
        let pause = wake.and_then(|wake| self.step(machine, wake));
        self.release_on_failure(machine, pause)
    }

    /// Restores the machine and returns the account of the run.
    pub fn end<M: Machine>(mut self, machine: &mut M) -> Summary {
        self.release(machine);
        self.account.close()
    }

    fn step<M: Machine>(&mut self, machine: &mut M, wake: Wake) -> Result<Option<Pause>, M::Error> {
        if wake != Wake::Observe {
            if let Ok(o) = machine.observe() {
                self.account.interval(&self.in_force, &o);
                self.journal.last_step(&self.in_force, &o);
            }
            self.take_notes(machine);
            return Ok(None);
        }
        let o = machine.observe()?;
        let decision = self.decide(&o);
        self.carry_out(machine, decision).map(Some)
    }

    fn decide(&mut self, o: &Observation) -> Decision {
        self.account.interval(&self.in_force, o);
        let decision = self.policy.step(o);
        self.account.events(&decision.events);
        self.journal.step(&self.in_force, o, &decision.events, &Names::default());
        decision
    }

    fn carry_out<M: Machine>(&mut self, machine: &mut M, decision: Decision) -> Result<Pause, M::Error> {
        if decision.setting != self.in_force {
            for note in machine.apply(&decision.setting)? {
                self.journal.note(machine.now(), note);
            }
            self.in_force = decision.setting;
        }
        if decision.reset_poll_limits {
            machine.reset_poll_limits()?;
        }
        machine.sense(decision.sense);
        Ok(Pause { length: decision.next, watch: decision.watch })
    }

    /// The next pause. A failed step is the last one that controls anything.
    fn release_on_failure<M: Machine>(
        &mut self,
        machine: &mut M,
        step: Result<Option<Pause>, M::Error>,
    ) -> Option<Pause> {
        let error = match step {
            Ok(pause) => return pause,
            Err(error) => error,
        };
        self.observes_only = machine.waits_for_workload();
        let rest = if self.observes_only { "and only watches from here on" } else { "and ends" };
        let text = format!("{error}; Gleaner releases its setting {rest}");
        self.journal.note(machine.now(), text.clone());
        self.journal.flush();
        machine.warn(&text);
        self.account.not_in_force(text);
        self.release(machine);
        self.observes_only.then_some(Pause { length: UNCONTROLLED_INTERVAL, watch: None })
    }

    fn observe_only<M: Machine>(&mut self, machine: &mut M) -> Pause {
        if let Ok(o) = machine.observe() {
            self.account.interval(&self.untouched, &o);
        }
        Pause { length: UNCONTROLLED_INTERVAL, watch: None }
    }

    /// Puts the untouched setting in force. Failures only go to the journal, since the leases undo what they
    /// can later.
    fn release<M: Machine>(&mut self, machine: &mut M) {
        match machine.apply(&self.untouched) {
            Ok(notes) => notes.into_iter().for_each(|note| self.journal.note(machine.now(), note)),
            Err(error) => {
                let text = format!("{} could not be put back in force: {error}", self.untouched);
                self.journal.note(machine.now(), text);
            }
        }
    }

    fn take_notes<M: Machine>(&mut self, machine: &mut M) {
        for note in machine.take_notes() {
            self.journal.note(machine.now(), note);
        }
    }
}

#[cfg(test)]
mod tests;
