//! The guard's rules, on a machine with given rates.

use super::*;
use crate::policy::tests::world::whole;
use crate::{CpuId, CpuSet, Method, Retention, VcpuInterval, WorkloadInterval};

const MS: Duration = Duration::from_millis(1);

fn settings() -> (Setting, Setting) {
    let untouched = Setting::untouched(&CpuSet::first(2));
    let retained = Setting {
        retention: Retention { method: Method::Haltpoll, limit: 200 * MS / 1000 },
        ..untouched.clone()
    };
    (untouched, retained)
}

fn consolidated(from: &Setting) -> Setting {
    Setting { active: CpuSet::first(1), ..from.clone() }
}

fn observed(period: Duration, workload: WorkloadInterval) -> Observation {
    let vcpu = |cpu| VcpuInterval {
        cpu: CpuId(cpu),
        halts: 0,
        halt_time: Duration::ZERO,
        polls: 0,
        poll_time: Duration::ZERO,
        steal: Duration::ZERO,
    };
    Observation {
        at: Duration::ZERO,
        period,
        vcpus: vec![vcpu(0), vcpu(1)],
        workload,
        runnable: 2,
        overload: None,
        throttled: 0.0,
        settled: true,
        cost: MS / 100,
    }
}

/// Drives a trial against a machine with `rates(setting)` per second.
fn drive(trial: &mut Trial, mut rates: impl FnMut(&Setting) -> (f64, f64)) -> (Verdict, Duration, u32) {
    let (mut took, mut changes, mut last) = (Duration::ZERO, 0, None);
    for _ in 0..1000 {
        let (setting, period) = (trial.setting().clone(), trial.next());
        if last.as_ref() != Some(&setting) {
            changes += 1;
            last = Some(setting.clone());
        }
        let (load, switches) = rates(&setting);
        took += period;
        let workload = WorkloadInterval {
            cpu_time: period.mul_f64(load),
            user_time: period.mul_f64(load * 0.5),
            switches: period.mul_f64(switches).as_secs(),
            ..WorkloadInterval::default()
        };
        if let Some(verdict) = trial.observe(&observed(period, workload), &Noise::quiet(), false) {
            return (verdict, took, changes);
        }
    }
    panic!("a trial ends");
}

/// Like [`drive`], on a machine that never stops polling.
fn drive_unsettled(trial: &mut Trial, mut load: impl FnMut(&Setting) -> f64) -> (Verdict, Duration) {
    let mut took = Duration::ZERO;
    for _ in 0..1000 {
        let (setting, period) = (trial.setting().clone(), trial.next());
        took += period;
        let workload =
            WorkloadInterval { cpu_time: period.mul_f64(load(&setting)), ..WorkloadInterval::default() };
        let settled = setting.retention.is_on();
        let o = Observation { settled, ..observed(period, workload) };
        if let Some(verdict) = trial.observe(&o, &Noise::quiet(), false) {
            return (verdict, took);
        }
        trial.wants_reset();
    }
    panic!("a trial ends");
}

fn busy() -> Observation {
    observed(20 * MS, WorkloadInterval { switches: 1000, ..WorkloadInterval::default() })
}

#[test]
fn a_large_gain_is_proven_within_sixty_milliseconds() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched, retained.clone(), Purpose::Adopt, &busy());
    let (verdict, took, changes) =
        drive(&mut trial, |s| if *s == retained { (1.2, 140_000.0) } else { (0.8, 34_000.0) });
    assert!(matches!(verdict, Verdict::Proven(e) if e.ratio > 1.4), "{verdict:?}");
    assert!(took <= 60 * MS, "{took:?}");
    assert_eq!(changes, 2, "new retention: B B B C C, one change");
}

#[test]
fn a_loss_is_refuted_and_costs_three_blocks() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched, retained.clone(), Purpose::Adopt, &busy());
    let (verdict, took, _) =
        drive(&mut trial, |s| if *s == retained { (1.24, 85_000.0) } else { (1.3, 54_000.0) });
    assert!(matches!(verdict, Verdict::Refuted(e) if e.pairs == 3), "{verdict:?}");
    assert!(took <= 70 * MS, "{took:?}");
}

