//! A result's numbers as tables.

use gleaner_proto::result::{BenchResult, Comparison, Metric, Row, Verdict};
use maud::{Markup, html};

use super::summary::{extreme, tally};
use super::values::{baseline, cell, compared, format, gain, label, unit};
use crate::number::{Unit, bare, show};
use crate::page::scrolling;

/// One line per mode, with its verdicts.
pub(super) fn modes(result: &BenchResult) -> Markup {
    let base = baseline(result);
    let place = |mode: &str, most| {
        let rows: Vec<&Row> = result.rows.iter().collect();
        extreme(&rows, mode, most).map_or_else(
            || "–".to_owned(),
            |(row, _, gain)| format!("{} {}", show(Unit::Ratio, gain.value), row.name),
        )
    };
    let table = html! {
        table {
            thead {
                tr {
                    th scope="col" { "mode" }
                    th scope="col" class="n" { "better" }
                    th scope="col" class="n" { "worse" }
                    th scope="col" class="n" { "neither" }
                    th scope="col" { "best row" }
                    th scope="col" { "worst row" }
                    th scope="col" { "what it does" }
                }
            }
            tbody {
                @for (index, mode) in result.modes.iter().enumerate() {
                    @let tally = tally(result, &mode.name);
                    tr {
                        th scope="row" { (mode.name) }
                        @if index == 0 {
                            td colspan="5" class="i" { "what the others are compared with" }
                        } @else {
                            td class="n" { (tally.better.len()) }
                            td class="n" { (tally.worse.len()) }
                            td class="n" { (tally.same.len() + tally.unknown.len()) }
                            td { (place(&mode.name, true)) }
                            td { (place(&mode.name, false)) }
                        }
                        td class="wrap" { (mode.about) }
                    }
                }
            }
        }
    };
    scrolling(&format!("Modes compared with {base}"), &table)
}

/// The primary metric by row and mode: median, ratio, verdict, cost.
pub(super) fn numbers(result: &BenchResult) -> Markup {
    let base = baseline(result);
    let paper = result.rows.iter().any(|row| !row.paper.is_empty() || !row.paper_ratio.is_empty());
    let columns = if paper { 11 } else { 10 };
    let table = html! {
        table {
            thead {
                tr {
                    th scope="col" { "mode" }
                    th scope="col" class="n" { "n" }
                    th scope="col" class="n" colspan="2" { "median and interval" }
                    th scope="col" class="n" colspan="2" { "ratio to " (base) }
                    th scope="col" class="n" { "p" }
                    th scope="col" { "verdict" }
                    th scope="col" class="n" colspan="2" { "CPU cost, ratio" }
                    @if paper { th scope="col" class="n" { "paper" } }
                }
            }
            @for row in &result.rows {
                tbody {
                    tr { th colspan=(columns) scope="rowgroup" { (row.name) ", " (label(row, row.primary)) } }
                    (rows(result, row, paper))
                }
            }
        }
    };
    scrolling("Numbers by row and mode", &table)
}

fn rows(result: &BenchResult, row: &Row, paper: bool) -> Markup {
    let (metric, written) = (row.primary, format(row, row.primary));
    let factor = unit(metric).1;
    let best = compared(result, row, metric)
        .filter(|(_, comparison)| comparison.verdict == Verdict::Better)
        .filter_map(|(index, comparison)| Some((index, gain(comparison)?.value)))
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(index, _)| index);
    html! {
        @for (index, mode) in result.modes.iter().enumerate() {
            @if let Some(found) = row.cell(&mode.name) {
                @let summary = found.summaries.get(&metric);
                @let comparison = row.comparison(&mode.name, metric);
                @let cost = row.comparison(&mode.name, Metric::CpuSPerOp);
                tr class=[(best == Some(index)).then_some("best")] {
                    th scope="row" { (mode.name) }
                    td class="n" { (summary.map_or(0, |estimate| estimate.n)) }
                    td class="n" { (cell(written, summary.map(|e| e.median * factor))) }
                    td class="i" { (summary.map_or_else(String::new, |e| range(e.low, e.high, |v| written.number(v * factor)))) }
                    td class="n" { (comparison.map_or_else(String::new, |c| show(Unit::Ratio, c.ratio.median))) }
                    td class="i" { (comparison.map_or_else(String::new, ratios)) }
                    td class="n" { (comparison.map_or_else(String::new, |c| p_value(c.rank_sum_p))) }
                    td {
                        (comparison.map_or("", |c| verdict(c.verdict)))
                        @if best == Some(index) { ", best" }
                    }
                    td class="n" { (cost.map_or_else(String::new, |c| show(Unit::Ratio, c.ratio.median))) }
                    td class="i" { (cost.map_or_else(String::new, ratios)) }
                    @if paper { td class="n" { (of_paper(row, &mode.name)) } }
                }
            }
        }
    }
}

/// What the paper reports: a value, a ratio to the first mode, or both.
fn of_paper(row: &Row, mode: &str) -> String {
    let (unit, factor) = unit(row.primary);
    let value = row.paper.get(mode).map(|value| show(unit, value * factor));
    let ratio = row.paper_ratio.get(mode).map(|ratio| show(Unit::Ratio, *ratio));
    value.into_iter().chain(ratio).collect::<Vec<String>>().join(", ")
}

/// The medians of every metric.
pub(super) fn everything(result: &BenchResult) -> Markup {
    html! {
        @for row in &result.rows {
            details {
                summary { (row.name) }
                (scrolling(&format!("All metrics of {}", row.name), &metrics(result, row)))
            }
        }
    }
}

fn metrics(result: &BenchResult, row: &Row) -> Markup {
    html! {
        table {
            thead {
                tr {
                    th scope="col" { "median of" }
                    @for mode in &result.modes { th scope="col" class="n" { (mode.name) } }
                }
            }
            tbody {
                @for metric in row.metrics() {
                    @let (written, factor) = (format(row, metric), unit(metric).1);
                    tr {
                        th scope="row" { (label(row, metric)) }
                        @for mode in &result.modes {
                            @let found = row.cell(&mode.name).and_then(|found| found.summaries.get(&metric));
                            td class="n" { (cell(written, found.map(|estimate| estimate.median * factor))) }
                        }
                    }
                }
            }
        }
    }
}

fn range(low: f64, high: f64, write: impl Fn(f64) -> String) -> String {
    format!("[{}, {}]", write(low), write(high))
}

fn ratios(comparison: &Comparison) -> String {
    range(comparison.ratio.low, comparison.ratio.high, |value| bare(Unit::Ratio, value))
}

fn p_value(p: f64) -> String {
    if p < 0.001 { "<0.001".to_owned() } else { format!("{p:.3}") }
}

const fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NoDifference => "no difference",
        Verdict::Different => "different",
        Verdict::TooFew => "too few samples",
    }
}
