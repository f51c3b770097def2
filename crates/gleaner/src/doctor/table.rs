//! The report as text, at most 80 columns wide unless a single word is longer.

use std::fmt::Write as _;

use gleaner_policy::{CpuId, Method, Placement};
use gleaner_proto::doctor::{Cell, Report};

use gleaner_explain::wrap;

const ROWS: [(Placement, &str); 4] = [
    (Placement::SameVcpu, "A same vCPU"),
    (Placement::AcrossAwake, "B other, awake"),
    (Placement::AcrossHalting, "C other, idle"),
    (Placement::AcrossBusy, "D other, busy"),
];

pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    let machine = &report.machine;
    let none = || "none".to_owned();
    let line = format!(
        "Linux {} on {}, {} vCPUs ({}), preemption {}, cpuidle driver {}, governor {}",
        machine.kernel,
        machine.hypervisor,
        machine.vcpus.len(),
        machine.vcpus,
        machine.preemption,
        machine.cpuidle_driver.clone().unwrap_or_else(none),
        machine.cpuidle_governor.clone().unwrap_or_else(none)
    );
    wrap(&mut out, "Machine: ", &line);
    for (waker, wakee) in pairs(&report.cells) {
        let cells: Vec<_> = report.cells.iter().filter(|c| (c.waker, c.wakee) == (waker, wakee)).collect();
        if waker == wakee {
            let _ = writeln!(out, "\nWake-up cost on vCPU {waker}, in us: median, min..p99, number");
        } else {
            let _ = writeln!(
                out,
                "\nWake-up cost between vCPUs {waker} and {wakee}, in us: median, min..p99, number"
            );
        }
        table(&mut out, &cells);
    }
    if !report.not_measured.is_empty() {
        let _ = writeln!(out, "\nNot measured:");
        report.not_measured.iter().for_each(|why| wrap(&mut out, "  - ", why));
    }
    let _ = writeln!(out);
    wrap(&mut out, "Method: ", &format!("{}: {}", report.method, report.reason));
    capabilities(&mut out, report);
    if !report.findings.is_empty() {
        let _ = writeln!(out, "\nFindings:");
        report.findings.iter().for_each(|finding| wrap(&mut out, "  - ", &finding.to_string()));
    }
    let _ = writeln!(out);
    wrap(&mut out, "", &format!("{}.", report.gain));
    out
}

/// Each pair of vCPUs once, in numerical order.
fn pairs(cells: &[Cell]) -> Vec<(CpuId, CpuId)> {
    let mut pairs: Vec<_> = cells.iter().map(|c| (c.waker, c.wakee)).collect();
    pairs.sort_unstable();
    pairs.dedup();
    pairs
}

fn table(out: &mut String, cells: &[&Cell]) {
    let methods: Vec<_> = Method::ALL.into_iter().filter(|m| cells.iter().any(|c| c.method == *m)).collect();
    let line = |out: &mut String, label: &str, text: &dyn Fn(Method) -> String| {
        let _ = write!(out, "  {label:14}");
        for method in &methods {
            let _ = write!(out, " {:>width$}", text(*method), width = method.name().len().max(11));
        }
        let _ = writeln!(out);
    };
    line(out, "", &|method| method.to_string());
    for (placement, label) in ROWS.into_iter().filter(|(p, _)| cells.iter().any(|c| c.placement == *p)) {
        let cell = |method| cells.iter().find(|c| c.method == method && c.placement == placement);
        let show = |text: fn(&Cell) -> String| {
            move |method| cell(method).map_or_else(|| "-".to_owned(), |cell| text(cell))
        };
        line(out, label, &show(|c| us(c.median_ns)));
        line(out, "", &show(|c| format!("{}..{}", us(c.min_ns), us(c.p99_ns))));
        line(out, "", &show(|c| format!("n={}", c.n)));
    }
}

/// Three digits suffice and keep the columns narrow.
fn us(ns: u64) -> String {
    let us = ns as f64 / 1e3;
    if us < 99.95 { format!("{us:.1}") } else { format!("{us:.0}") }
}

fn capabilities(out: &mut String, report: &Report) {
    let present = |kind: &str| -> String {
        let of_kind = report.capabilities.iter().filter(|c| c.kind == kind && c.absent.is_none());
        of_kind.map(|c| c.name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let _ = writeln!(out);
    wrap(out, "Sensors: ", &present("sensor"));
    wrap(out, "Levers: ", &present("lever"));
    let absent: Vec<_> =
        report.capabilities.iter().filter_map(|c| Some((&c.name, c.absent.as_ref()?))).collect();
    if !absent.is_empty() {
        let _ = writeln!(out, "Not available:");
        for (name, why) in absent {
            wrap(out, "  - ", &format!("{name}: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_explain::WIDTH;

    fn cell(placement: Placement, method: Method, median_ns: u64) -> Cell {
        Cell {
            placement,
            method,
            waker: CpuId(0),
            wakee: CpuId(1),
            n: 123_456,
            min_ns: median_ns / 2,
            median_ns,
            p99_ns: median_ns * 10,
            waker_cpu_ns: 900,
        }
    }

    #[test]
    fn a_full_table_fits_into_the_width_and_what_is_missing_is_a_dash() {
        let mut cells: Vec<_> = Method::ALL
            .into_iter()
            .flat_map(|m| ROWS.map(|(placement, _)| cell(placement, m, 412_345)))
            .collect();
        cells.remove(3);
        let mut out = String::new();
        table(&mut out, &cells.iter().collect::<Vec<_>>());
        assert!(out.lines().all(|line| line.len() <= WIDTH), "{out}");
        assert_eq!(out.lines().count(), 13);
        assert!(out.contains("D other, busy            -         412"), "{out}");
        assert!(out.contains("206..4123"), "{out}");
    }

    #[test]
    fn long_texts_wrap_between_words_under_their_head() {
        let mut out = String::new();
        wrap(&mut out, "  - ", &"word ".repeat(40));
        assert!(out.lines().all(|line| line.len() <= WIDTH && line.starts_with("  ")), "{out}");
        assert_eq!(out.split_whitespace().filter(|w| *w == "word").count(), 40);
        assert!(out.lines().nth(1).is_some_and(|line| line.starts_with("    word")));
    }
}
