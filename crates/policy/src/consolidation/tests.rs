//! The rules of §5 that apply under the guard, and what goes beyond them. `paper/tests.rs` tests every rule of
//! §5.

mod properties;

use std::time::Duration;

use super::*;

/// The paper's `t` in Figure 4.
const T: Duration = Duration::from_micros(100);

/// A second of `active` vCPUs, each `busy` (0..=1), with the given `g_comp` and `l_idle`.
fn measured(active: usize, busy: f64, g_comp: Duration, l_idle: Duration) -> Measurement {
    let seconds = |share: f64| Duration::from_secs_f64(share * active as f64);
    let (t_work, t_idle) = (seconds(busy), seconds(1.0 - busy));
    let count = |total: Duration, each: Duration| u64::try_from(total.as_nanos() / each.as_nanos()).unwrap();
    Measurement {
        active,
        t_work,
        s_work: count(t_work, g_comp),
        t_idle,
        s_idle: count(t_idle, l_idle),
        utilization: busy,
        max_utilization: busy,
    }
}

/// A light load in short pieces: both conditions hold on 2 vCPUs or more.
fn light(active: usize, total: f64) -> Measurement {
    measured(active, total / active as f64, Duration::from_micros(10), Duration::from_micros(100))
}

fn fresh(all: usize) -> Consolidation {
    Consolidation::new(ConsolidationConfig::default(), all).unwrap()
}

/// Four vCPUs consolidated to `left` (one or two) and settled there, by a load whose granularity no longer
/// fits.
fn settled(left: usize) -> (Consolidation, Measurement) {
    let mut c = fresh(4);
    assert_eq!(size(c.step(&light(4, 0.6), None)), Some(1));
    if left == 2 {
        c.reject(Finding::Harm);
        assert_eq!(size(c.step(&light(4, 0.6), None)), Some(2));
    }
    let m = measured(left, 0.6 / left as f64, Duration::from_micros(200), T);
    assert!(settles(&mut c, &m));
    (c, m)
}

/// Whether the consolidation ends with `m`, on a smaller set that is kept.
fn settles(c: &mut Consolidation, m: &Measurement) -> bool {
    let settled = Phase::Settled { baseline: *m };
    c.phase == Phase::Consolidating && c.step(m, None) == Advice::Keep && c.phase == settled
}

/// Whether `m` becomes the baseline after a roll-back or an approval.
fn records(c: &mut Consolidation, m: &Measurement) -> bool {
    let settled = Phase::Settled { baseline: *m };
    c.phase == Phase::Stopped && c.step(m, None) == Advice::Keep && c.phase == settled
}

/// Whether `m` shows no major change against the baseline.
fn is_stable(c: &mut Consolidation, m: &Measurement) -> bool {
    let before = c.phase;
    matches!(before, Phase::Settled { .. }) && c.step(m, None) == Advice::Keep && c.phase == before
}

/// The number of vCPUs that the advice leaves active.
fn size(advice: Advice) -> Option<usize> {
    match advice {
        Advice::Consolidate { to, .. } => Some(to),
        _ => None,
    }
}

/// Three vCPUs, each of which computes for `2t` and idles for `t`, with `s_work` switches in all.
fn figure_4(s_work: u64) -> Measurement {
    let (active, s_idle) = (3, 3);
    let t_work = T * 6;
    Measurement {
        active,
        t_work,
        s_work,
        t_idle: T * 3,
        s_idle,
        utilization: 2.0 / 3.0,
        max_utilization: 2.0 / 3.0,
    }
}

#[test]
fn figure_4a_both_conditions_hold() {
    let m = figure_4(6);
    assert_eq!((m.l_comp(), m.g_comp(), m.l_idle()), (Some(T * 2), Some(T), Some(T)));
    let c = conditions(&m, &Factors::default(), &ConsolidationConfig::default());
    assert!(c.load.holds && c.granularity.holds && c.hold());
}

#[test]
fn figure_4b_the_load_fits_but_its_granularity_does_not() {
    let m = figure_4(3);
    assert_eq!((m.l_comp(), m.g_comp(), m.l_idle()), (Some(T * 2), Some(T * 2), Some(T)));
    let c = conditions(&m, &Factors::default(), &ConsolidationConfig::default());
    assert!(c.load.holds && !c.granularity.holds && !c.hold());
    assert_eq!(
        c.to_string(),
        "the load fits the other vCPUs' idle time (200.0µs <= 200.0µs) and its granularity does not fit their \
         idle periods (200.0µs > 100.0µs)"
    );
}

