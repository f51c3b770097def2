//! How soon a workload is helped, and how close to the best setting for all.

use std::time::Duration;

use super::machine::Machine;
use super::{SECOND, chatter, retaining};
use crate::policy::tests::workloads::{Workload, compute_1, idle_daemon, mariadb, redis_1};
use crate::policy::tests::world::{MS, config};
use crate::{
    CpuSet, Event, Evidence, KnownLoad, KnownRetention, Method, PolicyConfig, Retention, Setting, Signal,
    Stake, WorkloadId,
};

/// What an earlier run of redis on four vCPUs has left.
fn known() -> PolicyConfig {
    let evidence = Evidence { signal: Signal::WorkTime, ratio: 1.5, low: 1.4, high: 1.6, pairs: 4 };
    let setting = Retention { method: Method::Haltpoll, limit: Duration::from_micros(300) };
    let retention = Some(KnownRetention { setting, evidence });
    PolicyConfig {
        known: vec![KnownLoad { load: 0.2, retention, vcpus: None, refuted: 0, refuted_vcpus: 0 }],
        ..retaining()
    }
}

impl Machine {
    fn is_helped(&self, id: WorkloadId) -> bool {
        self.arbiter.stake(id) == Some(Stake::Helped) && self.arbiter.retention().is_on()
    }

    /// The progress per second of every workload under the best of the settings that leave no workload below 0.98 of
    /// its progress on the untouched machine: the one whose gains have the largest product.
    fn best_joint(&self, ids: [WorkloadId; 2]) -> [f64; 2] {
        let on = Retention { method: Method::Haltpoll, limit: MS };
        let one = self.vcpus.iter().map(|cpu| CpuSet::from_iter([cpu]));
        let sets: Vec<_> = [self.vcpus.clone()].into_iter().chain(one).collect();
        let of = |active: [&CpuSet; 2], retention| {
            let set = |id| active[usize::from(id == ids[1])].clone();
            let progress = self.progress_under(|id| Setting { active: set(id), retention });
            ids.map(|id| progress[&id])
        };
        let untouched = of([&self.vcpus; 2], Retention::NONE);
        let harmless =
            |of: &[f64; 2]| of.iter().zip(untouched).all(|(progress, before)| *progress >= 0.98 * before);
        let pairs = sets.iter().flat_map(|a| sets.iter().map(move |b| [a, b]));
        let all = pairs.flat_map(|pair| [Retention::NONE, on].map(|retention| of(pair, retention)));
        let product = |of: &[f64; 2]| of[0] * of[1];
        all.filter(harmless).max_by(|a, b| product(a).total_cmp(&product(b))).unwrap()
    }
}

#[test]
fn who_comes_to_a_machine_at_rest_or_at_work_is_helped_within_five_seconds() {
    let alone: [Workload; 0] = [];
    let idle: [Workload; 3] = [idle_daemon; 3];
    let busy: [Workload; 2] = [compute_1, idle_daemon];
    for (others, noise) in
        [(&alone[..], 0.015), (&idle[..], 0.015), (&busy[..], 0.015), (&busy[..1], 0.1), (&busy[..], 0.2)]
    {
        let mut m = Machine::new(4);
        m.noise_level = noise;
        for other in others {
            m.join_with(retaining(), *other);
        }
        m.run(7 * SECOND);
        let id = m.join_with(retaining(), redis_1);
        let took = m.run_until(5 * SECOND, |m| m.is_helped(id));
        assert!(took.is_some(), "{} beside {} {}", noise, others.len(), m.account());
        m.count_anew();
        m.run(10 * SECOND);
        assert!(m.of_untouched(id) > 3.3, "{} {}", m.of_untouched(id), m.account());
    }
}

#[test]
fn what_is_known_of_a_program_is_in_force_at_once() {
    let all: [Workload; 3] = [idle_daemon, compute_1, idle_daemon];
    for others in [&all[..0], &all[..1], &all[1..2], &all[..]] {
        let mut m = Machine::new(4);
        for other in others {
            m.join_with(retaining(), *other);
        }
        m.run(7 * SECOND);
        let id = m.join_with(known(), redis_1);
        let took = m.run_until(200 * MS, |m| m.is_helped(id));
        assert!(took.is_some_and(|t| t <= 50 * MS), "{took:?} {}", m.account());
        m.run(SECOND);
        m.count_anew();
        m.run(10 * SECOND);
        assert!(m.of_untouched(id) > 3.5, "{} {}", m.of_untouched(id), m.account());
    }
}

