//! The account of a run, as a few lines for people.

use std::fmt::Write as _;

use gleaner_policy::Setting;
use gleaner_proto::journal::Summary;

/// A few lines that say what was done and what it brought.
pub(crate) fn text(summary: &Summary) -> String {
    let mut out = String::new();
    let seconds = summary.elapsed.as_secs_f64();
    let share = |time: f64| if seconds > 0.0 { time / seconds * 100.0 } else { 0.0 };
    let _ = write!(out, "gleaner: {seconds:.1} s");
    if summary.fixed.is_none() {
        // Writing to a string does not fail.
        let _ = write!(
            out,
            ", {} changes proven, {} not, {} unfolded",
            summary.proven, summary.refuted, summary.unfolded
        );
    }
    let _ = write!(
        out,
        "; own CPU {} ms, retained {:.2} s of vCPU time",
        summary.engine_cpu.as_millis(),
        summary.retained.as_secs_f64(),
    );
    if let Some(polled) = polled_otherwise(summary) {
        let _ = write!(out, " ({polled})");
    }
    out.push('\n');
    let mut settings: Vec<_> = summary.settings.iter().collect();
    settings.sort_by_key(|s| std::cmp::Reverse(s.time));
    for s in settings.iter().filter(|s| share(s.time.as_secs_f64()) >= 1.0) {
        let _ = writeln!(out, "gleaner: {:5.1} % of the time {}", share(s.time.as_secs_f64()), s.setting);
    }
    let _ = writeln!(out, "gleaner: {}", outcome(summary));
    for left in &summary.left_behind {
        let _ = writeln!(out, "gleaner: could not be put back: {left}");
    }
    out
}

/// What a run brought, in a sentence without its full stop.
pub(crate) fn outcome(summary: &Summary) -> String {
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

/// What was polled without Gleaner, where that is worth a word.
pub(crate) fn polled_otherwise(summary: &Summary) -> Option<String> {
    let seconds = summary.polled_otherwise.as_secs_f64();
    (seconds >= 0.01).then(|| format!("and the kernel polled {seconds:.2} s by its own settings"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_policy::{CpuSet, Method, Retention};

    use super::*;

    fn fixed() -> (Summary, Setting) {
        let retention = Retention { method: Method::Haltpoll, limit: Duration::from_micros(200) };
        let setting = Setting { active: CpuSet::first(2), retention };
        let mut summary = Summary { fixed: Some(setting.clone()), ..Summary::default() };
        summary.count(&setting, Duration::from_secs(2));
        (summary, setting)
    }

    #[test]
    fn a_fixed_setting_is_held_as_asked_and_never_called_unproven() {
        let (summary, _) = fixed();
        let told = text(&summary);
        assert!(told.contains("held as asked, not proven: vCPUs 0-1 with haltpoll:200us"), "{told}");
        assert!(!told.contains("proved itself") && !told.contains("changes proven"), "{told}");
    }

    #[test]
    fn a_setting_that_was_refused_is_told_with_the_reason() {
        let (mut summary, setting) = fixed();
        summary.not_in_force = Some("/sys is mounted read-only".to_owned());
        let told = text(&summary);
        assert!(told.contains("as asked for, was in force for 2.0 s of 2.0 s: /sys is mounted"), "{told}");
        summary.settings.clear();
        summary.count(&Setting::untouched(&setting.active), Duration::from_secs(2));
        let told = text(&summary);
        assert!(told.contains("haltpoll:200us, as asked for, was not in force: /sys is mounted"), "{told}");
        summary.fixed = None;
        assert!(text(&summary).contains("nothing was kept: /sys is mounted"));
    }

    #[test]
    fn polling_of_the_administrators_is_told_apart() {
        let (mut summary, _) = fixed();
        assert!(!text(&summary).contains("by its own settings"));
        summary.polled_otherwise = Duration::from_millis(1250);
        let told = text(&summary);
        assert!(
            told.contains("retained 0.00 s of vCPU time (and the kernel polled 1.25 s by its own settings)")
        );
    }
}
