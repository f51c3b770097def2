//! Observing, deciding and carrying out, for all engaged workloads.

use std::collections::{BTreeSet, VecDeque};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use gleaner_discover::Key;
use gleaner_engine::LeaseError;
use gleaner_engine::live::FleetError;
use gleaner_kernel::lever::Target;
use gleaner_metrics::Lever;
use gleaner_policy::{Observation, Retention, WorkloadId};
use gleaner_proto::journal::Names;
use tracing::{info, warn};

use super::Daemon;
use super::membership::ENDED;
use crate::engaged::Part;

/// For so long nothing is retained after it failed.
const AFTER_FAILURE: Duration = Duration::from_secs(30);

impl Daemon {
    /// Steps every workload that is due, or whose watch has matched.
    pub(super) fn step_due(&mut self) {
        match self.fleet.reported() {
            Ok(ids) => {
                let now = Instant::now();
                for id in ids {
                    self.make_due(id, now);
                }
            }
            Err(error) => self.failed(&error),
        }
        // What says so stays readable until they are released.
        let ended = self.engaged.keys().copied().filter(|id| self.fleet.ended(*id));
        for id in ended.collect::<Vec<_>>() {
            self.make_due(id, Instant::now());
        }
        while let Some(id) = self.first_due(Instant::now()) {
            self.step(id);
        }
    }

    fn make_due(&mut self, id: WorkloadId, now: Instant) {
        if let Some(engaged) = self.engaged.get_mut(&id) {
            engaged.due = now;
        }
    }

    fn first_due(&self, now: Instant) -> Option<WorkloadId> {
        let due = self.engaged.iter().filter(|(_, e)| e.due <= now);
        due.min_by_key(|(_, e)| e.due).map(|(id, _)| *id)
    }

    /// One step of one workload, and of those that its decision concerns.
    fn step(&mut self, id: WorkloadId) {
        if self.fleet.ended(id) {
            self.leave(id, ENDED);
            return;
        }
        self.step_together(vec![id]);
    }

    /// Carries out a change that no step made, once the intervals of those whom it concerns have ended.
    pub(super) fn settle(&mut self) {
        self.step_together(self.arbiter.sample());
    }

    /// Steps these workloads, and whom their decisions concern, at the same moment, since the setting changes under
    /// them; then carries out what was decided.
    fn step_together(&mut self, ids: Vec<WorkloadId>) {
        let mut seen: BTreeSet<WorkloadId> = ids.iter().copied().collect();
        let mut queue = VecDeque::from(ids);
        let mut is_first = true;
        let mut reset = false;
        let mut errors = Vec::new();
        while let Some(id) = queue.pop_front() {
            let urgent = [self.signals.as_fd()];
            let observed =
                if is_first { self.fleet.observe(id, &urgent) } else { self.fleet.observe_too(id, &urgent) };
            match observed {
                Ok(o) => {
                    is_first = false;
                    let (resets, concerned) = self.decide(id, &o);
                    reset |= resets;
                    queue.extend(concerned.into_iter().filter(|other| seen.insert(*other)));
                }
                Err(error) => errors.push(error),
            }
        }
        for error in errors {
            self.failed(&error);
        }
        self.carry_out(reset);
    }

    /// Gives an observation to the arbiter. Returns whether poll limits are to be reset, and whose interval must end
    /// now, too.
    fn decide(&mut self, id: WorkloadId, o: &Observation) -> (bool, Vec<WorkloadId>) {
        let step = self.arbiter.step(id, o);
        let events = &step.decision.events;
        let names = Names::mentioned(events, |id| Some(self.engaged.get(&id)?.identity.name().to_owned()));
        let Some(engaged) = self.engaged.get_mut(&id) else { return (false, Vec::new()) };
        for note in self.fleet.take_notes(id) {
            engaged.journal.note(o.at, note);
        }
        let name = engaged.identity.name().to_owned();
        self.metrics.observe(&name, &engaged.in_force, o);
        engaged.stepped(o, &step.decision, &names);
        if let Some(policy) = self.arbiter.policy(id) {
            engaged.save(policy, o.at);
        }
        self.fleet.sense(id, step.decision.sense);
        for event in events {
            let sentence = gleaner_explain::decision(event, &names);
            self.metrics.event(&name, event);
            crate::log::decision(&name, event, &sentence);
            self.note(Some(name.clone()), sentence);
        }
        (step.reset_poll_limits, step.sample)
    }

    /// Puts in force what the arbiter wants, where it is not.
    pub(super) fn carry_out(&mut self, reset: bool) {
        let mut errors = Vec::new();
        for (id, engaged) in &mut self.engaged {
            let wanted = self.arbiter.setting(*id).active;
            if wanted != engaged.in_force.active {
                match self.fleet.place(*id, &wanted) {
                    Ok(()) => engaged.in_force.active = wanted,
                    Err(error) => errors.push(error),
                }
            }
        }
        let wanted = self.arbiter.retention();
        if wanted != self.retention {
            match self.fleet.retain(wanted) {
                Ok(()) => self.retention = wanted,
                Err(error) => errors.push(error),
            }
        }
        if reset && let Err(error) = self.fleet.reset_poll_limits() {
            errors.push(error);
        }
        for (id, engaged) in &mut self.engaged {
            engaged.in_force.retention = self.retention;
            self.fleet.watch(*id, engaged.watch);
        }
        for error in errors {
            self.failed(&error);
        }
    }

