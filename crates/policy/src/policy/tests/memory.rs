//! Knowledge from earlier runs, and for later ones.

use std::time::Duration;

use super::workloads::{Rates, Workload, compute_1, convoy, pipe, pipeline_8, redis_1, redis_8};
use super::world::{MS, World, config};
use super::{SECOND, trials};
use crate::{
    CpuSet, Event, Evidence, KnownLoad, KnownRetention, KnownVcpus, Method, Mode, Outcome, PolicyConfig,
    Purpose, ReleaseReason, Retention, Setting, Signal, Verdict,
};

const LIMIT: Duration = Duration::from_micros(30);
const RETENTION: Retention = Retention { method: Method::Haltpoll, limit: LIMIT };
const EVIDENCE: Evidence = Evidence { signal: Signal::Moved, ratio: 3.5, low: 3.4, high: 3.6, pairs: 2 };
/// The load of one redis connection on each of two vCPUs.
const REDIS_1: f64 = 0.4;

fn retained(load: f64) -> KnownLoad {
    let retention = Some(KnownRetention { setting: RETENTION, evidence: EVIDENCE });
    KnownLoad { load, retention, vcpus: None, refuted: 0, refuted_vcpus: 0 }
}

fn knowing(known: &[KnownLoad]) -> PolicyConfig {
    PolicyConfig { known: known.to_vec(), ..config() }
}

fn resumed(w: &World) -> Vec<(Duration, Setting)> {
    let of = |(at, e): &(Duration, Event)| match e {
        Event::Resumed { setting, known: Some(_) } => Some((*at, setting.clone())),
        _ => None,
    };
    w.events.iter().filter_map(of).collect()
}

#[test]
fn a_known_setting_is_in_force_at_the_first_busy_sample_and_proven_at_once() {
    let mut w = World::new(knowing(&[retained(REDIS_1)]), 2, redis_1);
    w.finish_step();
    let setting = Setting { active: CpuSet::first(2), retention: RETENTION };
    assert_eq!(*w.setting(), setting);
    assert_eq!(w.events, [(w.now, Event::Resumed { setting, known: Some(EVIDENCE) })]);
    w.run(150 * MS);
    let proof = w.events.iter().find_map(|(at, e)| match e {
        Event::TrialEnded { purpose: Purpose::Reprove, verdict: Verdict::Proven(_), .. } => Some(*at),
        _ => None,
    });
    assert!(proof.is_some_and(|at| at < 120 * MS), "{:?}", w.events);
    assert!(w.setting().retention.is_on());
}

#[test]
fn a_program_that_is_idle_at_first_gets_its_known_setting_when_it_is_busy() {
    let mut w = World::new(knowing(&[retained(REDIS_1)]), 2, super::idle_daemon);
    w.run(3 * SECOND);
    assert_eq!(w.events, []);
    w.workload = redis_1;
    w.run_until(SECOND, |w| w.setting().retention.is_on()).unwrap();
    // The sample in which the work started contains idle time; the next one shows the program's load.
    assert!(resumed(&w).len() == 1, "{:?}", w.events);
}

/// A load whose wake-ups cost little more than what a trial needs.
fn light(s: &Setting) -> Rates {
    Rates { switches: 1.6e3, idle_periods: 1.6e3, ..redis_1(s) }
}

#[test]
fn what_is_known_comes_back_at_once_where_a_trial_would_wait_for_what_is_usual() {
    let begins = |known: &[KnownLoad]| {
        let mut w = World::new(PolicyConfig { consolidate: false, ..knowing(known) }, 2, super::idle_daemon);
        w.run(5 * SECOND);
        // An idle program is sampled rarely; what follows starts with a sample.
        w.finish_step();
        w.workload = light;
        w.finish_step();
        w.run_until(5 * SECOND, |w| !w.events.is_empty()).map(|took| (took, w.setting().retention.is_on()))
    };
    let known = begins(&[retained(REDIS_1)]).unwrap();
    let unknown = begins(&[]).unwrap();
    assert!(known.1 && known.0 < 50 * MS && unknown.0 > 300 * MS, "{known:?} {unknown:?}");
}

#[test]
fn nothing_known_is_in_force_where_there_is_nothing_to_win() {
    let mut w = World::new(knowing(&[retained(0.5)]), 2, compute_1);
    w.run(2 * SECOND);
    assert_eq!(w.events, []);
}