#[test]
fn a_difference_within_the_margin_is_not_adopted() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched, retained.clone(), Purpose::Adopt, &busy());
    let (verdict, ..) =
        drive(&mut trial, |s| if *s == retained { (1.03, 50_000.0) } else { (1.0, 50_000.0) });
    assert!(!matches!(verdict, Verdict::Proven(_)), "{verdict:?}");
}

#[test]
fn without_an_exact_signal_the_blocks_grow_and_user_time_decides() {
    let (untouched, _) = settings();
    let candidate = consolidated(&untouched);
    let mut trial = Trial::new(untouched.clone(), candidate.clone(), Purpose::Adopt, &busy());
    // The granularity changes by a factor of three, so hand-offs are not comparable.
    let (verdict, ..) =
        drive(&mut trial, |s| if *s == candidate { (1.0, 90_000.0) } else { (1.2, 25_000.0) });
    assert!(matches!(verdict, Verdict::Refuted(e) if e.signal == crate::Signal::UserTime), "{verdict:?}");
    // More CPU time on fewer vCPUs needs no long blocks.
    let mut trial = Trial::new(untouched, candidate.clone(), Purpose::Adopt, &busy());
    let (verdict, took, _) =
        drive(&mut trial, |s| if *s == candidate { (1.4, 90_000.0) } else { (1.2, 25_000.0) });
    assert!(matches!(verdict, Verdict::Proven(e) if e.signal == crate::Signal::WorkTime), "{verdict:?}");
    assert!(took < 100 * MS, "{took:?}");
}

#[test]
fn a_candidate_that_takes_much_of_the_cpu_time_away_gets_no_long_blocks() {
    let (untouched, _) = settings();
    let candidate = consolidated(&untouched);
    let mut trial = Trial::new(untouched.clone(), candidate.clone(), Purpose::Adopt, &busy());
    let (verdict, took, _) =
        drive(&mut trial, |s| if *s == candidate { (0.9, 600_000.0) } else { (1.3, 54_000.0) });
    assert_eq!(verdict, Verdict::Undecided(None));
    assert!(took <= 30 * MS, "{took:?}");
}

#[test]
fn a_reproof_starts_without_the_change_and_needs_one_pair() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched.clone(), retained.clone(), Purpose::Reprove, &busy());
    assert_eq!(trial.setting(), &untouched);
    let (verdict, took, _) =
        drive(&mut trial, |s| if *s == retained { (1.2, 140_000.0) } else { (0.8, 34_000.0) });
    assert!(matches!(verdict, Verdict::Proven(_)));
    assert!(took <= 30 * MS);
}

#[test]
fn a_proof_against_a_baseline_that_still_polls_a_little_is_one() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched.clone(), retained.clone(), Purpose::Reprove, &busy());
    let (verdict, _) = drive_unsettled(&mut trial, |s| if *s == retained { 1.2 } else { 1.0 });
    assert!(matches!(verdict, Verdict::Proven(e) if e.pairs == 1), "{verdict:?}");
}

#[test]
fn a_baseline_that_slows_down_without_settling_is_not_waited_for() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched.clone(), retained.clone(), Purpose::Reprove, &busy());
    // At first all vCPUs still poll, then all but one, where somebody else's threads run, too.
    let mut intervals = 0;
    let (verdict, took) = drive_unsettled(&mut trial, |s| {
        intervals += u32::from(*s == untouched);
        if *s == untouched && intervals > 6 { 0.6 } else { 1.2 }
    });
    assert!(matches!(verdict, Verdict::Proven(e) if e.ratio > 1.5), "{verdict:?}");
    assert!(took <= 200 * MS, "{took:?}");
}

#[test]
fn a_baseline_that_still_polls_refutes_nothing() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched.clone(), retained.clone(), Purpose::Reprove, &busy());
    let (verdict, took) = drive_unsettled(&mut trial, |s| if *s == retained { 1.0 } else { 1.2 });
    assert!(matches!(verdict, Verdict::Undecided(None)), "{verdict:?}");
    assert!(took <= 500 * MS, "{took:?}");
}

#[test]
fn what_was_proven_is_not_refuted_by_one_lucky_block() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched.clone(), retained.clone(), Purpose::Reprove, &busy());
    let mut blocks = 0;
    let (verdict, ..) = drive(&mut trial, |s| {
        blocks += 1;
        if *s == retained || blocks <= 2 { (1.2, 140_000.0) } else { (0.8, 34_000.0) }
    });
    assert!(!matches!(verdict, Verdict::Refuted(_)), "{verdict:?}");
}