    /// Releases what failed, and nothing else.
    pub(super) fn failed(&mut self, error: &FleetError) {
        match error {
            FleetError::SetTaken { id, theirs } => {
                let outcomes = self.fleet.abandon_set(*id);
                self.report_outcomes(&outcomes);
                self.metrics.stepped_back(Lever::ActiveSet);
                self.give_up_set(*id, theirs);
            }
            FleetError::RetentionTaken { theirs } => {
                let outcomes = self.fleet.abandon_retention();
                self.report_outcomes(&outcomes);
                self.metrics.stepped_back(Lever::Retention);
                self.give_up_retention(theirs.to_string());
            }
            FleetError::Ended { id } => self.leave(*id, ENDED),
            FleetError::Member { id, error } => {
                let reason = error.to_string();
                if let Some(identity) = self.engaged.get(id).map(|e| &e.identity) {
                    let name = identity.name();
                    if identity.partners.is_empty() {
                        warn!(workload = name, "{name}: {reason}; it is left alone for a while");
                        self.lookout.failed(&identity.first.key);
                    } else {
                        // Whose fault it is shows when each is on its own.
                        warn!(
                            workload = name,
                            "{name}: {reason}; its partners are not placed together any more"
                        );
                        self.partners.keep_apart(identity.keys());
                    }
                }
                self.leave(*id, &reason);
            }
            FleetError::Machine(error) => {
                let outcomes = self.fleet.abandon_retention();
                self.report_outcomes(&outcomes);
                warn!("{error}: nothing is retained for {} s", AFTER_FAILURE.as_secs());
                self.rests.failed = Some((error.to_string(), Instant::now() + AFTER_FAILURE));
                self.end_retention();
            }
        }
    }

    /// The machine's retention is not ours any more.
    fn give_up_retention(&mut self, why: String) {
        warn!("{why}: nothing is retained until `gleaner resume`");
        self.note(None, why.clone());
        self.rests.taken_over = Some(why);
        self.end_retention();
    }

    /// Nothing is retained any more, as the leases have it already.
    fn end_retention(&mut self) {
        self.retention = Retention::NONE;
        for engaged in self.engaged.values_mut() {
            engaged.in_force.retention = Retention::NONE;
        }
        self.apply_rests();
    }

    /// The workload's set is not ours any more; it goes on without consolidation.
    fn give_up_set(&mut self, id: WorkloadId, theirs: &LeaseError) {
        let Some(engaged) = self.engaged.get(&id) else { return };
        let why = theirs.to_string();
        let identity = engaged.identity.clone();
        let name = identity.name();
        warn!(workload = name, "{name}: {why}: its set of vCPUs is theirs until `gleaner resume`");
        self.note(Some(name.to_owned()), why.clone());
        let is_changed = |part: &&Part| match theirs {
            LeaseError::Theirs { target: Target::UnitCpus { unit, .. }, .. } => {
                part.unit.as_ref() == Some(unit)
            }
            LeaseError::Theirs { target: Target::File(file), .. } => {
                let group = part.group.as_ref().and_then(|group| group.strip_prefix("/").ok());
                let is_in = |group: &Path| file.ancestors().any(|dir| dir.ends_with(group));
                group.is_some_and(|group| !group.as_os_str().is_empty() && is_in(group))
            }
            _ => false,
        };
        let changed: Vec<Key> = identity.parts().filter(is_changed).map(|part| part.key.clone()).collect();
        let whose = if changed.is_empty() { identity.keys().cloned().collect() } else { changed };
        self.sets_of_others.extend(whose);
        if identity.partners.is_empty() {
            self.rejoin(id, |config| config.consolidate = false);
        } else {
            self.leave(id, &why);
        }
    }

    pub(super) fn report_outcomes(&mut self, outcomes: &[gleaner_engine::Outcome]) -> Vec<String> {
        use gleaner_engine::UndoResult::{Failed, Theirs};
        let mut left_behind = Vec::new();
        for outcome in outcomes {
            match outcome.undone {
                Failed => {
                    self.metrics.undo_failed();
                    warn!("could not be put back: {}", outcome.detail);
                    left_behind.push(outcome.detail.clone());
                }
                Theirs => info!("{}", outcome.detail),
                _ => {}
            }
        }
        left_behind
    }

    pub(super) fn note(&mut self, workload: Option<String>, text: String) {
        const MOST: usize = 20;
        self.recent.push_back((Instant::now(), workload, text));
        if self.recent.len() > MOST {
            self.recent.pop_front();
        }
    }
}
