//! The whole policy against a modelled machine: what it settles on, how soon, and what finding out costs.

mod changes;
mod limits;
mod memory;
pub(crate) mod properties;
pub(crate) mod workloads;
pub(crate) mod world;

use std::time::Duration;

use self::workloads::{
    barrier_8, compute_1, compute_16, convoy, emulated_requests_8, idle_daemon, idle_daemon_among_others,
    mariadb, phases_8, pipe, pipeline_8, redis_1, redis_8,
};
use self::world::{MS, World};
use crate::{AfterRollBack, Event, Method, PolicyConfig, Purpose, Verdict};

const SECOND: Duration = Duration::from_secs(1);

/// The share of the slices with progress below `share` of the best.
fn time_below(w: &World, share: f64) -> f64 {
    w.slices.iter().filter(|s| s.of_best < share).count() as f64 / w.slices.len() as f64
}

/// End and verdict of each trial of a new candidate for which `of` holds.
fn trials(w: &World, of: impl Fn(&crate::Setting) -> bool) -> Vec<(Duration, Verdict)> {
    w.events
        .iter()
        .filter_map(|(at, e)| match e {
            Event::TrialEnded { candidate, purpose: Purpose::Adopt, verdict, .. } if of(candidate) => {
                Some((*at, *verdict))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn one_redis_connection_is_retained_in_100_ms_and_not_consolidated() {
    let mut w = World::pair(redis_1);
    w.run(100 * MS);
    assert!(w.setting().retention.is_on());
    w.run(9900 * MS);
    let consolidated = trials(&w, |s| s.active.len() == 1);
    assert!(matches!(consolidated[..], [(_, Verdict::Refuted(_)), ..]), "{consolidated:?}");
    assert_eq!(w.setting().active, w.allowed);
    assert!(w.setting().retention.is_on());
    let worse = time_below(&w, 0.97);
    assert!(worse < 0.02, "{worse}");
}

#[test]
fn nothing_is_tried_before_it_is_known_what_shows_progress() {
    let mut w = World::pair(redis_1);
    (w.by_sockets, w.incomplete_until) = (true, 70 * MS);
    w.run(70 * MS);
    assert!(w.events.is_empty(), "{:?}", w.events);
    w.run(100 * MS);
    assert!(w.setting().retention.is_on());
}

#[test]
fn traffic_is_measured_where_a_trial_could_begin() {
    // After a trial's block on one vCPU, which is never idle, it can be unwanted for a moment.
    let longest_unmeasured = |mut w: World| {
        let (mut longest, mut since) = (Duration::ZERO, w.now);
        for _ in 0..100 {
            w.finish_step();
            assert!(w.decision.sense.traffic || w.policy.trial.is_none(), "at {:?}", w.now);
            if w.decision.sense.traffic {
                since = w.now;
            }
            longest = longest.max(w.now.saturating_sub(since));
        }
        longest
    };
    assert!(longest_unmeasured(World::pair(redis_1)) < 200 * MS);
    assert!(longest_unmeasured(World::pair(workloads::compute_4)) > 2 * SECOND);
}

#[test]
fn waiting_is_measured_in_trials_alone() {
    let mut w = World::pair(redis_1);
    let (mut in_trials, mut between) = (0, 0);
    for _ in 0..40 {
        w.finish_step();
        assert_eq!(w.decision.sense.waiting, w.policy.trial.is_some(), "at {:?}", w.now);
        *(if w.decision.sense.waiting { &mut in_trials } else { &mut between }) += 1;
    }
    assert!(in_trials > 0 && between > 0, "{in_trials}, {between}");
}

#[test]
fn mariadb_is_retained_and_not_consolidated() {
    let mut w = World::pair(mariadb);
    w.run(250 * MS);
    assert!(w.setting().retention.is_on());
    w.run(9900 * MS);
    assert_eq!(w.setting().active, w.allowed);
    let worse = time_below(&w, 0.97);
    assert!(worse < 0.02, "{worse}");
}

#[test]
fn a_pipe_is_consolidated() {
    let mut w = World::pair(pipe);
    w.run(150 * MS);
    assert!(w.setting().retention.is_on());
    w.run(9900 * MS);
    let consolidated = trials(&w, |s| s.active.len() == 1);
    assert!(matches!(consolidated[..], [(_, Verdict::Proven(_))]), "{consolidated:?}");
    assert!(consolidated[0].0 < 200 * MS, "{consolidated:?}");
    assert_eq!(w.setting().active.len(), 1);
    let worse = time_below(&w, 0.97);
    assert!(worse < 0.02, "{worse}");
}

#[test]
fn a_thread_that_runs_alone_is_retained_and_never_put_on_fewer_vcpus() {
    let was_tried = |ran: u32| {
        let mut w = World::pair(pipe);
        w.ran = Some(ran);
        w.run(5000 * MS);
        assert!(w.setting().active.len() == 1 || w.setting().retention.is_on());
        !trials(&w, |s| s.active.len() == 1).is_empty()
    };
    assert_eq!((was_tried(1), was_tried(2)), (false, true));
}

#[test]
fn a_trial_that_follows_others_in_vain_takes_more_to_prove_the_same() {
    let gains_a_little: workloads::Workload = |s| {
        let moved = if s.retention.is_on() { 1.085e7 } else { 1e7 };
        workloads::Rates { moved_bytes: Some(moved), progress: moved, ..redis_1(s) }
    };
    let pairs = |in_vain: u32| {
        let mut w = World::new(PolicyConfig { consolidate: false, ..world::config() }, 2, gains_a_little);
        w.try_in_vain(in_vain);
        w.run(2 * SECOND);
        let ended = trials(&w, |s| s.retention.is_on());
        let first = ended
            .first()
            .and_then(|(_, verdict)| verdict.proof())
            .unwrap_or_else(|| panic!("{:?}", w.events));
        first.pairs
    };
    let (first, fifth) = (pairs(0), pairs(4));
    assert!(fifth > first, "{first} {fifth}");
}

#[test]
fn a_lock_convoy_loses_less_than_3_percent_to_the_trials() {
    let mut w = World::pair(convoy);
    w.run(10 * SECOND);
    let progress = w.slices.iter().map(|s| s.of_untouched).sum::<f64>() / w.slices.len() as f64;
    assert!(progress > 0.97, "{progress}");
    assert_eq!(*w.setting(), w.untouched());
    let tried = trials(&w, |s| s.retention.is_on());
    assert!(tried.len() >= 3, "{tried:?}");
    for three in tried.windows(3) {
        let [first, second] = [0, 1].map(|i| three[i + 1].0.saturating_sub(three[i].0));
        assert!(second > first.mul_f64(1.5), "{tried:?}");
    }
}

#[test]
fn busier_but_slower_is_refuted_by_the_bytes_moved() {
    let mut w = World::pair(redis_8);
    w.run(10 * SECOND);
    assert_eq!(*w.setting(), w.untouched());
    let tried = trials(&w, |s| s.retention.is_on());
    assert!(tried.iter().all(|(_, v)| matches!(v, Verdict::Refuted(e) if e.signal == crate::Signal::Moved)));
    assert!(!tried.is_empty());
}

#[test]
fn busier_but_slower_is_refuted_by_what_goes_through_sockets() {
    let mut w = World::pair(redis_8);
    w.by_sockets = true;
    w.run(10 * SECOND);
    assert_eq!(*w.setting(), w.untouched());
    let tried = trials(&w, |s| s.retention.is_on());
    assert!(
        tried.iter().all(|(_, v)| matches!(v, Verdict::Refuted(e) if e.signal == crate::Signal::Sockets))
    );
    assert!(!tried.is_empty());
}

#[test]
fn what_cannot_gain_is_left_alone_and_sampled_rarely() {
    for workload in [compute_1, compute_16, idle_daemon, idle_daemon_among_others] {
        let mut w = World::pair(workload);
        w.run(10 * SECOND);
        let untouched = w.untouched();
        assert!(w.slices.iter().all(|s| s.setting == untouched), "{:?}", w.events);
        assert_eq!(w.events, []);
        assert!(w.decision.next >= 500 * MS, "{:?}", w.decision.next);
    }
}

#[test]
fn a_fine_grained_pipeline_is_consolidated_on_the_best_set_by_bisection() {
    let mut w = World::new(world::config(), 8, pipeline_8);
    w.run(10 * SECOND);
    assert_eq!(w.setting().active.len(), 4, "{:?}", w.events);
    let tried: Vec<_> = w
        .events
        .iter()
        .filter_map(|(at, e)| match e {
            Event::TrialEnded { candidate, kept, purpose: Purpose::Adopt, .. }
                if candidate.active != w.allowed =>
            {
                Some((*at, candidate.active.len(), kept.active.len()))
            }
            _ => None,
        })
        .collect();
    // One vCPU is too few for the load that seems to fit there, half of the set pays, and half of that does
    // not.
    let sizes: Vec<_> = tried.iter().map(|(_, size, kept)| (*size, *kept)).collect();
    assert_eq!(sizes, [(1, 8), (4, 4), (2, 4), (3, 4)]);
    assert!(tried[3].0 < SECOND, "{tried:?}");
    let rolled_back: Vec<_> = w
        .events
        .iter()
        .filter_map(|(_, e)| match e {
            Event::RolledBack { active, then, .. } => Some((active.len(), *then)),
            _ => None,
        })
        .collect();
    assert!(
        matches!(
            rolled_back[..],
            [
                (8, AfterRollBack::GoesOn { above: 1, below: 8 }),
                (4, AfterRollBack::GoesOn { above: 2, below: 4 }),
                (4, AfterRollBack::Adjusted(_)),
            ]
        ),
        "{rolled_back:?}"
    );
    let late = w.since(2 * SECOND);
    let worse = late.iter().filter(|s| s.of_best < 0.97).count() as f64 / late.len() as f64;
    assert!(worse < 0.03, "{worse}");
}

#[test]
fn requests_that_gain_only_on_one_vcpu_are_consolidated_there_although_polling_does_harm() {
    let mut w = World::new(world::config(), 8, emulated_requests_8);
    w.run(8 * SECOND);
    assert_eq!((w.setting().active.len(), w.setting().retention.is_on()), (1, false), "{:?}", w.events);
    // The trial of retention that loses nearly all of its time is not repeated soon, and does not delay the
    // smaller set.
    assert!(trials(&w, |s| s.active.len() == 1)[0].0 < SECOND, "{:?}", w.events);
    assert_eq!(trials(&w, |s| s.retention.is_on()).len(), 1, "{:?}", w.events);
}

#[test]
fn phases_too_long_to_consolidate_keep_every_vcpu_and_lose_nothing() {
    let mut w = World::new(PolicyConfig { method: Method::Halt, ..world::config() }, 8, phases_8);
    w.run(10 * SECOND);
    assert!(w.slices.iter().all(|s| s.setting == w.untouched()), "{:?}", w.events);
    assert_eq!(w.events, []);
}

#[test]
fn work_that_needs_every_vcpu_loses_little_to_the_search() {
    let mut w = World::new(PolicyConfig { method: Method::Halt, ..world::config() }, 8, barrier_8);
    w.run(20 * SECOND);
    assert_eq!(*w.setting(), w.untouched());
    let tried = trials(&w, |s| s.active.len() < 8);
    assert!((1..=8).contains(&tried.len()), "{:?}", w.events);
    let progress = w.slices.iter().map(|s| s.of_untouched).sum::<f64>() / w.slices.len() as f64;
    assert!(progress > 0.97, "{progress}");
}
