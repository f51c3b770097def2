//! §5: which set is maintained, and which changes end that.

use super::*;

// §5: the set is maintained while utilisation and granularity vary little.
#[test]
fn a_set_that_was_found_is_maintained_without_much_variation() {
    let (mut paper, base) = settled();
    // Both conditions hold again, but the set has been found.
    for load in [
        Load { g_comp: base.g_comp * 11 / 20, ..base },
        Load { g_comp: base.g_comp * 19 / 10, ..base },
        Load { total: base.total + 0.38, ..base },
        Load { total: base.total - 0.38, ..base },
    ] {
        assert_eq!((pass(&mut paper, load), active(&paper)), (None, 2));
    }
    assert_eq!((pass_with(&mut paper, base, 0.89), active(&paper)), (None, 2));
}

// §5: each of three indicators is a major change, and then every vCPU is active again.
fn restores_all(load: impl Fn(Load) -> Load, busy: Option<f64>) -> MajorChange {
    let (mut paper, base) = settled();
    let event = match busy {
        Some(busy) => pass_with(&mut paper, load(base), busy),
        None => pass(&mut paper, load(base)),
    };
    assert_eq!(active(&paper), 4);
    match event {
        Some(Event::MajorChange { change }) => change,
        event => panic!("{event:?}"),
    }
}

#[test]
fn utilisation_changed_by_more_than_20_points_is_a_major_change() {
    for by in [0.42, -0.42] {
        let change = restores_all(|base| Load { total: base.total + by, ..base }, None);
        assert!(matches!(change, MajorChange::Utilization { .. }), "{change}");
    }
}

#[test]
fn a_vcpu_above_90_percent_is_a_major_change() {
    let change = restores_all(|base| base, Some(0.91));
    assert!(matches!(change, MajorChange::Saturated { .. }), "{change}");
}

#[test]
fn granularity_more_than_doubled_or_halved_is_a_major_change() {
    for (times, by) in [(21, 10), (9, 20)] {
        let change = restores_all(|base| Load { g_comp: base.g_comp * times / by, ..base }, None);
        assert!(matches!(change, MajorChange::Granularity { .. }), "{change}");
    }
}

// §5: after a major change the active vCPUs are reduced gradually again, while the conditions hold.
#[test]
fn after_a_major_change_the_consolidation_starts_again() {
    let (mut paper, base) = settled();
    pass(&mut paper, Load { total: base.total + 0.5, ..base });
    assert_eq!(active(&paper), 4);
    for left in [3, 2, 1] {
        assert!(matches!(pass(&mut paper, light(0.4)), Some(Event::Consolidated { .. })));
        assert_eq!(active(&paper), left);
    }
}

// §5 offers no alternative for a closed loop, which is busy because it is fast on one vCPU.
#[test]
fn a_load_that_fills_the_smaller_set_goes_back_and_forth() {
    let mut paper = fresh(2);
    let sets: Vec<usize> = (0..6)
        .map(|_| {
            pass(&mut paper, light(0.95));
            active(&paper)
        })
        .collect();
    assert_eq!(sets, [1, 1, 2, 1, 1, 2]);
}
