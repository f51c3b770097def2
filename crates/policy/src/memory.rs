//! Which settings paid and which did not, by kind of load, in this run and in earlier runs of the same program.
//!
//! The kind of load is what the workload does while nothing is retained: how many vCPUs are active, and its CPU
//! time on each of them. When a known kind of load returns, what was proven under it is in force again at once
//! and proven again soon; what was refuted is not tried. A load of an unknown kind gets the previous setting if
//! that was in force within [`RESUME_TIMEOUT`].

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Evidence, Method, Observation, Retention, Setting};

/// For how long the previous setting is resumed under a load of an unknown kind.
pub(crate) const RESUME_TIMEOUT: Duration = Duration::from_secs(60);
/// Loads within this factor are of the same kind.
const SAME_KIND_FACTOR: f64 = std::f64::consts::SQRT_2;
/// Loads below this share of a vCPU are all of the same kind.
const MIN_LOAD: f64 = 1.0 / 64.0;
/// The weight of the latest sample in an entry's mean load.
const LATEST_WEIGHT: f64 = 0.25;
/// Retention that only an earlier run has proven is dropped after this many proofs that show nothing.
const MOST_UNDECIDED: u32 = 3;

/// What earlier runs of a program showed under one kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KnownLoad {
    /// CPU time of the workload per second and vCPU (0..=1) with every vCPU active and no retention.
    pub load: f64,
    /// The retention that paid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<KnownRetention>,
    /// The number of active vCPUs that paid with that retention.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<KnownVcpus>,
    /// The number of runs that refuted retention since it last paid.
    #[serde(default)]
    pub refuted: u32,
    /// The number of runs that refuted smaller sets since one last paid.
    #[serde(default)]
    pub refuted_vcpus: u32,
}

/// Retention that was proven.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KnownRetention {
    /// Method and limit.
    pub setting: Retention,
    /// Evidence that proved it.
    pub evidence: Evidence,
}

/// A smaller number of active vCPUs that was proven. Which ones they were does not matter to the next run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct KnownVcpus {
    /// The number of active vCPUs.
    pub active: usize,
    /// The number of runnable threads that it was proven with.
    pub runnable: u32,
    /// Evidence that proved it.
    pub evidence: Evidence,
}

/// What a run showed under one kind of load, for the next run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Learned {
    /// Knowledge after the run.
    pub known: KnownLoad,
    /// The outcome of this run's latest trial; `None` without a trial.
    pub outcome: Option<Outcome>,
}

/// The outcome of a run's latest trial of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The setting paid.
    Proven,
    /// The setting did not pay.
    Refuted,
}

/// Whether two loads, in CPU time per second and vCPU, are of the same kind.
pub fn is_same_kind(a: f64, b: f64) -> bool {
    distance(a, b) <= SAME_KIND_FACTOR
}

