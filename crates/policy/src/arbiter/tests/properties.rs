//! What holds for any sequence of observations of any workloads that come and go.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::policy::tests::properties::{any_config, observation};
use crate::policy::tests::world::whole;
use crate::{
    Arbiter, ArbiterConfig, CpuSet, Event, Forbidden, Observation, Policy, PolicyConfig, Purpose, Retention,
    Setting, Stake, WorkloadId,
};

/// What a workload looks like without and with retention.
type Looks = [Observation; 2];

/// Something that happens.
#[derive(Debug, Clone)]
enum Act {
    /// So many workloads become due, one after the other.
    Pass(usize),
    Join(Box<(PolicyConfig, Looks)>),
    Leave(usize),
    Change(usize, Box<Looks>),
    Forbid(Option<Forbidden>),
    Share(f64),
}

fn looks() -> impl Strategy<Value = Looks> {
    // Retention changes the same workload, or everything.
    (observation(), observation(), 0.5..2.0f64, any::<bool>()).prop_map(|(off, other, factor, same)| {
        let on = if same { scaled(&off, factor, off.period) } else { other };
        [off, on]
    })
}

fn act() -> impl Strategy<Value = Act> {
    let member = (any_config(), looks());
    let forbidden = prop_oneof![Just(None), Just(Some(Forbidden::QuietHours))];
    prop_oneof![
        8 => (1..60usize).prop_map(Act::Pass),
        2 => member.prop_map(|member| Act::Join(Box::new(member))),
        2 => any::<usize>().prop_map(Act::Leave),
        2 => (any::<usize>(), looks()).prop_map(|(at, looks)| Act::Change(at, Box::new(looks))),
        1 => forbidden.prop_map(Act::Forbid),
        1 => (0.0..=1.0f64).prop_map(Act::Share),
    ]
}

/// The same with `factor` times the work, in an interval of another length.
fn scaled(o: &Observation, factor: f64, period: Duration) -> Observation {
    let longer = period.as_secs_f64() / o.period.as_secs_f64().max(1e-6);
    let count = |n: u64| whole(n as f64 * longer * factor);
    let mut o = Observation { period, ..o.clone() };
    for v in &mut o.vcpus {
        (v.halts, v.polls) = (count(v.halts), count(v.polls));
        (v.halt_time, v.poll_time) = (v.halt_time.mul_f64(longer), v.poll_time.mul_f64(longer));
        v.steal = v.steal.mul_f64(longer);
    }
    let w = &mut o.workload;
    (w.cpu_time, w.user_time) = (w.cpu_time.mul_f64(longer * factor), w.user_time.mul_f64(longer * factor));
    (w.switches, w.moved_bytes) = (count(w.switches), w.moved_bytes.map(count));
    (w.counter, w.sockets) = (w.counter.map(|n| n * longer * factor), None);
    o
}

struct Guest {
    looks: Looks,
    since: Duration,
    due: Duration,
    allowed: CpuSet,
}

/// Two arbiters that get the same, and what they decide for.
struct Machine {
    arbiter: Arbiter,
    twin: Arbiter,
    guests: BTreeMap<WorkloadId, Guest>,
    retention: Retention,
    forbidden: bool,
    now: Duration,
    next_id: u64,
}

impl Machine {
    fn new() -> Self {
        let arbiter = || Arbiter::new(ArbiterConfig { vcpus: CpuSet::first(4), polling_share: 1.0 });
        Self {
            arbiter: arbiter(),
            twin: arbiter(),
            guests: BTreeMap::new(),
            retention: Retention::NONE,
            forbidden: false,
            now: Duration::ZERO,
            next_id: 0,
        }
    }

    fn act(&mut self, act: Act) -> Result<(), TestCaseError> {
        let at = |n: usize, guests: &BTreeMap<WorkloadId, Guest>| {
            guests.keys().nth(n % guests.len().max(1)).copied()
        };
        match act {
            Act::Pass(times) => {
                for _ in 0..times {
                    self.pass()?;
                }
            }
            Act::Join(member) => {
                let (config, looks) = *member;
                self.join(&config, looks);
            }
            Act::Leave(n) => {
                if let Some(id) = at(n, &self.guests) {
                    self.guests.remove(&id);
                    prop_assert!(self.arbiter.leave(id).is_some() && self.twin.leave(id).is_some());
                    self.check_retention()?;
                    self.moment(self.arbiter.sample())?;
                }
            }
            Act::Change(n, looks) => {
                if let Some(guest) = at(n, &self.guests).and_then(|id| self.guests.get_mut(&id)) {
                    guest.looks = *looks;
                }
            }
            Act::Forbid(why) => {
                prop_assert_eq!(self.arbiter.forbid_polling(why), self.twin.forbid_polling(why));
                self.forbidden = why.is_some();
                self.check_retention()?;
                self.moment(self.arbiter.sample())?;
            }
            Act::Share(polling_share) => {
                let config = ArbiterConfig { vcpus: CpuSet::first(4), polling_share };
                self.arbiter.reconfigure(config.clone());
                self.twin.reconfigure(config);
            }
        }
        Ok(())
    }

