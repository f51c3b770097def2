//! Who is engaged: joining, leaving, and why somebody stays out.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, bail};
use gleaner_config::{Config, Terms};
use gleaner_discover::{Candidate, Key, Subject};
use gleaner_engine::live::{Counter, Found, MemberParts};
use gleaner_engine::{FIRST_SAMPLE, Journal, Memory, MemoryDir};
use gleaner_kernel::Root;
use gleaner_policy::{CpuSet, Method, Policy, PolicyConfig, WorkloadId};
use gleaner_proto::journal::{Record, Summary, VERSION};
use gleaner_trace::lazy;
use tracing::{info, warn};

use super::Daemon;
use super::overlap::Extent;
use crate::engaged::{Engaged, Engagement, Identity, Part};
use crate::facts::Facts;
use crate::lookout::{Judge, Lookout};

impl Daemon {
    /// Looks out for workloads, if it is time to, and engages and releases them.
    pub(super) fn look(&mut self) {
        if !self.looks_out() {
            return;
        }
        let (lookout, mut judge) = self.lookout_and_judge();
        let changes = match lookout.look(&mut judge) {
            Ok(Some(changes)) => changes,
            Ok(None) => return,
            Err(error) => {
                warn!("cannot look for workloads: {error}");
                return;
            }
        };
        self.forget_ended();
        for (key, release) in changes.release {
            if let Some(id) = self.id_of(&key) {
                self.leave(id, &release.to_string());
            }
        }
        for key in changes.engage {
            let Some(candidate) = self.lookout.get(&key).cloned() else { continue };
            if let Err(error) = self.engage_candidate(&candidate) {
                info!(workload = candidate.name, "{}: not engaged: {error:#}", candidate.name);
                self.lookout.failed(&key);
            }
        }
    }

    /// Nothing is kept of what is not there any more, but for groups that somebody has decided about: a service that is
    /// started again has the same.
    fn forget_ended(&mut self) {
        let survey = self.lookout.survey();
        self.known.retain(|key, _| survey.get(key).is_some());
        let stays = |key: &Key| matches!(key, Key::Group(_)) || survey.get(key).is_some();
        self.refused.retain(|key, _| stays(key));
        let engaged = &self.engaged;
        self.sets_of_others.retain(|key| stays(key) || engaged.values().any(|e| e.identity.has(key)));
    }

    pub(super) fn lookout_and_judge(&mut self) -> (&mut Lookout, Asked<'_>) {
        let judge = Asked {
            config: &self.loaded.config,
            facts: &self.facts,
            root: &self.root,
            known: &mut self.known,
            refused: &self.refused,
            engaged: &self.engaged,
        };
        (&mut self.lookout, judge)
    }

    pub(super) fn id_of(&self, key: &Key) -> Option<WorkloadId> {
        self.engaged.iter().find(|(_, e)| e.identity.has(key)).map(|(id, _)| *id)
    }

    fn engage_candidate(&mut self, candidate: &Candidate) -> anyhow::Result<()> {
        if self.id_of(&candidate.key).is_some() {
            bail!("it is engaged already");
        }
        let terms = self.loaded.config.terms(&subject(&candidate.subject()));
        let found = self.find(&candidate.key)?;
        let first = Part {
            name: self.free_name(&candidate.name),
            key: candidate.key.clone(),
            pid: candidate.main.as_ref().map(|main| main.pid),
            unit: candidate.unit.clone(),
            group: Some(candidate.group.clone()),
        };
        let identity = Identity { first, partners: Vec::new(), is_attached: false };
        let engagement = self.engagement(terms);
        self.engage(identity, found, engagement)?;
        self.partners.ask();
        Ok(())
    }

    /// What is needed to observe and control a workload of discovery's.
    pub(super) fn find(&self, key: &Key) -> anyhow::Result<Found> {
        if let Key::Process { pid, .. } = key {
            return Ok(Found::process(&self.root, *pid, false)?);
        }
        let candidate = self.lookout.get(key);
        let dir = candidate.and_then(|candidate| self.lookout.survey().group_dir(candidate));
        Ok(Found::group(&self.root, &dir.context("its group has gone")?)?)
    }

    /// On these terms, and for the rest as the configuration has it.
    pub(super) fn engagement(&self, terms: Terms) -> Engagement {
        Engagement { terms, memory: self.loaded.config.memory, bpf: self.loaded.config.bpf }
    }

