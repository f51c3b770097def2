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
    in_turns(claims, jobs, |claim| claim.place.is_counted(), |claim| prove(lab, claim))
}

/// The results of `all`, in their order: first of those that go `together` with others, `jobs` at once.
fn in_turns<T: Sync, R: Send + Sync>(
    all: &[T],
    jobs: NonZero<usize>,
    together: impl Fn(&T) -> bool,
    run: impl Fn(&T) -> R + Sync,
) -> Vec<R> {
    let results: Vec<OnceLock<R>> = all.iter().map(|_| OnceLock::new()).collect();
    let (together, alone): (Vec<_>, Vec<_>) = all.iter().zip(&results).partition(|(one, _)| together(one));
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
    use std::sync::Barrier;

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
    fn those_that_go_together_run_at_once_and_each_of_the_others_alone() {
        let (running, most) = (AtomicUsize::new(0), [const { AtomicUsize::new(0) }; 2]);
        // Of the first kind two meet; one that waited for a third would never return.
        let meet = Barrier::new(2);
        let run = |number: &usize| {
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
        assert_eq!(in_turns(&[1, 2, 3, 4, 5], two, |number| number % 2 == 0, run), [10, 20, 30, 40, 50]);
        assert_eq!(most.map(AtomicUsize::into_inner), [2, 1]);
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = ALL.iter().map(|claim| claim.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
