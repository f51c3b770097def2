//! The table for people.

use std::fmt::{self, Write};

use super::Mode;
use super::report::{ModeReport, Report, RowReport};
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
        let e = &self.environment;
        let (rounds, warmup, window) = (self.rounds, self.warmup_s, self.window_s);
        writeln!(
            out,
            "# Benchmarks\n\nReal servers from Debian's packages, untouched and under Gleaner. Repeat with:\n"
        )?;
        writeln!(out, "    {}\n", self.repeat_with)?;
        writeln!(
            out,
            "{}, Linux {} ({}), preemption {}, {}, {} vCPUs, hypervisor {}, cpuidle {}/{}, steal {:.3} vCPUs.\n",
            e.date,
            e.kernel,
            e.kernel_version,
            e.preemption,
            e.cpu_model,
            e.vcpus,
            e.hypervisor,
            e.cpuidle_driver,
            e.cpuidle_governor,
            self.steal,
        )?;
        writeln!(
            out,
            "{rounds} round{}; every round measures every mode once, in shuffled order (seed {}). A cell starts server \
             and client anew, lets them warm up for {warmup} s and measures {window} s, in every mode alike; Gleaner \
             starts with the cell and learns within it, and what it tries out inside the window is in its numbers.\n",
            if rounds == 1 { "" } else { "s" },
            self.seed,
        )?;
        if self.interrupted {
            writeln!(out, "**The run was interrupted; rows and rounds are missing.**\n")?;
        }
        self.table(out)?;
        writeln!(
            out,
            "\nThe default column is the median rate per second. The others are ratios to it: the \
             pseudo-median of the per-round ratios with its 95 % interval; with five rounds or fewer that is their \
             range. *Best static* is the fixed setting that turned out fastest for the row. CPU is CPU seconds per \
             second of the whole machine: busy + polling in the idle loop (a physical CPU that is in use although the guest calls \
             it idle). Rows named *-server-only* have only the server under Gleaner; all others have server and \
             client in it."
        )?;
        writeln!(
            out,
            "\n## Commands\n\n`$STATE` is a temporary directory. The modes put their words before them.\n"
        )?;
        for row in &self.rows {
            for command in row.commands.get(&Mode::Default.to_string()).into_iter().flatten() {
                writeln!(out, "- {}: `{command}`", row.name)?;
            }
        }
        if !self.failures.is_empty() {
            writeln!(out, "\n## Not measured\n")?;
            for f in &self.failures {
                writeln!(out, "- {f}")?;
            }
        }
        Ok(())
    }

    fn table(&self, out: &mut String) -> fmt::Result {
        let modes: Vec<&str> = self.rows.first().map_or_else(Vec::new, |row| {
            row.modes.iter().map(|m| m.name.as_str()).filter(|name| *name != "default").collect()
        });
        write!(out, "| row | default |")?;
        for mode in &modes {
            write!(out, " {mode} |")?;
        }
        writeln!(out, " gleaner / best static | CPU default | CPU gleaner | target | |")?;
        writeln!(out, "|---|--:|{}--:|--:|--:|--:|---|", "--:|".repeat(modes.len()))?;
        for row in &self.rows {
            let default = row.mode(&Mode::Default.to_string());
            let gleaner = row.mode(&Mode::Gleaner.to_string());
            let rate = default.and_then(|m| m.rate);
            let rate = rate.map_or(String::from("-"), |r| format!("{:.0} {}", r.median, row.unit));
            write!(out, "| {} | {rate} |", row.name)?;
            for mode in &modes {
                write!(out, " {} |", ratio(row.mode(mode).and_then(|m| m.of_default)))?;
            }
            let best = row.best_static.as_deref().unwrap_or("-");
            let target = row.target.map_or(String::from("-"), |t| format!("≥ {t:.1}"));
            writeln!(
                out,
                " {} ({best}) | {} | {} | {target} | {} |",
                ratio(row.gleaner_of_best_static),
                cpu(default),
                cpu(gleaner),
                verdict(row),
            )?;
        }
        Ok(())
    }
}

fn ratio(estimate: Option<Estimate>) -> String {
    estimate.map_or(String::from("-"), |e| format!("{:.2} [{:.2}, {:.2}]", e.median, e.low, e.high))
}

fn cpu(mode: Option<&ModeReport>) -> String {
    let cpu = mode.and_then(|mode| mode.cpu);
    cpu.map_or(String::from("-"), |cpu| format!("{:.2} + {:.2}", cpu.busy, cpu.polling))
}

fn verdict(row: &RowReport) -> String {
    match &row.missed {
        None => String::from("-"),
        Some(missed) if missed.is_empty() => String::from("met"),
        Some(missed) => format!("missed: {}", missed.join("; ")),
    }
}
