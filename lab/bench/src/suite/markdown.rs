//! The benchmark's tables for people.

use std::fmt::{self, Write};
use std::time::{Duration, SystemTime};

use gleaner_proto::result::{BenchResult, Cell, Class, Ending, Metric, Part, Row, Sample};
use jiff::Timestamp;

use super::report::{RowReport, Standing};
use super::update::parts;
use crate::environment::iso8601;
use crate::mode::Mode;
use crate::stats::{Estimate, median};

/// The result as a Markdown page.
pub fn markdown(result: &BenchResult) -> String {
    let mut page = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut page, result);
    page
}

fn write(out: &mut String, result: &BenchResult) -> fmt::Result {
    writeln!(
        out,
        "# Benchmarks\n\nReal servers from Debian's packages, untouched and under Gleaner. `make bench` measures \
         them all, `make bench BENCH_ARGS='--rows redis-1,pipe --rounds 9 --update'` some of them anew.\n"
    )?;
    machines(out, result)?;
    let rows: Vec<RowReport> = result.rows.iter().filter_map(RowReport::new).collect();
    method(out, &rows, result.plan.seed)?;
    if result.ending != Ending::Complete {
        writeln!(out, "**The run was interrupted; rows and rounds are missing.**\n")?;
    }
    let (latencies, rates): (Vec<&RowReport>, _) =
        rows.iter().partition(|row| row.server.class == Class::Latency);
    if !rates.is_empty() {
        table(out, &rates)?;
    }
    if !latencies.is_empty() {
        latency_table(out, &latencies)?;
    }
    commands(out, result)?;
    failures(out, result)
}

/// The machine and the command line of each run that the rows are from.
fn machines(out: &mut String, result: &BenchResult) -> fmt::Result {
    let parts = parts(result);
    for part in &parts {
        let which = if parts.len() == 1 { String::new() } else { format!("{}: ", part.rows.join(", ")) };
        let e = &part.environment;
        let rows = result.rows.iter().filter(|row| part.rows.contains(&row.name));
        let samples: Vec<&Sample> = rows.flat_map(|row| &row.cells).flat_map(|cell| &cell.samples).collect();
        writeln!(
            out,
            "{which}{}, Linux {} ({}), preemption {}, {}, {} vCPUs, hypervisor {}, cpuidle {}/{}, steal {:.3} vCPUs:\n",
            dates(part, &samples),
            e.kernel,
            e.kernel_version,
            e.preemption,
            e.cpu_model,
            e.vcpus,
            e.hypervisor,
            e.cpuidle_driver,
            e.cpuidle_governor,
            steal(&samples),
        )?;
        writeln!(out, "    {}\n", part.repeat_with)?;
    }
    Ok(())
}

/// Start times of the first and the last sample of a run, UTC, ISO 8601.
fn dates(part: &Part, samples: &[&Sample]) -> String {
    let date = &part.environment.date;
    let began = date.parse::<Timestamp>().ok().and_then(|at| u64::try_from(at.as_second()).ok());
    let starts = samples.iter().map(|sample| sample.start_s);
    let ends = starts.clone().reduce(f64::min).zip(starts.reduce(f64::max));
    let (Some(began), Some((first, last))) = (began, ends) else { return date.clone() };
    let at = |start_s: f64| {
        let start = Duration::try_from_secs_f64(start_s).unwrap_or_default();
        iso8601(SystemTime::UNIX_EPOCH + Duration::from_secs(began) + start)
    };
    format!("{} to {}", at(first), at(last))
}

/// Time of all vCPUs that the hypervisor gave to others, per second of the samples.
fn steal(samples: &[&Sample]) -> f64 {
    let sum = |metric: Metric| samples.iter().filter_map(|sample| sample.metrics.get(&metric)).sum::<f64>();
    let wall_s = sum(Metric::WallS);
    if wall_s > 0.0 { sum(Metric::StealS) / wall_s } else { 0.0 }
}

