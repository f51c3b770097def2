//! The machine's retention.

use std::time::Duration;

use super::machine::Machine;
use super::{SECOND, machine, retaining};
use crate::policy::tests::workloads::{
    Rates, Workload, compute_1, compute_16, convoy, idle_daemon, mariadb, redis_1, redis_8,
};
use crate::policy::tests::world::MS;
use crate::{
    CpuSet, Event, Forbidden, Method, PolicyConfig, Purpose, ReleaseReason, Retention, Setting, Stake, Veto,
    WorkloadId,
};

const HELPED: Option<Stake> = Some(Stake::Helped);
const TOLERATES: Option<Stake> = Some(Stake::Tolerates);
const OBJECTS: Option<Stake> = Some(Stake::Objects);

/// A server whose clients set the rate, and of which only the CPU time shows anything: retention does not change it.
fn steady(_: &Setting) -> Rates {
    Rates {
        load: 0.4,
        user_share: 0.5,
        switches: 900.0,
        idle_periods: 900.0,
        run_delay: 0.0,
        runnable: 1,
        moved_bytes: None,
        progress: 1.0,
    }
}

#[test]
fn two_closed_loops_that_both_gain_are_retained_by_one_trial() {
    let (mut m, ids) = machine(4, &[redis_1, mariadb]);
    let helped = |m: &Machine| ids.iter().all(|id| m.arbiter.stake(*id) == HELPED);
    let took = m.run_until(SECOND, helped);
    assert!(took.is_some_and(|t| t <= 400 * MS), "{took:?} {}", m.account());
    let is_new = |e: &Event| matches!(e, Event::TrialStarted { purpose: Purpose::Adopt, .. });
    let new = m.guests.values().flat_map(|guest| &guest.events).filter(|(_, e)| is_new(e)).count();
    assert_eq!(new, 1, "{}", m.account());
    m.count_anew();
    m.run(10 * SECOND);
    assert!(m.of_untouched(ids[0]) > 3.5 && m.of_untouched(ids[1]) > 2.5, "{}", m.account());
    // Both are proven again by the same trials.
    let proofs = m.trials(ids[0]).len() + m.trials(ids[1]).len();
    assert!(proofs <= 8, "{proofs}: {}", m.account());
}

#[test]
fn a_closed_loop_beside_a_convoy_is_not_retained_and_the_convoy_loses_nothing() {
    for (workloads, harmed) in [([redis_1, convoy], 1), ([convoy, redis_1], 0), ([redis_1, redis_8], 1)] {
        let (mut m, ids) = machine(4, &workloads);
        m.run(5 * SECOND);
        assert_eq!(m.arbiter.retention(), Retention::NONE, "{}", m.account());
        m.run(55 * SECOND);
        assert!(m.of_untouched(ids[harmed]) > 0.98, "{}", m.of_untouched(ids[harmed]));
        // Ever more rarely.
        assert!(m.retained < SECOND, "{:?} {}", m.retained, m.account());
        let objected = |e: &Event| matches!(e, Event::Objected { by, .. } if *by == ids[harmed]);
        for id in &ids {
            assert!(m.guests[id].events.iter().any(|(_, e)| objected(e)), "{}", m.account());
        }
        assert_ne!(m.arbiter.stake(ids[1 - harmed]), HELPED);
    }
}

#[test]
fn a_workload_judges_only_when_it_is_known_what_shows_its_progress() {
    let (mut m, ids) = machine(4, &[redis_1, convoy]);
    let incomplete = |m: &mut Machine, is: bool| m.guests.get_mut(&ids[1]).unwrap().incomplete = is;
    incomplete(&mut m, true);
    m.run(5 * SECOND);
    assert!(m.arbiter.stake(ids[0]) == HELPED && m.arbiter.stake(ids[1]) == TOLERATES, "{}", m.account());
    incomplete(&mut m, false);
    let took = m.run_until(20 * SECOND, |m| m.arbiter.stake(ids[1]) == OBJECTS);
    assert!(took.is_some(), "{}", m.account());
}