#[test]
fn both_factors_tighten_their_condition() {
    let config = ConsolidationConfig::default();
    let c = conditions(&figure_4(6), &Factors::new(0.9, 1.0).unwrap(), &config);
    assert!(!c.load.holds && c.granularity.holds);
    let c = conditions(&figure_4(6), &Factors::new(1.0, 0.9).unwrap(), &config);
    assert!(c.load.holds && !c.granularity.holds);
}

#[test]
fn pieces_longer_than_the_minimum_time_slice_are_never_consolidated() {
    let m = measured(4, 0.1, Duration::from_millis(4), Duration::from_millis(400));
    let c = conditions(&m, &Factors::default(), &ConsolidationConfig::default());
    assert!(c.load.holds && !c.granularity.holds);
    assert_eq!(c.granularity.right, Some(Duration::from_millis(3)));
}

#[test]
fn without_idle_periods_nothing_is_known_and_every_vcpu_stays_active() {
    let m = Measurement { s_idle: 0, ..light(4, 0.5) };
    assert_eq!((m.l_comp(), m.l_idle()), (None, None));
    assert!(!conditions(&m, &Factors::default(), &ConsolidationConfig::default()).hold());
    let mut c = fresh(4);
    assert_eq!((c.step(&m, None), c.phase), (Advice::Keep, Phase::Consolidating));
}

#[test]
fn the_first_step_is_to_the_fewest_vcpus_that_the_load_fits_on() {
    for (all, load, least) in [(2, 0.9, 1), (4, 0.2, 1), (4, 1.2, 2), (8, 2.9, 3), (96, 0.5, 1), (8, 6.9, 7)]
    {
        let m = light(all, load);
        let Advice::Consolidate { to, conditions } = fresh(all).step(&m, None) else {
            panic!("{all} {load}")
        };
        assert!(to == least && conditions.hold(), "{all} {load}: {to}");
    }
    let full = measured(4, 0.8, Duration::from_micros(1), T);
    assert_eq!(size(fresh(4).step(&full, None)), None, "3.2 vCPUs' worth fits on no three");
    let mut c = fresh(4);
    c.step(&light(4, 0.2), None);
    assert!(settles(&mut c, &light(1, 0.2)) && is_stable(&mut c, &light(1, 0.2)));
}

#[test]
fn for_one_vcpu_fewer_the_conditions_are_those_of_section_5() {
    for m in [light(5, 0.7), light(2, 0.9), figure_4(6), figure_4(3)] {
        let (factors, config) = (Factors::new(0.7, 0.8).unwrap(), ConsolidationConfig::default());
        assert_eq!(
            conditions(&m, &factors, &config).load.left,
            m.l_comp(),
            "one vCPU's computation, in the idle time of the others"
        );
        assert_eq!(
            conditions(&m, &factors, &config),
            super::conditions::conditions_for(m.active - 1, &m, &factors, &config)
        );
    }
}

#[test]
fn a_step_that_failed_goes_half_the_way_back_and_the_factors_wait_for_the_end() {
    let mut c = fresh(8);
    for (to, next) in [(1, Some(4)), (4, Some(6)), (6, Some(7)), (7, None)] {
        assert_eq!(size(c.step(&light(8, 0.6), None)), Some(to));
        let then = c.reject(Finding::Harm).unwrap();
        match next {
            Some(_) => assert_eq!(then, AfterRollBack::GoesOn { above: to, below: 8 }),
            None => assert!(matches!(then, AfterRollBack::Adjusted(Factor::Rho { .. })), "{then}"),
        }
        assert_eq!(c.factors == Factors::default(), next.is_some());
        assert_eq!(c.is_searching(), next.is_some());
    }
    assert!(records(&mut c, &light(8, 0.6)) && is_stable(&mut c, &light(8, 0.6)));
}

#[test]
fn a_smaller_set_that_paid_is_halved_until_one_does_not() {
    let mut c = fresh(8);
    // Wake-ups make it seem to need three vCPUs; then two of them are full.
    assert_eq!(size(c.step(&light(8, 2.9), None)), Some(3));
    c.approve();
    assert_eq!(c.next_size(&light(3, 2.7), None), Some(1));
    assert_eq!(size(c.step(&light(3, 2.7), None)), Some(1));
    assert!(matches!(c.reject(Finding::Harm), Some(AfterRollBack::GoesOn { .. })));
    assert_eq!(size(c.step(&light(3, 2.7), None)), Some(2));
    assert!(matches!(c.reject(Finding::Harm), Some(AfterRollBack::Adjusted(_))));
    // Coarse pieces are not consolidated, whatever paid before.
    let mut c = fresh(8);
    c.step(&light(8, 2.9), None);
    c.approve();
    let coarse = measured(3, 0.9, Duration::from_millis(5), Duration::from_millis(50));
    assert!(settles(&mut c, &coarse));
}

