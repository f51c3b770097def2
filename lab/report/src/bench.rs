//! The report on a `gleaner bench` result file.

mod facts;
mod figures;
mod slowdown;
mod summary;
mod tables;
mod values;

use gleaner_proto::result::BenchResult;
use maud::{Markup, html};

use crate::page::{Data, Figure, page};
use figures::Subject;

/// Warnings shown at first; more would bury the important ones. The rest can be expanded.
const SHOWN_WARNINGS: usize = 4;

/// Every figure of a result; each can be saved as an SVG file.
pub fn figures(result: &BenchResult) -> Vec<Figure> {
    figures::figures(result).into_iter().map(|(_, figure)| figure).collect()
}

/// The result as one self-contained page.
///
/// # Errors
/// If the result, which is embedded in the page, cannot be serialised as JSON.
pub fn html(result: &BenchResult) -> serde_json::Result<String> {
    let figures = figures::figures(result);
    let title = if result.title.is_empty() { "Measurement" } else { &result.title };
    let content = html! {
        (head(result, title))
        (warnings(result))
        (section("Speed", "", &figures, &[Subject::Speed, Subject::Slowdown]))
        section { h2 { "Modes at a glance" } (tables::modes(result)) }
        (section("Price", "", &figures, &[Subject::Cost]))
        (section("Latency", "", &figures, &[Subject::Latency]))
        (section(
            "Samples",
            "Every sample as a dot, the first round at the top of its lane and the last at its bottom, so that a \
             drift leans to a side. The line is the median, the shade its interval.",
            &figures,
            &[Subject::Samples],
        ))
        (section(
            "What Gleaner did",
            "What was in force when, in the sample that is nearest to the median.",
            &figures,
            &[Subject::Timeline],
        ))
        section {
            h2 { "Numbers" }
            p {
                "Ratios are paired by round. p is that of a two-sided Mann-Whitney test of the samples. Lines in bold \
                 type have the best median of their row. CPU cost is the CPU time for one unit of work, polling included."
            }
            (tables::numbers(result))
            h3 { "All metrics" }
            (tables::everything(result))
        }
        section { h2 { "Machine" } (facts::environment(result)) }
        section { h2 { "Measure it again" } (facts::commands(result)) }
    };
    let json = serde_json::to_string(result)?;
    let data = Data { json: &json, file_name: "result.json", about: "Every sample is part of this page." };
    Ok(page(title, &content, &data))
}

fn head(result: &BenchResult, title: &str) -> Markup {
    html! {
        header {
            h1 { (title) }
            @if !result.source.is_empty() { p class="by" { (result.source) } }
            p class="by" { (crate::facts::line(&result.environment)) }
            @if let Some((what, text)) = summary::ending(result) { p class="ending" role="note" { b { (what) } " " (text) } }
            p class="lead" { (summary::measured(result)) " " (summary::outcome(result)) }
        }
    }
}

fn warnings(result: &BenchResult) -> Markup {
    html! {
        @if !result.warnings.is_empty() {
            section {
                h2 { "Caveats" }
                @let (first, more) = result.warnings.split_at(result.warnings.len().min(SHOWN_WARNINGS));
                ul class="warnings" { @for warning in first { li { (warning) } } }
                @if !more.is_empty() {
                    details {
                        summary { (more.len()) " more" }
                        ul class="warnings" { @for warning in more { li { (warning) } } }
                    }
                }
            }
        }
    }
}

/// A section with the figures on these subjects; nothing if there are none.
fn section(heading: &str, text: &str, figures: &[(Subject, Figure)], subjects: &[Subject]) -> Markup {
    let mine: Vec<&Figure> =
        figures.iter().filter(|(subject, _)| subjects.contains(subject)).map(|(_, figure)| figure).collect();
    html! {
        @if !mine.is_empty() {
            section {
                h2 { (heading) }
                @if !text.is_empty() { p { (text) } }
                (crate::page::figures(mine))
            }
        }
    }
}
