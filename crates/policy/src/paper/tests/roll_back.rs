//! §5's roll-back and the adjustment of the factors.

use super::*;
use crate::Factor;

// §5: a decrease of utilisation stops the consolidation and restores the vCPU that was removed last.
#[test]
fn a_decrease_of_utilisation_restores_the_last_vcpu_and_stops() {
    let mut paper = fresh(4);
    pass(&mut paper, light(1.2));
    pass(&mut paper, light(1.2));
    assert_eq!(active(&paper), 2);
    // The mean rose from 0.4 to 0.5: only the total shows that the work slowed down.
    let event = pass(&mut paper, light(1.0));
    let Some(Event::RolledBack { active: now, refutation: Refutation::Slower { from, to }, .. }) = event
    else {
        panic!("{event:?}")
    };
    assert_eq!(now.to_string(), "0-2");
    assert!((from - 1.2).abs() < 1e-6 && (to - 1.0).abs() < 1e-6);
    // Even half the load does not start it again as long as it is no major change.
    for _ in 0..3 {
        assert_eq!((pass(&mut paper, light(0.7)), active(&paper)), (None, 3));
    }
}

// §5: utilisation that stays is no sign of a slow-down, although the mean rises on fewer vCPUs.
#[test]
fn the_same_work_on_fewer_vcpus_is_no_decrease() {
    let mut paper = fresh(2);
    pass(&mut paper, light(0.6));
    assert_eq!((pass(&mut paper, light(0.58)), active(&paper)), (None, 1));
}

fn ratio(before: &Measurement) -> (f64, f64) {
    let seconds = |length: Option<Duration>| length.unwrap().as_secs_f64();
    let (comp, piece, idle) = (before.l_comp(), before.g_comp(), before.l_idle());
    let others = (before.active - 1) as f64;
    (seconds(comp) / (others * seconds(idle)), seconds(piece) / seconds(idle))
}

// §5: without an overloaded vCPU ρ shrinks to 0.9 times the smaller of itself and l_comp/((N-1) l_idle).
#[test]
fn a_roll_back_without_overload_shrinks_the_load_factor() {
    let mut paper = fresh(3);
    let load = light(1.2);
    let before = Sample::of(&period(&paper, 3, load), &CpuSet::first(3)).measured;
    pass(&mut paper, load);
    let event = pass(&mut paper, light(1.0));
    let Some(Event::RolledBack { then: AfterRollBack::Adjusted(Factor::Rho { from, to }), .. }) = event
    else {
        panic!("{event:?}")
    };
    assert!((from - 1.0).abs() < 1e-9 && (to - 0.9 * ratio(&before).0).abs() < 1e-9, "{to}");
    assert!((paper.factors.eta - 1.0).abs() < 1e-9);
}

// §5: if the step brought a vCPU to 100 %, η shrinks to 0.9 times the smaller of itself and g_comp/l_idle.
#[test]
fn a_roll_back_with_a_vcpu_overloaded_by_it_shrinks_the_granularity_factor() {
    let mut paper = fresh(3);
    let load = light(1.2);
    let before = Sample::of(&period(&paper, 3, load), &CpuSet::first(3)).measured;
    pass(&mut paper, load);
    let event = pass_with(&mut paper, light(1.0), 1.0);
    let Some(Event::RolledBack { then: AfterRollBack::Adjusted(Factor::Eta { from, to }), .. }) = event
    else {
        panic!("{event:?}")
    };
    assert!((from - 1.0).abs() < 1e-9 && (to - 0.9 * ratio(&before).1).abs() < 1e-9, "{to}");
    assert!((paper.factors.rho - 1.0).abs() < 1e-9);
}

// §5: it is the consolidation that must have *increased* the utilisation of that vCPU.
#[test]
fn the_shrunk_factor_is_chosen_by_the_overload_after_the_step_not_before() {
    // Overloaded before and after: not by the step.
    let mut paper = fresh(3);
    pass_with(&mut paper, light(1.2), 1.0);
    assert_eq!(active(&paper), 2);
    pass_with(&mut paper, light(1.0), 1.0);
    assert!(paper.factors.rho < 1.0 && (paper.factors.eta - 1.0).abs() < 1e-9);
    // Overloaded before, but no longer after it.
    let mut paper = fresh(3);
    pass_with(&mut paper, light(1.2), 1.0);
    pass(&mut paper, light(1.0));
    assert!(paper.factors.rho < 1.0 && (paper.factors.eta - 1.0).abs() < 1e-9);
}

// §5: the adjustments prevent more consolidation in the future.
#[test]
fn what_was_rolled_back_is_not_done_again_not_even_after_a_major_change() {
    let mut paper = fresh(2);
    pass(&mut paper, light(0.8));
    pass(&mut paper, light(0.6));
    assert_eq!(active(&paper), 2);
    let shrunk = paper.factors;
    assert!(shrunk.rho < 1.0);
    // The baseline, a major change, and the earlier load again.
    pass(&mut paper, light(0.8));
    pass(&mut paper, light(1.6));
    for _ in 0..3 {
        assert_eq!((pass(&mut paper, light(0.8)), active(&paper)), (None, 2));
    }
    assert_eq!(paper.factors, shrunk);
}
