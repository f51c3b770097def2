//! The account of a run, as a few lines for people.

use std::fmt::Write as _;

use gleaner_policy::Strategy;
use gleaner_proto::journal::Summary;

use crate::why::NOTHING_RAN;

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

/// A few lines that say what was done and what it brought; of a dry run, what would have been tried.
pub(crate) fn text(summary: &Summary, dry_run: bool) -> String {
    let mut out = if dry_run { dry(summary) } else { real(summary) };
    for left in &summary.left_behind {
        // Writing to a string does not fail, here and below.
        let _ = writeln!(out, "gleaner: could not be put back: {left}");
    }
    out
}

fn dry(summary: &Summary) -> String {
    let mut out = format!(
        "gleaner: {:.1} s watched in a dry run, which changes nothing; own CPU {} ms\n",
        summary.elapsed.as_secs_f64(),
        summary.engine_cpu.as_millis(),
    );
    for would in &summary.would_try {
        let times = if would.times == 1 { String::new() } else { format!(" ({} times)", would.times) };
        let _ = writeln!(out, "gleaner: would have tried {}{times}, because {}", would.setting, would.why);
    }
    if summary.would_try.is_empty() {
        out += "gleaner: nothing would have been tried: no change promised to help\n";
    }
    out
}

fn real(summary: &Summary) -> String {
    let mut out = String::new();
    let seconds = summary.elapsed.as_secs_f64();
    let share = |time: f64| if seconds > 0.0 { time / seconds * 100.0 } else { 0.0 };
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
        (_, None) if summary.workload_cpu.is_zero() => NOTHING_RAN.to_owned(),
        (Some(unproven), _) => unproven.to_owned(),
        (None, Some(evidence)) => format!("proven by alternating blocks: {evidence}"),
        (None, None) => "no change proved itself, so the machine was left as it is".to_owned(),
    };
    let _ = writeln!(out, "gleaner: {brought}");
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_policy::{CpuSet, Fixed, Setting, Why};

    use super::*;

    #[test]
    fn a_dry_run_ends_with_what_would_have_been_tried() {
        let all = CpuSet::first(2);
        let mut summary = Summary::default();
        summary.count(&Setting::untouched(&all), Duration::from_secs(3));
        let nothing = text(&summary, true);
        assert!(nothing.contains("3.0 s watched in a dry run"), "{nothing}");
        assert!(nothing.contains("nothing would have been tried"), "{nothing}");
        for limit in ["haltpoll:50us", "haltpoll:60us", "pack:1"] {
            summary.would_try(&limit.parse::<Fixed>().unwrap().on(&all), Why::TrustExpired);
        }
        let told = text(&summary, true);
        let lines: Vec<_> = told.lines().filter(|line| line.contains("would have tried")).collect();
        assert_eq!(lines.len(), 2, "{told}");
        assert!(lines[0].contains("vCPUs 0-1 with haltpoll:50us (2 times), because"), "{told}");
        assert!(lines[1].contains("vCPUs 0 with halt, because"), "{told}");
        assert!(!told.contains("proven") && !told.contains("proved itself"), "{told}");
    }

    /// The account of a second on `vcpus`, in which nothing proved itself.
    fn account(vcpus: &CpuSet, workload_cpu: Duration) -> String {
        let mut summary = Summary { workload_cpu, ..Summary::default() };
        summary.count(&Setting::untouched(vcpus), Duration::from_secs(1));
        text(&summary, false)
    }

    #[test]
    fn an_empty_group_is_said_to_have_run_nothing() {
        let told = account(&CpuSet::new(), Duration::ZERO);
        assert!(told.contains("100.0 % of the time no vCPU with halt\n"), "{told}");
        assert!(told.contains("nothing of the workload was seen to run"), "{told}");
        assert!(!told.contains("no change proved itself"), "{told}");
        let told = account(&CpuSet::first(2), Duration::from_millis(1));
        assert!(told.contains("vCPUs 0-1 with halt\n") && told.contains("no change proved itself"), "{told}");
    }
}
