//! The tables for people: the generated part of `docs/signals.md`.

use std::fmt::{self, Write};

use gleaner_policy::{Difference, Signal};

use super::judge::{Side, Truth, Verdict};
use super::report::{Pair, Report, SignalAccuracy, SignalFinding};

impl Report {
    /// The tables in Markdown.
    pub fn markdown(&self) -> String {
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let e = &self.environment;
        let cases = self.pairs.chunk_by(|a, b| a.case == b.case).count();
        writeln!(
            out,
            "{cases} cases, {} pairs of settings, {} rounds in {:.0} s; {}, Linux {}, {}, {} vCPUs, hypervisor {}, \
             cpuidle {}/{}.\n",
            self.pairs.len(),
            self.rounds,
            self.elapsed_s,
            e.date,
            e.kernel,
            e.cpu_model,
            e.vcpus,
            e.hypervisor,
            e.cpuidle_driver,
            e.cpuidle_governor,
        )?;
        writeln!(out, "    {}\n", self.repeat_with)?;
        if self.interrupted {
            writeln!(out, "**The run was interrupted; cases and rounds are missing.**\n")?;
        }
        writeln!(out, "## How often each signal was right\n")?;
        accounts(out, &self.accounts())?;
        writeln!(out, "\n## Wrong where it decides\n")?;
        for sentence in self.findings() {
            writeln!(out, "- {sentence}")?;
        }
        writeln!(out, "\n## Cases\n")?;
        pairs(out, &self.pairs)?;
        writeln!(out, "\n{}", self.no_differences())?;
        for absent in &self.absent {
            writeln!(out, "\nNot measured: {}: {}", absent.case, absent.why)?;
        }
        for failure in &self.failures {
            writeln!(out, "\nFailed: {failure}")?;
        }
        Ok(())
    }

    /// One sentence per signal that was wrong in a case where the policy relies on it.
    pub fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        for account in self.accounts().iter().filter(|account| !account.wrong_decisions.is_empty()) {
            let name = account.signal.name();
            let of_pair = |name: &String| {
                let pair = self.pairs.iter().find(|pair| pair.name() == *name)?;
                let said = pair.signals.iter().find(|said| said.signal == account.signal)?;
                let truth = pair.truth(account.signal)?;
                Some(format!(
                    "{name} (it said {:.2}, {} is {})",
                    said.ratio?.median,
                    what(said.signal),
                    of(&truth)
                ))
            };
            let pairs: Vec<_> = account.wrong_decisions.iter().filter_map(of_pair).collect();
            findings.push(format!(
                "**{name}**, {}: wrong in {} of the {} pairs in which it decides: {}.",
                kind(account.difference),
                pairs.len(),
                account.decides,
                pairs.join("; ")
            ));
        }
        if findings.is_empty() {
            findings.push("No signal was wrong where it decides.".to_owned());
        }
        findings
    }

    fn no_differences(&self) -> String {
        let same = self.pairs.iter().filter(|pair| !pair.open_loop && pair.progress.side == Side::Same);
        let names: Vec<String> = same.map(Pair::name).collect();
        if names.is_empty() {
            return "Every closed loop has a difference.".to_owned();
        }
        format!("No difference beyond their own spread: {}.", names.join("; "))
    }
}

fn what(signal: Signal) -> &'static str {
    if signal == Signal::Waiting { "the speed of answers" } else { "progress" }
}

fn kind(difference: Difference) -> &'static str {
    match difference {
        Difference::Retention => "retention",
        Difference::ActiveSet => "active set",
    }
}

fn of(truth: &Truth) -> String {
    let r = truth.ratio;
    format!("{:.2} [{:.2}, {:.2}]", r.median, r.low, r.high)
}

fn accounts(out: &mut String, accounts: &[SignalAccuracy]) -> fmt::Result {
    writeln!(
        out,
        "| signal | difference | right | wrong | missed | unclear | silent | decides | wrong there | size error, median | \
         worst | worst pairs |"
    )?;
    writeln!(out, "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|")?;
    for a in accounts {
        let error = |error: Option<f64>| error.map_or_else(|| "-".to_owned(), |error| format!("{error:.2}"));
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
            a.signal.name(),
            kind(a.difference),
            a.right,
            a.wrong,
            a.missed,
            a.unclear,
            a.silent,
            a.decides,
            a.wrong_decisions.len(),
            error(a.median_error),
            error(a.worst_error),
            a.worst.join("; "),
        )?;
    }
    Ok(())
}

fn pairs(out: &mut String, pairs: &[Pair]) -> fmt::Result {
    let signals: Vec<Signal> = Signal::ALL.into_iter().filter(|signal| *signal != Signal::Counter).collect();
    let names: Vec<&str> = signals.iter().map(|signal| signal.name()).collect();
    writeln!(out, "| case | setting | progress | is | speed of answers | {} |", names.join(" | "))?;
    writeln!(out, "|---|---|--:|---|--:|{}", "--:|".repeat(signals.len()))?;
    for pair in pairs {
        let latency = pair.latency.map_or_else(|| "-".to_owned(), |truth| of(&truth));
        let cells: Vec<String> =
            pair.signals.iter().filter(|said| signals.contains(&said.signal)).map(cell).collect();
        writeln!(
            out,
            "| {} | {} | {} | {} | {latency} | {} |",
            pair.case,
            pair.setting,
            of(&pair.progress),
            if pair.open_loop { "set by clients" } else { side(pair.progress.side) },
            cells.join(" | ")
        )?;
    }
    Ok(())
}

fn side(side: Side) -> &'static str {
    match side {
        Side::Lower => "lower",
        Side::Same => "no difference",
        Side::Higher => "higher",
    }
}

/// The signal's ratio: bold if it decides, in parentheses if invalid, followed by its error, if any.
fn cell(said: &SignalFinding) -> String {
    let Some(ratio) = said.ratio else { return "-".to_owned() };
    let number = format!("{:.2}", ratio.median);
    let number = if said.decides { format!("**{number}**") } else { number };
    match said.verdict {
        Some(Verdict::Silent) => format!("({number})"),
        Some(Verdict::Wrong) => format!("{number} wrong"),
        Some(Verdict::Missed) => format!("{number} missed"),
        Some(Verdict::Unclear) => format!("{number} unclear"),
        Some(Verdict::Right) | None => number,
    }
}
