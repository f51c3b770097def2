//! An arithmetic model of a machine with several workloads: it carries out the arbiter's settings and yields the
//! observations that it asks for.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::policy::tests::workloads::{Rates, Workload};
use crate::policy::tests::world::{MS, config, seconds, whole};
use crate::{
    Arbiter, ArbiterConfig, CpuId, CpuSet, Decision, Event, Method, Observation, Policy, PolicyConfig,
    Retention, Setting, Step, VcpuInterval, WorkloadId, WorkloadInterval,
};

/// Time resolution of the model.
const SLICE: Duration = MS;

/// One engaged workload.
pub(super) struct Guest {
    pub(super) workload: Workload,
    pub(super) allowed: CpuSet,
    pub(super) throttled: f64,
    /// Whether it is not known yet by what its progress shows.
    pub(super) incomplete: bool,
    pub(super) decision: Decision,
    pub(super) events: Vec<(Duration, Event)>,
    /// When its latest interval started.
    since: Duration,
    /// Sums of the workload's own since then.
    own: Own,
    /// Those of each vCPU.
    vcpus: BTreeMap<CpuId, Vcpu>,
    /// Progress so far, and what it would have been on the untouched machine.
    pub(super) progress: f64,
    pub(super) untouched: f64,
    watched: Duration,
    streak: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Own {
    load: f64,
    user: f64,
    switches: f64,
    run_delay: f64,
    moved: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Vcpu {
    polls: f64,
    halts: f64,
    poll_time: f64,
    halt_time: f64,
}

/// The machine, and the arbiter that controls it.
pub(super) struct Machine {
    pub(super) arbiter: Arbiter,
    pub(super) guests: BTreeMap<WorkloadId, Guest>,
    pub(super) vcpus: CpuSet,
    /// Share of the vCPUs' time that the host takes.
    pub(super) steal: f64,
    pub(super) now: Duration,
    /// What is in force.
    retention: Retention,
    /// How long something was retained, and for how long vCPUs polled.
    pub(super) retained: Duration,
    pub(super) polled: Duration,
    next_id: u64,
    noise: u64,
    /// By how much what is counted varies by chance.
    pub(super) noise_level: f64,
}

impl Machine {
    pub(super) fn new(vcpus: u32) -> Self {
        Self::with_share(vcpus, 1.0)
    }

    pub(super) fn with_share(vcpus: u32, polling_share: f64) -> Self {
        let vcpus = CpuSet::first(vcpus);
        Self {
            arbiter: Arbiter::new(ArbiterConfig { vcpus: vcpus.clone(), polling_share }),
            guests: BTreeMap::new(),
            vcpus,
            steal: 0.0,
            now: Duration::ZERO,
            retention: Retention::NONE,
            retained: Duration::ZERO,
            polled: Duration::ZERO,
            next_id: 1,
            noise: 0x9E37_79B9_7F4A_7C15,
            noise_level: 0.015,
        }
    }

    pub(super) fn join(&mut self, workload: Workload) -> WorkloadId {
        self.join_with(config(), workload)
    }

    pub(super) fn join_with(&mut self, config: PolicyConfig, workload: Workload) -> WorkloadId {
        let id = WorkloadId(self.next_id);
        self.next_id += 1;
        let policy = Policy::new(config, self.vcpus.clone()).unwrap();
        let decision = Decision { setting: policy.setting(), next: 20 * MS, ..Decision::default() };
        self.arbiter.join(id, policy);
        let guest = Guest {
            workload,
            allowed: self.vcpus.clone(),
            throttled: 0.0,
            incomplete: false,
            decision,
            events: Vec::new(),
            since: self.now,
            own: Own::default(),
            vcpus: BTreeMap::new(),
            progress: 0.0,
            untouched: 0.0,
            watched: Duration::ZERO,
            streak: 0,
        };
        self.guests.insert(id, guest);
        id
    }

    pub(super) fn join_many(
        &mut self,
        n: usize,
        config: &PolicyConfig,
        workload: Workload,
    ) -> Vec<WorkloadId> {
        (0..n).map(|_| self.join_with(config.clone(), workload)).collect()
    }

    pub(super) fn leave(&mut self, id: WorkloadId) {
        self.guests.remove(&id);
        assert!(self.arbiter.leave(id).is_some());
        self.carry_out();
    }

    /// Lets modelled time pass.
    pub(super) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.slice();
            let runnable = self.runnable();
            let is_due = |g: &mut Guest| {
                g.watch_fires(runnable) || self.now.saturating_sub(g.since) >= g.decision.next
            };
            let due: Vec<_> = self.guests.iter_mut().filter_map(|(id, g)| is_due(g).then_some(*id)).collect();
            for id in due {
                if self.guests.get(&id).is_some_and(|g| g.since < self.now) {
                    self.step(vec![id]);
                }
            }
        }
    }

