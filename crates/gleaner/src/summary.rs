//! The account of a run, as a few lines for people.

use std::fmt::Write as _;

use gleaner_policy::Strategy;
use gleaner_proto::journal::Summary;

/// What was done, by the strategy's own measure.
pub(crate) fn deeds(summary: &Summary) -> String {
    match summary.strategy {
        Strategy::Adaptive => {
            let proven = count(summary.proven, "change");
            format!("{proven} proven, {} not, {} unfolded", summary.refuted, summary.unfolded)
        }
        Strategy::Fixed => "one setting held".to_owned(),
        Strategy::Paper => format!(
            "by the paper's rules {} and {}, {} of the workload",
            count(summary.deactivated, "deactivation"),
            count(summary.rolled_back, "roll-back"),
            count(summary.unfolded, "major change"),
        ),
    }
}

/// Why there is no evidence, where the strategy looks for none.
pub(crate) fn unproven(strategy: Strategy) -> Option<&'static str> {
    match strategy {
        Strategy::Adaptive => None,
        Strategy::Fixed => Some("a held setting is not compared with another: whether it pays is not known"),
        Strategy::Paper => Some("the paper's rules compare no progress: whether they pay is not known"),
    }
}

fn count(n: u32, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A few lines that say what was done and what it brought.
pub(crate) fn text(summary: &Summary) -> String {
    let mut out = String::new();
    let seconds = summary.elapsed.as_secs_f64();
    let share = |time: f64| if seconds > 0.0 { time / seconds * 100.0 } else { 0.0 };
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "gleaner: {seconds:.1} s, {}; own CPU {} ms, retained {:.2} s of vCPU time",
        deeds(summary),
        summary.engine_cpu.as_millis(),
        summary.retained.as_secs_f64(),
    );
    let mut settings: Vec<_> = summary.settings.iter().collect();
    settings.sort_by_key(|s| std::cmp::Reverse(s.time));
    for s in settings.iter().filter(|s| share(s.time.as_secs_f64()) >= 1.0) {
        let _ = writeln!(out, "gleaner: {:5.1} % of the time {}", share(s.time.as_secs_f64()), s.setting);
    }
    let brought = match (unproven(summary.strategy), &summary.evidence) {
        (Some(unproven), _) => unproven.to_owned(),
        (None, Some(evidence)) => format!("proven by alternating blocks: {evidence}"),
        (None, None) => "no change proved itself, so the machine was left as it is".to_owned(),
    };
    let _ = writeln!(out, "gleaner: {brought}");
    for left in &summary.left_behind {
        let _ = writeln!(out, "gleaner: could not be put back: {left}");
    }
    out
}
