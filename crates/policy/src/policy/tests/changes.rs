//! Changes of the machine or the workload.

use super::workloads::{
    Rates, Workload, compute_1, compute_4, compute_16, convoy, mariadb, pipe, pipeline_8, redis_1, redis_8,
};
use super::world::{MS, World, config};
use super::{SECOND, trials};
use crate::{
    CpuId, CpuSet, Event, Method, Overload, OverloadSource, PolicyConfig, Purpose, ReleaseReason, Setting,
    Veto,
};

/// Two vCPUs after `seconds` of `workload`, having settled on `vcpus` as the test expects.
fn settled(workload: Workload, seconds: u32, vcpus: usize) -> World {
    let mut w = World::pair(workload);
    w.run(SECOND * seconds);
    assert!(w.setting().retention.is_on());
    assert_eq!(w.setting().active.len(), vcpus);
    w
}

/// As after this long with nothing to decide but retention.
fn retained(workload: Workload, seconds: u32) -> World {
    let mut w = World::new(PolicyConfig { consolidate: false, ..config() }, 2, workload);
    w.run(SECOND * seconds);
    assert!(w.setting().retention.is_on());
    w
}

#[test]
fn a_consolidated_set_expands_within_30_ms_whenever_the_load_comes() {
    for (workload, threads) in [(compute_16 as Workload, 16), (compute_4, 4)] {
        for into_the_period in [0, 7, 100, 250, 400, 470, 490] {
            let mut w = settled(pipe, 5, 1);
            let calm = |w: &World| w.decision.watch.is_some() && w.decision.next >= 500 * MS;
            w.run_until(5 * SECOND, |w| calm(w) && w.unseen() == MS).unwrap();
            w.run(into_the_period * MS);
            assert!(calm(&w));
            w.workload = workload;
            let took = w.run_until(SECOND, |w| w.setting().active == w.allowed);
            assert!(took.is_some_and(|t| t <= 30 * MS), "{threads} threads, +{into_the_period}: {took:?}");
            let changed = w.now;
            w.run(2 * SECOND);
            assert!(w.since(changed).iter().all(|s| s.of_best >= 0.97), "stays expanded");
        }
    }
}

const OVERLOAD: Overload = Overload { runnable: 16, waiting: 15.0, source: OverloadSource::RunQueues };

#[test]
fn an_overload_expands_at_once_whoever_reports_it() {
    let decide = |source| {
        let mut w = settled(pipe, 5, 1);
        w.run_until(5 * SECOND, |w| w.decision.next >= 500 * MS && w.unseen() == 200 * MS).unwrap();
        w.report(Overload { source, ..OVERLOAD });
        assert_eq!(w.setting().active, w.allowed);
        let Some((_, Event::Expanded { runnable, active, source: reported })) = w.events.pop() else {
            panic!("{:?}", w.events)
        };
        assert_eq!((runnable, active, reported), (16, CpuSet::first(1), Some(source)));
        w.decision.events.clear();
        w.decision
    };
    assert_eq!(decide(OverloadSource::RunQueues), decide(OverloadSource::Counts));
}

#[test]
fn an_overload_ends_a_proof_of_the_smaller_set() {
    let mut w = settled(pipe, 5, 1);
    let in_proof = |w: &World| {
        let last = w.events.last();
        matches!(last, Some((_, Event::TrialStarted { purpose: Purpose::Reprove, .. })))
    };
    // Reports only: sampling would disturb the blocks.
    let consolidated_block = |w: &World| in_proof(w) && w.setting().active.len() == 1;
    w.run_until(20 * SECOND, consolidated_block).unwrap();
    let watch = w.decision.watch.unwrap();
    assert!(watch.at_least.is_some() && watch.every > SECOND, "{watch:?}");
    w.report(OVERLOAD);
    assert_eq!(w.setting().active, w.allowed);
    assert!(matches!(w.events.last(), Some((_, Event::Expanded { .. }))), "{:?}", w.events.last());
    // The overload ends the proof.
    w.workload = compute_16;
    w.run(SECOND);
    assert!(w.since(w.now.saturating_sub(SECOND)).iter().all(|s| s.setting.active == w.allowed));
}

#[test]
fn what_the_smaller_set_was_proven_with_is_no_overload() {
    let mut w = settled(pipe, 5, 1);
    w.run_until(5 * SECOND, |w| w.decision.next >= 500 * MS && w.unseen() == 200 * MS).unwrap();
    let least = w.decision.watch.unwrap().at_least.unwrap();
    for overload in
        [Overload { runnable: least - 1, ..OVERLOAD }, Overload { runnable: least, waiting: 0.4, ..OVERLOAD }]
    {
        w.report(overload);
        assert_eq!(w.setting().active.len(), 1, "{overload:?}");
    }
    w.report(Overload { runnable: least, waiting: 0.6, ..OVERLOAD });
    assert_eq!(w.setting().active, w.allowed);
}