/// The factor between two loads; at least 1.
fn distance(a: f64, b: f64) -> f64 {
    let ratio = a.max(MIN_LOAD) / b.max(MIN_LOAD);
    ratio.max(1.0 / ratio)
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct LoadKind {
    active: usize,
    /// CPU time per second and active vCPU, without retention.
    load: f64,
}

impl LoadKind {
    fn is_like(self, other: Self) -> bool {
        self.active == other.active && is_same_kind(self.load, other.load)
    }
}

/// How often something was refuted.
#[derive(Debug, Clone, Copy, Default)]
struct Refuted {
    /// The number of runs since it last paid.
    runs: u32,
    /// Whether this one is among them.
    counted: bool,
    /// How many earlier runs there were, until this run has waited for it once.
    delay: u32,
}

impl Refuted {
    fn known(runs: u32) -> Self {
        Self { runs, counted: false, delay: runs }
    }

    /// It was refuted in this run.
    fn again(&mut self) {
        let runs = self.runs.saturating_add(u32::from(!self.counted));
        *self = Self { runs, counted: true, delay: 0 };
    }
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    kind: LoadKind,
    retention: Option<KnownRetention>,
    /// Whether the retention may be resumed without a trial.
    trusted: bool,
    /// The number of proofs that have shown nothing, while only an earlier run has proven the retention.
    undecided: Option<u32>,
    vcpus: Option<KnownVcpus>,
    /// A smaller set known from an earlier run, until this run has tried it.
    untried: Option<KnownVcpus>,
    /// See [`KnownLoad::refuted`].
    refuted: Refuted,
    /// See [`KnownLoad::refuted_vcpus`].
    refuted_vcpus: Refuted,
    outcome: Option<Outcome>,
}

impl Entry {
    /// What an earlier run showed on `vcpus` vCPUs. A limit above `longest` cannot pay on this machine.
    fn known(load: &KnownLoad, vcpus: usize, method: Method, longest: Duration) -> Self {
        let usable = |known: &KnownRetention| {
            let Retention { method: known, limit } = known.setting;
            known == method && (known == Method::QosPoll || !limit.is_zero())
        };
        let retention = load.retention.filter(usable).map(|known| {
            let limit = known.setting.limit.min(longest);
            KnownRetention { setting: Retention { method, limit }, ..known }
        });
        let smaller = |known: &KnownVcpus| {
            retention.is_some() == load.retention.is_some() && (1..vcpus).contains(&known.active)
        };
        let vcpus_known = load.vcpus.filter(smaller);
        Self {
            kind: LoadKind { active: vcpus, load: load.load },
            retention,
            trusted: retention.is_some(),
            undecided: retention.map(|_| 0),
            vcpus: vcpus_known,
            untried: vcpus_known,
            refuted: Refuted::known(load.refuted),
            refuted_vcpus: Refuted::known(load.refuted_vcpus),
            outcome: None,
        }
    }

    fn new(kind: LoadKind) -> Self {
        Self {
            kind,
            retention: None,
            trusted: false,
            undecided: None,
            vcpus: None,
            untried: None,
            refuted: Refuted::default(),
            refuted_vcpus: Refuted::default(),
            outcome: None,
        }
    }

    /// Its retention does not pay, or nothing shows that it does.
    fn refute(&mut self) {
        if self.retention.take().is_some() {
            (self.vcpus, self.untried) = (None, None);
        }
        self.refuted.again();
        (self.trusted, self.undecided, self.outcome) = (false, None, Some(Outcome::Refuted));
    }

    fn is_empty(&self) -> bool {
        let refuted = self.refuted.runs.max(self.refuted_vcpus.runs) > 0;
        self.retention.is_none() && self.vcpus.is_none() && !refuted
    }
}

/// Retention that may be resumed without a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Recalled {
    pub(crate) retention: Retention,
    /// The evidence, if only an earlier run has proven it.
    pub(crate) known: Option<Evidence>,
}

/// The retention that was in force last.
#[derive(Debug, Clone, Copy)]
struct LatestRetention {
    retention: Retention,
    until: Duration,
    /// Whether a trial ended it: then it does not pay under the load of that trial.
    refuted: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Memory {
    entries: Vec<Entry>,
    /// The number of vCPUs allowed at first: only what is learned on all of them is kept for the next run.
    vcpus: usize,
    /// The present kind of load, from the latest samples without retention; those of proofs are left out,
    /// because the workload might still be adapting to the change.
    kind: Option<LoadKind>,
    /// The latest kind with every vCPU active.
    full: Option<LoadKind>,
    /// The kind of load in the latest proof's samples without retention.
    probed: Option<LoadKind>,
    latest: Option<LatestRetention>,
    /// The load under which an earlier run proved the setting in force, until a trial of this run has ended.
    unproven: Option<LoadKind>,
    /// Whether an unknown kind of load has been sampled once.
    deferred_trial: bool,
}

impl Memory {
    /// Starts with what earlier runs showed on `vcpus` vCPUs, as far as it applies to `method`; limits are
    /// capped at `longest`.
    pub(crate) fn new(known: &[KnownLoad], vcpus: usize, method: Method, longest: Duration) -> Self {
        Self {
            entries: known
                .iter()
                .filter(|load| load.load.is_finite())
                .map(|load| Entry::known(load, vcpus, method, longest))
                .collect(),
            vcpus,
            kind: None,
            full: None,
            probed: None,
            latest: None,
            unproven: None,
            deferred_trial: known.is_empty(),
        }
    }

    /// Takes a sample under `in_force`, in a proof or not. Without retention it shows the kind of load.
    pub(crate) fn observe(&mut self, o: &Observation, in_force: &Setting, proof: bool) {
        if in_force.retention.is_on() || !is_representative(o) {
            return;
        }
        let active = in_force.active.len();
        let sampled = LoadKind { active, load: o.load() / active.max(1) as f64 };
        let known = if proof { &mut self.probed } else { &mut self.kind };
        // Samples as short as a block vary by chance.
        let kind = match *known {
            Some(before) if before.is_like(sampled) => {
                LoadKind { load: f64::midpoint(before.load, sampled.load), ..before }
            }
            _ => sampled,
        };
        *known = Some(kind);
        if proof {
            return;
        }
        self.probed = None;
        if active == o.vcpus.len() {
            self.full = self.kind;
        }
    }

