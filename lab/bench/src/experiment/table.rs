//! Formats a result for the terminal.

use std::fmt::Write as _;

use gleaner_proto::result::{BenchResult, Cell, Ending, Estimate, Metric, Row};

use super::summary::verdict;
use super::{slowdown_by_idling, warnings};

/// The whole result: a table, its caveats, and how the run ended.
pub fn table(result: &BenchResult) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, result);
    out
}

fn write(out: &mut String, result: &BenchResult) -> std::fmt::Result {
    let e = &result.environment;
    writeln!(out, "{}", result.title)?;
    if !result.source.is_empty() {
        writeln!(out, "after {}", result.source)?;
    }
    writeln!(
        out,
        "{} vCPUs, {}, Linux {}, cpuidle {}/{}",
        e.vcpus, e.hypervisor, e.kernel, e.cpuidle_driver, e.cpuidle_governor
    )?;
    if result.rows.is_empty() {
        writeln!(out, "\nNothing was measured.")?;
    } else {
        rows(out, result)?;
    }
    if let Some((mode, c)) = slowdown_by_idling(result) {
        writeln!(
            out,
            "\nSlowdown against {mode} and idle entries per second go together with r = {:.2} [{:.2}, {:.2}], {} rows",
            c.r, c.low, c.high, c.n
        )?;
    }
    let warnings = warnings::sentences(&result.warnings, result.rows.len());
    if !warnings.is_empty() {
        writeln!(out, "\nCaveats:")?;
        warnings.iter().try_for_each(|warning| writeln!(out, "  - {warning}"))?;
    }
    match &result.ending {
        Ending::Complete => Ok(()),
        Ending::Interrupted => writeln!(out, "\nInterrupted: rows and rounds are missing."),
        Ending::Failed { .. } => writeln!(out, "\nA command failed: rows and rounds are missing."),
    }
}

fn rows(out: &mut String, result: &BenchResult) -> std::fmt::Result {
    let name = |row: &Row| row.cells.iter().map(|cell| cell.mode.len() + 2).max().unwrap_or_default();
    let width = result.rows.iter().map(name).max().unwrap_or_default().max(12);
    let baseline = result.modes.first().map_or("", |mode| mode.name.as_str());
    let paper = result.rows.iter().any(|row| !row.paper.is_empty() || !row.paper_ratio.is_empty());
    writeln!(
        out,
        "\n{:width$}  {:>9} {:23}  {:22} {:14} {:>9} {:>9}{}",
        "",
        "median",
        "[95 % interval]",
        format!("ratio to {baseline}"),
        "",
        "CPU/unit",
        "halts/s",
        if paper { "     paper" } else { "" }
    )?;
    for row in &result.rows {
        writeln!(out, "{}: {}", row.name, metric(row))?;
        for cell in &row.cells {
            let shown = |metric| median(cell, metric).map_or_else(dash, |value| text(metric, value));
            let cost =
                if row.primary == Metric::CpuSPerOp { String::new() } else { shown(Metric::CpuSPerOp) };
            let halts = shown(Metric::HaltsPerS);
            let paper = of_paper(row, &cell.mode);
            let line = format!(
                "{:width$}  {} {cost:>9} {halts:>9}{paper}",
                format!("  {}", cell.mode),
                values(row, cell)
            );
            writeln!(out, "{}", line.trim_end())?;
        }
    }
    Ok(())
}

/// What the paper reports: a value, a ratio, or both.
fn of_paper(row: &Row, mode: &str) -> String {
    let value = row.paper.get(mode).map(|value| text(row.primary, *value));
    let ratio = row.paper_ratio.get(mode).map(|ratio| format!("{ratio:.2}x"));
    let both: Vec<String> = value.into_iter().chain(ratio).collect();
    format!("{:>10}", both.join(" "))
}

/// Median of the primary metric, with its unit.
pub(super) fn absolute(row: &Row, cell: &Cell) -> String {
    let unit = if row.primary == Metric::Throughput { format!(" {}/s", row.unit) } else { String::new() };
    median(cell, row.primary).map_or_else(dash, |value| format!("{}{unit}", text(row.primary, value)))
}