    fn join(&mut self, config: &PolicyConfig, looks: Looks) {
        if self.guests.len() == 32 {
            return;
        }
        let id = WorkloadId(self.next_id);
        self.next_id += 1;
        for arbiter in [&mut self.arbiter, &mut self.twin] {
            arbiter.join(id, Policy::new(config.clone(), CpuSet::first(4)).unwrap());
        }
        let due = self.now + Duration::from_millis(20);
        self.guests.insert(id, Guest { looks, since: self.now, due, allowed: CpuSet::first(4) });
    }

    /// The next workload becomes due.
    fn pass(&mut self) -> Result<(), TestCaseError> {
        let next = self.guests.iter().min_by_key(|(_, guest)| guest.due);
        let Some((id, due)) = next.map(|(id, guest)| (*id, guest.due)) else { return Ok(()) };
        self.now = due.max(self.now + Duration::from_micros(1));
        self.moment(vec![id])
    }

    /// Steps these and whom their steps name.
    fn moment(&mut self, ids: Vec<WorkloadId>) -> Result<(), TestCaseError> {
        let (mut due, mut stepped) = (VecDeque::from(ids), Vec::new());
        while let Some(id) = due.pop_front() {
            prop_assert!(!stepped.contains(&id), "{id} is named twice");
            stepped.push(id);
            let sample = self.step(id)?;
            prop_assert!(due.iter().all(|id| sample.contains(id)), "{due:?} are forgotten: {sample:?}");
            due = sample.into();
        }
        // What was decided is carried out.
        self.retention = self.arbiter.retention();
        Ok(())
    }

    fn step(&mut self, id: WorkloadId) -> Result<Vec<WorkloadId>, TestCaseError> {
        let guest = self.guests.get_mut(&id).unwrap();
        let looks = &guest.looks[usize::from(self.retention.is_on())];
        let o = Observation { at: self.now, ..scaled(looks, 1.0, self.now.saturating_sub(guest.since)) };
        if !o.vcpus.is_empty() {
            guest.allowed = o.allowed();
        }
        let before = self.arbiter.policy(id).unwrap().smaller_set();
        let step = self.arbiter.step(id, &o);
        guest.since = self.now;
        guest.due = self.now + step.decision.next;
        prop_assert!(step.decision.next > Duration::ZERO, "{step:?}");
        let Setting { active, retention } = step.decision.setting.clone();
        prop_assert!(!active.is_empty() && active.is_subset(&guest.allowed), "{active} of {}", guest.allowed);
        prop_assert!(retention == step.retention && retention == self.arbiter.retention());
        prop_assert_eq!(&step.decision.setting, &self.arbiter.setting(id));
        self.check_room(id, &o, before.as_ref(), &step.decision.events)?;
        prop_assert_eq!(&self.twin.step(id, &o), &step);
        self.check_retention()?;
        Ok(step.sample)
    }

    /// At most one trial, and nothing is retained but for a trial or whom it helps.
    fn check_retention(&self) -> Result<(), TestCaseError> {
        let trials = self.guests.keys().filter(|id| self.arbiter.trial(**id).is_some()).count();
        prop_assert!(trials <= 1, "{trials} trials");
        let helps = self.guests.keys().any(|id| self.arbiter.stake(*id) == Some(Stake::Helped));
        let retains = self.arbiter.retention().is_on();
        prop_assert!(!retains || helps || trials == 1, "{} for nobody", self.arbiter.retention());
        prop_assert!(!retains || !self.forbidden);
        prop_assert!((0.0..=1.0).contains(&self.arbiter.polling_share()), "{}", self.arbiter.polling_share());
        Ok(())
    }

    /// Who is newly confined to fewer vCPUs, on trial or not, fits there beside others.
    fn check_room(
        &self,
        id: WorkloadId,
        o: &Observation,
        before: Option<&CpuSet>,
        events: &[Event],
    ) -> Result<(), TestCaseError> {
        let now = self.arbiter.policy(id).unwrap().smaller_set();
        let tried = events.iter().find_map(|event| match event {
            Event::TrialStarted { candidate, baseline, purpose: Purpose::Adopt, .. } => {
                Some(&candidate.active).filter(|set| *set != &baseline.active)
            }
            _ => None,
        });
        let resumed = events.iter().any(|event| matches!(event, Event::Resumed { .. }));
        let resumed = now.filter(|now| resumed && before != Some(now));
        for set in tried.into_iter().chain(&resumed) {
            for (cpu, others) in self.arbiter.confined_beside(id) {
                let load = others + o.load() / set.len() as f64;
                prop_assert!(!set.contains(cpu) || load <= 1.0 + 1e-9, "a load of {load} on vCPU {cpu}");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn whatever_comes_and_goes_there_is_one_trial_and_nobody_is_forgotten(
        members in proptest::collection::vec((any_config(), looks()), 1..=32),
        acts in proptest::collection::vec(act(), 1..16),
    ) {
        let mut m = Machine::new();
        for (config, looks) in members {
            m.join(&config, looks);
        }
        for act in acts {
            m.act(act)?;
        }
    }
}