    /// The set of allowed vCPUs changed: the load on them is not known yet.
    pub(crate) fn clear_kind(&mut self) {
        (self.kind, self.full, self.probed, self.unproven) = (None, None, None, None);
    }

    /// Whether an earlier run has proven retention for the load of the sample `o`, and this run has not tried it.
    pub(crate) fn knows(&self, o: &Observation) -> bool {
        let entry = self.kind.filter(|_| is_representative(o)).and_then(|kind| self.find(kind));
        entry.is_some_and(|entry| entry.trusted && entry.retention.is_some() && entry.outcome.is_none())
    }

    /// Retention worth resuming after the sample `o`, which was taken without retention.
    pub(crate) fn recall(&mut self, o: &Observation) -> Option<Recalled> {
        let kind = self.kind.filter(|_| is_representative(o));
        if let Some(entry) = kind.and_then(|kind| self.find(kind)) {
            let KnownRetention { setting, evidence } = entry.retention.filter(|_| entry.trusted)?;
            let known = entry.outcome.is_none().then_some(evidence);
            self.unproven = kind.filter(|_| known.is_some());
            return Some(Recalled { retention: setting, known });
        }
        if self.latest?.refuted && kind.is_none() {
            return None;
        }
        self.take_latest(o.at).map(|retention| Recalled { retention, known: None })
    }

    /// The retention in force last, under any load, if that was recent.
    pub(crate) fn take_latest(&mut self, now: Duration) -> Option<Retention> {
        let latest = self.latest.take()?;
        (now.saturating_sub(latest.until) < RESUME_TIMEOUT).then_some(latest.retention)
    }

    /// Whether a trial should wait for one more sample: a program that has just started does not show its usual
    /// load yet, and earlier runs might know that load.
    pub(crate) fn defers_trial(&mut self) -> bool {
        let unknown = self.kind.is_none_or(|kind| self.find(kind).is_none());
        unknown && !std::mem::replace(&mut self.deferred_trial, true)
    }

    /// Whether an unknown kind of load has been sampled.
    pub(crate) fn has_deferred_trial(&self) -> bool {
        self.deferred_trial
    }

    /// The number of earlier runs that refuted retention under the present load; returned only once.
    pub(crate) fn take_delay(&mut self) -> u32 {
        let entry = self.kind.and_then(|kind| self.find_mut(kind));
        entry.map_or(0, |entry| std::mem::take(&mut entry.refuted.delay))
    }

    /// The number of earlier runs that refuted smaller sets under the present load; returned only once.
    pub(crate) fn take_delay_of_vcpus(&mut self) -> u32 {
        let entry = self.full.and_then(|full| self.find_mut(full));
        entry.map_or(0, |entry| std::mem::take(&mut entry.refuted_vcpus.delay))
    }

    /// The smaller set that paid under the present load in an earlier run, with or without retention; returned
    /// only once.
    pub(crate) fn take_vcpus(&mut self, retained: bool) -> Option<KnownVcpus> {
        let entry = self.full.and_then(|full| self.find_mut(full))?;
        let known = entry.untried.filter(|_| entry.retention.is_some() == retained)?;
        entry.untried = None;
        self.unproven = self.full;
        Some(known)
    }

    /// Whether the setting in force rests on an earlier run's evidence alone.
    pub(crate) fn is_unproven(&self) -> bool {
        self.unproven.is_some()
    }

    /// The retention in force ended at `now` without a trial.
    pub(crate) fn interrupted(&mut self, retention: Retention, now: Duration) {
        self.unproven = None;
        self.update_limit(retention);
        self.latest = Some(LatestRetention { retention, until: now, refuted: false });
    }

    /// A veto ended retention: it must be proven again before it is resumed.
    pub(crate) fn distrust(&mut self) {
        self.unproven = None;
        self.latest = None;
        self.entries.iter_mut().for_each(|entry| entry.trusted = false);
    }

    /// Counts a proof of the retention in force that has shown nothing. Returns whether the retention may stay, see
    /// [`MOST_UNDECIDED`].
    pub(crate) fn count_undecided_proof(&mut self) -> bool {
        let Some(entry) = self.kind.and_then(|kind| self.find_mut(kind)) else { return true };
        let Some(undecided) = &mut entry.undecided else { return true };
        *undecided += 1;
        let stays = *undecided < MOST_UNDECIDED;
        if !stays {
            entry.refute();
        }
        stays
    }

    /// A trial of `retention` ended and left it in force; `proof` is the evidence if it was proven.
    pub(crate) fn kept(&mut self, retention: Retention, proof: Option<Evidence>) {
        self.unproven = None;
        let (Some(kind), Some(evidence)) = (self.kind, proof.filter(is_finite)) else { return };
        let entry = self.entry(kind);
        entry.retention = Some(KnownRetention { setting: retention, evidence });
        (entry.trusted, entry.undecided, entry.outcome) = (true, None, Some(Outcome::Proven));
        entry.refuted = Refuted::default();
    }

