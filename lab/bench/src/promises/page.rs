//! SPECIFICATION.md: the promises with their latest outcomes.

use std::fmt::{self, Write};

use super::{Criterion, Outcome, Outcomes, Promise, Promises, Section, Verdict};

impl Promises {
    /// The page, as Markdown.
    pub fn page(&self, outcomes: &Outcomes) -> String {
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut page, outcomes);
        page
    }

    fn write(&self, out: &mut String, outcomes: &Outcomes) -> fmt::Result {
        writeln!(out, "# Specification\n\n{}", self.about)?;
        writeln!(
            out,
            "`make promises` checks them all and writes this page; `make promises PROMISES='--only redis-1'` checks one of \
             them.\nThe promises stand in [lab/bench/promises.toml](lab/bench/promises.toml)."
        )?;
        for section in &self.section {
            section.write(out, outcomes)?;
        }
        writeln!(out, "\n## The checks\n")?;
        for (name, script) in &self.checks {
            writeln!(out, "- {name}: `{script}`")?;
        }
        let mut machines: Vec<&str> = outcomes.values().map(|outcome| outcome.machine.as_str()).collect();
        machines.sort_unstable();
        machines.dedup();
        if !machines.is_empty() {
            writeln!(out, "\nChecked on: {}.", machines.join("; "))?;
        }
        Ok(())
    }
}

impl Section {
    fn write(&self, out: &mut String, outcomes: &Outcomes) -> fmt::Result {
        writeln!(out, "\n## {}\n", self.title)?;
        if !self.about.is_empty() {
            writeln!(out, "{}", self.about)?;
        }
        writeln!(out, "| promise | target | measured | checked | | check |\n|---|--:|--:|---|---|---|")?;
        for promise in &self.promise {
            promise.write(out, outcomes.get(&promise.name))?;
        }
        Ok(())
    }
}

impl Promise {
    fn write(&self, out: &mut String, outcome: Option<&Outcome>) -> fmt::Result {
        let target = match &self.criterion {
            Criterion::Success => String::new(),
            Criterion::Number { limit, unit, .. } => format!("{limit} {unit}"),
        };
        let Some(Outcome { date, verdict, found, failure, misses, .. }) = outcome else {
            return writeln!(out, "| {} | {target} | | | not checked | {} |", self.says, self.check);
        };
        let verdict = match (verdict, misses) {
            (Verdict::Kept, _) => verdict.to_string(),
            (_, 0 | 1) => format!("**{verdict}**"),
            (_, misses) => format!("**{verdict}**, {misses} times in a row"),
        };
        let failure = failure.as_ref().map_or_else(String::new, |how| format!(", the check failed: {how}"));
        let (found, day) = (found.as_deref().unwrap_or_default(), date.get(..10).unwrap_or(date));
        writeln!(out, "| {} | {target} | {found} | {day} | {verdict}{failure} | {} |", self.says, self.check)
    }
}
