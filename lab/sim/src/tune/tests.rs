//! The search: reproducible, and better than the defaults where these are bad.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Search, Weights, field, judge};
use crate::scenario::Scenario;
use crate::tuning::{POLICY_PARAMETERS, Tuning};

const MS: u64 = 1_000_000;

fn some(scenarios: &[Scenario], titles: &[&str]) -> Vec<Scenario> {
    let some: Vec<Scenario> =
        scenarios.iter().filter(|s| titles.contains(&s.title.as_str())).cloned().collect();
    assert_eq!(some.len(), titles.len());
    some
}

#[test]
fn the_field_is_split_with_every_program_on_both_sides() {
    let (search, held_out) = field(10 * MS);
    assert_eq!((search.len(), held_out.len()), (24, 24));
    let program = |s: &Scenario| s.spec.vms[0].tasks[0].program.name.clone();
    for scenario in search.iter().chain(&held_out) {
        assert_eq!(scenario.governed().count(), 1);
        let on_both =
            [&search, &held_out].iter().all(|side| side.iter().any(|s| program(s) == program(scenario)));
        assert!(on_both, "{}", scenario.title);
        assert!(!(search.contains(scenario) && held_out.contains(scenario)));
    }
}

#[test]
fn a_search_keeps_to_its_budget_and_does_not_depend_on_the_cores() {
    let (search, held_out) = field(300 * MS);
    let scenarios = some(&search, &["ping-pong on 2 vCPUs", "matmul on 4 vCPUs"]);
    let limited = Search {
        scenarios: &scenarios,
        parameters: POLICY_PARAMETERS.iter().collect(),
        budget: 10 * scenarios.len(),
        seed: 1,
        weights: Weights::default(),
    };
    let runs = AtomicUsize::new(0);
    let count = || {
        runs.fetch_add(1, Ordering::Relaxed);
    };
    let one = limited.run(NonZeroUsize::MIN, count).unwrap();
    assert_eq!(runs.load(Ordering::Relaxed), limited.budget);
    assert_eq!((one.runs, one.candidates), (limited.budget, 9));
    let many = limited.run(NonZeroUsize::new(3).unwrap(), || ()).unwrap();
    assert!(one == many);
    assert!(one.score >= 0.0);
    // Without a result nothing changes.
    let held = some(&held_out, &["ping-pong on 4 vCPUs"]);
    let verdicts = judge(&held, &Tuning::default(), &[1, 2], NonZeroUsize::MIN, || ()).unwrap();
    assert_eq!(verdicts[0].gains.len(), 2);
    for gain in &verdicts[0].gains {
        assert!(gain.score(Weights::default()).abs() < 1e-12, "{gain:?}");
    }
}
