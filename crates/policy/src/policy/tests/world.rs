//! An arithmetic model of a machine: it carries out the policy's settings and yields the observations it asks
//! for.

use std::time::Duration;

use super::workloads::{Rates, Workload};
use crate::{
    Arbiter, ArbiterConfig, CpuSet, Decision, Event, Method, Mode, Observation, Overload, Policy,
    PolicyConfig, Retention, Setting, Sockets, VcpuInterval, WorkloadId, WorkloadInterval,
};

pub(crate) const MS: Duration = Duration::from_millis(1);
/// Time resolution of the model.
const SLICE: Duration = MS;
/// Inactive vCPUs still wake up now and then.
const STRAY_IDLE_PERIODS_PER_S: f64 = 5.0;

#[derive(Debug, Clone)]
pub(crate) struct Slice {
    /// End of the slice.
    pub(crate) at: Duration,
    pub(crate) setting: Setting,
    /// Progress relative to the best setting's.
    pub(crate) of_best: f64,
    /// Progress relative to the untouched system's.
    pub(crate) of_untouched: f64,
}

/// Sums since the last observation.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    period: Duration,
    load: f64,
    user: f64,
    switches: f64,
    run_delay: f64,
    moved: Option<f64>,
    /// Per active vCPU.
    polls: f64,
    halts: f64,
    poll_time: f64,
    halt_time: f64,
}

/// The controlled machine, and the policy.
pub(crate) struct World {
    pub(crate) policy: Policy,
    /// The same policy as the only one of an arbiter, which must decide the same.
    alone: Option<Arbiter>,
    pub(crate) workload: Workload,
    pub(crate) allowed: CpuSet,
    /// Share of the vCPUs' time that the host takes.
    pub(crate) steal: f64,
    /// Seconds of steal that waking a halted vCPU adds.
    pub(crate) steal_per_halt: f64,
    /// Share of the time for which the quota throttles the workload.
    pub(crate) throttled: f64,
    /// The workload uses send and recv on sockets, which `moved_bytes` does not count.
    pub(crate) by_sockets: bool,
    /// Until when it is not known yet by what its progress shows.
    pub(crate) incomplete_until: Duration,
    /// How many threads run in each interval, if that is counted.
    pub(crate) ran: Option<u32>,
    pub(crate) now: Duration,
    pub(crate) slices: Vec<Slice>,
    pub(crate) events: Vec<(Duration, Event)>,
    pub(crate) decision: Decision,
    sums: Sums,
    watched: Duration,
    streak: u32,
    noise: u64,
    overload: Option<Overload>,
}

/// A policy configuration with haltpoll, as on the machine that the numbers come from.
pub(crate) fn config() -> PolicyConfig {
    PolicyConfig { method: Method::Haltpoll, ..PolicyConfig::default() }
}

/// An arbiter of one workload on the vCPUs `allowed`; `None` if arbiters do not handle such a policy.
pub(crate) fn alone(config: &PolicyConfig, allowed: &CpuSet) -> Option<Arbiter> {
    let finds = matches!(config.mode, Mode::Adaptive | Mode::DryRun);
    let machine_wide = matches!(config.method, Method::Halt | Method::Haltpoll | Method::QosPoll);
    (finds && machine_wide).then(|| {
        let mut arbiter = Arbiter::new(ArbiterConfig { vcpus: allowed.clone(), polling_share: 1.0 });
        arbiter.join(WorkloadId(0), Policy::new(config.clone(), allowed.clone()).unwrap());
        arbiter
    })
}

/// Asserts that an arbiter of one workload decides as its policy does alone.
pub(crate) fn assert_same(alone: &mut Arbiter, o: &Observation, decision: &Decision) {
    let step = alone.step(WorkloadId(0), o);
    assert_eq!(step.decision, *decision);
    let (retention, reset) = (decision.setting.retention, decision.reset_poll_limits);
    assert_eq!((step.retention, step.reset_poll_limits, step.sample), (retention, reset, Vec::new()));
}