#[test]
fn what_waking_costs_does_not_count_against_a_smaller_set() {
    let (heavy, lighter) = (light(4, 1.9), light(4, 0.9));
    assert_eq!(size(fresh(4).step(&heavy, None)), Some(2));
    let Advice::Consolidate { to: 1, conditions } = fresh(4).step(&heavy, Some(&lighter)) else { panic!() };
    assert!(conditions.hold(), "those of the lighter measurement");
    let (full, of_others) = (light(4, 3.5), light(3, 0.9));
    assert_eq!(size(fresh(4).step(&full, None)), None);
    assert_eq!(size(fresh(4).step(&full, Some(&of_others))), None, "another set's measurement says nothing");
    assert_eq!(size(fresh(4).step(&full, Some(&lighter))), Some(1));
}

#[test]
fn the_time_that_waking_took_is_room_on_a_smaller_set() {
    // A second of requests over a socket on 2 emulated vCPUs: 18 us of each hand-off were waking.
    let seconds = Duration::from_secs_f64;
    let m = Measurement {
        active: 2,
        t_work: seconds(1.07),
        s_work: 19_700,
        t_idle: seconds(0.68),
        s_idle: 19_700,
        utilization: 0.53,
        max_utilization: 0.55,
    };
    assert_eq!(size(fresh(2).step(&m, None)), None);
    let lighter = m.without_wake_ups(Duration::from_micros(18));
    assert_eq!(size(fresh(2).step(&m, Some(&lighter))), Some(1));
}

#[test]
fn a_settled_set_is_maintained_without_much_variation() {
    let (mut c, base) = settled(2);
    // The conditions hold again, but a settled set is kept.
    assert!(is_stable(&mut c, &Measurement { s_work: base.s_work * 19 / 10, ..base }));
    assert!(is_stable(&mut c, &Measurement { utilization: 0.49, max_utilization: 0.9, ..base }));
}

#[test]
fn a_change_of_utilisation_by_more_than_20_points_restores_all() {
    for to in [0.51, 0.09] {
        let (mut c, base) = settled(2);
        let advice = c.step(&Measurement { utilization: to, ..base }, None);
        assert!(matches!(advice, Advice::RestoreAll(MajorChange::Utilization { .. })), "{advice:?}");
    }
}

#[test]
fn a_vcpu_above_90_percent_restores_all() {
    let (mut c, base) = settled(2);
    let advice = c.step(&Measurement { max_utilization: 0.91, ..base }, None);
    assert!(matches!(advice, Advice::RestoreAll(MajorChange::Saturated { .. })), "{advice:?}");
}

#[test]
fn a_busy_vcpu_is_no_change_while_none_is_inactive() {
    let mut c = fresh(3);
    c.step(&light(3, 1.2), None);
    c.reject(Finding::Harm);
    assert!(records(&mut c, &light(3, 1.2)));
    assert!(is_stable(&mut c, &Measurement { max_utilization: 1.0, ..light(3, 1.2) }));
}

#[test]
fn granularity_doubled_or_halved_restores_all() {
    for (s_work, major) in [(10, false), (5, false), (20, false), (4, true), (21, true)] {
        let (mut c, base) = settled(2);
        c.approve();
        c.step(&Measurement { s_work: 10, ..base }, None);
        let advice = c.step(&Measurement { s_work, ..base }, None);
        let fired = matches!(advice, Advice::RestoreAll(MajorChange::Granularity { .. }));
        assert_eq!(fired, major, "{s_work}: {advice:?}");
    }
}

#[test]
fn a_granularity_of_a_few_switches_is_none() {
    let (mut c, base) = settled(1);
    c.approve();
    c.step(&Measurement { s_work: 2, ..base }, None);
    for s_work in [9, 1, 0, 4] {
        assert!(is_stable(&mut c, &Measurement { s_work, ..base }), "{s_work}");
    }
    let advice = c.step(&Measurement { s_work: 300, ..base }, None);
    assert!(matches!(advice, Advice::RestoreAll(MajorChange::Granularity { .. })), "{advice:?}");
}