    /// Lets time pass until `done`, for at most `limit`; returns the time that it took.
    pub(super) fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> Option<Duration> {
        let start = self.now;
        while self.now < start + limit {
            self.run(SLICE);
            if done(self) {
                return Some(self.now.saturating_sub(start));
            }
        }
        None
    }

    pub(super) fn setting(&self, id: WorkloadId) -> Setting {
        self.arbiter.setting(id)
    }

    /// The progress of a workload relative to that on the untouched machine.
    pub(super) fn of_untouched(&self, id: WorkloadId) -> f64 {
        let guest = &self.guests[&id];
        guest.progress / guest.untouched
    }

    /// Forgets the progress made so far.
    pub(super) fn count_anew(&mut self) {
        for guest in self.guests.values_mut() {
            (guest.progress, guest.untouched) = (0.0, 0.0);
        }
        (self.retained, self.polled) = (Duration::ZERO, Duration::ZERO);
    }

    /// Steps these, and whom their steps name, and carries out what is decided.
    fn step(&mut self, ids: Vec<WorkloadId>) {
        let mut due = VecDeque::from(ids);
        let mut stepped = Vec::new();
        while let Some(id) = due.pop_front() {
            let o = self.observe(id);
            let Step { decision, sample, retention, .. } = self.arbiter.step(id, &o);
            assert_eq!(retention, self.arbiter.retention());
            assert!(!stepped.contains(&id), "{id} is stepped twice at {:?}", self.now);
            stepped.push(id);
            due = sample.into();
            let guest = self.guests.get_mut(&id).unwrap();
            guest.events.extend(decision.events.iter().map(|e| (self.now, e.clone())));
            guest.decision = decision;
            (guest.watched, guest.streak) = (Duration::ZERO, 0);
        }
        self.retention = self.arbiter.retention();
        let trials = self.guests.keys().filter(|id| self.arbiter.trial(**id).is_some()).count();
        assert!(trials <= 1, "{trials} trials at {:?}", self.now);
        for (id, guest) in &self.guests {
            let Setting { active, .. } = self.arbiter.setting(*id);
            assert!(!active.is_empty() && active.is_subset(&guest.allowed), "{active}");
        }
    }

    /// Carries out what was decided without a step.
    pub(super) fn carry_out(&mut self) {
        let due = self.arbiter.sample();
        self.step(due);
    }

    fn runnable(&self) -> u32 {
        self.guests.iter().map(|(id, g)| (g.workload)(&self.arbiter.setting(*id)).runnable).sum()
    }

    /// What each workload does under `setting`, each at the pace that its vCPUs allow.
    fn rates(&self, setting: impl Fn(WorkloadId) -> Setting) -> BTreeMap<WorkloadId, (Rates, Setting)> {
        let wanted: BTreeMap<_, _> = self
            .guests
            .iter()
            .map(|(id, g)| {
                let setting = setting(*id);
                (*id, ((g.workload)(&setting), setting))
            })
            .collect();
        let demand = |cpu: CpuId| -> f64 {
            let on = wanted.values().filter(|(_, s)| s.active.contains(cpu));
            on.map(|(r, s)| r.load / s.active.len() as f64).sum()
        };
        let pace = |s: &Setting| {
            let mean = s.active.iter().map(demand).sum::<f64>() / s.active.len() as f64;
            1.0 / mean.max(1.0)
        };
        let at_pace = |(r, s): &(Rates, Setting)| {
            let pace = pace(s);
            let rates = Rates {
                load: r.load * pace,
                switches: r.switches * pace,
                idle_periods: r.idle_periods * pace,
                run_delay: r.run_delay + r.load * (1.0 - pace),
                moved_bytes: r.moved_bytes.map(|bytes| bytes * pace),
                progress: r.progress * pace,
                ..*r
            };
            (rates, s.clone())
        };
        wanted.iter().map(|(id, of)| (*id, at_pace(of))).collect()
    }

    /// The progress of every workload per second under these settings.
    pub(super) fn progress_under(
        &self,
        setting: impl Fn(WorkloadId) -> Setting,
    ) -> BTreeMap<WorkloadId, f64> {
        self.rates(setting).into_iter().map(|(id, (rates, _))| (id, rates.progress)).collect()
    }

