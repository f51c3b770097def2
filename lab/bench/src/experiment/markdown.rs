//! Formats a result as a page of Markdown: two tables, and how they came about.

use std::fmt::{self, Write};

use gleaner_proto::result::{BenchResult, Better, Ending, Estimate, Metric, Row};

use super::{table, warnings};

/// The speed and the cost of every mode against the first one, with the machine and the command that repeats it.
pub fn markdown(result: &BenchResult) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut page, result);
    page
}

fn write(out: &mut String, result: &BenchResult) -> fmt::Result {
    let e = &result.environment;
    let rounds = result.rows.iter().map(Row::rounds).min().unwrap_or_default();
    writeln!(
        out,
        "{}, {}, {} vCPUs, hypervisor {}, Linux {}, cpuidle {}/{}; {rounds} interleaved rounds:\n\n    {}\n",
        e.date,
        e.cpu_model,
        e.vcpus,
        e.hypervisor,
        e.kernel,
        e.cpuidle_driver,
        e.cpuidle_governor,
        result.repeat_with
    )?;
    if result.ending != Ending::Complete {
        writeln!(out, "**The run did not end; rows and rounds are missing.**\n")?;
    }
    let first = result.modes.first().map_or("", |mode| mode.name.as_str());
    writeln!(out, "Speed against `{first}`; more than 1 is better.\n")?;
    of_modes(out, result, speed)?;
    writeln!(
        out,
        "\nCPU time of the whole machine per unit of work, polling included; less than 1 is better.\n"
    )?;
    of_modes(out, result, |row, mode| Some(row.comparison(mode, Metric::CpuSPerOp)?.ratio))?;
    let caveats = warnings::sentences(&result.warnings, result.rows.len());
    if !caveats.is_empty() {
        writeln!(out, "\nCaveats of the run:\n")?;
        caveats.iter().try_for_each(|caveat| writeln!(out, "- {caveat}"))?;
    }
    Ok(())
}

/// How much faster the row is in `mode`: a run time counts by its inverse.
fn speed(row: &Row, mode: &str) -> Option<Estimate> {
    let ratio = row.comparison(mode, row.primary)?.ratio;
    Some(match row.primary.better() {
        Better::Lower => {
            Estimate { median: 1.0 / ratio.median, low: 1.0 / ratio.high, high: 1.0 / ratio.low, ..ratio }
        }
        _ => ratio,
    })
}

/// A table with a line for each row, and a column for each mode but the first, which has the absolute value.
fn of_modes(
    out: &mut String,
    result: &BenchResult,
    value: impl Fn(&Row, &str) -> Option<Estimate>,
) -> fmt::Result {
    let modes: Vec<&str> = result.modes.iter().map(|mode| mode.name.as_str()).collect();
    let Some((first, others)) = modes.split_first() else { return Ok(()) };
    writeln!(out, "| program | {first} | {} |", others.join(" | "))?;
    writeln!(out, "|---|--:{}|", "|--:".repeat(others.len()))?;
    for row in &result.rows {
        let cells: Vec<String> = others
            .iter()
            .map(|mode| value(row, mode).map_or_else(|| "-".to_owned(), |ratio| ratio.to_string()))
            .collect();
        let absolute = row.cell(first).map_or_else(|| "-".to_owned(), |cell| table::absolute(row, cell));
        writeln!(out, "| {} | {absolute} | {} |", row.name, cells.join(" | "))?;
    }
    Ok(())
}
