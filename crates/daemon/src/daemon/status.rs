//! What the daemon says of itself: the status, and metrics that are read when they are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use gleaner_control::{Decision, Machine, Mode, Stake as StakeName, State, Status, Usage, Workload};
use gleaner_discover::{Candidate, Key};
use gleaner_kernel::interrupts::{InterruptCounters, InterruptSensor};
use gleaner_policy::{Observation, Stake, WorkloadId};
use nix::time::{ClockId, clock_gettime};

use super::Daemon;
use super::membership::subject;
use crate::engaged::{Engaged, Identity};
use crate::polling::Rest;

/// As many workloads that are not engaged are named; the rest uses even less.
const MOST_WATCHED: usize = 40;

impl Daemon {
    /// Says to the service manager in a line what is in force.
    pub(super) fn notify_service_manager(&mut self) {
        if !self.notify.is_heard() {
            return;
        }
        let engaged = match self.engaged.len() {
            1 => "1 workload engaged".to_owned(),
            n => format!("{n} workloads engaged"),
        };
        let on_fewer = self.engaged.values().filter(|e| e.in_force.active != e.allowed).count();
        let line = match (&self.paused, on_fewer) {
            (Some(_), _) => "paused: nothing is changed".to_owned(),
            (None, 0) => format!("{engaged}; retention: {}", self.retention),
            (None, n) => format!("{engaged}, {n} on fewer vCPUs; retention: {}", self.retention),
        };
        self.notify.status(&line);
    }

    pub(super) fn status(&mut self) -> Status {
        let mut workloads: Vec<Workload> =
            self.engaged.iter().map(|(id, engaged)| self.engaged_workload(*id, engaged)).collect();
        workloads.sort_by(|a, b| b.wakeups_per_s.total_cmp(&a.wakeups_per_s));
        let mut others = self.other_workloads(&mut workloads);
        let is_watched = |workload: &Workload| workload.state == State::Watched;
        others.sort_by(|a, b| {
            is_watched(a).cmp(&is_watched(b)).then(b.wakeups_per_s.total_cmp(&a.wakeups_per_s))
        });
        others.truncate(MOST_WATCHED);
        workloads.extend(others);
        let (mode, mode_reason) = self.mode();
        Status {
            version: crate::VERSION.to_owned(),
            pid: std::process::id(),
            uptime_ms: ms(self.start.elapsed()),
            mode,
            mode_reason,
            machine: Machine {
                vcpus: self.facts.vcpus.clone(),
                method: self.facts.method,
                wake_cost_us: self.facts.wake_cost.as_secs_f64() * 1e6,
                retention: self.retention.into(),
                polling_share: self.arbiter.polling_share(),
                polling_share_allowed: self.loaded.config.polling_share,
            },
            usage: self.usage(),
            workloads,
            leases: self.fleet.leases() as u64,
            lease_file: self.paths.state.leases().display().to_string(),
            decisions: self.decisions(),
            limits: self.limits.iter().chain(&self.tuned).cloned().collect(),
        }
    }

    /// Sets the metrics that no decision sets.
    pub(super) fn refresh_metrics(&mut self) {
        let usage = self.usage();
        self.metrics.process(Duration::from_millis(usage.cpu_ms), usage.memory_bytes);
        self.metrics.leases(self.fleet.leases());
        self.metrics.workloads(self.lookout.survey().candidates().count(), self.engaged.len());
        if let Ok(counts) = InterruptSensor::new(&self.root).and_then(|mut sensor| sensor.read()) {
            let sum = |of: fn(&InterruptCounters) -> u64| counts.iter().map(|(_, c)| of(c)).sum();
            self.metrics.interrupts(sum(|c| c.reschedule), sum(|c| c.call));
        }
    }

    fn mode(&self) -> (Mode, Option<String>) {
        if let Some(paused) = &self.paused {
            return (Mode::Paused, paused.reason.clone());
        }
        let reason = self.rests.reason();
        let mode = match &reason {
            None | Some(Rest::TakenOver(_) | Rest::Failed(_)) => Mode::Running,
            Some(Rest::QuietHours(_)) => Mode::QuietHours,
            Some(Rest::FewCredits { .. } | Rest::UnknownCredits(_)) => Mode::CreditsLow,
        };
        (mode, reason.map(|rest| rest.to_string()))
    }

    fn usage(&self) -> Usage {
        let cpu = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default();
        let share = cpu.as_secs_f64() / self.start.elapsed().as_secs_f64().max(1e-3);
        Usage { cpu_ms: ms(cpu), cpu_share: share, memory_bytes: resident(&self.root) }
    }

    fn decisions(&self) -> Vec<Decision> {
        let text = |(at, workload, text): &(Instant, Option<String>, String)| Decision {
            ago_ms: ms(at.elapsed()),
            workload: workload.clone(),
            text: text.clone(),
        };
        self.recent.iter().rev().map(text).collect()
    }

