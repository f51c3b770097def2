//! The report for a terminal.

use std::fmt::Write as _;

use gleaner_sim::reproduce::{Basis, Number, Report, Reproduction, near, right};

/// Column, and remark, for what `gleaner run --strategy paper` would do.
const STRATEGY: &str = "strategy paper";

pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    for paper in &report.papers {
        out += &of_paper(paper);
        out += "\n";
    }
    if report.papers.len() > 1 {
        let numbers: usize = report.papers.iter().map(|p| p.numbers.len()).sum();
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "All {} papers, {numbers} numbers:", report.papers.len());
        out += &totals(&report.papers);
    }
    out
}

fn of_paper(r: &Reproduction) -> String {
    let mut out = format!("{}\n\n", r.title);
    let strategies = r.numbers.iter().any(|n| n.strategy_paper.is_some());
    let _ = write!(out, "{:<82}{:>9}{:>11}{:>9}", "what", "paper", "simulated", "error");
    let _ = writeln!(
        out,
        "{}  basis",
        if strategies { format!("{:>16}{:>9}", STRATEGY, "error") } else { String::new() }
    );
    for number in &r.numbers {
        out += &line(number, strategies);
    }
    out += "\nDirections (what wins, grows or shrinks)\n";
    let word = |holds| if holds { "yes" } else { "NO" };
    for direction in &r.directions {
        let other = direction.strategy_paper.filter(|other| *other != direction.holds);
        let other = other.map_or_else(String::new, |other| format!(" ({STRATEGY}: {})", word(other)));
        let _ = writeln!(out, "  {:<5}{}{other}", word(direction.holds), direction.what);
    }
    out += "\n";
    out += &totals(std::slice::from_ref(r));
    out += "Not modelled:\n";
    for what in &r.not_modelled {
        let _ = writeln!(out, "  - {what}");
    }
    out
}

fn totals(papers: &[Reproduction]) -> String {
    let mut out = String::new();
    for basis in [Basis::HeldOut, Basis::Fitted] {
        let _ = writeln!(out, "{basis}: {} numbers within 25 %", near(papers, basis));
    }
    let _ = writeln!(out, "directions: {} right", right(papers));
    out
}

fn line(n: &Number, strategies: bool) -> String {
    let number = |n: Option<f64>| n.map(|n| format!("{n:.2}"));
    let percent = |e: Option<f64>| e.map(|e| format!("{:+.0} %", e * 100.0));
    let [simulated, error] =
        [number(n.simulated), percent(n.error())].map(|s| s.unwrap_or_else(|| "-".to_owned()));
    let what = format!("{}: {}", n.place, n.what);
    let mut out = format!("{what:<82}{:>9}{simulated:>11}{error:>9}", format!("{:.2}", n.paper));
    if strategies {
        let [simulated, error] =
            [number(n.strategy_paper), percent(n.strategy_paper_error())].map(Option::unwrap_or_default);
        let _ = write!(out, "{simulated:>16}{error:>9}");
    }
    let _ = writeln!(out, "  {}", n.basis);
    out
}