impl World {
    pub(crate) fn new(config: PolicyConfig, vcpus: u32, workload: Workload) -> Self {
        let allowed = CpuSet::first(vcpus);
        let alone = alone(&config, &allowed);
        let policy = Policy::new(config, allowed.clone()).unwrap();
        let decision = Decision { setting: policy.setting(), next: 20 * MS, ..Decision::default() };
        Self {
            policy,
            alone,
            workload,
            allowed,
            steal: 0.0,
            steal_per_halt: 0.0,
            throttled: 0.0,
            by_sockets: false,
            incomplete_until: Duration::ZERO,
            ran: None,
            now: Duration::ZERO,
            slices: Vec::new(),
            events: Vec::new(),
            decision,
            sums: Sums::default(),
            watched: Duration::ZERO,
            streak: 0,
            noise: 0x9E37_79B9_7F4A_7C15,
            overload: None,
        }
    }

    /// Two vCPUs under the adaptive policy.
    pub(crate) fn pair(workload: Workload) -> Self {
        Self::new(config(), 2, workload)
    }

    /// As if so many trials of retention had proven nothing, and the next one were due.
    pub(crate) fn try_in_vain(&mut self, trials: u32) {
        // An arbiter's policy has not tried anything.
        self.alone = None;
        (0..trials).for_each(|_| self.policy.retry_retention.extend(Duration::ZERO));
        self.policy.retry_retention.set_until(Duration::ZERO);
    }

    /// Lets modelled time pass.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let runnable = self.slice();
            if self.watch_fires(runnable) || self.sums.period >= self.decision.next {
                self.step(runnable);
            }
        }
    }

    /// Lets time pass until `done`, for at most `limit`; returns the time that it took.
    pub(crate) fn run_until(&mut self, limit: Duration, done: impl Fn(&Self) -> bool) -> Option<Duration> {
        let start = self.now;
        while self.now < start + limit {
            self.run(SLICE);
            if done(self) {
                return Some(self.now.saturating_sub(start));
            }
        }
        None
    }

    /// Lets time pass until the policy's next decision.
    pub(crate) fn finish_step(&mut self) {
        self.run(SLICE);
        while !self.sums.period.is_zero() {
            self.run(SLICE);
        }
    }

    /// Reports an overload to the policy within the next slice.
    pub(crate) fn report(&mut self, overload: Overload) {
        self.overload = Some(overload);
        let runnable = self.slice();
        self.step(runnable);
    }

    pub(crate) fn setting(&self) -> &Setting {
        &self.decision.setting
    }

    pub(crate) fn untouched(&self) -> Setting {
        Setting::untouched(&self.allowed)
    }

    /// Time that the policy has not observed yet.
    pub(crate) fn unseen(&self) -> Duration {
        self.sums.period
    }

    /// The slices since `from`.
    pub(crate) fn since(&self, from: Duration) -> &[Slice] {
        &self.slices[self.slices.partition_point(|s| s.at <= from)..]
    }

    /// The best progress under any setting.
    fn best(&self) -> f64 {
        let on = Retention { method: Method::Haltpoll, limit: MS };
        let len = u32::try_from(self.allowed.len()).unwrap();
        (1..=len)
            .flat_map(|n| {
                [Retention::NONE, on].map(|retention| Setting { active: CpuSet::first(n), retention })
            })
            .map(|s| (self.workload)(&s).progress)
            .fold(0.0, f64::max)
    }

    /// The setting as the kernel applies it: absent vCPUs are not used, an impossible set is ignored.
    fn effective(&self) -> Setting {
        let s = self.decision.setting.clone();
        let present = s.active.intersection(&self.allowed);
        Setting { active: if present.is_empty() { self.allowed.clone() } else { present }, ..s }
    }

    fn slice(&mut self) -> u32 {
        let setting = self.effective();
        let rates = (self.workload)(&setting);
        self.now += SLICE;
        self.sums.add(&rates, &setting);
        self.slices.push(Slice {
            at: self.now,
            of_best: rates.progress / self.best(),
            of_untouched: rates.progress / (self.workload)(&self.untouched()).progress,
            setting,
        });
        rates.runnable
    }

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

    fn step(&mut self, runnable: u32) {
        let o = self.observe(runnable);
        self.decision = self.policy.step(&o);
        if let Some(alone) = &mut self.alone {
            assert_same(alone, &o, &self.decision);
        }
        self.events.extend(self.decision.events.iter().map(|e| (self.now, e.clone())));
        (self.sums, self.watched, self.streak) = (Sums::default(), Duration::ZERO, 0);
    }

    fn observe(&mut self, runnable: u32) -> Observation {
        let active = self.effective().active;
        let sums = self.sums;
        let vcpus = self.allowed.iter().map(|cpu| {
            let steal = sums.period.mul_f64(self.steal);
            if active.contains(cpu) {
                VcpuInterval {
                    cpu,
                    halts: whole(sums.halts),
                    halt_time: seconds(sums.halt_time),
                    polls: whole(sums.polls),
                    poll_time: seconds(sums.poll_time),
                    steal: steal + seconds(sums.halts * self.steal_per_halt),
                }
            } else {
                let halts = whole(STRAY_IDLE_PERIODS_PER_S * sums.period.as_secs_f64());
                VcpuInterval {
                    cpu,
                    halts,
                    halt_time: sums.period,
                    polls: 0,
                    poll_time: Duration::ZERO,
                    steal,
                }
            }
        });
        let vcpus = vcpus.collect();
        let moved = sums.moved.map(|m| whole(self.noisy(m)));
        let workload = WorkloadInterval {
            cpu_time: seconds(self.noisy(sums.load)),
            user_time: seconds(self.noisy(sums.user)),
            run_delay: seconds(sums.run_delay),
            switches: whole(self.noisy(sums.switches)),
            moved_bytes: moved.filter(|_| !self.by_sockets),
            sockets: moved.filter(|_| self.by_sockets).map(|bytes| Sockets { messages: bytes / 100, bytes }),
            counter: None,
            threads: 16,
            ran: self.ran,
            incomplete: self.now < self.incomplete_until,
            ..WorkloadInterval::default()
        };
        Observation {
            at: self.now,
            period: sums.period,
            vcpus,
            workload,
            runnable,
            overload: self.overload.take(),
            throttled: self.throttled,
            settled: true,
            cost: Duration::from_micros(50),
        }
    }

    /// `amount` varied by up to 1.5 %, by a fixed sequence (xorshift64).
    fn noisy(&mut self, amount: f64) -> f64 {
        self.noise ^= self.noise << 13;
        self.noise ^= self.noise >> 7;
        self.noise ^= self.noise << 17;
        amount * (1.0 + 0.015 * ((self.noise >> 40) as f64 / f64::from(1 << 23) - 1.0))
    }
}