#[test]
fn after_a_major_change_the_consolidation_starts_again() {
    let (mut c, base) = settled(2);
    assert!(matches!(c.step(&Measurement { utilization: 0.9, ..base }, None), Advice::RestoreAll(_)));
    assert_eq!(c.reject(Finding::Harm), None);
    c.reset();
    // The first measurement of the new load has no baseline.
    assert!(matches!(c.step(&light(4, 0.1), None), Advice::Consolidate { .. }));
}

#[test]
fn an_approved_set_may_be_saturated() {
    let (mut c, base) = settled(1);
    let busy = Measurement { max_utilization: 1.0, ..base };
    c.approve();
    assert!(records(&mut c, &busy) && is_stable(&mut c, &busy));
    // Approved while not busy: saturation then means a new load.
    c.approve();
    c.step(&base, None);
    assert!(matches!(c.step(&busy, None), Advice::RestoreAll(MajorChange::Saturated { .. })));
}

#[test]
fn an_approved_step_is_not_rolled_back_and_the_consolidation_goes_on() {
    let mut c = fresh(3);
    c.step(&light(3, 1.2), None);
    c.approve();
    assert_eq!(size(c.step(&light(2, 0.5), None)), Some(1));
}

#[test]
fn an_approved_set_stays_approved_when_a_further_step_is_rejected() {
    let mut c = fresh(3);
    c.step(&light(3, 1.2), None);
    c.approve();
    assert!(matches!(c.step(&light(2, 0.6), None), Advice::Consolidate { .. }));
    assert!(c.reject(Finding::Harm).is_some());
    let busy = Measurement { max_utilization: 0.95, ..light(2, 0.6) };
    assert!(records(&mut c, &busy) && is_stable(&mut c, &busy));
}

#[test]
fn the_guard_can_reject_what_is_settled_and_then_nothing() {
    let (mut c, _) = settled(2);
    assert!(c.reject(Finding::NoGain).is_some());
    assert_eq!(c.reject(Finding::NoGain), None);
    assert!(c.factors.rho < 1.0);
}

#[test]
fn a_rejected_step_with_an_overloaded_vcpu_shrinks_the_granularity_factor() {
    let mut c = fresh(2);
    c.step(&light(2, 0.4), None);
    c.step(&Measurement { max_utilization: 1.0, ..light(1, 0.4) }, None);
    let then = c.reject(Finding::Harm);
    assert!(matches!(then, Some(AfterRollBack::Adjusted(Factor::Eta { .. }))), "{then:?}");
}

#[test]
fn an_advice_that_was_not_carried_out_is_not_rolled_back() {
    let mut c = fresh(2);
    c.step(&light(2, 0.6), None);
    assert!(matches!(c.step(&light(2, 0.2), None), Advice::Consolidate { .. }));
}

#[test]
fn only_a_reset_restores_the_factors() {
    let (mut c, base) = settled(2);
    c.reject(Finding::Harm);
    c.step(&base, None);
    let shrunk = c.factors;
    assert!(matches!(c.step(&Measurement { utilization: 0.9, ..base }, None), Advice::RestoreAll(_)));
    assert_eq!(c.factors, shrunk);
    c.reset();
    assert_eq!(c.factors, Factors::default());
}

#[test]
fn factors_and_settings_out_of_range_are_refused_by_name() {
    for (rho, eta, name) in [(0.0, 1.0, "rho"), (1.1, 1.0, "rho"), (1.0, f64::NAN, "eta"), (1.0, -1.0, "eta")]
    {
        let error = Factors::new(rho, eta).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
    }
    let config = ConsolidationConfig { granularity_growth: 0.5, ..Default::default() };
    let error = Consolidation::new(config, 4).unwrap_err().to_string();
    assert_eq!(error, "consolidation: `granularity_growth` is 0.5, outside [1, inf)");
}

#[test]
fn without_wake_ups_the_wakers_share_of_each_idle_period_is_idle_too() {
    let m = Measurement {
        active: 2,
        t_work: Duration::from_millis(8),
        s_work: 500,
        t_idle: Duration::from_millis(7),
        s_idle: 400,
        utilization: 0.6,
        max_utilization: 0.7,
    };
    let without = m.without_wake_ups(Duration::from_micros(10));
    assert_eq!((without.t_work, without.t_idle), (Duration::from_millis(4), Duration::from_millis(11)));
    assert_eq!((without.s_work, without.s_idle), (m.s_work, m.s_idle));
    let without = m.without_wake_ups(Duration::from_millis(1));
    assert_eq!(
        (without.t_work, without.t_idle),
        (Duration::ZERO, Duration::from_millis(15)),
        "never below nothing"
    );
}
