//! The loop: wait, observe, decide, journal, apply.

use std::time::Duration;

use gleaner_policy::{Decision, Event, Evidence, Policy, Setting, Verdict};
use gleaner_proto::journal::Summary;

use crate::journal::Journal;
use crate::machine::{Machine, Wake};

/// The first look after the start: long enough for the program to be running.
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// Drives `policy` on `machine` until the workload ends or the user asks to stop, and puts the machine back.
///
/// When a lever or sensor fails, the untouched setting is put in force and held for the rest of the run: a
/// setting that cannot be controlled cannot be proven either. Where nobody waits for the workload through Gleaner
/// ([`Machine::stands_by`]), the run ends there.
pub fn run<M: Machine>(machine: &mut M, policy: &mut Policy, journal: &mut Journal) -> Summary {
    let untouched = Setting::untouched(&machine.allowed());
    let mut account = Account::default();
    account.summary.fixed = policy.fixed().cloned();
    if let Err(error) = control(machine, policy, journal, &mut account, &untouched) {
        let stands_by = machine.stands_by();
        let rest = if stands_by { "and only watches from here on" } else { "and ends" };
        let text = format!("{error}; Gleaner lets go {rest}");
        journal.note(machine.now(), text.clone());
        journal.flush();
        machine.warn(&text);
        account.summary.not_in_force = Some(text);
        release(machine, journal, &untouched);
        if stands_by {
            hands_off(machine, journal, &mut account, &untouched);
        }
    }
    release(machine, journal, &untouched);
    account.summary.evidence = account.best.map(|(setting, e)| sentence(&setting, &e));
    account.summary
}

/// Puts the untouched setting in force. What fails is noted; the leases come after it and undo what they can.
fn release<M: Machine>(machine: &mut M, journal: &mut Journal, untouched: &Setting) {
    match machine.apply(untouched) {
        Ok(notes) => notes.into_iter().for_each(|note| journal.note(machine.now(), note)),
        Err(error) => {
            let text = format!("{untouched} could not be put back in force: {error}");
            journal.note(machine.now(), text);
        }
    }
}

fn take_notes<M: Machine>(machine: &mut M, journal: &mut Journal) {
    for note in machine.take_notes() {
        journal.note(machine.now(), note);
    }
}

fn control<M: Machine>(
    machine: &mut M,
    policy: &mut Policy,
    journal: &mut Journal,
    account: &mut Account,
    untouched: &Setting,
) -> Result<(), M::Error> {
    let mut in_force = untouched.clone();
    let mut decision = Decision { setting: policy.setting(), next: FIRST_LOOK, ..Decision::default() };
    loop {
        if decision.setting != in_force {
            for note in machine.apply(&decision.setting)? {
                journal.note(machine.now(), note);
            }
            in_force = decision.setting;
        }
        if decision.forget {
            machine.forget()?;
        }
        let wake = machine.wait(decision.next, decision.watch)?;
        take_notes(machine, journal);
        if wake != Wake::Observe {
            if let Ok(o) = machine.observe() {
                account.interval(&in_force, &o);
                journal.last_step(&in_force, &o);
            }
            take_notes(machine, journal);
            return Ok(());
        }
        let o = machine.observe()?;
        account.interval(&in_force, &o);
        decision = policy.step(&o);
        account.events(&decision.events);
        journal.step(&in_force, &o, &decision.events);
    }
}

fn hands_off<M: Machine>(machine: &mut M, journal: &mut Journal, account: &mut Account, untouched: &Setting) {
    const LOOK: Duration = Duration::from_millis(500);
    while let Ok(Wake::Observe) = machine.wait(LOOK, None) {
        if let Ok(o) = machine.observe() {
            account.interval(untouched, &o);
        }
        take_notes(machine, journal);
    }
}

/// What the summary is made of.
#[derive(Debug, Default)]
struct Account {
    summary: Summary,
    best: Option<(Setting, Evidence)>,
}

impl Account {
    fn interval(&mut self, in_force: &Setting, o: &gleaner_policy::Observation) {
        self.summary.count(in_force, o.period);
        self.summary.workload_cpu += o.workload.cpu_time;
        let polled: Duration = o.vcpus.iter().map(|v| v.poll_time).sum();
        // A vCPU polls on by a limit of ours until it has halted once without it.
        if in_force.retention.is_on() || !o.settled {
            self.summary.retained += polled;
        } else {
            self.summary.polled_otherwise += polled;
        }
    }

    fn events(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::TrialEnded { candidate, verdict: Verdict::Proven(e), .. } => {
                    self.summary.proven += 1;
                    if self.best.as_ref().is_none_or(|(_, best)| e.low > best.low) {
                        self.best = Some((candidate.clone(), *e));
                    }
                }
                Event::TrialEnded { .. } => self.summary.refuted += 1,
                Event::Deactivated { .. } => self.summary.deactivated += 1,
                Event::RolledBack { .. } => self.summary.rolled_back += 1,
                Event::Unfolded { .. } | Event::MajorChange { .. } => self.summary.unfolded += 1,
                Event::WouldTry { candidate, why } => self.summary.would_try(candidate, *why),
                _ => {}
            }
        }
    }
}

fn sentence(setting: &Setting, e: &Evidence) -> String {
    format!(
        "{setting}: {} ({:.2} to {:.2}, {} pairs of blocks)",
        e.signal.times(e.ratio),
        e.low,
        e.high,
        e.pairs
    )
}

#[cfg(test)]
mod tests;
