//! The account of a run, as a few lines for people.

use std::fmt::Write as _;

use gleaner_proto::journal::Summary;

use crate::why::NOTHING_RAN;

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
        None if summary.workload_cpu.is_zero() => drop(writeln!(out, "gleaner: {NOTHING_RAN}")),
        None => drop(writeln!(out, "gleaner: no change proved itself, so the machine was left as it is")),
    }
    for left in &summary.left_behind {
        let _ = writeln!(out, "gleaner: could not be put back: {left}");
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_policy::{CpuSet, Setting};

    use super::*;

    /// The account of a second on `vcpus`, in which nothing proved itself.
    fn account(vcpus: &CpuSet, workload_cpu: Duration) -> String {
        let mut summary = Summary { workload_cpu, ..Summary::default() };
        summary.count(&Setting::untouched(vcpus), Duration::from_secs(1));
        text(&summary)
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