#[test]
fn nobody_tries_before_the_one_that_is_harmed_would() {
    let (mut m, ids) = machine(4, &[redis_1, mariadb, convoy]);
    m.run_until(SECOND, |m| m.arbiter.stake(ids[2]) == OBJECTS).unwrap();
    for _ in 0..20_000 {
        let (objects, trials) =
            (m.arbiter.stake(ids[2]) == OBJECTS, m.trials(ids[0]).len() + m.trials(ids[1]).len());
        m.run(MS);
        if objects && m.arbiter.stake(ids[2]) == OBJECTS {
            assert_eq!(trials, m.trials(ids[0]).len() + m.trials(ids[1]).len(), "{}", m.account());
        }
    }
}

#[test]
fn a_closed_loop_beside_a_computing_workload_is_retained() {
    for other in [compute_1, steady, idle_daemon] {
        let (mut m, ids) = machine(4, &[redis_1, other]);
        let took = m.run_until(SECOND, |m| m.arbiter.stake(ids[0]) == HELPED);
        assert!(took.is_some_and(|t| t <= 500 * MS), "{took:?} {}", m.account());
        assert_eq!(m.arbiter.stake(ids[1]), TOLERATES);
        m.count_anew();
        m.run(10 * SECOND);
        assert!(m.of_untouched(ids[0]) > 3.5 && m.of_untouched(ids[1]) > 0.99, "{}", m.account());
        let shared = |e: &Event| matches!(e, Event::Shared { helps, .. } if *helps == ids[0]);
        assert_eq!(m.guests[&ids[1]].events.iter().filter(|(_, e)| shared(e)).count(), 1);
    }
}

#[test]
fn who_joins_inherits_and_judges_soon() {
    for (other, stake) in
        [(compute_1 as fn(&Setting) -> Rates, TOLERATES), (mariadb, HELPED), (convoy, OBJECTS)]
    {
        let (mut m, ids) = machine(4, &[redis_1]);
        m.run(20 * SECOND);
        let joined = m.now;
        let id = m.join_with(retaining(), other);
        assert_eq!((m.arbiter.stake(id), m.setting(id).retention.is_on()), (None, true));
        let took = m.run_until(5 * SECOND, |m| m.arbiter.stake(id) == stake);
        assert!(took.is_some_and(|t| t <= SECOND), "{stake:?}: {took:?} {}", m.account());
        if stake == OBJECTS {
            assert_eq!(m.arbiter.retention(), Retention::NONE);
            m.run(100 * MS);
            let why = m.released(ids[0]);
            assert!(
                matches!(why[..], [(at, ReleaseReason::Objection { by, .. })] if by == id && at > joined),
                "{why:?}"
            );
            // It is back when that workload leaves.
            m.leave(id);
            let took = m.run_until(SECOND, |m| m.arbiter.stake(ids[0]) == HELPED);
            assert!(took.is_some(), "{}", m.account());
        } else {
            m.run(5 * SECOND);
            assert!(m.arbiter.retention().is_on());
        }
    }
}

#[test]
fn retention_ends_with_the_last_workload_that_it_helps() {
    let (mut m, ids) = machine(4, &[redis_1, mariadb, compute_1]);
    m.run(2 * SECOND);
    m.leave(ids[0]);
    m.run(2 * SECOND);
    assert!(m.arbiter.retention().is_on());
    // It falls asleep instead of leaving.
    m.guests.get_mut(&ids[1]).unwrap().workload = idle_daemon;
    m.run(2 * SECOND);
    assert_eq!(m.arbiter.retention(), Retention::NONE);
    assert!(matches!(m.released(ids[1])[..], [(_, ReleaseReason::Rare { .. })]), "{}", m.account());
    assert!(matches!(m.released(ids[2])[..], [(_, ReleaseReason::Unneeded)]), "{}", m.account());
    // And leaves.
    m.guests.get_mut(&ids[1]).unwrap().workload = mariadb;
    m.run_until(SECOND, |m| m.arbiter.retention().is_on()).unwrap();
    m.run(SECOND);
    m.leave(ids[1]);
    assert_eq!(m.arbiter.retention(), Retention::NONE);
}

#[test]
fn the_largest_limit_that_helps_somebody_is_in_force() {
    let mut m = Machine::new(4);
    let ids = [200, 20].map(|us| {
        let wake_cost = Duration::from_micros(us);
        m.join_with(PolicyConfig { wake_cost, ..retaining() }, redis_1)
    });
    m.run(10 * SECOND);
    let limits = ids.map(|id| m.arbiter.policy(id).unwrap().claim().limit);
    assert!(limits[0] != limits[1], "{limits:?}");
    assert_eq!(m.arbiter.retention().limit, *limits.iter().max().unwrap());
}