    /// Engages a workload.
    ///
    /// # Errors
    /// It cannot be observed, or it has ended.
    pub(super) fn engage(
        &mut self,
        identity: Identity,
        found: Found,
        engagement: Engagement,
    ) -> anyhow::Result<WorkloadId> {
        if self.engaged.len() >= self.loaded.config.most_workloads as usize {
            bail!("{} workloads are engaged, as many as the configuration allows", self.engaged.len());
        }
        let Found { place, workload, allowed, heads, program, own_set, .. } = found;
        let (terms, bpf) = (&engagement.terms, engagement.bpf);
        let counter = terms.progress.as_ref().map(|text| text.parse::<Counter>()).transpose();
        let counter = counter.map_err(anyhow::Error::msg)?;
        let mut config = PolicyConfig {
            consolidate: terms.consolidate
                && own_set.is_none()
                && !identity.keys().any(|key| self.sets_of_others.contains(key)),
            most_threads: place.most_threads(),
            counter_block: counter.as_ref().map(Counter::block),
            ..policy_config(&self.facts, terms)
        };
        let traffic = bpf.then(|| lazy::traffic_sensor(workload.members()));
        let id = WorkloadId(self.next_id);
        self.next_id += 1;
        let parts = MemberParts {
            place,
            counter,
            allowed: allowed.clone(),
            heads,
            overloads: bpf.then(lazy::overload_watch),
            waiting: None,
            traffic,
            workload,
            wake_cost: self.facts.wake_cost,
        };
        self.fleet.join(id, parts)?;
        let program = program.filter(|_| engagement.memory);
        let memory = program.and_then(|program| self.memory_of(program, &config, allowed.len()));
        let mut memory = memory.unwrap_or_default();
        config.known = memory.known();
        let policy = match Policy::new(config.clone(), allowed.clone()) {
            Ok(policy) => policy,
            Err(error) => {
                self.fleet.leave(id);
                return Err(error.into());
            }
        };
        let unavailable = own_set.as_ref().map(|why| format!("consolidation: {why}"));
        let mut journal = self.start_journal(identity.name(), &allowed, &config, unavailable);
        memory.take_note().into_iter().for_each(|note| journal.note(self.fleet.now(), note));
        journal.flush();
        let note = own_set.map(|why| format!("engaged; its set of vCPUs stays as it is: {why}"));
        let note = note.unwrap_or_else(|| "engaged".to_owned());
        info!(workload = identity.name(), "{}: {note}", identity.name());
        self.note(Some(identity.name().to_owned()), note);
        self.arbiter.join(id, policy);
        self.look_at_tuned();
        let due = Instant::now() + FIRST_SAMPLE;
        self.engaged.insert(id, Engaged::new(identity, engagement, config, allowed, journal, memory, due));
        Ok(id)
    }

    /// Warns if tuned's profile, which an administrator can change at any time, sets what is about to be tried.
    pub(super) fn look_at_tuned(&mut self) {
        let warning = crate::tuned::warning(&self.root);
        if let Some(warning) = warning.as_ref().filter(|_| warning != self.tuned) {
            warn!("{warning}");
        }
        self.tuned = warning;
    }

    /// What is known of a program on this machine, which allows it so many vCPUs.
    fn memory_of(&self, program: String, config: &PolicyConfig, vcpus: usize) -> Option<Memory> {
        let dir = MemoryDir::default_place(&self.root)?;
        Some(Memory::open(&self.root, dir, config, program, vcpus, crate::log::warn_sentence))
    }

    /// Opens a workload's journal and writes its first record, or continues what this daemon has written of it.
    /// `unavailable` is what this workload lacks beside what the machine does.
    fn start_journal(
        &self,
        workload: &str,
        allowed: &CpuSet,
        config: &PolicyConfig,
        unavailable: Option<String>,
    ) -> Journal {
        let path = self.paths.journal(workload);
        let is_engaged = |name: &str| self.engaged.values().any(|e| e.identity.name() == name);
        if let Some(mut journal) = Journal::resume(&path, self.clock_start_ms, crate::log::warn_sentence) {
            journal.note(self.fleet.now(), "engaged again");
            return journal;
        }
        let room = self.paths.state.make_room_for_journal(is_engaged);
        let opened = room.and_then(|()| Journal::create(&path, true, crate::log::warn_sentence));
        let mut journal = opened.unwrap_or_else(|error| {
            warn!("no journal is kept in {}: {error}", path.display());
            Journal::disabled()
        });
        journal.write(&Record::Start {
            version: VERSION,
            unix_ms: self.clock_start_ms,
            workload: workload.to_owned(),
            vcpus: allowed.clone(),
            config: Box::new(config.clone()),
            limits: self.facts.limits.iter().cloned().chain(unavailable).collect(),
        });
        journal
    }

