//! Selects and proves claims.

use std::num::NonZero;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use gleaner_print::say;

use crate::claims::{ALL, Claim, Outcome};
use crate::error::{Error, Result};
use crate::vm::Lab;

/// The claims with these names, or all of them if there are none.
pub fn only(names: &[String], quick: bool) -> Result<Vec<Claim>> {
    if let Some(unknown) = names.iter().find(|name| ALL.iter().all(|claim| claim.name != **name)) {
        let known = ALL.iter().map(|claim| claim.name).collect::<Vec<_>>().join(", ");
        return Err(Error::Spec(format!("there is no claim `{unknown}`; there are {known}")));
    }
    let wanted = |claim: &&Claim| {
        (names.is_empty() || names.iter().any(|name| name == claim.name)) && (claim.quick || !quick)
    };
    Ok(ALL.iter().filter(wanted).copied().collect())
}

/// Proves claims, with progress on stderr: first those whose time is counted in instructions, `jobs` at once, since
/// others beside them do not change what they measure; then the others, each alone. Outcomes are in the order of the claims.
pub fn run(lab: &Lab, claims: &[Claim], jobs: NonZero<usize>) -> Vec<Outcome> {
    // The slowest clocks first: what begins last should not take longest.
    in_turns(claims, jobs, |claim| claim.place.counted(), |claim| prove(lab, claim))
}

/// The results of `all`, in their order: first of those that have an `order`, in that order and `jobs` at once.
fn in_turns<T: Sync, R: Send + Sync, O: Ord>(
    all: &[T],
    jobs: NonZero<usize>,
    order: impl Fn(&T) -> Option<O>,
    run: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let results: Vec<OnceLock<R>> = all.iter().map(|_| OnceLock::new()).collect();
    let (mut together, alone): (Vec<_>, Vec<_>) =
        all.iter().zip(&results).partition(|(one, _)| order(one).is_some());
    together.sort_by_key(|(one, _)| order(one));
    let next = AtomicUsize::new(0);
    let take_turns = || {
        while let Some((one, result)) = together.get(next.fetch_add(1, Ordering::Relaxed)) {
            result.get_or_init(|| run(one));
        }
    };
    thread::scope(|scope| {
        for _ in 0..jobs.get() {
            scope.spawn(take_turns);
        }
    });
    for (one, result) in alone {
        result.get_or_init(|| run(one));
    }
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

fn prove(lab: &Lab, claim: &Claim) -> Outcome {
    say!("lab: {}: {}", claim.name, claim.says);
    let outcome = claim.outcome(lab);
    if let Some(error) = &outcome.error {
        say!("lab: {}: FAILS: {error}", claim.name);
    }
    say!("lab: {}: {:.0} s", claim.name, outcome.took.as_secs_f64());
    outcome
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::sync::{Barrier, Mutex};

    use super::*;

    #[test]
    fn claims_are_chosen_by_name_and_an_unknown_one_is_reported() {
        assert_eq!(only(&[], false).unwrap().len(), ALL.len());
        assert!(only(&[], true).unwrap().iter().all(|claim| claim.quick));
        let one = ALL[0].name.to_owned();
        assert_eq!(only(&[one], false).unwrap().len(), 1);
        let said = only(&["nonsense".to_owned()], false).unwrap_err().to_string();
        assert!(said.contains("`nonsense`") && said.contains(ALL[0].name), "{said}");
    }

    #[test]
    fn those_with_an_order_run_in_it_several_at_once_and_each_of_the_others_alone() {
        let (running, most) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; 2]);
        // Of the first kind two meet; one that waited for a third would never return.
        let meet = Barrier::new(2);
        let begun = Mutex::new(Vec::new());
        let run = |number: &usize| {
            begun.lock().unwrap().push(*number);
            let kind = number % 2;
            let now = running.fetch_add(1, Ordering::SeqCst) + 1;
            most[kind].fetch_max(now, Ordering::SeqCst);
            if kind == 0 {
                meet.wait();
            }
            running.fetch_sub(1, Ordering::SeqCst);
            number * 10
        };
        let two = NonZero::new(2).unwrap();
        // The highest first.
        let order = |number: &usize| number.is_multiple_of(2).then_some(Reverse(*number));
        assert_eq!(in_turns(&[2, 1, 3, 4, 5, 6, 8], two, order, run), [20, 10, 30, 40, 50, 60, 80]);
        assert_eq!(most.map(AtomicUsize::into_inner), [2, 1]);
        let begun = begun.into_inner().unwrap();
        let (mut first, mut second) = (begun[..2].to_vec(), begun[2..4].to_vec());
        first.sort_unstable();
        second.sort_unstable();
        assert_eq!((first, second, &begun[4..]), (vec![6, 8], vec![2, 4], &[1, 3, 5][..]));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = ALL.iter().map(|claim| claim.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