/// Median and ratio of the primary metric.
fn values(row: &Row, cell: &Cell) -> String {
    let estimate = cell.summaries.get(&row.primary);
    let comparison = row.comparison(&cell.mode, row.primary);
    let number = |value| text(row.primary, value);
    format!(
        "{:>9} {:23}  {:22} {:14}",
        estimate.map_or_else(dash, |e| number(e.median)),
        estimate.map_or_else(String::new, |e| interval(e, number)),
        comparison.map_or_else(String::new, |c| ratio(&c.ratio)),
        comparison.map_or("", verdict)
    )
}

/// One line for a finished row.
pub(super) fn line(row: &Row) -> String {
    let mode = |cell: &Cell| match row.comparison(&cell.mode, row.primary) {
        Some(comparison) => format!("{} {:.2}x", cell.mode, comparison.ratio.median),
        None => {
            format!("{} {}", cell.mode, median(cell, row.primary).map_or_else(dash, |v| text(row.primary, v)))
        }
    };
    format!("{:20} {}", row.name, row.cells.iter().map(mode).collect::<Vec<_>>().join("  "))
}

/// The primary metric with its unit.
fn metric(row: &Row) -> String {
    match row.primary {
        Metric::Throughput if !row.unit.is_empty() => format!("{} per second", row.unit),
        Metric::CpuSPerOp if row.unit.is_empty() => "CPU per run".to_owned(),
        Metric::CpuSPerOp => format!("CPU per unit of work ({})", row.unit),
        metric if matches!(metric.unit(), "s" | "1") => metric.about().to_owned(),
        metric => format!("{} in {}", metric.about(), metric.unit()),
    }
}

fn ratio(ratio: &Estimate) -> String {
    if ratio.n < 2 { format!("{:.2}", ratio.median) } else { ratio.to_string() }
}

/// A single round has no interval.
fn interval(estimate: &Estimate, number: impl Fn(f64) -> String) -> String {
    if estimate.n < 2 {
        return String::new();
    }
    format!("[{}, {}]", number(estimate.low), number(estimate.high))
}

fn median(cell: &Cell, metric: Metric) -> Option<f64> {
    cell.summaries.get(&metric).map(|estimate| estimate.median)
}

fn dash() -> String {
    "-".to_owned()
}

/// A metric's value; times with their unit.
fn text(metric: Metric, value: f64) -> String {
    if metric.unit() == "s" { seconds(value) } else { number(value) }
}

/// Four significant digits, or all integer digits.
fn number(value: f64) -> String {
    let digits = value.abs().log10().floor();
    let decimals = if digits.is_finite() { (3.0 - digits).clamp(0.0, 6.0) } else { 0.0 };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it lies between 0 and 6")]
    let decimals = decimals as usize;
    format!("{value:.decimals$}")
}

/// A time in a suitable unit.
fn seconds(value: f64) -> String {
    let (scale, unit) = match value {
        v if v >= 1.0 => (1.0, "s"),
        v if v >= 1e-3 => (1e3, "ms"),
        v if v >= 1e-6 => (1e6, "µs"),
        _ => (1e9, "ns"),
    };
    format!("{} {unit}", number(value * scale))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_round_has_no_interval() {
        let estimate = |n| Estimate { median: 1.5, low: 1.25, high: 2.0, n, confidence: 0.5 };
        assert_eq!(ratio(&estimate(2)), "1.50 [1.25, 2.00]");
        assert_eq!(ratio(&estimate(1)), "1.50");
    }

    #[test]
    fn numbers_are_short_and_exact_enough() {
        assert_eq!(
            [0.0, 0.0123, 1.0, 12.345, 999.96, 21085.4].map(number),
            ["0", "0.01230", "1.000", "12.35", "1000.0", "21085"]
        );
        assert_eq!(
            [2.5, 0.0125, 36.1e-6, 4.2e-9].map(seconds),
            ["2.500 s", "12.50 ms", "36.10 µs", "4.200 ns"]
        );
    }
}