#[test]
fn what_is_forbidden_ends_at_once_and_sets_are_still_tried() {
    let (mut m, ids) = machine(8, &[redis_1, mariadb]);
    let why = Forbidden::QuietHours;
    // In the middle of a trial, and out of it.
    for time in [50 * MS, 3 * SECOND] {
        m.run(time);
        let on = m.arbiter.retention().is_on() || m.arbiter.trial(ids[0]).is_some();
        assert!(on && m.arbiter.forbid_polling(Some(why)) && !m.arbiter.forbid_polling(Some(why)));
        assert_eq!(m.arbiter.retention(), Retention::NONE);
        m.carry_out();
        m.count_anew();
        let set = m.join_with(
            PolicyConfig { method: Method::Halt, ..crate::policy::tests::world::config() },
            super::chatter,
        );
        m.run(5 * SECOND);
        assert_eq!(m.retained, Duration::ZERO);
        assert!(!m.trials(set).is_empty(), "{}", m.account());
        m.leave(set);
        assert_eq!(m.released(ids[0]).last().map(|(_, why)| *why), Some(ReleaseReason::Forbidden(why)));
        assert!(m.arbiter.forbid_polling(None));
        assert!(m.run_until(SECOND, |m| m.arbiter.retention().is_on()).is_some(), "{}", m.account());
    }
}

#[test]
fn polling_stays_within_its_share() {
    for share in [0.0, 0.1, 0.3, 0.9] {
        let mut m = Machine::with_share(8, share);
        let only = |method| PolicyConfig { method, ..retaining() };
        let ids =
            [m.join_with(only(Method::QosPoll), redis_1), m.join_with(only(Method::QosPoll), compute_1)];
        for _ in 0..12 {
            m.count_anew();
            m.run(10 * SECOND);
            let polled = m.polled.as_secs_f64() / 80.0;
            assert!(polled < share + 0.02, "{polled} > {share} {}", m.account());
        }
        let exceeded =
            |why: &ReleaseReason| matches!(why, ReleaseReason::PollingShare { share: s, most } if s > most);
        let times = m.released(ids[0]).iter().filter(|(_, why)| exceeded(why)).count();
        assert!(
            if (0.1..0.5).contains(&share) { times >= 3 } else { times == 0 },
            "{times}: {}",
            m.account()
        );
        assert_eq!(m.released(ids[1]).len(), m.released(ids[0]).len());
    }
}

#[test]
fn steal_ends_polling_for_all() {
    let (mut m, ids) = machine(4, &[redis_1, mariadb, compute_1]);
    m.run(3 * SECOND);
    m.steal = 0.15;
    let took = m.run_until(2 * SECOND, |m| !m.arbiter.retention().is_on());
    assert!(took.is_some(), "{}", m.account());
    m.run(SECOND);
    for id in ids {
        let why = m.released(id);
        assert!(matches!(why[..], [(_, ReleaseReason::Veto(Veto::Steal { .. }))]), "{id} {why:?}");
    }
    m.count_anew();
    m.run(30 * SECOND);
    assert!(m.retained < 3 * SECOND, "{:?} {}", m.retained, m.account());
    m.steal = 0.0;
    assert!(m.run_until(60 * SECOND, |m| m.arbiter.retention().is_on()).is_some());
}

#[test]
fn a_quota_is_the_abstention_of_its_workload_alone() {
    let (mut m, ids) = machine(4, &[redis_1, mariadb]);
    m.run(3 * SECOND);
    m.guests.get_mut(&ids[0]).unwrap().throttled = 0.2;
    m.run(5 * SECOND);
    assert!(m.arbiter.retention().is_on() && m.arbiter.stake(ids[1]) == HELPED, "{}", m.account());
    assert_ne!(m.arbiter.stake(ids[0]), HELPED);
    assert!(m.released(ids[1]).is_empty());
    // Nobody is left whom it helps.
    m.guests.get_mut(&ids[1]).unwrap().throttled = 0.2;
    m.run(SECOND);
    assert!(!m.arbiter.retention().is_on(), "{}", m.account());
}