    /// A trial ended `retention` at `now`, which had been `in_force` before, or was `refuted`, or both.
    pub(crate) fn dropped(&mut self, retention: Retention, in_force: bool, refuted: bool, now: Duration) {
        let resumed = self.unproven.take();
        self.latest = in_force.then_some(LatestRetention { retention, until: now, refuted: true });
        if !in_force && !refuted {
            return;
        }
        for kind in [resumed, self.probed.or(self.kind)].into_iter().flatten() {
            self.entry(kind).refute();
        }
    }

    /// A trial proved a smaller set.
    pub(crate) fn kept_vcpus(&mut self, known: KnownVcpus) {
        self.unproven = None;
        let Some(full) = self.full.filter(|_| is_finite(&known.evidence)) else { return };
        let entry = self.entry(full);
        (entry.vcpus, entry.untried, entry.outcome) = (Some(known), None, Some(Outcome::Proven));
        entry.refuted_vcpus = Refuted::default();
    }

    /// A trial refuted the last smaller set that there was to try, with every vCPU active.
    pub(crate) fn refuted_vcpus(&mut self) {
        if let Some(full) = self.full {
            self.entry(full).refuted_vcpus.again();
        }
    }

    /// A trial ended a smaller set that had been in force; `active` vCPUs are active now.
    pub(crate) fn dropped_vcpus(&mut self, active: usize) {
        let resumed = self.unproven.take();
        for kind in [resumed, self.full].into_iter().flatten() {
            let smaller = active < kind.active;
            let entry = self.entry(kind);
            entry.vcpus = entry.vcpus.filter(|_| smaller).map(|known| KnownVcpus { active, ..known });
            entry.outcome = Some(Outcome::Refuted);
        }
    }

    /// What the next run should know, with `retention` in force now.
    pub(crate) fn learned(&self, retention: Retention) -> Vec<Learned> {
        let mut memory = Self { entries: self.entries.clone(), ..*self };
        memory.update_limit(retention);
        let informative = memory.entries.iter().filter(|e| e.kind.active == self.vcpus && !e.is_empty());
        let learned = informative.map(|e| Learned {
            known: KnownLoad {
                load: e.kind.load,
                retention: e.retention,
                vcpus: e.vcpus,
                refuted: e.refuted.runs,
                refuted_vcpus: e.refuted_vcpus.runs,
            },
            outcome: e.outcome,
        });
        learned.collect()
    }

    /// Keeps the limit, which adapts to the idle lengths, up to date for the next run.
    fn update_limit(&mut self, retention: Retention) {
        let entry = self.full.and_then(|full| self.find_mut(full));
        let same = |known: &&mut KnownRetention| known.setting.method == retention.method;
        if let Some(known) = entry.and_then(|entry| entry.retention.as_mut()).filter(same) {
            known.setting = retention;
        }
    }

    fn find(&self, kind: LoadKind) -> Option<&Entry> {
        self.nearest(kind).and_then(|at| self.entries.get(at))
    }

    fn find_mut(&mut self, kind: LoadKind) -> Option<&mut Entry> {
        self.nearest(kind).and_then(|at| self.entries.get_mut(at))
    }

    /// The index of the entry for loads of this kind.
    fn nearest(&self, kind: LoadKind) -> Option<usize> {
        let candidates = self.entries.iter().enumerate().filter(|(_, e)| e.kind.is_like(kind));
        let far = |e: &Entry| distance(e.kind.load, kind.load);
        candidates.min_by(|(_, a), (_, b)| far(a).total_cmp(&far(b))).map(|(at, _)| at)
    }

    /// The entry for loads of this kind, created if missing, with its mean load updated.
    fn entry(&mut self, kind: LoadKind) -> &mut Entry {
        let at = self.nearest(kind).unwrap_or_else(|| {
            self.entries.push(Entry::new(kind));
            self.entries.len() - 1
        });
        let entry = &mut self.entries[at];
        entry.kind.load += LATEST_WEIGHT * (kind.load - entry.kind.load);
        entry
    }
}

/// Whether JSON can represent the numbers.
fn is_finite(evidence: &Evidence) -> bool {
    [evidence.ratio, evidence.low, evidence.high].into_iter().all(f64::is_finite)
}

/// Whether a sample represents the load.
fn is_representative(o: &Observation) -> bool {
    o.settled && o.is_average()
}