#[test]
fn passing_overloads_make_the_watch_wait_longer() {
    let mut w = settled(pipe, 5, 1);
    let persistence = |w: &World| w.decision.watch.map(|watch| watch.persistence);
    let consolidated = |w: &World| w.setting().active.len() == 1 && w.decision.next >= 20 * MS;
    let mut seen = Vec::new();
    for _ in 0..3 {
        w.run_until(5 * SECOND, consolidated).unwrap();
        seen.push(persistence(&w).unwrap());
        w.report(OVERLOAD);
        assert_eq!(w.setting().active, w.allowed);
    }
    assert!(seen.windows(2).all(|two| two[1] >= two[0] * 2), "{seen:?}");
    w.workload = compute_16;
    w.run(SECOND);
    w.workload = pipe;
    w.run_until(SECOND, consolidated).unwrap();
    assert_eq!(persistence(&w), Some(seen[0]));
}

#[test]
fn after_the_load_a_consolidated_workload_is_consolidated_again_within_100_ms() {
    let mut w = settled(pipe, 5, 1);
    for load_ms in [130, 300, 450, 700, 2000, 2260] {
        w.workload = compute_16;
        w.run(load_ms * MS);
        assert_eq!(w.setting().active, w.allowed);
        w.workload = pipe;
        let back = w.now;
        w.run(3 * SECOND);
        let good = w.since(back).iter().position(|s| s.of_best >= 0.9);
        assert!(good.is_some_and(|ms| ms < 100), "{load_ms} ms: {good:?}");
        let after = w.since(back + 100 * MS);
        let lost = after.iter().filter(|s| s.of_best < 0.97).count();
        assert!(lost < after.len() / 50, "{load_ms} ms: {lost} ms");
    }
}

#[test]
fn another_workload_after_the_load_does_not_inherit_the_smaller_set() {
    for workload in [convoy as Workload, compute_1] {
        let mut w = settled(pipe, 5, 1);
        w.workload = compute_16;
        w.run(2 * SECOND);
        w.workload = workload;
        let changed = w.now;
        w.run(5 * SECOND);
        assert!(w.since(changed).iter().all(|s| s.setting.active == w.allowed), "{:?}", w.events);
    }
    // A load that shows no difference until it is tried.
    let mut w = settled(pipe, 5, 1);
    w.workload = compute_16;
    w.run(2 * SECOND);
    w.workload = mariadb;
    let changed = w.now;
    w.run(5 * SECOND);
    let consolidated = w.since(changed).iter().filter(|s| s.setting.active.len() == 1).count();
    assert!(consolidated < 250, "{consolidated} ms");
}

#[test]
fn busy_vcpus_that_are_idle_for_moments_are_left_alone() {
    // Wake-ups cost 8 % of a vCPU while it lasts, which is enough for a trial if it stays.
    let idle_at_times: Workload = |s| Rates {
        load: 1.8,
        switches: 50e3,
        idle_periods: 0.08 / config().wake_cost.as_secs_f64(),
        ..compute_4(s)
    };
    let trials_of_retention = |w: &World| trials(w, |candidate| candidate.retention.is_on()).len();
    let mut w = World::pair(compute_4);
    w.run(2 * SECOND);
    for _ in 0..10 {
        w.workload = idle_at_times;
        w.run(100 * MS);
        w.workload = compute_4;
        w.run(900 * MS);
    }
    assert_eq!(trials_of_retention(&w), 0, "{:?}", w.events);
    w.workload = idle_at_times;
    w.run(3 * SECOND);
    assert!(trials_of_retention(&w) > 0);
}

#[test]
fn retention_is_not_proven_again_because_busy_vcpus_are_idle_for_a_moment() {
    let mut w = retained(redis_1, 3);
    let idle_at_times: Workload = |s| Rates { load: 1.8, idle_periods: 5e3, ..compute_4(s) };
    w.workload = compute_4;
    w.run(3 * SECOND);
    let from = w.now;
    for _ in 0..20 {
        w.workload = idle_at_times;
        w.run(100 * MS);
        w.workload = compute_4;
        w.run(900 * MS);
    }
    let proofs = w.events.iter().filter(|(at, e)| *at > from && matches!(e, Event::TrialStarted { .. }));
    assert_eq!(proofs.count(), 0, "{:?}", w.events);
    assert!(w.setting().retention.is_on(), "it costs nothing there");
}