    fn engaged_workload(&self, id: WorkloadId, engaged: &Engaged) -> Workload {
        let identity = &engaged.identity;
        let stake = self.arbiter.stake(id).map(|stake| match stake {
            Stake::Helped => StakeName::Helped,
            Stake::Tolerates => StakeName::Tolerates,
            Stake::Objects => StakeName::Objects,
        });
        let rate = |of: fn(&Observation) -> f64| {
            engaged.latest.as_ref().map_or(0.0, |o| of(o) / o.period.as_secs_f64().max(1e-6))
        };
        Workload {
            name: identity.name().to_owned(),
            unit: identity.first.unit.clone(),
            group: identity.first.group.as_ref().map(|group| group.display().to_string()),
            pid: identity.first.pid,
            state: State::Engaged,
            reason: self.reason_of(identity),
            stake,
            active: Some(engaged.in_force.active.clone()),
            allowed: Some(engaged.allowed.clone()),
            trial: self.arbiter.trial(id).map(|setting| setting.to_string()),
            evidence: engaged.evidence(),
            wakeups_per_s: rate(|o| o.workload.switches as f64),
            load: rate(|o| o.workload.cpu_time.as_secs_f64()),
            since_ms: Some(ms(engaged.since.elapsed())),
        }
    }

    /// Why a workload is engaged, or not helped as others are, unless that is what discovery says of it.
    fn reason_of(&self, identity: &Identity) -> Option<String> {
        let reason = if identity.keys().any(|key| self.sets_of_others.contains(key)) {
            "somebody else has changed its vCPUs, which stay as they are until `gleaner resume`"
        } else if !identity.partners.is_empty() {
            let partners: Vec<&str> = identity.names().skip(1).collect();
            return Some(format!("placed together with {}: they wake each other", partners.join(", ")));
        } else if identity.is_attached {
            "`gleaner run`, `gleaner attach` or another client asked for it"
        } else {
            return None;
        };
        Some(reason.to_owned())
    }

    /// The workloads of the latest survey that are not engaged. Those that are get their reason if they have none.
    fn other_workloads(&mut self, engaged_ones: &mut [Workload]) -> Vec<Workload> {
        let mut workloads = Vec::new();
        let engaged: BTreeSet<Key> = self.engaged.values().map(|e| e.identity.first.key.clone()).collect();
        let with = |e: &Engaged| {
            let partners = e.identity.partners.clone().into_iter();
            let (name, in_force) =
                (e.identity.name().to_owned(), (e.in_force.active.clone(), e.allowed.clone()));
            partners.map(move |part| (part.key, (name.clone(), in_force.clone())))
        };
        let partners: BTreeMap<Key, _> = self.engaged.values().flat_map(with).collect();
        let refused_ones = self.refused.clone();
        let (lookout, mut judge) = self.lookout_and_judge();
        for (candidate, standing) in lookout.standings(&mut judge) {
            if engaged.contains(&candidate.key) {
                let of_it = engaged_ones.iter_mut().find(|w| w.name == candidate.name && w.reason.is_none());
                if let Some(workload) = of_it {
                    workload.reason = Some(standing.to_string());
                }
                continue;
            }
            if let Some((name, (active, allowed))) = partners.get(&candidate.key) {
                let reason = format!("placed together with {name}: see `gleaner why {name}`");
                let (active, allowed) = (Some(active.clone()), Some(allowed.clone()));
                let partner = not_engaged(candidate, State::Engaged, reason);
                workloads.push(Workload { active, allowed, ..partner });
                continue;
            }
            let refused = refused_ones.get(&candidate.key);
            let state = if refused.is_some() { State::LeftAlone } else { State::Watched };
            let reason = refused.cloned().unwrap_or_else(|| standing.to_string());
            workloads.push(not_engaged(candidate, state, reason));
        }
        // Not what lacks a rule that includes it: that can be everything else.
        for candidate in self.lookout.survey().excluded() {
            if let Some(rule) = self.loaded.config.terms(&subject(&candidate.subject())).rule {
                workloads.push(not_engaged(candidate, State::LeftAlone, rule.to_string()));
            }
        }
        workloads
    }
}

fn not_engaged(candidate: &Candidate, state: State, reason: String) -> Workload {
    Workload {
        name: candidate.name.clone(),
        unit: candidate.unit.clone(),
        group: Some(candidate.group.display().to_string()),
        pid: candidate.main.as_ref().map(|main| main.pid),
        state,
        reason: Some(reason),
        stake: None,
        active: None,
        allowed: None,
        trial: None,
        evidence: None,
        wakeups_per_s: candidate.switches_per_s().unwrap_or(0.0),
        load: candidate.load,
        since_ms: None,
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Resident memory of this process in bytes; 0 if it cannot be read.
fn resident(root: &gleaner_kernel::Root) -> u64 {
    const PAGE: u64 = 4096;
    let pages = root.read_opt("/proc/self/statm").ok().flatten();
    let pages = pages.and_then(|text| text.split_whitespace().nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * PAGE
}