/// With retention it moves a third of the bytes.
fn harmed(s: &Setting) -> Rates {
    let rates = redis_1(s);
    let moved = if s.retention.is_on() { 3e6 } else { 9e6 };
    Rates { moved_bytes: Some(moved), progress: moved, ..rates }
}

#[test]
fn a_known_setting_that_harms_is_gone_within_150_ms_and_no_longer_known_for_that_load() {
    // A lock convoy shows its harm in few signals: that takes as long as without memory.
    for (workload, within) in [(harmed as Workload, 150 * MS), (convoy, 600 * MS)] {
        let load = workload(&Setting::untouched(&CpuSet::first(2))).load / 2.0;
        let mut w = World::new(knowing(&[retained(load)]), 2, workload);
        w.finish_step();
        let start = w.now;
        assert!(w.setting().retention.is_on());
        let refuted = |w: &World| matches!(w.events.last(), Some((_, Event::TrialEnded { kept, .. })) if !kept.retention.is_on());
        w.run_until(within, refuted).unwrap_or_else(|| panic!("{:?}", w.events));
        w.run(20 * SECOND);
        assert_eq!(resumed(&w).len(), 1, "{:?}", w.events);
        let since = w.since(start);
        let progress = since.iter().map(|s| s.of_untouched).sum::<f64>() / since.len() as f64;
        assert!(progress > 0.97, "{progress}");
        let learned = w.policy.learned();
        assert!(learned.iter().all(|l| l.known.retention.is_none()), "{learned:?}");
        assert!(learned.iter().any(|l| l.known.refuted == 1 && l.outcome == Some(Outcome::Refuted)));
    }
}

/// An open loop so idle that CPU time does not limit it: nothing shows what retention does to it.
fn silent(s: &Setting) -> Rates {
    let untouched = redis_1(&Setting::untouched(&s.active));
    let load = if s.retention.is_on() { 0.35 } else { REDIS_1 };
    Rates { load, moved_bytes: None, progress: 1.0, ..untouched }
}

#[test]
fn what_only_an_earlier_run_has_proven_goes_after_three_proofs_that_show_nothing() {
    let config = PolicyConfig { consolidate: false, ..knowing(&[retained(REDIS_1 / 2.0)]) };
    let mut w = World::new(config, 2, silent);
    w.run(60 * SECOND);
    let proofs: Vec<_> = w
        .events
        .iter()
        .filter_map(|(_, e)| match e {
            Event::TrialEnded {
                purpose: Purpose::Reprove, verdict: Verdict::Undecided(None), kept, ..
            } => Some(kept.retention.is_on()),
            _ => None,
        })
        .collect();
    assert_eq!(proofs, [true, true, false], "{:?}", w.events);
    assert_eq!((resumed(&w).len(), w.setting().retention.is_on()), (1, false), "{:?}", w.events);
    assert!(w.policy.learned().iter().all(|l| l.known.retention.is_none()), "{:?}", w.policy.learned());
}

#[test]
fn what_this_run_has_proven_outlasts_proofs_that_show_nothing() {
    let mut w = World::new(PolicyConfig { consolidate: false, ..config() }, 2, redis_1);
    w.run(5 * SECOND);
    let before = w.events.len();
    w.workload = silent;
    w.run(60 * SECOND);
    let silent = |e: &Event| matches!(e, Event::TrialEnded { verdict: Verdict::Undecided(None), .. });
    let proofs = w.events[before..].iter().filter(|(_, e)| silent(e)).count();
    assert!(proofs >= 4 && w.setting().retention.is_on(), "{proofs} {:?}", w.events);
}

#[test]
fn under_another_load_nothing_known_is_in_force_unproven() {
    for load in [0.1, 0.2, 0.83] {
        let mut w = World::new(knowing(&[retained(load)]), 2, redis_1);
        w.run(5 * SECOND);
        assert_eq!(resumed(&w), [], "{load}");
        // A trial finds out, as without memory.
        assert!(matches!(trials(&w, |s| s.retention.is_on())[..], [(_, Verdict::Proven(_)), ..]), "{load}");
    }
}

