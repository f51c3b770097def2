//! A run's summary, as a few lines of text.

use std::fmt::Write as _;

use gleaner_policy::{Setting, Strategy};
use gleaner_proto::journal::Summary;

/// Printed for a run in which nothing could be tried.
const NOTHING_RAN: &str = "the workload used no CPU time, so there was nothing to try";

/// Counts of what was done, in the strategy's own terms.
pub fn action_counts(summary: &Summary) -> String {
    match summary.strategy {
        Strategy::Adaptive => {
            let proven = count(summary.proven, "change");
            format!("{proven} proven, {} not, {} expanded", summary.refuted, summary.expanded)
        }
        Strategy::Fixed => "one setting held".to_owned(),
        Strategy::Paper => format!(
            "by the paper's rules {} and {}, {} of the workload",
            count(summary.consolidated, "consolidation step"),
            count(summary.rolled_back, "roll-back"),
            count(summary.expanded, "major change"),
        ),
    }
}

fn count(n: u32, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// What was done and what it gained; for a dry run, what would have been tried.
pub fn text(summary: &Summary, dry_run: bool) -> String {
    let mut out = if dry_run { dry_run_text(summary) } else { run_text(summary) };
    for left in &summary.left_behind {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "gleaner: could not be put back: {left}");
    }
    out
}

fn dry_run_text(summary: &Summary) -> String {
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
        out += "gleaner: nothing would have been tried: no change looked worth trying\n";
    }
    out
}

fn run_text(summary: &Summary) -> String {
    let mut out = String::new();
    let seconds = summary.elapsed.as_secs_f64();
    let share = |time: f64| if seconds > 0.0 { time / seconds * 100.0 } else { 0.0 };
    let otherwise = polled_otherwise(summary).map_or_else(String::new, |text| format!(" ({text})"));
    let _ = writeln!(
        out,
        "gleaner: {seconds:.1} s, {}; own CPU {} ms, retained {:.2} s of vCPU time{otherwise}",
        action_counts(summary),
        summary.engine_cpu.as_millis(),
        summary.retained.as_secs_f64(),
    );
    let mut settings: Vec<_> = summary.settings.iter().collect();
    settings.sort_by_key(|s| std::cmp::Reverse(s.time));
    for s in settings.iter().filter(|s| share(s.time.as_secs_f64()) >= 1.0) {
        let _ = writeln!(out, "gleaner: {:5.1} % of the time {}", share(s.time.as_secs_f64()), s.setting);
    }
    let _ = writeln!(out, "gleaner: {}", outcome(summary));
    out
}

/// What a run gained, as a sentence without its full stop.
pub fn outcome(summary: &Summary) -> String {
    match (&summary.fixed, &summary.not_in_force, &summary.evidence) {
        (Some(setting), Some(why), _) => {
            format!("{setting}, as asked for, was {}: {why}", held(summary, setting))
        }
        (Some(setting), None, _) => format!("held as asked, not proven: {setting}"),
        (None, why, Some(evidence)) => {
            let until = why.as_ref().map_or_else(String::new, |why| format!("; it ended early: {why}"));
            format!("proven by alternating blocks: {evidence}{until}")
        }
        (None, Some(why), None) => format!("nothing was kept: {why}"),
        (None, None, None) if summary.workload_cpu.is_zero() => NOTHING_RAN.to_owned(),
        (None, None, None) if summary.strategy == Strategy::Paper => {
            "the paper's rules compare no progress: whether they pay is not known".to_owned()
        }
        (None, None, None) => "no change proved itself, so the machine was left as it is".to_owned(),
    }
}

fn held(summary: &Summary, setting: &Setting) -> String {
    match summary.settings.iter().find(|s| s.setting == *setting) {
        Some(s) => {
            format!("in force for {:.1} s of {:.1} s", s.time.as_secs_f64(), summary.elapsed.as_secs_f64())
        }
        None => "not in force".to_owned(),
    }
}