#[test]
fn steal_that_polling_vcpus_meet_ends_retention_within_two_windows_until_it_falls() {
    let mut w = retained(redis_1, 3);
    w.finish_step();
    w.steal = 0.15;
    let released = |w: &World| {
        matches!(w.events.last(), Some((_, Event::Released { why: ReleaseReason::Veto(Veto::Steal { .. }) })))
    };
    // The observation in progress can be half a second long, most of it from before.
    assert!(w.run_until(SECOND, released).is_some());
    assert!(!w.setting().retention.is_on());
    let off = w.now;
    // Halting vCPUs do not show whether contention is over, so polling is tried now and then.
    w.run(30 * SECOND);
    let retained = w.since(off).iter().filter(|s| s.setting.retention.is_on()).count();
    assert!(retained < w.since(off).len() / 10, "{retained} ms");
    w.steal = 0.02;
    assert!(w.run_until(30 * SECOND, |w| w.setting().retention.is_on()).is_some());
    let back = w.now;
    w.run(5 * SECOND);
    assert!(w.policy.incumbent().retention.is_on(), "{:?}", w.events);
    assert!(w.since(back).iter().filter(|s| !s.setting.retention.is_on()).count() < 500);
}

#[test]
fn steal_from_waking_halted_vcpus_gives_no_retention_away() {
    // A ping-pong over pipes on an idle host: 24 us of steal per wake-up of a halted vCPU.
    let mut w = World::pair(pipe);
    w.steal_per_halt = 24e-6;
    w.run(3 * SECOND);
    assert!(w.policy.incumbent().retention.is_on() || w.setting().active.len() == 1, "{:?}", w.events);
    let veto = |e: &Event| matches!(e, Event::Released { why: ReleaseReason::Veto(_) });
    assert!(!w.events.iter().any(|(_, e)| veto(e)), "{:?}", w.events);
}

#[test]
fn throttling_ends_retention_at_the_next_step_until_it_ends() {
    let mut w = retained(redis_1, 3);
    w.throttled = 0.2;
    w.finish_step();
    assert!(!w.setting().retention.is_on());
    let last = &w.events.last().unwrap().1;
    assert!(matches!(last, Event::Released { why: ReleaseReason::Veto(Veto::Throttled { .. }) }), "{last:?}");
    let off = w.now;
    w.run(5 * SECOND);
    assert!(w.since(off).iter().all(|s| !s.setting.retention.is_on()));
    w.throttled = 0.0;
    assert!(w.run_until(3 * SECOND, |w| w.setting().retention.is_on()).is_some());
}

#[test]
fn a_quota_that_only_retention_exhausts_is_tried_ever_more_rarely() {
    // So few halts that steal can be separated from waking them.
    let a_tenth = |s: &Setting| {
        let Rates { switches, idle_periods, .. } = redis_1(s);
        Rates { switches: switches / 10.0, idle_periods: idle_periods / 10.0, ..redis_1(s) }
    };
    let mut w = World::new(PolicyConfig { consolidate: false, ..config() }, 2, a_tenth);
    for _ in 0..60_000 {
        w.throttled = if w.setting().retention.is_on() { 0.2 } else { 0.0 };
        w.run(MS);
    }
    let tried = |e: &Event| matches!(e, Event::Released { why: ReleaseReason::Veto(Veto::Throttled { .. }) });
    let times = w.events.iter().filter(|(_, e)| tried(e)).count();
    assert!((2..=6).contains(&times), "{times}: {:?}", w.events);
}

#[test]
fn a_workload_that_falls_asleep_while_a_set_is_searched_is_not_retained() {
    let mut w = World::new(config(), 8, pipeline_8);
    let searching =
        |e: &Event| matches!(e, Event::RolledBack { then: crate::AfterRollBack::GoesOn { .. }, .. });
    w.run_until(SECOND, |w| w.events.iter().any(|(_, e)| searching(e))).unwrap();
    assert!(w.policy.incumbent().retention.is_on());
    w.workload = |s| {
        let Rates { load, switches, idle_periods, .. } = pipeline_8(s);
        Rates {
            load: load / 300.0,
            switches: switches / 300.0,
            idle_periods: idle_periods / 300.0,
            ..pipeline_8(s)
        }
    };
    w.run_until(5 * SECOND, |w| !w.setting().retention.is_on()).expect("there is nothing to retain");
}

#[test]
fn a_smaller_set_that_fails_a_proof_is_tried_again_under_the_same_load() {
    let answers = |s: &Setting| Rates { moved_bytes: Some(64.0 * pipe(s).switches), ..pipe(s) };
    let mut w = World::new(PolicyConfig { method: Method::Halt, ..config() }, 2, answers);
    w.run(3 * SECOND);
    assert_eq!(w.setting().active.len(), 1);
    // Something holds up the smaller set alone, while it is proven.
    w.workload = |s| {
        let share = if s.active.len() == 1 { 0.05 } else { 1.0 };
        Rates { moved_bytes: Some(64.0 * share * pipe(s).switches), ..pipe(s) }
    };
    w.run_until(20 * SECOND, |w| w.policy.incumbent() == w.untouched()).expect("the proof fails");
    w.workload = answers;
    w.run_until(15 * SECOND, |w| w.policy.incumbent().active.len() == 1).expect("it pays again");
}

