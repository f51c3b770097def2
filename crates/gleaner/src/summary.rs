//! The account of a run, as a few lines for people.

use std::fmt::Write as _;

use gleaner_proto::journal::Summary;

/// A few lines that say what was done and what it brought.
pub(crate) fn text(summary: &Summary) -> String {
    let mut out = String::new();
    let seconds = summary.elapsed.as_secs_f64();
    let share = |time: f64| if seconds > 0.0 { time / seconds * 100.0 } else { 0.0 };
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "gleaner: {seconds:.1} s, {} changes proven, {} not, {} unfolded; own CPU {} ms, retained {:.2} s of vCPU time",
        summary.proven,
        summary.refuted,
        summary.unfolded,
        summary.engine_cpu.as_millis(),
        summary.retained.as_secs_f64(),
    );
    let mut settings: Vec<_> = summary.settings.iter().collect();
    settings.sort_by_key(|s| std::cmp::Reverse(s.time));
    for s in settings.iter().filter(|s| share(s.time.as_secs_f64()) >= 1.0) {
        let _ = writeln!(out, "gleaner: {:5.1} % of the time {}", share(s.time.as_secs_f64()), s.setting);
    }
    match &summary.evidence {
        Some(evidence) => drop(writeln!(out, "gleaner: proven by alternating blocks: {evidence}")),
        None => drop(writeln!(out, "gleaner: no change proved itself, so the machine was left as it is")),
    }
    for left in &summary.left_behind {
        let _ = writeln!(out, "gleaner: could not be put back: {left}");
    }
    out
}
