//! The report as text.

use std::fmt::Write as _;

use gleaner_trace::{Histogram, Snapshot};

use super::report::{Cause, Report};

/// How many lesser causes are told in full.
const IN_FULL: usize = 3;

pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, report);
    out
}

fn write(out: &mut String, report: &Report) -> std::fmt::Result {
    let seen = &report.counted;
    writeln!(out, "{}, {:.1} s on {} vCPUs", report.target, seen.elapsed.as_secs_f64(), seen.vcpus.len())?;
    writeln!(out)?;
    match report.causes.first().filter(|_| report.verdict.is_some()) {
        Some(first) => writeln!(out, "Top cause: {}, about {} lost", first.name, lost(first))?,
        None => writeln!(out, "No cause: nothing costs 3 % of a vCPU or more.")?,
    }
    for (index, cause) in report.causes.iter().enumerate() {
        writeln!(out)?;
        heading(out, index + 1, cause)?;
        if index < IN_FULL {
            details(out, cause, report.verdict == Some(cause.kind))?;
        }
    }
    writeln!(out)?;
    wakes(out, seen)?;
    footnotes(out, report)
}

fn heading(out: &mut String, number: usize, cause: &Cause) -> std::fmt::Result {
    write!(out, "{number}. {}: about {}", cause.name, lost(cause))?;
    if cause.kind.unit().is_empty() {
        writeln!(out)
    } else {
        writeln!(out, "; {:.0} {} a second", cause.per_second, cause.kind.unit())
    }
}

fn details(out: &mut String, cause: &Cause, top: bool) -> std::fmt::Result {
    writeln!(out, "   ({})", cause.source)?;
    writeln!(out, "   estimate: {}", cause.estimate)?;
    for line in &cause.behind {
        writeln!(out, "   - {line}")?;
    }
    // The first advice is enough for what matters less.
    for advice in cause.advice.iter().take(if top { usize::MAX } else { 1 }) {
        writeln!(out, "   > {advice}")?;
    }
    Ok(())
}

fn lost(cause: &Cause) -> String {
    format!("{:.0} us per second", cause.lost_us_per_second)
}

fn wakes(out: &mut String, seen: &Snapshot) -> std::fmt::Result {
    let all = &seen.wakes;
    let rows = [
        ("same vCPU", &all.same_vcpu),
        ("other vCPU, awake", &all.awake),
        ("other vCPU, polling", &all.polling),
        ("other vCPU, halted", &all.halted),
        ("taken off, to run again", &seen.preempted),
    ];
    writeln!(
        out,
        "{:<24} {:>10} {:>10} {:>10} {:>10}",
        "Wake-up until run, us", "per second", "median", "mean", "p99"
    )?;
    for (name, histogram) in rows {
        let us = |time: Option<std::time::Duration>| {
            time.map_or_else(|| "-".to_owned(), |time| format!("{:.1}", time.as_secs_f64() * 1e6))
        };
        let rate = histogram.count as f64 / seen.elapsed.as_secs_f64().max(1e-9);
        let mean = some_mean(histogram);
        writeln!(
            out,
            "{name:<24} {rate:>10.0} {:>10} {:>10} {:>10}",
            us(histogram.median()),
            us(mean),
            us(histogram.quantile(0.99)),
        )?;
    }
    Ok(())
}

fn some_mean(histogram: &Histogram) -> Option<std::time::Duration> {
    (histogram.count > 0).then(|| histogram.mean())
}

fn footnotes(out: &mut String, report: &Report) -> std::fmt::Result {
    let (seen, costs) = (&report.counted, &report.costs);
    writeln!(out)?;
    let how =
        if costs.measured { "measured on this machine" } else { "assumed; `gleaner doctor` measures them" };
    writeln!(
        out,
        "Times lost are estimates: a guest cannot see what the hypervisor does. Costs {how}: {:.1?} to wake a halted vCPU, \
         {:.1?} on the waker's own, {:.1?} to send an interrupt.",
        costs.halted, costs.ready, costs.interrupt
    )?;
    write!(out, "Tracing cost {:.1} % of the CPU time in use", 100.0 * seen.cost.share)?;
    if seen.one_in > 1 {
        writeln!(out, "; it follows one event in {}.", seen.one_in)?;
    } else {
        writeln!(out, ".")?;
    }
    let lost = seen.lost;
    if lost != gleaner_trace::Lost::default() {
        writeln!(
            out,
            "No room for everything: {} wake-ups of threads that could not be followed, {} looks at threads without a name \
             of their own, {} wake-ups without an edge.",
            lost.tasks, lost.names, lost.edges
        )?;
    }
    for missing in &seen.missing {
        writeln!(out, "Not available: {missing}")?;
    }
    Ok(())
}