/// A server behind an open loop of 2,000 requests a second, 41 bytes each: polling saves what waking has cost.
#[test]
fn of_a_mostly_idle_workload_less_cpu_time_is_no_loss_and_blocks_are_as_long_as_bytes_need() {
    let (untouched, retained) = settings();
    let seen = |period: Duration, load: f64, bytes_per_s: f64| {
        let workload = WorkloadInterval {
            cpu_time: period.mul_f64(load),
            switches: 4000 * u64::try_from(period.as_millis()).unwrap() / 1000,
            moved_bytes: Some(whole(bytes_per_s * period.as_secs_f64())),
            ..WorkloadInterval::default()
        };
        observed(period, workload)
    };
    let second = Duration::from_secs(1);
    let block = |load| {
        Trial::new(untouched.clone(), retained.clone(), Purpose::Reprove, &seen(second, load, 82_000.0)).block
    };
    assert!((block(0.1).as_secs_f64() - 0.1).abs() < 0.001, "{:?}", block(0.1));
    assert_eq!(block(0.6), Duration::from_millis(50), "200 hand-offs");
    let lost_by = |load: f64| {
        let mut trial =
            Trial::new(untouched.clone(), retained.clone(), Purpose::Reprove, &seen(second, load, 0.0));
        for _ in 0..8 {
            let share = if trial.setting() == &retained { 0.7 } else { 1.0 };
            if trial.observe(&seen(trial.next(), load * share, 0.0), &Noise::new(), false).is_some() {
                break;
            }
        }
        (trial.loses_work(), trial.time_lost().is_zero())
    };
    assert_eq!(lost_by(0.3), (false, true));
    assert_eq!(lost_by(0.9), (true, false));
}

/// When another workload confirms it, retention in force stays after three pairs, unless it seems to cost this one something.
#[test]
fn what_another_workload_confirms_stays_unless_it_seems_to_harm() {
    let (untouched, retained) = settings();
    let pairs_until = |purpose, gain: f64| {
        let mut trial = Trial::new(untouched.clone(), retained.clone(), purpose, &busy());
        for _ in 0..20 {
            let load = if trial.setting() == &retained { 0.5 * gain } else { 0.5 };
            let period = trial.next();
            let workload = WorkloadInterval {
                cpu_time: period.mul_f64(load),
                switches: 1000,
                ..WorkloadInterval::default()
            };
            if trial.observe(&observed(period, workload), &Noise::new(), false).is_some() {
                return None;
            }
            if let Some(verdict) = trial.verdict_if_confirmed() {
                assert!(matches!(verdict, Verdict::Undecided(Some(_))), "{verdict:?}");
                return Some(trial.pairs.len());
            }
        }
        None
    };
    assert_eq!(pairs_until(Purpose::Reprove, 1.02), Some(3));
    assert_eq!(pairs_until(Purpose::Reprove, 0.98), None);
    assert_eq!(pairs_until(Purpose::Adopt, 1.02), None);
}

#[test]
fn rare_hand_offs_get_longer_blocks_and_costly_samples_too() {
    let (untouched, retained) = settings();
    let mut rare = busy();
    rare.workload.switches = 100;
    let trial = Trial::new(untouched.clone(), retained.clone(), Purpose::Adopt, &rare);
    assert_eq!(trial.block, 40 * MS);
    let costly = Observation { cost: 3 * MS, ..busy() };
    assert_eq!(Trial::new(untouched, retained, Purpose::Adopt, &costly).block, 90 * MS);
}

#[test]
fn consolidation_alternates() {
    let (untouched, _) = settings();
    let candidate = consolidated(&untouched);
    let mut trial = Trial::new(untouched.clone(), candidate.clone(), Purpose::Adopt, &busy());
    let (verdict, _, changes) =
        drive(&mut trial, |s| if *s == candidate { (1.0, 60_000.0) } else { (0.8, 42_000.0) });
    assert!(matches!(verdict, Verdict::Proven(e) if e.signal == crate::Signal::Handoffs), "{verdict:?}");
    assert_eq!(changes, 3, "C B B C: the middle blocks share a setting");
}