/// How the cells were measured.
fn method(out: &mut String, rows: &[RowReport], seed: u64) -> fmt::Result {
    let rounds = range(rows.iter().map(|row| row.row.rounds() as f64));
    let warmup = range(rows.iter().map(|row| row.server.warmup_s));
    let window = range(rows.iter().map(|row| row.server.window_s));
    writeln!(
        out,
        "Rounds: {rounds}. Every round measures every mode once, in shuffled order (seed {seed}). A cell starts server \
         and client anew, lets them warm up for {warmup} s and measures {window} s, in every mode alike; Gleaner \
         starts with the cell and learns within it, and what it tries out inside the window is in its numbers.\n",
    )
}

/// The commands of each row in the default mode.
fn commands(out: &mut String, result: &BenchResult) -> fmt::Result {
    writeln!(
        out,
        "\n## Commands\n\n`$STATE` is a temporary directory. The modes put their words before them.\n"
    )?;
    for row in &result.rows {
        for command in row.cell(Mode::DEFAULT).into_iter().flat_map(|cell| cell.command.lines()) {
            writeln!(out, "- {}: `{command}`", row.name)?;
        }
        for command in &row.co_runners {
            writeln!(out, "- beside {}, untouched: `{command}`", row.name)?;
        }
    }
    Ok(())
}

fn failures(out: &mut String, result: &BenchResult) -> fmt::Result {
    if result.failures.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n## Not measured\n")?;
    for f in &result.failures {
        writeln!(out, "- {f}")?;
    }
    Ok(())
}

/// The rows that are judged by their rate, and how to read them.
fn table(out: &mut String, rows: &[&RowReport]) -> fmt::Result {
    let modes = others(rows);
    write!(out, "| row | default |")?;
    for mode in &modes {
        write!(out, " {mode} |")?;
    }
    let (name, line) = daemon_column(&modes);
    writeln!(out, "{name} gleaner / best static | worst | CPU default | CPU gleaner | target | |")?;
    writeln!(out, "|---|--:|{}{line}--:|--:|--:|--:|--:|---|", "--:|".repeat(modes.len()))?;
    for report in rows {
        let Row { name, unit, .. } = report.row;
        let target = report.server.target.map_or(String::from("-"), |t| format!("≥ {t:.1}"));
        for rate in &report.standings {
            let default = value(rate, |median| format!("{median:.0} {unit}"));
            write!(out, "| {name} | {default} |")?;
            write_ratios(out, &modes, rate)?;
            let worst = rate.worst_of_best_static.map_or(String::from("-"), |worst| format!("{worst:.2}"));
            writeln!(
                out,
                " | {worst} | {} | {} | {target} | {} |",
                cpu(report.row.cell(Mode::DEFAULT)),
                cpu(report.row.cell(Mode::GLEANER)),
                verdict(rate.missed.as_deref()),
            )?;
        }
    }
    writeln!(
        out,
        "\nThe default column is the median rate per second. The others are ratios to it: the \
         pseudo-median of the per-round ratios with its 95 % interval; with five rounds or fewer that is their \
         range. *Best static* is the fixed setting that turned out fastest for the row. CPU is CPU seconds per \
         second of the whole machine: busy + polling in the idle loop (a physical CPU that is in use although the guest calls \
         it idle). Rows named *-server-only* have only the server under Gleaner; all others have server and \
         client in it. *Worst* is the lowest ratio of Gleaner to the best static setting in a single round."
    )
}