    /// Puts a workload's set back and forgets it; what was learned is kept. It is engaged again once there is something to
    /// win.
    pub(super) fn leave(&mut self, id: WorkloadId, why: &str) {
        let keys = self.engaged.get(&id).map(|engaged| engaged.identity.keys().cloned().collect::<Vec<_>>());
        for key in keys.into_iter().flatten() {
            self.lookout.released(&key);
            self.known.remove(&key);
        }
        self.dismiss(&[id], why);
    }

    /// As [`Daemon::leave`], for several, which are engaged as before for discovery.
    pub(super) fn dismiss(&mut self, ids: &[WorkloadId], why: &str) {
        let ended: Vec<_> = ids.iter().filter_map(|id| self.take_out(*id, why)).collect();
        // What was retained for them alone is not any more.
        self.settle();
        if self.engaged.is_empty() {
            // Nor is it the baseline of anybody's next trial.
            let outcomes = self.fleet.abandon_retention();
            self.report_outcomes(&outcomes);
        }
        // Once everything is as before.
        for (id, name, summary) in ended {
            self.end_attachment(id, &name, &summary);
        }
    }

    fn take_out(&mut self, id: WorkloadId, why: &str) -> Option<(WorkloadId, String, Summary)> {
        let mut engaged = self.engaged.remove(&id)?;
        let now = self.fleet.now();
        let outcomes = self.fleet.leave(id);
        let left_behind = self.report_outcomes(&outcomes);
        if let Some(policy) = self.arbiter.leave(id) {
            engaged.keep(&policy, now);
        }
        let name = engaged.identity.name().to_owned();
        engaged.journal.note(now, format!("released: {why}"));
        self.metrics.left(&name, self.start.elapsed());
        info!(workload = name, "{name}: released: {why}");
        self.note(Some(name.clone()), format!("released: {why}"));
        Some((id, name, engaged.close(now, left_behind)))
    }

    pub(super) fn leave_all(&mut self, why: &str) {
        while let Some(id) = self.engaged.keys().next().copied() {
            self.leave(id, why);
        }
    }

    /// Continues with another configuration of the policy, which starts from what was learned.
    pub(super) fn rejoin(&mut self, id: WorkloadId, change: impl FnOnce(&mut PolicyConfig)) {
        let Some(engaged) = self.engaged.get_mut(&id) else { return };
        self.partners.ask();
        let now = self.fleet.now();
        if let Some(policy) = self.arbiter.leave(id) {
            engaged.keep(&policy, now);
        }
        change(&mut engaged.config);
        engaged.config.consolidate &= !self.fleet.has_own_set(id);
        if engaged.config.consolidate {
            self.fleet.take_up_set(id);
        }
        engaged.config.known = engaged.memory.known();
        engaged.allowed = self.fleet.allowed(id);
        engaged.in_force.active = engaged.allowed.clone();
        match Policy::new(engaged.config.clone(), engaged.allowed.clone()) {
            Ok(policy) => {
                engaged.journal.note(now, "starts anew with what was learned");
                engaged.due = Instant::now() + FIRST_SAMPLE;
                self.arbiter.join(id, policy);
                self.settle();
            }
            Err(error) => self.leave(id, &error.to_string()),
        }
    }