#[test]
fn vcpus_that_do_not_settle_have_their_limits_reset_and_end_the_trial_in_the_end() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched, retained, Purpose::Reprove, &busy());
    let stuck = Observation { settled: false, ..observed(10 * MS, WorkloadInterval::default()) };
    let (mut resets, mut steps) = (0, 0);
    let verdict = loop {
        steps += 1;
        assert!(steps < 100, "a trial ends");
        if let Some(verdict) = trial.observe(&stuck, &Noise::quiet(), false) {
            break verdict;
        }
        resets += u32::from(trial.wants_reset());
    };
    assert_eq!((verdict, resets), (Verdict::Undecided(None), 2));
}

#[test]
fn a_workload_that_needs_its_vcpus_rarely_has_its_poll_limits_reset() {
    let (untouched, retained) = settings();
    let working = |period: Duration, load: f64| {
        observed(period, WorkloadInterval { cpu_time: period.mul_f64(load), ..busy().workload })
    };
    let resets_at = |load_before: f64, load: f64| {
        let mut trial =
            Trial::new(untouched.clone(), retained.clone(), Purpose::Reprove, &working(20 * MS, load_before));
        let stuck = Observation { settled: false, ..working(10 * MS, load) };
        let mut resets = 0;
        while trial.observe(&stuck, &Noise::quiet(), false).is_none() {
            resets += u32::from(trial.wants_reset());
        }
        resets
    };
    assert_eq!((resets_at(1.4, 1.4), resets_at(1.8, 1.8)), (2, 1), "of two vCPUs; one as a last resort");
    assert_eq!((resets_at(1.8, 0.8), resets_at(0.8, 1.8)), (2, 1), "what counts is the load now");
}

#[test]
fn a_trial_starts_only_when_the_setting_in_force_has_settled_and_waits_ever_longer() {
    let (untouched, retained) = settings();
    let unsettled = Observation { settled: false, ..busy() };
    let mut trial = Trial::new(untouched, retained, Purpose::Adopt, &unsettled);
    let (mut waits, mut waited) = (Vec::new(), Duration::ZERO);
    let verdict = loop {
        let period = trial.next();
        waits.push(period);
        waited += period;
        let stuck = Observation { settled: false, ..observed(period, busy().workload) };
        if let Some(verdict) = trial.observe(&stuck, &Noise::quiet(), false) {
            break verdict;
        }
    };
    assert_eq!(verdict, Verdict::Undecided(None));
    assert!(waits.is_sorted() && waits.len() < 20 && waited < 500 * MS, "{waits:?}");
    assert!(trial.pairs.is_empty());
    assert_eq!(trial.sampled(), waits.iter().map(|_| busy().cost).sum());
}

#[test]
fn a_proof_waits_for_its_baseline_from_the_start_where_blocks_are_long() {
    let (untouched, retained) = settings();
    let waits = |switches: u64| {
        let seen = observed(1000 * MS, WorkloadInterval { switches, ..WorkloadInterval::default() });
        let mut trial = Trial::new(untouched.clone(), retained.clone(), Purpose::Reprove, &seen);
        let stuck = Observation { settled: false, ..observed(trial.next(), WorkloadInterval::default()) };
        trial.observe(&stuck, &Noise::quiet(), false);
        trial.interval() == Interval::Settling
    };
    assert!(waits(4000), "200 hand-offs in 50 ms");
    assert!(!waits(50_000));
}

#[test]
fn a_load_that_comes_in_the_last_block_is_not_what_the_candidate_was_proven_with() {
    let (untouched, _) = settings();
    let runnable_at_the_end = |last: u32| {
        let mut trial = Trial::new(untouched.clone(), consolidated(&untouched), Purpose::Adopt, &busy());
        let mut blocks = 0;
        while blocks < 4 {
            let workload = WorkloadInterval { switches: 1000, ..WorkloadInterval::default() };
            let runnable = if blocks == 3 { last } else { 2 };
            let o = Observation { runnable, ..observed(trial.next(), workload) };
            blocks += u32::from(!trial.settling.is_waiting());
            trial.observe(&o, &Noise::quiet(), false);
        }
        trial.candidate_runnable()
    };
    assert_eq!(runnable_at_the_end(2), 2);
    assert_eq!(runnable_at_the_end(32), 8);
}