#[test]
fn what_is_known_of_a_program_does_not_wait_for_another_ones_trial() {
    let consolidating = PolicyConfig { method: Method::Halt, ..config() };
    for (other, config) in [(chatter as Workload, consolidating), (mariadb, retaining())] {
        let mut m = Machine::new(4);
        // Trials are long under noise.
        m.noise_level = 0.3;
        let tries = m.join_with(config, other);
        m.run_until(5 * SECOND, |m| m.arbiter.trial(tries).is_some()).unwrap();
        let id = m.join_with(known(), redis_1);
        let took = m.run_until(200 * MS, |m| m.is_helped(id));
        assert!(took.is_some(), "{}", m.account());
        // Both have their turns afterwards.
        m.noise_level = 0.05;
        m.run(20 * SECOND);
        let trials = m.trials(tries);
        assert!(trials.len() > 1 && !m.trials(id).is_empty(), "{trials:?} {}", m.account());
        let abandoned = |(_, e): &&(Duration, Event)| matches!(e, Event::TrialAbandoned { .. });
        assert_eq!(m.guests[&tries].events.iter().filter(abandoned).count(), 1, "{}", m.account());
    }
}

#[test]
fn two_at_once_reach_the_best_joint_setting() {
    for (vcpus, workloads) in [
        (2, [redis_1, mariadb]),
        (2, [mariadb, compute_1]),
        (4, [redis_1, mariadb]),
        (4, [mariadb, compute_1]),
        (4, [redis_1, compute_1]),
    ] {
        let mut m = Machine::new(vcpus);
        let ids = workloads.map(|workload: Workload| m.join(workload));
        let best = m.best_joint(ids);
        m.run(5 * SECOND);
        m.count_anew();
        m.run(20 * SECOND);
        let reached = [0, 1].map(|i| m.guests[&ids[i]].progress / 20.0 / best[i]);
        assert!(reached.iter().all(|r| *r > 0.95), "{vcpus} vCPUs: {reached:?} {}", m.account());
    }
}

#[test]
fn nobody_is_helped_at_the_price_of_another_that_needs_the_vcpus() {
    // Retained, redis wants more than what computing leaves.
    let mut m = Machine::new(2);
    let [redis, computes] = [redis_1, compute_1].map(|workload: Workload| m.join_with(retaining(), workload));
    m.run(20 * SECOND);
    assert!(m.of_untouched(computes) > 0.98 && m.of_untouched(redis) > 0.98, "{}", m.account());
    assert_eq!(m.arbiter.stake(computes), Some(Stake::Objects));
}

#[test]
fn who_joins_in_the_middle_of_a_trial_judges_it_and_who_leaves_does_not_hold_it() {
    let mut m = Machine::new(4);
    let first = m.join_with(retaining(), redis_1);
    m.run_until(SECOND, |m| m.arbiter.trial(first).is_some()).unwrap();
    m.run(30 * MS);
    let [stays, leaves] = [compute_1, compute_1].map(|workload| m.join_with(retaining(), workload));
    m.run(10 * MS);
    assert!(m.arbiter.trial(first).is_some());
    m.leave(leaves);
    let took = m.run_until(2 * SECOND, |m| m.is_helped(first));
    assert!(took.is_some() && m.arbiter.stake(stays) == Some(Stake::Tolerates), "{}", m.account());
    assert_eq!(m.trials(first).len(), 1);
    // The one that tries leaves.
    let next = m.join_with(retaining(), mariadb);
    m.leave(first);
    m.run_until(2 * SECOND, |m| m.arbiter.trial(next).is_some()).unwrap();
    m.leave(next);
    assert!(!m.arbiter.retention().is_on() && m.arbiter.trial(next).is_none());
}
