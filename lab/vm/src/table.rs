//! The table of claims: for a terminal, and as `docs/lab.md`.

use std::fmt::Write as _;

use crate::claims::{ALL, Check, Outcome};

/// The table for a terminal: one line per claim, followed by failed checks and all measurements.
pub fn text(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for outcome in outcomes {
        let sign = if outcome.holds() { "pass" } else { "FAIL" };
        let held = outcome.checks.iter().filter(|check| check.holds).count();
        let _ = writeln!(
            out,
            "{sign}  {:<20} {held}/{} checks, {:>3.0} s  {}",
            outcome.name,
            outcome.checks.len(),
            outcome.took.as_secs_f64(),
            outcome.says
        );
        for check in outcome.checks.iter().filter(|check| !check.holds || check.measured.is_some()) {
            let sign = if check.holds { "    " } else { "FAIL" };
            let _ = writeln!(out, "      {sign} {}: {}{}", check.what, check.found, target(check));
        }
        if let Some(error) = &outcome.error {
            let _ = writeln!(out, "      FAIL {}", error.replace('\n', "\n           "));
        }
    }
    let held = outcomes.iter().filter(|outcome| outcome.holds()).count();
    let _ = writeln!(out, "{held} of {} claims hold", outcomes.len());
    out
}

/// The page: claims, measurements and checks.
pub fn markdown(outcomes: &[Outcome]) -> String {
    let mut out = String::from(HEAD);
    let took: f64 = outcomes.iter().map(|outcome| outcome.took.as_secs_f64()).sum();
    let held = outcomes.iter().filter(|outcome| outcome.holds()).count();
    let _ =
        writeln!(out, "{held} of {} claims hold; the run took {:.0} minutes.\n", outcomes.len(), took / 60.0);
    let is_missing = |name: &&str| outcomes.iter().all(|outcome| outcome.name != *name);
    let missing: Vec<&str> = ALL.iter().map(|claim| claim.name).filter(is_missing).collect();
    if !missing.is_empty() {
        let _ = writeln!(out, "Not run: `{}`.\n", missing.join("`, `"));
    }
    out += "| claim | | what | checks | time |\n|---|---|---|--:|--:|\n";
    for outcome in outcomes {
        let checks = outcome.checks.len();
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {}/{checks} | {:.0} s |",
            outcome.name,
            if outcome.holds() { "holds" } else { "**fails**" },
            outcome.says,
            outcome.checks.iter().filter(|check| check.holds).count(),
            outcome.took.as_secs_f64()
        );
    }
    for outcome in outcomes {
        let _ = writeln!(out, "\n## {}\n\n{}.\n", outcome.name, capital(&outcome.says));
        out += "| check | | found | target |\n|---|---|---|---|\n";
        for check in &outcome.checks {
            let holds = if check.holds { "holds" } else { "**fails**" };
            let bound = check.target.map(|target| target.to_string()).unwrap_or_default();
            let _ = writeln!(out, "| {} | {holds} | {} | {bound} |", cell(&check.what), cell(&check.found));
        }
        if let Some(error) = &outcome.error {
            let _ = writeln!(out, "\nIt could not be proven:\n\n```text\n{error}\n```");
        }
    }
    out
}

const HEAD: &str = "# The lab: what was proven in virtual machines

The latest outcome of each claim, written by `gleaner-lab claims --markdown`; do not edit. `make lab` proves all of them
anew; `--only NAME` proves one and leaves the others as they were. [lab/README.md](../lab/README.md) says how the
machines are made, and how to add a claim.

The machines run under emulation on two CPUs, so times are comparable only to each other, interleaved, in one run:
ratios are given with their interval and n. A machine with more vCPUs than two is an overcommitted one.

";

fn target(check: &Check) -> String {
    check.target.map(|target| format!(" (target {target})")).unwrap_or_default()
}

/// Escapes what would end a table's cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', "<br>")
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::claims::{Checks, Target};

    fn outcomes() -> Vec<Outcome> {
        let mut checks = Checks::of("claim");
        checks.that("it | works", true, "yes");
        checks.ratios("faster", &[1.2], "×", Target::AtLeast(1.5));
        let outcome = |name: &str, checks: Checks, error| Outcome {
            name: name.to_owned(),
            group: 1,
            says: "it works".to_owned(),
            checks: checks.into_inner(),
            error,
            took: Duration::from_secs(61),
        };
        vec![
            outcome("mixed", checks, None),
            outcome("broken", Checks::of("claim"), Some("no such machine".to_owned())),
        ]
    }

    #[test]
    fn a_failure_is_reported_with_what_was_found() {
        let text = text(&outcomes());
        assert!(text.contains("FAIL  mixed"), "{text}");
        assert!(text.contains("FAIL faster: 1.20 × [1.20, 1.20], n = 1 (target ≥ 1.5)"), "{text}");
        assert!(text.contains("FAIL no such machine"), "{text}");
        assert!(text.ends_with("0 of 2 claims hold\n"), "{text}");
    }

    #[test]
    fn a_cell_ends_where_it_ends() {
        let page = markdown(&outcomes());
        assert!(page.contains("| it \\| works | holds | yes |  |"), "{page}");
        assert!(page.contains("It could not be proven"), "{page}");
        assert!(page.contains(&format!("Not run: `{}`", ALL[0].name)), "{page}");
    }
}
