//! The report of `gleaner sim reproduce`: the papers' statements beside what was simulated, and their figures.

pub mod data;
mod figures;
mod score;

use data::{Exchange, Found, Report, Reproduction, Row, Score, State};
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
    let title = "The papers' statements, simulated";
    let content = html! {
        header {
            h1 { (title) }
            p class="by" { "Gleaner " (report.version) }
            p class="lead" {
                "Every number and direction in the papers' text is a row. A row is evidence for the model if the simulation \
                 reproduces it and if it fails once the mechanism that it is about is switched off. "
                (exchange(report))
            }
            (overview(report))
        }
        @for paper in &report.papers { (of_paper(paper)) }
    };
    let data = serde_json::to_string(report)?;
    let about = "Every row and every figure's values are part of this page.";
    Ok(page(title, &content, &Data { json: &data, file_name: "reproduction.json", about }))
}

/// The cross-validation in a sentence.
fn exchange(report: &Report) -> String {
    let Exchange { rows, own, other } = Exchange::of(report.papers.iter().flat_map(|p| &p.rows));
    format!(
        "Of {rows} rows about programs with a fitted parameter, {own} come out with their own and {other} with the mean of \
         those fitted in the other half of the programs."
    )
}

fn overview(report: &Report) -> Markup {
    let line = |name: Markup, rows: &[&Row]| {
        let of = |state: State| rows.iter().copied().filter(move |row| row.statement.state == state);
        html! {
            tr {
                th scope="row" class="wrap" { (name) }
                @for state in State::ALL { td class="n" { (summary(state, Score::of(of(state)))) } }
            }
        }
    };
    let all: Vec<&Row> = report.papers.iter().flat_map(|p| &p.rows).collect();
    let table = html! {
        table {
            thead {
                tr {
                    th scope="col" { "paper" }
                    @for state in State::ALL { th scope="col" class="n" { (state.name()) } }
                }
            }
            tbody {
                @for paper in &report.papers {
                    (line(html! { a href=(format!("#{}", paper.name)) { (paper.title) } }, &paper.rows.iter().collect::<Vec<_>>()))
                }
                (line(html! { "all" }, &all))
            }
        }
    };
    html! {
        (scrolling("Scores by paper", &table))
        p { "Each cell: evidence + reproduced without the mechanism, too, of all rows." }
    }
}

fn summary(state: State, score: Score) -> String {
    match state {
        State::NotModelled => score.rows.to_string(),
        _ => format!("{} + {} of {}", score.evidence(), score.also_without, score.rows),
    }
}

fn of_paper(paper: &Reproduction) -> Markup {
    let drawn = figures::of(paper);
    html! {
        section id=(paper.name) {
            h2 { (paper.title) }
            @for state in State::ALL {
                @let rows: Vec<&Row> = paper.state(state).collect();
                @if !rows.is_empty() {
                    h3 { (state.name()) ": " (summary(state, Score::of(rows.iter().copied()))) }
                    (table(state, &rows))
                }
            }
            @if !drawn.is_empty() {
                h3 { "Figures, simulated" }
                (crate::page::figures(&drawn))
            }
        }
    }
}

/// A number with as many digits as are significant beside the paper's.
fn shown(row: &Row, found: Option<Found>) -> String {
    match found {
        None => "–".to_owned(),
        Some(Found::Holds(true)) => "yes".to_owned(),
        Some(Found::Holds(false)) => "no".to_owned(),
        Some(Found::Number(n)) => number(row, n),
    }
}

fn number(row: &Row, n: f64) -> String {
    let value = row.statement.value.unwrap_or(n);
    Format::new(Unit::Plain, value, value.abs() / 100.0).full(n)
}

fn table(state: State, rows: &[&Row]) -> Markup {
    let modelled = state != State::NotModelled;
    let row = |row: &Row| {
        let s = &row.statement;
        let same = s.repeats.as_ref().map(|other| format!(" (repeats {other})")).unwrap_or_default();
        let verdict = match (s.counts(), row.reproduced(), row.passes_without()) {
            (false, ..) => "",
            (_, false, _) => "no",
            (_, true, false) => "yes",
            (_, true, true) => "without it, too",
        };
        html! {
            tr {
                td { (s.id) }
                td class="wrap" { (s.says) (same) }
                td class="n" { (s.value.map(|v| number(row, v)).unwrap_or_default()) " " (s.unit.as_deref().unwrap_or_default()) }
                @if modelled {
                    td class="n" { (shown(row, row.simulated)) }
                    td class="n" { (row.adaptive.map(|a| shown(row, Some(a))).unwrap_or_default()) }
                    td class="n" { (shown(row, row.without)) }
                    td { (verdict) }
                }
                td class="wrap" { (s.note.as_deref().unwrap_or_default()) }
            }
        }
    };
    let table = html! {
        table {
            thead {
                tr {
                    th scope="col" { "row" }
                    th scope="col" { "statement" }
                    th scope="col" class="n" { "paper" }
                    @if modelled {
                        th scope="col" class="n" { "simulated" }
                        th scope="col" class="n" { "adaptive" }
                        th scope="col" class="n" { "mechanism off" }
                        th scope="col" { "reproduced" }
                    }
                    th scope="col" { "note" }
                }
            }
            tbody { @for r in rows { (row(r)) } }
        }
    };
    scrolling(state.name(), &table)
}
