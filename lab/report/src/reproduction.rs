//! The report of `gleaner sim reproduce`: the papers' numbers beside the simulated ones, and their figures.

pub mod data;
mod figures;

use data::{Basis, Number, Report, Reproduction, near, right};
use maud::{Markup, html};

use crate::number::{Format, Unit};
use crate::page::{Data, Figure, page, scrolling};

/// Every figure; each can be saved as an SVG file.
pub fn figures(report: &Report) -> Vec<Figure> {
    report.papers.iter().flat_map(figures::of).collect()
}

/// Everything as one self-contained page.
///
/// # Errors
/// If the report, which is embedded in the page, cannot be serialised as JSON.
pub fn html(report: &Report) -> serde_json::Result<String> {
    let title = "The papers' numbers, simulated";
    let content = html! {
        header {
            h1 { (title) }
            p class="by" { "Gleaner " (report.version) " · seed " (report.seed) }
            p class="lead" {
                "Of the numbers that nothing was fitted to, " (near(&report.papers, Basis::HeldOut)) " come within 25 % of \
                 the papers'; of those that the model was fitted to, " (near(&report.papers, Basis::Fitted)) ". Of the \
                 papers' statements about what wins, grows or shrinks, " (right(&report.papers)) " come out."
            }
            (overview(report))
        }
        @for paper in &report.papers { (of_paper(paper)) }
    };
    let data = serde_json::to_string(report)?;
    let about = "Every number and every figure's values are part of this page.";
    Ok(page(title, &content, &Data { json: &data, file_name: "reproduction.json", about }))
}

fn overview(report: &Report) -> Markup {
    let table = html! {
        table {
            thead {
                tr {
                    th scope="col" { "paper" }
                    th scope="col" class="n" { "held out, within 25 %" }
                    th scope="col" class="n" { "fitted, within 25 %" }
                    th scope="col" class="n" { "directions" }
                }
            }
            tbody {
                @for paper in &report.papers {
                    tr {
                        th scope="row" class="wrap" { a href=(format!("#{}", paper.name)) { (paper.title) } }
                        td class="n" { (near([paper], Basis::HeldOut)) }
                        td class="n" { (near([paper], Basis::Fitted)) }
                        td class="n" { (right([paper])) }
                    }
                }
            }
        }
    };
    scrolling("Scores by paper", &table)
}

fn of_paper(paper: &Reproduction) -> Markup {
    let word = |holds| if holds { "yes" } else { "no" };
    let drawn = figures::of(paper);
    let (errors, figures) =
        drawn.split_first().map_or((None, &drawn[..]), |(first, rest)| (Some(first), rest));
    html! {
        section id=(paper.name) {
            h2 { (paper.title) }
            @if let Some(errors) = errors { (crate::page::figures([errors])) }
            @for (basis, heading) in [(Basis::HeldOut, "Held-out numbers"), (Basis::Fitted, "Fitted numbers")] {
                @let numbers: Vec<&Number> = paper.numbers.iter().filter(|n| n.basis == basis).collect();
                @if !numbers.is_empty() {
                    h3 { (heading) ": " (near([paper], basis)) " within 25 %" }
                    (table(heading, &numbers))
                }
            }
            h3 { "Directions: " (right([paper])) }
            ul class="directions" {
                @for direction in &paper.directions {
                    li class=(word(direction.holds)) {
                        b { (word(direction.holds)) } " " (direction.what)
                        @if let Some(other) = direction.strategy_paper.filter(|o| *o != direction.holds) {
                            " (strategy paper: " (word(other)) ")"
                        }
                    }
                }
            }
            @if !figures.is_empty() {
                h3 { "Figures, simulated" }
                (crate::page::figures(figures))
            }
            h3 { "Not modelled" }
            ul { @for what in &paper.not_modelled { li { (what) } } }
        }
    }
}

fn table(label: &str, numbers: &[&Number]) -> Markup {
    let strategies = numbers.iter().any(|n| n.strategy_paper.is_some());
    let row = |n: &Number| {
        // Three digits, to distinguish 25 % from 24 %.
        let format = Format::new(Unit::Plain, n.paper, n.paper.abs() / 100.0);
        let percent = |e: f64| format!("{:+.0} %", e * 100.0);
        let error = n.error().map_or_else(|| "–".to_owned(), percent);
        let other = n.strategy_paper.map(|s| format.full(s)).zip(n.strategy_paper_error().map(percent));
        html! {
            tr {
                td { (n.place) }
                td class="wrap" { (n.what) }
                td class="n" { (format.full(n.paper)) }
                td class="n" { (n.simulated.map_or_else(|| "–".to_owned(), |s| format.full(s))) }
                td class="n" { (error) }
                @if strategies {
                    td class="n" { @if let Some((simulated, error)) = other { (simulated) " (" (error) ")" } }
                }
            }
        }
    };
    let table = html! {
        table {
            thead {
                tr {
                    th scope="col" { "place" }
                    th scope="col" { "what" }
                    th scope="col" class="n" { "paper" }
                    th scope="col" class="n" { "simulated" }
                    th scope="col" class="n" { "error" }
                    @if strategies { th scope="col" class="n" { "strategy paper" } }
                }
            }
            tbody { @for n in numbers { (row(n)) } }
        }
    };
    scrolling(label, &table)
}