#[test]
fn a_workload_that_turns_into_a_convoy_objects_in_the_proofs_of_others() {
    let (mut m, ids) = machine(4, &[redis_1, compute_1]);
    m.run(20 * SECOND);
    assert!(m.arbiter.retention().is_on());
    m.guests.get_mut(&ids[1]).unwrap().workload = convoy;
    let took = m.run_until(60 * SECOND, |m| m.arbiter.stake(ids[1]) == OBJECTS);
    assert!(took.is_some_and(|t| t < 30 * SECOND), "{took:?} {}", m.account());
}

#[test]
fn a_set_that_changes_ends_the_trial_of_retention() {
    let mut m = Machine::new(4);
    let ids = [m.join_with(retaining(), idle_daemon), m.join(redis_1)];
    m.run_until(SECOND, |m| m.arbiter.trial(ids[1]).is_some()).unwrap();
    // Its owner takes a vCPU away.
    m.guests.get_mut(&ids[0]).unwrap().allowed = CpuSet::first(3);
    m.run(SECOND);
    let abandoned = |e: &Event| matches!(e, Event::TrialAbandoned { .. });
    assert_eq!(m.guests[&ids[1]].events.iter().filter(|(_, e)| abandoned(e)).count(), 1, "{}", m.account());
    // It is tried again.
    assert!(m.trials(ids[1]).len() >= 2 && m.arbiter.retention().is_on(), "{}", m.account());
}

#[test]
fn what_another_workload_needs_is_not_proven_for_a_program_that_cannot_retain() {
    let mut m = Machine::new(4);
    let ids = [
        m.join_with(retaining(), redis_1),
        m.join_with(PolicyConfig { method: Method::Halt, ..retaining() }, mariadb),
    ];
    m.run(SECOND);
    assert_eq!((m.arbiter.stake(ids[0]), m.arbiter.stake(ids[1])), (HELPED, TOLERATES));
    m.leave(ids[0]);
    assert!(!m.arbiter.retention().is_on());
    let of = |(_, e): &(Duration, Event)| matches!(e, Event::TrialStarted { purpose: Purpose::Adopt, .. });
    m.run(SECOND);
    assert!(!m.guests[&ids[1]].events.iter().any(of));
    assert_eq!(m.setting(WorkloadId(99)), Setting::untouched(&CpuSet::first(4)));
}

#[test]
fn a_load_that_needs_every_vcpu_is_left_alone_beside_others() {
    let (mut m, ids) = machine(2, &[compute_16, idle_daemon, compute_1]);
    m.run(10 * SECOND);
    assert!(ids.iter().all(|id| m.guests[id].events.is_empty()), "{}", m.account());
}

#[test]
fn a_proof_ends_when_it_has_confirmed_what_helps_another_workload() {
    let (mut m, ids) = machine(8, &[mariadb, redis_1]);
    m.noise_level = 0.2;
    m.run(60 * SECOND);
    let events: Vec<_> = ids.iter().map(|id| &m.guests[id].events).collect();
    let kept = |(i, pair): (usize, &[(Duration, Event)])| {
        let [(at, Event::Confirmed { by, evidence, .. }), (ended, Event::TrialEnded { candidate, kept, .. })] =
            pair
        else {
            return false;
        };
        assert!(*by == ids[1 - i] && evidence.confirms() && at == ended && candidate == kept, "{pair:?}");
        true
    };
    let pairs =
        events.iter().enumerate().flat_map(|(i, events)| events.windows(2).map(move |pair| (i, pair)));
    assert!(pairs.filter(|pair| kept(*pair)).count() > 0, "{}", m.account());
}

#[test]
fn one_proof_is_enough_for_all_whom_retention_helps() {
    let proofs = |workloads: &[Workload]| {
        let (mut m, ids) = machine(8, workloads);
        m.noise_level = 0.05;
        m.run(60 * SECOND);
        ids.iter().map(|id| m.trials(*id).len()).sum::<usize>()
    };
    let (alone, four) = (proofs(&[redis_1]), proofs(&[redis_1, mariadb, redis_1, mariadb]));
    assert!(2 * four <= 3 * alone, "{four} trials of four workloads, {alone} of one");
}