#[test]
fn a_veto_ends_a_trial_of_retention() {
    let mut w = World::pair(redis_1);
    w.run_until(SECOND, |w| w.setting().retention.is_on()).unwrap();
    w.throttled = 0.15;
    w.run_until(SECOND, |w| matches!(w.events.last(), Some((_, Event::Released { .. })))).unwrap();
    let off = w.now;
    assert!(off < 60 * MS, "{off:?}");
    w.run(2 * SECOND);
    assert!(w.since(off).iter().all(|s| !s.setting.retention.is_on()));
}

#[test]
fn retention_that_is_proven_on_a_smaller_set_keeps_the_set() {
    let mut w = World::new(config(), 8, pipeline_8);
    w.steal = 0.15;
    w.run(5 * SECOND);
    assert_eq!((w.setting().active.len(), w.setting().retention.is_on()), (4, false));
    w.steal = 0.0;
    let calm = w.now;
    assert!(w.run_until(SECOND, |w| w.policy.incumbent().retention.is_on()).is_some());
    w.run(5 * SECOND);
    assert!(w.since(calm).iter().all(|s| (3..=5).contains(&s.setting.active.len())), "{:?}", w.events);
}

#[test]
fn a_ping_pong_that_becomes_a_convoy_is_released_within_the_trust() {
    let mut w = settled(redis_1, 4, 2);
    let trusted_until = w
        .events
        .iter()
        .rev()
        .find_map(|(_, e)| match e {
            Event::TrialEnded { candidate, kept, again_at, .. }
                if candidate.active == w.allowed && kept.retention.is_on() =>
            {
                Some(*again_at)
            }
            _ => None,
        })
        .unwrap();
    w.run_until(SECOND, |w| w.decision.next >= 100 * MS).unwrap();
    let before = trials(&w, |_| true).len();
    w.workload = convoy;
    let limit = trusted_until.saturating_sub(w.now) + 600 * MS;
    let took = w.run_until(
        limit,
        |w| matches!(w.events.last(), Some((_, Event::TrialEnded { kept, .. })) if !kept.retention.is_on()),
    );
    assert!(took.is_some(), "{:?}", &w.events[before..]);
    let reverted = w.now;
    w.run(10 * SECOND);
    let since = w.since(reverted);
    let progress = since.iter().map(|s| s.of_untouched).sum::<f64>() / since.len() as f64;
    assert!(progress > 0.97, "{progress}");
}

#[test]
fn a_vcpu_that_goes_away_is_never_asked_for() {
    // First the inactive vCPU goes away and returns, then the active one.
    for gone in [1, 0] {
        let mut w = settled(pipe, 3, 1);
        let all = w.allowed.clone();
        for allowed in [all.iter().filter(|c| *c != CpuId(gone)).collect::<CpuSet>(), all] {
            w.allowed = allowed;
            let reported = |w: &World| {
                let last = w.events.iter().rev().find_map(|(_, e)| match e {
                    Event::AllowedChanged { to, .. } => Some(to),
                    _ => None,
                });
                last == Some(&w.allowed)
            };
            w.run_until(SECOND, reported).unwrap();
            for _ in 0..3000 {
                w.run(MS);
                assert!(!w.setting().active.is_empty());
                assert!(w.setting().active.is_subset(&w.allowed));
            }
        }
        assert_eq!(w.setting().active.len(), 1, "consolidated again");
    }
}

#[test]
fn retention_that_another_load_refuted_is_back_at_once_after_it() {
    let mut w = settled(redis_1, 5, 2);
    w.workload = redis_8;
    let refuted = |w: &World| trials_of_proofs(w).iter().any(|v| matches!(v, crate::Verdict::Refuted(_)));
    w.run_until(20 * SECOND, refuted).expect("eight connections refute what one had proven");
    assert!(!w.setting().retention.is_on());
    w.run(200 * MS);
    w.workload = redis_1;
    let back = w.now;
    w.run_until(SECOND, |w| w.setting().retention.is_on()).unwrap();
    let resumed = w.events.iter().any(|(at, e)| *at >= back && matches!(e, Event::Resumed { .. }));
    assert!(resumed, "{:?}", w.events);
}

/// The verdicts of the proofs of what was in force.
fn trials_of_proofs(w: &World) -> Vec<crate::Verdict> {
    let of = |e: &Event| match e {
        Event::TrialEnded { purpose: crate::Purpose::Reprove, verdict, .. } => Some(*verdict),
        _ => None,
    };
    w.events.iter().filter_map(|(_, e)| of(e)).collect()
}