    /// Applies a new configuration to those that are engaged, and to all of them who may be consolidated now. What somebody
    /// attached to keeps the terms that were named then.
    pub(super) fn follow_configuration(&mut self) {
        for id in self.engaged.keys().copied().collect::<Vec<_>>() {
            let Some(engaged) = self.engaged.get(&id) else { continue };
            let identity = &engaged.identity;
            let found = |key| self.lookout.get(key).filter(|_| !identity.is_attached);
            let of = |c: &Candidate| self.engagement(self.loaded.config.terms(&subject(&c.subject())));
            let of_all: Vec<Engagement> = identity.keys().filter_map(found).map(of).collect();
            let engagement = of_all.first().unwrap_or(&engaged.engagement).clone();
            let differ = !of_all.iter().all(|of_part| of_part.agrees(&engagement));
            let terms = &engagement.terms;
            let new = policy_config(&self.facts, terms);
            let old = &engaged.config;
            let others = identity.keys().any(|key| self.sets_of_others.contains(key));
            let theirs = others || self.fleet.has_own_set(id);
            let consolidate = terms.consolidate && !theirs;
            if !terms.engage {
                self.leave(id, "the configuration excludes it");
            } else if differ {
                self.leave(id, "the configuration gives its partners different terms: it starts anew");
            } else if !identity.partners.is_empty() && (new.method != Method::Halt || !consolidate) {
                self.leave(id, "its partners need not be placed together any more");
            } else if engaged.engagement.senses_otherwise(&engagement) {
                self.leave(id, "the configuration has other sensors for it: it starts anew");
            } else if old.consolidate != consolidate
                || old.method != new.method
                || (old.poll_price - new.poll_price).abs() > f64::EPSILON
            {
                self.rejoin(id, |config| {
                    config.consolidate = consolidate;
                    config.method = new.method;
                    config.poll_price = new.poll_price;
                });
            }
            if let Some(engaged) = self.engaged.get_mut(&id) {
                engaged.engagement = engagement;
            }
        }
    }
}

/// Why a workload whose processes have ended is released.
pub(super) const ENDED: &str = "it has ended";

fn policy_config(facts: &Facts, terms: &Terms) -> PolicyConfig {
    PolicyConfig {
        consolidate: terms.consolidate,
        method: if terms.retain { facts.method } else { Method::Halt },
        wake_cost: facts.wake_cost,
        waker_cost: facts.waker_cost,
        poll_price: terms.objective.poll_price(),
        places: facts.places.clone(),
        ..PolicyConfig::default()
    }
}

/// The same subject, in the configuration's words.
pub(super) fn subject<'a>(subject: &Subject<'a>) -> gleaner_config::Subject<'a> {
    gleaner_config::Subject { unit: subject.unit, group: subject.group, executable: subject.executable }
}

/// Answers what a look at the machine asks.
pub(super) struct Asked<'d> {
    config: &'d Config,
    facts: &'d Facts,
    root: &'d Root,
    known: &'d mut BTreeMap<Key, bool>,
    refused: &'d BTreeMap<Key, String>,
    engaged: &'d BTreeMap<WorkloadId, Engaged>,
}

impl Judge for Asked<'_> {
    fn allows(&mut self, of: &Subject<'_>) -> bool {
        // Its executable is not known before it was looked into: then only rules of unit and group can exclude it.
        self.config.terms(&subject(of)).engage
    }

    fn is_known(&mut self, candidate: &Candidate) -> bool {
        if !self.config.memory {
            return false;
        }
        if let Some(known) = self.known.get(&candidate.key) {
            return *known;
        }
        // Nothing is known of it before it was looked into.
        let Some(program) = program(candidate) else { return false };
        let config = policy_config(self.facts, &self.config.terms(&subject(&candidate.subject())));
        let known = MemoryDir::default_place(self.root).is_some_and(|dir| {
            let memory = Memory::open(
                self.root,
                dir,
                &config,
                program,
                self.facts.vcpus.len(),
                crate::log::warn_sentence,
            );
            memory.known().iter().any(|load| load.retention.is_some() || load.vcpus.is_some())
        });
        self.known.insert(candidate.key.clone(), known);
        known
    }

    fn refuses(&self, candidate: &Candidate) -> bool {
        let main = candidate.main.as_ref().map(|main| main.pid);
        let extent = Extent { key: &candidate.key, main };
        let mut attached = self.engaged.values().filter(|e| e.identity.is_attached);
        self.refused.contains_key(&candidate.key)
            || attached.any(|e| e.identity.extents().any(|own| own.overlaps(&extent, self.root)))
    }

    fn in_force(&self, key: &Key) -> bool {
        let engaged = self.engaged.values().find(|e| e.identity.has(key));
        engaged.is_some_and(|e| e.in_force.retention.is_on() || e.in_force.active != e.allowed)
    }
}

/// The name under which a candidate's memory is stored, as [`Found`] gives it.
fn program(candidate: &Candidate) -> Option<String> {
    match &candidate.key {
        Key::Group(path) => Some(path.to_string_lossy().into_owned()),
        Key::Process { .. } => {
            let executable = candidate.main.as_ref()?.executable.as_deref()?;
            Some(executable.to_string_lossy().into_owned())
        }
    }
}