/// A convoy's load in vCPUs, as simulated for cholesky on 16. Without retention it forms at once; with it the
/// share of threads that no longer queue starts at `loose` and grows fourfold per block.
fn convoy(retained: Setting, loose: f64) -> impl FnMut(&Setting) -> (f64, f64) {
    let mut share = 0.0;
    move |s| {
        share = if *s == retained { f64::clamp(share * 4.0, loose, 1.0) } else { 0.0 };
        (5.5 + 10.2 * share, 24_000.0)
    }
}

fn seen_at(load: f64) -> Observation {
    let period = 20 * MS;
    let workload =
        WorkloadInterval { switches: 480, cpu_time: period.mul_f64(load), ..WorkloadInterval::default() };
    observed(period, workload)
}

#[test]
fn retention_whose_effect_still_grows_stays_until_it_shows() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched, retained.clone(), Purpose::Adopt, &seen_at(5.5));
    let (verdict, took, changes) = drive(&mut trial, convoy(retained, 0.01));
    assert!(matches!(verdict, Verdict::Proven(_)), "{verdict:?}");
    assert!(took <= 100 * MS && changes == 2, "{took:?}, {changes}");
}

#[test]
fn a_proof_that_brings_the_convoy_back_does_not_refute_what_dissolves_it() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched, retained.clone(), Purpose::Reprove, &seen_at(15.7));
    let (verdict, ..) = drive(&mut trial, convoy(retained, 0.001));
    assert!(matches!(verdict, Verdict::Proven(_)), "{verdict:?}");
}

#[test]
fn a_load_that_has_fallen_since_is_waited_for_twice_and_no_longer() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched, retained, Purpose::Reprove, &seen_at(15.7));
    let (verdict, took, _) = drive(&mut trial, |_| (5.5, 24_000.0));
    assert!(matches!(verdict, Verdict::Refuted(_)), "{verdict:?}");
    assert!((120 * MS..=150 * MS).contains(&took), "three pairs and six blocks: {took:?}");
}

#[test]
fn a_loss_that_varies_is_no_growth() {
    let (untouched, retained) = settings();
    let mut trial = Trial::new(untouched, retained.clone(), Purpose::Adopt, &seen_at(8.0));
    let mut load: f64 = 2.0;
    let (verdict, took, _) = drive(&mut trial, |s| {
        load = if *s == retained { load * 1.4 } else { 2.0 };
        if *s == retained { (load.min(5.0), 24_000.0) } else { (8.0, 24_000.0) }
    });
    assert!(!matches!(verdict, Verdict::Proven(_)), "{verdict:?}");
    assert!(took <= 70 * MS, "three blocks of each side at most: {took:?}");
}

#[test]
fn less_cpu_time_on_fewer_vcpus_is_a_loss_unless_the_same_pieces_of_work_are_handed_over() {
    let loses_work = |load: f64, switches: u64| {
        let (untouched, _) = settings();
        let seen = observed(10 * MS, WorkloadInterval::default());
        let mut trial = Trial::new(untouched.clone(), consolidated(&untouched), Purpose::Reprove, &seen)
            .with_block(USER_TIME_BLOCK);
        for _ in 0..20 {
            let (period, on_fewer) = (trial.next(), trial.setting().active.len() == 1);
            let (load, switches) = if on_fewer { (load, switches) } else { (1.3, 38_000) };
            let (cpu_time, switches) = (period.mul_f64(load), period.mul_f64(switches as f64).as_secs());
            let workload = WorkloadInterval { cpu_time, switches, ..WorkloadInterval::default() };
            if let Some(verdict) = trial.observe(&observed(period, workload), &Noise::quiet(), false) {
                assert_eq!(verdict, Verdict::Undecided(None), "no signal says more");
                return trial.loses_work();
            }
        }
        panic!("a trial ends");
    };
    // A queue of tasks, as measured: on one vCPU it is 1.3 times as fast.
    assert!(!loses_work(1.0, 47_000));
    // A convoy hands over far more often and gets a fraction done.
    assert!(loses_work(1.0, 330_000));
    assert!(loses_work(0.8, 10_000));
    assert!(!loses_work(1.1, 330_000), "too little to count");
}
