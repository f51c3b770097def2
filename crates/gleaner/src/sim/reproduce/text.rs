//! The account for a terminal.

use std::fmt::Write as _;

use gleaner_sim::reproduce::{Basis, Number, Report, Reproduction, near, right};

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
    let _ = writeln!(out, "{:<82}{:>9}{:>11}{:>9}  basis", "what", "paper", "simulated", "error");
    for number in &r.numbers {
        out += &line(number);
    }
    out += "\nDirections (who wins, grows, shrinks)\n";
    for direction in &r.directions {
        let _ = writeln!(out, "  {:<5}{}", if direction.holds { "yes" } else { "NO" }, direction.what);
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

fn line(n: &Number) -> String {
    let simulated = n.simulated.map_or_else(|| "-".to_owned(), |s| format!("{s:.2}"));
    let error = n.error().map_or_else(|| "-".to_owned(), |e| format!("{:+.0} %", e * 100.0));
    let what = format!("{}: {}", n.place, n.what);
    format!("{what:<82}{:>9}{simulated:>11}{error:>9}  {}\n", format!("{:.2}", n.paper), n.basis)
}