    fn slice(&mut self) {
        let slice = SLICE.as_secs_f64();
        self.now += SLICE;
        let rates = self.rates(|id| Setting { retention: self.retention, ..self.arbiter.setting(id) });
        let untouched = self.rates(|id| Setting::untouched(&self.guests[&id].allowed));
        let vcpus: BTreeMap<_, _> =
            self.vcpus.iter().map(|cpu| (cpu, vcpu(cpu, rates.values(), self.retention))).collect();
        self.retained += if self.retention.is_on() { SLICE } else { Duration::ZERO };
        self.polled += seconds(vcpus.values().map(|v| v.poll_time).sum());
        for (id, guest) in &mut self.guests {
            let r = &rates[id].0;
            guest.own.load += r.load * slice;
            guest.own.user += r.load * r.user_share * slice;
            guest.own.switches += r.switches * slice;
            guest.own.run_delay += r.run_delay * slice;
            if let Some(moved) = r.moved_bytes {
                guest.own.moved = Some(guest.own.moved.unwrap_or(0.0) + moved * slice);
            }
            guest.progress += r.progress * slice;
            guest.untouched += untouched[id].0.progress * slice;
            for (cpu, v) in &vcpus {
                let sums = guest.vcpus.entry(*cpu).or_default();
                sums.polls += v.polls;
                sums.halts += v.halts;
                sums.poll_time += v.poll_time;
                sums.halt_time += v.halt_time;
            }
        }
    }

    fn observe(&mut self, id: WorkloadId) -> Observation {
        let runnable = self.runnable();
        let (steal, now) = (self.steal, self.now);
        let guest = self.guests.get_mut(&id).unwrap();
        let period = now.saturating_sub(guest.since);
        let (own, sums) = (std::mem::take(&mut guest.own), std::mem::take(&mut guest.vcpus));
        guest.since = now;
        let (allowed, throttled, incomplete) = (guest.allowed.clone(), guest.throttled, guest.incomplete);
        let vcpus = allowed.iter().map(|cpu| {
            let v = sums.get(&cpu).copied().unwrap_or_default();
            VcpuInterval {
                cpu,
                halts: whole(v.halts),
                halt_time: seconds(v.halt_time),
                polls: whole(v.polls),
                poll_time: seconds(v.poll_time),
                steal: period.mul_f64(steal),
            }
        });
        let vcpus = vcpus.collect();
        let workload = WorkloadInterval {
            cpu_time: seconds(self.noisy(own.load)),
            user_time: seconds(self.noisy(own.user)),
            run_delay: seconds(own.run_delay),
            switches: whole(self.noisy(own.switches)),
            moved_bytes: own.moved.map(|moved| whole(self.noisy(moved))),
            threads: 16,
            incomplete,
            ..WorkloadInterval::default()
        };
        Observation {
            at: now,
            period,
            vcpus,
            workload,
            runnable,
            overload: None,
            throttled,
            settled: true,
            cost: Duration::from_micros(50),
        }
    }

    /// `amount` varied by up to the noise level, by a fixed sequence (xorshift64).
    fn noisy(&mut self, amount: f64) -> f64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        amount * (1.0 + self.noise_level * ((self.noise >> 40) as f64 / f64::from(1 << 23) - 1.0))
    }
}

impl Guest {
    fn watch_fires(&mut self, runnable: u32) -> bool {
        let Some(watch) = self.decision.watch else { return false };
        self.watched += SLICE;
        if self.watched < watch.every {
            return false;
        }
        self.watched = Duration::ZERO;
        self.streak = if watch.matches(runnable) { self.streak + 1 } else { 0 };
        self.streak >= watch.times
    }
}

/// One slice of a vCPU. Idle lengths are exponentially distributed, so a limit cuts off a known share of them.
fn vcpu<'a>(cpu: CpuId, rates: impl Iterator<Item = &'a (Rates, Setting)>, retention: Retention) -> Vcpu {
    let slice = SLICE.as_secs_f64();
    // Stray idle periods.
    let (mut load, mut periods) = (0.0, 5.0);
    for (r, s) in rates.filter(|(_, s)| s.active.contains(cpu)) {
        load += r.load / s.active.len() as f64;
        periods += r.idle_periods / s.active.len() as f64;
    }
    let idle = f64::max(1.0 - load, 0.0);
    let outlasting = match retention.method {
        Method::Halt => 1.0,
        Method::QosPoll => 0.0,
        _ => (-retention.limit.as_secs_f64() * periods / idle.max(1e-12)).exp(),
    };
    let polls = if retention.is_on() { periods } else { 0.0 };
    Vcpu {
        polls: polls * slice,
        halts: periods * outlasting * slice,
        poll_time: idle * (1.0 - outlasting) * slice,
        halt_time: idle * outlasting * slice,
    }
}
