//! The report's tables for people.

use std::fmt::{self, Write};

use super::report::{ModeReport, Report, RowReport};
use crate::mode::Mode;
use crate::servers::Class;
use crate::stats::Estimate;

impl Report {
    /// The report as a Markdown page.
    pub fn markdown(&self) -> String {
        let mut page = String::new();
        // Writing to a string cannot fail.
        let _ = self.write(&mut page);
        page
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "# Benchmarks\n\nReal servers from Debian's packages, untouched and under Gleaner. `make bench` measures \
             them all, `make bench BENCH_ARGS='--rows redis-1,pipe --rounds 9 --update'` some of them anew.\n"
        )?;
        self.write_machines(out)?;
        self.write_method(out)?;
        if self.interrupted {
            writeln!(out, "**The run was interrupted; rows and rounds are missing.**\n")?;
        }
        let (latencies, rates): (Vec<&RowReport>, _) =
            self.rows.iter().partition(|row| row.class == Class::Latency);
        if !rates.is_empty() {
            table(out, &rates)?;
        }
        if !latencies.is_empty() {
            latency_table(out, &latencies)?;
        }
        self.write_commands(out)?;
        self.write_failures(out)
    }

    /// The machine and the command line of each run that the rows are from.
    fn write_machines(&self, out: &mut String) -> fmt::Result {
        let parts = self.parts();
        for part in &parts {
            let which = if parts.len() == 1 { String::new() } else { format!("{}: ", part.rows.join(", ")) };
            let e = &part.environment;
            writeln!(
                out,
                "{which}{}, Linux {} ({}), preemption {}, {}, {} vCPUs, hypervisor {}, cpuidle {}/{}, steal {:.3} vCPUs:\n",
                self.dates(&part.rows),
                e.kernel,
                e.kernel_version,
                e.preemption,
                e.cpu_model,
                e.vcpus,
                e.hypervisor,
                e.cpuidle_driver,
                e.cpuidle_governor,
                part.steal,
            )?;
            writeln!(out, "    {}\n", part.repeat_with)?;
        }
        Ok(())
    }

    /// How the cells were measured.
    fn write_method(&self, out: &mut String) -> fmt::Result {
        let rounds = range(self.rows.iter().map(|row| row.rounds() as f64));
        let warmup = range(self.rows.iter().map(|row| row.warmup_s));
        let window = range(self.rows.iter().map(|row| row.window_s));
        writeln!(
            out,
            "Rounds: {rounds}. Every round measures every mode once, in shuffled order (seed {}). A cell starts server \
             and client anew, lets them warm up for {warmup} s and measures {window} s, in every mode alike; Gleaner \
             starts with the cell and learns within it, and what it tries out inside the window is in its numbers.\n",
            self.seed,
        )
    }

    /// The commands of each row in the default mode.
    fn write_commands(&self, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "\n## Commands\n\n`$STATE` is a temporary directory. The modes put their words before them.\n"
        )?;
        for row in &self.rows {
            for command in row.commands.get(Mode::DEFAULT).into_iter().flatten() {
                writeln!(out, "- {}: `{command}`", row.name)?;
            }
        }
        Ok(())
    }

    fn write_failures(&self, out: &mut String) -> fmt::Result {
        if self.failures.is_empty() {
            return Ok(());
        }
        writeln!(out, "\n## Not measured\n")?;
        for f in &self.failures {
            writeln!(out, "- {f}")?;
        }
        Ok(())
    }
}

/// The rows that are judged by their rate, and how to read them.
fn table(out: &mut String, rows: &[&RowReport]) -> fmt::Result {
    let modes = others(rows);
    write!(out, "| row | default |")?;
    for mode in &modes {
        write!(out, " {mode} |")?;
    }
    writeln!(out, " gleaner / best static | worst | CPU default | CPU gleaner | target | |")?;
    writeln!(out, "|---|--:|{}--:|--:|--:|--:|--:|---|", "--:|".repeat(modes.len()))?;
    for row in rows {
        let default = row.mode(Mode::DEFAULT);
        let gleaner = row.mode(Mode::GLEANER);
        let rate = default.and_then(|m| m.rate);
        let rate = rate.map_or(String::from("-"), |r| format!("{:.0} {}", r.median, row.unit));
        write!(out, "| {} | {rate} |", row.name)?;
        for mode in &modes {
            write!(out, " {} |", ratio(row.mode(mode).and_then(|m| m.of_default)))?;
        }
        let best = row.best_static.as_deref().unwrap_or("-");
        let worst = row.worst_of_best_static.map_or(String::from("-"), |worst| format!("{worst:.2}"));
        let target = row.target.map_or(String::from("-"), |t| format!("≥ {t:.1}"));
        writeln!(
            out,
            " {} ({best}) | {worst} | {} | {} | {target} | {} |",
            ratio(row.gleaner_of_best_static),
            cpu(default),
            cpu(gleaner),
            verdict(row.missed.as_deref()),
        )?;
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
    writeln!(out, " gleaner / best static | limit | CPU default | CPU gleaner | |")?;
    writeln!(out, "|---|---|--:|{}--:|--:|--:|--:|---|", "--:|".repeat(modes.len()))?;
    for row in rows {
        for latency in &row.latencies {
            let mode = |name: &str| latency.modes.iter().find(|mode| mode.name == name);
            let default = mode("default").and_then(|m| m.us);
            let default = default.map_or(String::from("-"), |us| format!("{:.1} us", us.median));
            write!(out, "| {} | {} | {default} |", row.name, latency.name)?;
            for name in &modes {
                write!(out, " {} |", ratio(mode(name).and_then(|m| m.of_default)))?;
            }
            let limit = latency.limit.map_or(String::from("-"), |limit| format!("≤ {limit:.1}"));
            writeln!(
                out,
                " {} ({}) | {limit} | {} | {} | {} |",
                ratio(latency.gleaner_of_best_static),
                latency.best_static.as_deref().unwrap_or("-"),
                cpu(row.mode(Mode::DEFAULT)),
                cpu(row.mode(Mode::GLEANER)),
                verdict(latency.missed.as_deref()),
            )?;
        }
    }
    Ok(())
}

/// The names of all modes except the default one.
fn others<'a>(rows: &[&'a RowReport]) -> Vec<&'a str> {
    let names = rows.first().into_iter().flat_map(|row| &row.modes).map(|mode| mode.name.as_str());
    names.filter(|name| *name != "default").collect()
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

fn cpu(mode: Option<&ModeReport>) -> String {
    let cpu = mode.and_then(|mode| mode.cpu);
    cpu.map_or(String::from("-"), |cpu| format!("{:.2} + {:.2}", cpu.busy, cpu.polling))
}

fn verdict(missed: Option<&[String]>) -> String {
    match missed {
        None => String::from("-"),
        Some([]) => String::from("met"),
        Some(missed) => format!("missed: {}", missed.join("; ")),
    }
}
