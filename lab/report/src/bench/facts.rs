//! Where and how a result was measured.

use gleaner_proto::result::{BenchResult, Metric};
use maud::{Markup, html};

use crate::facts::facts;

/// The machine, and the steal during the run.
pub(super) fn environment(result: &BenchResult) -> Markup {
    facts(&result.environment, &[("Steal", steal(result))])
}

/// Steal as a share of all vCPUs' time while samples were taken.
fn steal(result: &BenchResult) -> String {
    let samples = result.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| &cell.samples);
    let (mut stolen, mut time) = (0.0, 0.0);
    for sample in samples {
        if let (Some(steal), Some(wall)) =
            (sample.metrics.get(&Metric::StealS), sample.metrics.get(&Metric::WallS))
        {
            stolen += steal;
            time += wall * result.environment.vcpus as f64;
        }
    }
    if time > 0.0 {
        format!("{:.2} % of the vCPUs' time during the samples", stolen / time * 100.0)
    } else {
        "not measured".to_owned()
    }
}

/// The command line that repeats the run, and the command lines that were run.
pub(super) fn commands(result: &BenchResult) -> Markup {
    let plan = &result.plan;
    html! {
        pre { code { (result.repeat_with) } }
        p { "Order: " (plan.order.trim_end_matches('.')) "; seed " (plan.seed) "; " (plan.warmup_rounds)
            " rounds of warm-up; " (plan.rounds) " rounds"
            @if let Some(most) = plan.max_rounds { " (at most " (most) ")" }
            @if let Some(precision) = plan.precision {
                ", until intervals are narrower than " (format!("{:.1}", precision * 100.0)) " %"
            }
            "; built-in workloads ran for " (plan.window_s) " s." }
        details {
            summary { "Exact commands" }
            @for row in &result.rows {
                h3 { (row.name) }
                pre {
                    @for cell in &row.cells { (cell.mode) ": " (cell.command) "\n" }
                    @for beside in &row.co_runners { "beside it: " (beside) "\n" }
                }
            }
            @for mode in result.modes.iter().filter(|mode| !mode.set.is_empty() || !mode.unset.is_empty()) {
                h3 { (mode.name) }
                pre {
                    @for command in &mode.set { "set: " (command) "\n" }
                    @for command in &mode.unset { "unset: " (command) "\n" }
                }
            }
        }
    }
}
