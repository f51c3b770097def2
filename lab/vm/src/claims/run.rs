//! Selects and proves claims.

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

/// Proves claims one after another, with progress on stderr.
pub fn run(lab: &Lab, claims: &[Claim]) -> Vec<Outcome> {
    let prove = |claim: &Claim| {
        say!("lab: {}: {}", claim.name, claim.says);
        let outcome = claim.outcome(lab);
        if let Some(error) = &outcome.error {
            say!("lab:   FAILS: {error}");
        }
        say!("lab:   {:.0} s", outcome.took.as_secs_f64());
        outcome
    };
    claims.iter().map(prove).collect()
}

#[cfg(test)]
mod tests {
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
    fn names_are_unique() {
        let mut names: Vec<&str> = ALL.iter().map(|claim| claim.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
    }
}