#[test]
fn a_known_size_follows_the_proof_of_the_retention_it_was_found_with() {
    let known = KnownVcpus { active: 1, runnable: 1, evidence: EVIDENCE };
    let mut w = World::new(knowing(&[KnownLoad { vcpus: Some(known), ..retained(0.36) }]), 2, pipe);
    w.run(5 * SECOND);
    let resumed = resumed(&w);
    let sizes: Vec<_> = resumed.iter().map(|(_, s)| s.active.len()).collect();
    assert_eq!(sizes, [2, 1], "{:?}", w.events);
    assert!(resumed[1].0 < 150 * MS, "{resumed:?}");
    assert_eq!(w.setting().active.len(), 1);
}

#[test]
fn a_known_size_that_harms_is_given_up_by_its_first_proof() {
    let known = KnownVcpus { active: 1, runnable: 1, evidence: EVIDENCE };
    let load = KnownLoad { load: REDIS_1, retention: None, vcpus: Some(known), refuted: 0, refuted_vcpus: 0 };
    let mut w = World::new(PolicyConfig { method: Method::Halt, ..knowing(&[load]) }, 2, |s| Rates {
        moved_bytes: Some(if s.active.len() == 1 { 1e6 } else { 9e6 }),
        ..redis_1(s)
    });
    w.finish_step();
    assert_eq!(w.setting().active.len(), 1, "{:?}", w.events);
    let all = w.allowed.clone();
    let given_up = |e: &Event| matches!(e, Event::TrialEnded { kept, .. } if kept.active == all);
    w.run_until(150 * MS, |w| w.events.iter().any(|(_, e)| given_up(e)))
        .unwrap_or_else(|| panic!("{:?}", w.events));
    assert_eq!(w.policy.learned().iter().filter(|l| l.known.vcpus.is_some()).count(), 0);
}

#[test]
fn contention_comes_before_what_is_known() {
    let mut w = World::new(PolicyConfig { consolidate: false, ..knowing(&[retained(REDIS_1)]) }, 2, redis_1);
    w.throttled = 0.2;
    w.run(2 * SECOND);
    assert!(w.slices.iter().all(|s| !s.setting.retention.is_on()), "{:?}", w.events);
    // A veto ends it; afterwards it must be proven before it is resumed.
    let mut w = World::new(PolicyConfig { consolidate: false, ..knowing(&[retained(REDIS_1)]) }, 2, redis_1);
    w.finish_step();
    w.throttled = 0.2;
    w.run(500 * MS);
    assert!(!w.setting().retention.is_on());
    assert!(w.events.iter().any(|(_, e)| matches!(e, Event::Released { why: ReleaseReason::Veto(_) })));
    w.throttled = 0.0;
    w.run(15 * SECOND);
    assert!(w.setting().retention.is_on(), "{:?}", w.events);
    assert_eq!(resumed(&w).len(), 1);
}

#[test]
fn only_the_adaptive_strategy_uses_what_is_known() {
    let untouched = Setting::untouched(&CpuSet::first(2));
    for mode in [Mode::DryRun, Mode::Fixed(untouched), Mode::Paper] {
        let mut w = World::new(PolicyConfig { mode, ..knowing(&[retained(REDIS_1)]) }, 2, redis_1);
        w.run(2 * SECOND);
        assert!(!w.events.iter().any(|(_, e)| matches!(e, Event::Resumed { .. })), "{:?}", w.events);
        assert_eq!(w.policy.learned(), []);
    }
}

#[test]
fn another_method_than_the_known_one_starts_as_without_memory() {
    let mut w = World::new(
        PolicyConfig { method: Method::YieldIpiFree, ..knowing(&[retained(REDIS_1)]) },
        2,
        redis_1,
    );
    w.run(SECOND);
    assert_eq!(resumed(&w), []);
}

#[test]
fn what_earlier_runs_refuted_is_tried_the_later_the_more_runs_there_were() {
    let first_trial = |refuted| {
        let known = KnownLoad { retention: None, refuted, ..retained(REDIS_1) };
        let mut w = World::new(PolicyConfig { consolidate: false, ..knowing(&[known]) }, 2, redis_1);
        w.run(70 * SECOND);
        trials(&w, |s| s.retention.is_on())[0].0
    };
    let at: Vec<_> = [0, 1, 3, 40].map(first_trial).to_vec();
    assert!(at[0] < 200 * MS && at[1] > 500 * MS && at[1] < SECOND, "{at:?}");
    assert!(at[2] > 2 * SECOND && at[2] < 3 * SECOND && at[3] > 60 * SECOND && at[3] < 62 * SECOND, "{at:?}");
}