/// How long the kernel polled by its own settings, if worth mentioning.
pub fn polled_otherwise(summary: &Summary) -> Option<String> {
    let seconds = summary.polled_otherwise.as_secs_f64();
    (seconds >= 0.01).then(|| format!("and the kernel polled {seconds:.2} s by its own settings"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_policy::{CpuSet, Fixed, Method, Retention, Setting, TrialReason};

    use super::*;

    #[test]
    fn a_dry_run_ends_with_what_would_have_been_tried() {
        let all = CpuSet::first(2);
        let mut summary = Summary::default();
        summary.count(&Setting::untouched(&all), Duration::from_secs(3));
        let nothing = text(&summary, true);
        assert!(nothing.contains("3.0 s watched in a dry run"), "{nothing}");
        assert!(nothing.contains("nothing would have been tried"), "{nothing}");
        for limit in ["haltpoll:50us", "haltpoll:60us", "consolidate:1"] {
            summary.would_try(&limit.parse::<Fixed>().unwrap().on(&all).unwrap(), TrialReason::TrustExpired);
        }
        let printed = text(&summary, true);
        let lines: Vec<_> = printed.lines().filter(|line| line.contains("would have tried")).collect();
        assert_eq!(lines.len(), 2, "{printed}");
        assert!(lines[0].contains("vCPUs 0-1 with haltpoll:50us (2 times), because"), "{printed}");
        assert!(lines[1].contains("vCPUs 0 with halt, because"), "{printed}");
        assert!(!printed.contains("proven") && !printed.contains("proved itself"), "{printed}");
    }

    /// The summary of one second on `vcpus` in which nothing proved itself.
    fn account(vcpus: &CpuSet, workload_cpu: Duration) -> String {
        let mut summary = Summary { workload_cpu, ..Summary::default() };
        summary.count(&Setting::untouched(vcpus), Duration::from_secs(1));
        text(&summary, false)
    }

    #[test]
    fn an_empty_group_is_said_to_have_run_nothing() {
        let printed = account(&CpuSet::new(), Duration::ZERO);
        assert!(printed.contains("100.0 % of the time no vCPU with halt\n"), "{printed}");
        assert!(printed.contains("the workload used no CPU time"), "{printed}");
        assert!(printed.lines().all(|line| line.starts_with("gleaner: ")), "{printed}");
        assert!(!printed.contains("no change proved itself"), "{printed}");
        let printed = account(&CpuSet::first(2), Duration::from_millis(1));
        assert!(
            printed.contains("vCPUs 0-1 with halt\n") && printed.contains("no change proved itself"),
            "{printed}"
        );
    }

    fn busy() -> Summary {
        Summary { workload_cpu: Duration::from_secs(1), ..Summary::default() }
    }

    fn fixed() -> (Summary, Setting) {
        let retention = Retention { method: Method::Haltpoll, limit: Duration::from_micros(200) };
        let setting = Setting { active: CpuSet::first(2), retention };
        let mut summary = Summary { strategy: Strategy::Fixed, fixed: Some(setting.clone()), ..busy() };
        summary.count(&setting, Duration::from_secs(2));
        (summary, setting)
    }

    #[test]
    fn a_fixed_setting_is_held_as_asked_and_never_called_unproven() {
        let (summary, _) = fixed();
        let printed = text(&summary, false);
        assert!(printed.contains("held as asked, not proven: vCPUs 0-1 with haltpoll:200us"), "{printed}");
        assert!(!printed.contains("proved itself") && !printed.contains("changes proven"), "{printed}");
    }

    #[test]
    fn a_setting_that_was_refused_is_reported_with_the_reason() {
        let (mut summary, setting) = fixed();
        summary.not_in_force = Some("/sys is mounted read-only".to_owned());
        let printed = text(&summary, false);
        assert!(
            printed.contains("as asked for, was in force for 2.0 s of 2.0 s: /sys is mounted"),
            "{printed}"
        );
        summary.settings.clear();
        summary.count(&Setting::untouched(&setting.active), Duration::from_secs(2));
        let printed = text(&summary, false);
        assert!(
            printed.contains("haltpoll:200us, as asked for, was not in force: /sys is mounted"),
            "{printed}"
        );
        (summary.fixed, summary.strategy) = (None, Strategy::Adaptive);
        assert!(text(&summary, false).contains("nothing was kept: /sys is mounted"));
    }

    #[test]
    fn polling_of_the_administrators_is_counted_apart() {
        let (mut summary, _) = fixed();
        assert!(!text(&summary, false).contains("by its own settings"));
        summary.polled_otherwise = Duration::from_millis(1250);
        let printed = text(&summary, false);
        assert!(
            printed
                .contains("retained 0.00 s of vCPU time (and the kernel polled 1.25 s by its own settings)")
        );
    }
}