impl Sums {
    /// Adds a slice. Idle lengths are exponentially distributed, so a limit cuts off a known share of them.
    fn add(&mut self, r: &Rates, s: &Setting) {
        let (slice, n) = (SLICE.as_secs_f64(), s.active.len() as f64);
        self.period += SLICE;
        self.load += r.load * slice;
        self.user += r.load * r.user_share * slice;
        self.switches += r.switches * slice;
        self.run_delay += r.run_delay * slice;
        if let Some(moved) = r.moved_bytes {
            self.moved = Some(self.moved.unwrap_or(0.0) + moved * slice);
        }
        let idle = (n - r.load).max(0.0) * slice / n;
        let periods = r.idle_periods * slice / n;
        let outlasting = match s.retention.method {
            Method::Halt => 1.0,
            Method::QosPoll => 0.0,
            _ => (-s.retention.limit.as_secs_f64() * periods / idle.max(1e-12)).exp(),
        };
        self.halts += periods * outlasting;
        self.halt_time += idle * outlasting;
        if s.retention.is_on() {
            self.polls += periods;
            self.poll_time += idle * (1.0 - outlasting);
        }
    }
}

pub(crate) fn seconds(s: f64) -> Duration {
    Duration::from_secs_f64(s.max(0.0))
}

/// `x` rounded to the nearest integer.
pub(crate) fn whole(x: f64) -> u64 {
    seconds(x + 0.5).as_secs()
}