#[test]
fn a_smaller_set_that_one_run_refutes_is_tried_later_in_the_next() {
    // What it gets done does not depend on the number of vCPUs.
    let indifferent: Workload = |s| redis_1(&Setting { active: CpuSet::first(2), ..s.clone() });
    let first_trial = |w: &World| trials(w, |s| s.active.len() == 1)[0].0;
    let mut first = World::new(config(), 2, indifferent);
    first.run(10 * SECOND);
    let known: Vec<_> = first.policy.learned().iter().map(|l| l.known).collect();
    assert!(known.iter().any(|k| k.refuted_vcpus == 1 && k.retention.is_some()), "{known:?}");
    let mut second = World::new(knowing(&known), 2, indifferent);
    second.run(10 * SECOND);
    let (sooner, later) = (first_trial(&first), first_trial(&second));
    assert!(sooner < 400 * MS && later > 500 * MS, "{sooner:?} {later:?}");
    let known: Vec<_> = second.policy.learned().iter().map(|l| l.known).collect();
    assert!(known.iter().any(|k| k.refuted_vcpus == 2), "{known:?}");
    // One that pays is tried at once by whoever comes next.
    second.workload = pipe;
    second.run(30 * SECOND);
    assert!(second.policy.learned().iter().any(|l| l.known.vcpus.is_some()), "{:?}", second.events);
}

#[test]
fn a_second_run_starts_with_what_the_first_one_learned() {
    for (workload, vcpus, active) in [(redis_1 as Workload, 2, 2), (pipe, 2, 1), (pipeline_8, 8, 4)] {
        let mut first = World::new(config(), vcpus, workload);
        first.run(10 * SECOND);
        let known: Vec<_> = first.policy.learned().iter().map(|l| l.known).collect();
        assert!(known.iter().any(|k| k.retention.is_some()), "{known:?}");
        let mut second = World::new(knowing(&known), vcpus, workload);
        second.finish_step();
        assert!(second.setting().retention.is_on(), "{known:?} {:?}", second.events);
        second.run(200 * MS);
        assert_eq!(second.setting().active.len(), active, "{known:?} {:?}", second.events);
        second.run(5 * SECOND);
        // The knowledge is the same afterwards.
        let again: Vec<_> = second.policy.learned().iter().map(|l| l.known).collect();
        assert!(again.iter().any(|k| k.retention.is_some()), "{again:?}");
    }
}

#[test]
fn a_convoy_that_nothing_helps_is_learned_as_such() {
    let mut w = World::pair(convoy);
    w.run(10 * SECOND);
    let learned = w.policy.learned();
    assert!(matches!(learned[..], [l] if l.known.refuted == 1 && l.known.retention.is_none()), "{learned:?}");
}

#[test]
fn what_one_load_refutes_stays_known_for_another() {
    let mut w = World::pair(redis_1);
    w.run(5 * SECOND);
    w.workload = redis_8;
    w.run(20 * SECOND);
    let learned = w.policy.learned();
    let at = |load: f64| learned.iter().find(|l| crate::is_same_kind(l.known.load, load)).map(|l| l.known);
    assert!(at(REDIS_1).is_some_and(|k| k.retention.is_some()), "{learned:?}");
    assert!(at(0.83).is_some_and(|k| k.retention.is_none() && k.refuted > 0), "{learned:?}");
}

#[test]
fn a_start_that_is_not_yet_the_load_is_followed_by_one_more_sample_before_anything_is_tried() {
    // Half of the load, and fine-grained enough for a trial of a smaller set.
    let starts: Workload = |s| Rates { load: 0.35, ..pipe(s) };
    let mut w = World::new(knowing(&[retained(0.36)]), 2, starts);
    w.finish_step();
    assert_eq!(w.events, []);
    w.workload = pipe;
    w.finish_step();
    assert_eq!(w.now, 40 * MS);
    assert!(w.setting().retention.is_on() && resumed(&w).len() == 1, "{:?}", w.events);
}
