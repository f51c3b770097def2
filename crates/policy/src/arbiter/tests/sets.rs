//! The active sets, and whose turn it is.

use super::machine::Machine;
use super::{SECOND, chatter, retaining};
use crate::policy::tests::workloads::{Rates, compute_16, idle_daemon, redis_1};
use crate::policy::tests::world::{MS, config};
use crate::{Event, Method, PolicyConfig, Setting, WorkloadId};

/// Without retention.
fn consolidating() -> PolicyConfig {
    PolicyConfig { method: Method::Halt, ..config() }
}

/// Two of these fill a vCPU.
fn busy_chatter(s: &Setting) -> Rates {
    Rates { load: if s.active.len() == 1 { 0.47 } else { 0.3 }, ..chatter(s) }
}

/// Two of these need more than a vCPU, by too little for either to notice a major change.
fn busier_chatter(s: &Setting) -> Rates {
    Rates { load: 0.52, ..chatter(s) }
}

impl Machine {
    /// The workloads that are confined to one vCPU, by vCPU.
    fn confined(&self) -> Vec<(u32, WorkloadId)> {
        let one = |id: &WorkloadId| {
            let active = self.setting(*id).active;
            (active.len() == 1).then(|| (active.iter().next().unwrap().0, *id))
        };
        let mut all: Vec<_> = self.guests.keys().filter_map(one).collect();
        all.sort_unstable();
        all
    }
}

#[test]
fn consolidated_workloads_do_not_pile_up() {
    for workloads in [2, 4, 6] {
        let mut m = Machine::new(4);
        m.join_many(workloads, &consolidating(), chatter);
        m.run(20 * SECOND);
        let confined = m.confined();
        assert!(confined.len() >= workloads.min(4), "{confined:?} {}", m.account());
        for cpu in 0..4 {
            let there = confined.iter().filter(|(c, _)| *c == cpu).count();
            assert!(there <= 2, "0.35 each: {confined:?}");
        }
        for id in m.guests.keys() {
            assert!(m.of_untouched(*id) > 0.98, "{}", m.account());
        }
    }
}

#[test]
fn where_no_vcpu_has_room_nothing_is_tried() {
    let mut m = Machine::new(2);
    m.join_many(8, &consolidating(), chatter);
    m.run(20 * SECOND);
    for cpu in 0..2 {
        assert!(m.confined().iter().filter(|(c, _)| *c == cpu).count() <= 2, "{:?}", m.confined());
    }
}

#[test]
fn the_last_one_leaves_a_vcpu_that_has_become_too_small() {
    let mut m = Machine::new(2);
    let ids = m.join_many(3, &consolidating(), busy_chatter);
    let settled =
        |m: &Machine| m.confined().len() == 3 && ids.iter().all(|id| m.arbiter.trial(*id).is_none());
    m.run_until(10 * SECOND, settled).unwrap_or_else(|| panic!("{}", m.account()));
    // Proofs, which would show it, too, have become rare.
    m.run(14 * SECOND);
    let confined = m.confined();
    let shared =
        confined.windows(2).find(|two| two[0].0 == two[1].0).map(|two| [two[0].1, two[1].1]).unwrap();
    let last = shared.into_iter().max_by_key(|id| m.trials(*id).last().copied()).unwrap();
    for id in shared {
        m.guests.get_mut(&id).unwrap().workload = busier_chatter;
    }
    let grown = m.now;
    let left = |m: &Machine| m.setting(last).active.len() == 2;
    let took = m.run_until(10 * SECOND, left);
    assert!(took.is_some_and(|t| t > SECOND), "{took:?} {}", m.account());
    let made = |(at, e): &(_, Event)| *at > grown && matches!(e, Event::MadeRoom { .. });
    assert!(m.guests[&last].events.iter().any(made), "{}", m.account());
}

#[test]
fn each_of_many_that_want_a_trial_gets_one() {
    // Eight that search for a set, beside two that are retained and proven again.
    let mut m = Machine::new(16);
    let ids = m.join_many(8, &consolidating(), chatter);
    m.join_many(2, &retaining(), redis_1);
    m.run(10 * SECOND);
    for id in &ids {
        let first = m.trials(*id).first().copied();
        assert!(first.is_some_and(|at| at < 5 * SECOND), "{id} {first:?} {}", m.account());
    }
    // And again when all have something new to try.
    let before: Vec<_> = ids.iter().map(|id| m.trials(*id).len()).collect();
    for id in &ids {
        m.guests.get_mut(id).unwrap().workload = idle_daemon;
    }
    m.run(3 * SECOND);
    for id in &ids {
        m.guests.get_mut(id).unwrap().workload = chatter;
    }
    m.run(10 * SECOND);
    for (id, before) in ids.iter().zip(before) {
        assert!(m.trials(*id).len() > before, "{id} {}", m.account());
    }
}

#[test]
fn an_overload_expands_at_once_in_the_trial_of_another() {
    let mut m = Machine::new(4);
    let first = m.join_with(consolidating(), chatter);
    m.run_until(5 * SECOND, |m| m.confined().len() == 1).unwrap();
    m.run(SECOND);
    let second = m.join_with(consolidating(), chatter);
    m.run_until(5 * SECOND, |m| m.arbiter.trial(second).is_some())
        .unwrap_or_else(|| panic!("{}", m.account()));
    m.guests.get_mut(&first).unwrap().workload = compute_16;
    let took = m.run_until(SECOND, |m| m.setting(first).active.len() == 4);
    assert!(took.is_some_and(|t| t <= 30 * MS), "{took:?} {}", m.account());
}
