//! Formats a comparison as text.

use std::fmt;

use gleaner_proto::result::{Metric, Verdict};

use super::overhead::Share;
use super::{Compared, Line, Origin, host_table};

impl fmt::Display for Compared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, origin) in [("A", &self.a), ("B", &self.b)] {
            writeln!(f, "{name}: {origin}")?;
        }
        if !self.lines.is_empty() {
            self.lines(f)?;
        }
        if !self.overheads.is_empty() {
            self.overheads(f)?;
        }
        if let Some(host) = &self.host {
            host_table::write(f, host, &self.overheads)?;
        }
        if !self.notes.is_empty() {
            writeln!(f, "\nCaveats:")?;
            self.notes.iter().try_for_each(|note| writeln!(f, "  - {note}"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.virtualised { "virtualised" } else { "native" };
        write!(
            f,
            "{}, {}: {kind}, {}, {} CPUs, Linux {}, gleaner {}",
            self.title, self.date, self.hypervisor, self.cpus, self.kernel, self.gleaner
        )
    }
}

impl Compared {
    /// The judged metric of each row and mode, and its CPU cost.
    fn lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |line: &&Line| line.primary || line.metric == Metric::CpuSPerOp;
        let width = self.lines.iter().map(|line| name(line).chars().count()).max().unwrap_or_default();
        writeln!(
            f,
            "\n{:width$}  {:>12} {:>12}  {:24} {:>7}  B is",
            "", "A", "B", "B / A [95 % interval]", "p"
        )?;
        for line in self.lines.iter().filter(shown) {
            writeln!(
                f,
                "{:width$}  {:>12} {:>12}  {:24} {:>7.4}  {}",
                name(line),
                number(line.a.median),
                number(line.b.median),
                format!("{:.3}", line.ratio),
                line.p,
                verdict(line)
            )?;
        }
        Ok(())
    }

    fn overheads(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |row: &super::RowOverhead| format!("{}, {}", row.row, row.mode);
        let width = self.overheads.iter().map(|row| name(row).chars().count()).max().unwrap_or_default();
        writeln!(f, "\nVirtualisation overhead (TPDS 2021, §3-5); + is more time, more CPU")?;
        writeln!(f, "{:width$}       {:28} {:28} {:22}", "", "δη_t", "δη_r", "ω")?;
        for row in &self.overheads {
            let o = &row.overhead;
            let line = format!(
                "{:width$}  {:3}  {:28} {:28} {:22}",
                name(row),
                o.scenario,
                percent(&o.delta_eta_t),
                percent(&o.delta_eta_r),
                format!("{:.2} [{:.2}, {:.2}]", o.omega.value, o.omega.low, o.omega.high)
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn name(line: &Line) -> String {
    let unit = line.metric.unit();
    format!("{}, {}: {} ({unit})", line.row, line.mode, line.metric.about())
}

fn percent(share: &Share) -> String {
    format!("{:+.1} % [{:+.1}, {:+.1}]", 100.0 * share.value, 100.0 * share.low, 100.0 * share.high)
}

/// At most six significant digits.
fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if (1e-3..1e6).contains(&size) {
        let decimals = if size >= 1000.0 { 0 } else { 4 };
        format!("{value:.decimals$}")
    } else {
        format!("{value:.3e}")
    }
}

fn verdict(line: &Line) -> &'static str {
    let speed = matches!(line.metric, Metric::Throughput | Metric::WallS);
    match line.verdict {
        Verdict::Better if speed => "faster",
        Verdict::Worse if speed => "slower",
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Different => "different",
        Verdict::NoDifference => "no difference",
        Verdict::TooFew => "unknown: too few samples",
    }
}