/// The open loops, each with a line for the mean and one for the tail.
fn latency_table(out: &mut String, rows: &[&RowReport]) -> fmt::Result {
    let modes = others(rows);
    writeln!(
        out,
        "\n## Open loop\n\nRequests arrive at a rate of their own (Poisson); the name of a row ends with requests per \
         second and connections. The server alone is in the mode. The numbers are latencies from send to answer (of \
         point-select: from the arrival in sysbench's queue): the median of the rounds in the default column, and ratios \
         to it in the others, where **less than 1 is better**. *Best static* is the fixed setting with the lowest \
         latency. *From due* counts from the scheduled moment: how late the client was woken is part of it, and so it \
         is not judged.\n"
    )?;
    write!(out, "| row | latency | default |")?;
    for mode in &modes {
        write!(out, " {mode} |")?;
    }
    let (name, line) = daemon_column(&modes);
    writeln!(out, "{name} gleaner / best static | limit | CPU default | CPU gleaner | |")?;
    writeln!(out, "|---|---|--:|{}{line}--:|--:|--:|--:|---|", "--:|".repeat(modes.len()))?;
    for report in rows {
        for latency in &report.standings {
            let default = value(latency, |us| format!("{us:.1} us"));
            write!(out, "| {} | {} | {default} |", report.row.name, latency.name)?;
            write_ratios(out, &modes, latency)?;
            let limit = latency.limit.map_or(String::from("-"), |limit| format!("≤ {limit:.1}"));
            writeln!(
                out,
                " | {limit} | {} | {} | {} |",
                cpu(report.row.cell(Mode::DEFAULT)),
                cpu(report.row.cell(Mode::GLEANER)),
                verdict(latency.missed.as_deref()),
            )?;
        }
    }
    Ok(())
}

/// The median in the default mode.
fn value(standing: &Standing, text: impl Fn(f64) -> String) -> String {
    let default = standing.mode(Mode::DEFAULT).and_then(|mode| mode.value);
    default.map_or(String::from("-"), |estimate| text(estimate.median))
}

/// Name and line of the column for gleanerd against `gleaner run`, if gleanerd was measured.
fn daemon_column(modes: &[&str]) -> (&'static str, &'static str) {
    if modes.contains(&Mode::DAEMON) { (" gleanerd / gleaner |", "--:|") } else { ("", "") }
}

/// The ratios of the `modes` to the default one, that of gleanerd to Gleaner, and that of Gleaner to the best static setting.
fn write_ratios(out: &mut String, modes: &[&str], standing: &Standing) -> fmt::Result {
    for mode in modes {
        write!(out, " {} |", ratio(standing.mode(mode).and_then(|mode| mode.of_default)))?;
    }
    if modes.contains(&Mode::DAEMON) {
        write!(out, " {} |", ratio(standing.daemon_of_gleaner))?;
    }
    let best = standing.best_static.as_deref().unwrap_or("-");
    write!(out, " {} ({best})", ratio(standing.gleaner_of_best_static))
}

/// The names of all modes except the default one.
fn others<'r>(rows: &[&RowReport<'r>]) -> Vec<&'r str> {
    let names = rows.first().into_iter().flat_map(|report| &report.row.cells).map(|cell| cell.mode.as_str());
    names.filter(|name| *name != Mode::DEFAULT).collect()
}

/// Seconds that are the same for all rows, or their range.
fn range(seconds: impl Iterator<Item = f64> + Clone) -> String {
    let least = seconds.clone().fold(f64::INFINITY, f64::min);
    let most = seconds.fold(0.0, f64::max);
    if least < most { format!("{least} to {most}") } else { most.to_string() }
}

fn ratio(estimate: Option<Estimate>) -> String {
    estimate.map_or(String::from("-"), |estimate| estimate.to_string())
}

/// Medians of the machine's CPU time per second: busy + polling.
fn cpu(cell: Option<&Cell>) -> String {
    let per_second = |metric: Metric| {
        let share =
            |sample: &Sample| Some(sample.metrics.get(&metric)? / sample.metrics.get(&Metric::WallS)?);
        median(&cell?.samples.iter().filter_map(share).collect::<Vec<f64>>())
    };
    let both = per_second(Metric::CpuBusyS).zip(per_second(Metric::CpuPollingS));
    both.map_or(String::from("-"), |(busy, polling)| format!("{busy:.2} + {polling:.2}"))
}

fn verdict(missed: Option<&[String]>) -> String {
    match missed {
        None => String::from("-"),
        Some([]) => String::from("met"),
        Some(missed) => format!("missed: {}", missed.join("; ")),
    }
}
