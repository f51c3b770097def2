//! The report as text.

use std::fmt::Write as _;

use gleaner_trace::{Histogram, Snapshot};

use super::notes::notes;
use super::report::{Cause, Report};
use gleaner_explain::wrap;

/// How many lesser causes are printed in full.
const FULL_CAUSES: usize = 3;

pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write(&mut out, report);
    out
}

fn write(out: &mut String, report: &Report) -> std::fmt::Result {
    let snapshot = &report.counted;
    let observed = format!(
        "{}, {:.1} s on {} vCPUs",
        report.target,
        snapshot.elapsed.as_secs_f64(),
        snapshot.vcpus.len()
    );
    wrap(out, "", &observed);
    writeln!(out)?;
    match report.causes.first().filter(|_| report.verdict.is_some()) {
        Some(first) => wrap(out, "Top cause: ", &format!("{}, about {} lost", first.name, lost(first))),
        None => writeln!(out, "No cause: nothing costs 3 % of a vCPU or more.")?,
    }
    for (index, cause) in report.causes.iter().enumerate() {
        writeln!(out)?;
        heading(out, index + 1, cause);
        if index < FULL_CAUSES {
            details(out, cause, report.verdict == Some(cause.kind));
        }
    }
    writeln!(out)?;
    wakes(out, snapshot)?;
    footnotes(out, report);
    Ok(())
}

fn heading(out: &mut String, number: usize, cause: &Cause) {
    let counted = if cause.kind.unit().is_empty() {
        String::new()
    } else {
        format!("; {:.0} {} a second", cause.per_second, cause.kind.unit())
    };
    wrap(out, &format!("{number}. "), &format!("{}: about {}{counted}", cause.name, lost(cause)));
}

fn details(out: &mut String, cause: &Cause, top: bool) {
    wrap(out, "   (", &format!("{})", cause.source));
    wrap(out, "   estimate: ", &cause.estimate);
    for line in &cause.behind {
        wrap(out, "   - ", line);
    }
    // One piece of advice is enough for lesser causes.
    for advice in cause.advice.iter().take(if top { usize::MAX } else { 1 }) {
        wrap(out, "   > ", advice);
    }
}

fn lost(cause: &Cause) -> String {
    format!("{:.0} us per second", cause.lost_us_per_second)
}

fn wakes(out: &mut String, snapshot: &Snapshot) -> std::fmt::Result {
    writeln!(
        out,
        "{:<24} {:>10} {:>10} {:>10} {:>10}",
        "Wake-up until run, us", "per second", "median", "mean", "p99"
    )?;
    for (name, histogram) in snapshot.until_run() {
        let us = |time: Option<std::time::Duration>| {
            time.map_or_else(|| "-".to_owned(), |time| format!("{:.1}", time.as_secs_f64() * 1e6))
        };
        let rate = histogram.count as f64 / snapshot.covered.as_secs_f64().max(1e-9);
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

fn footnotes(out: &mut String, report: &Report) {
    out.push('\n');
    for note in notes(report) {
        wrap(out, "", &note);
    }
}
