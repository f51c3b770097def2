//! Notes on the numbers: what estimates are based on, what tracing cost, what is missing.

use gleaner_trace::Lost;

use super::evidence::Costs;
use super::exits::{self, Recorded};
use super::report::Report;

pub(super) fn notes(report: &Report) -> Vec<String> {
    let (snapshot, costs) = (&report.counted, &report.costs);
    let mut notes: Vec<String> = report.vanished.iter().cloned().collect();
    if snapshot.threads.is_empty() {
        notes.push("No thread of it was seen to run: there might be none, or all of them slept.".to_owned());
    }
    notes.push(format!(
        "Times lost are estimates: a guest cannot see what the hypervisor does. Costs {}: {}.",
        if costs.measured { "measured on this machine" } else { "assumed; `gleaner doctor` measures them" },
        known_here(costs, report.recorded.as_ref())
    ));
    match &report.recorded {
        Some(recorded) => notes.extend(recorded.notes(snapshot.vcpus.len())),
        None => notes.push(format!(
            "An exit to program the timer is assumed to cost {:.0?}; --host takes what the host measured.",
            exits::timer(None).0
        )),
    }
    notes.push(format!(
        "Tracing cost {:.1} % of the CPU time in use, as far as the kernel accounts for it{}.",
        100.0 * snapshot.cost.share,
        if snapshot.one_in > 1 {
            format!("; it followed threads for 1/{} of the time, at random moments", snapshot.one_in)
        } else {
            String::new()
        }
    ));
    let Lost { tasks, names, edges } = snapshot.lost;
    if snapshot.lost != Lost::default() {
        notes.push(format!(
            "No room for everything: {tasks} wake-ups of threads that could not be followed, {names} samples of \
             threads without a name of their own, {edges} wake-ups without an edge."
        ));
    }
    notes.extend(snapshot.missing.iter().map(|missing| format!("Not available: {missing}")));
    notes
}

/// The costs that do not come from the host's record.
fn known_here(costs: &Costs, recorded: Option<&Recorded>) -> String {
    let mut known = Vec::new();
    if costs.measured || recorded.is_none_or(|recorded| recorded.wake_up.is_none()) {
        known.push(format!("{:.1?} to wake a halted vCPU", costs.halted));
    }
    known.push(format!("{:.1?} on the waker's own", costs.ready));
    if recorded.is_none_or(|recorded| recorded.ipi.is_none()) {
        known.push(format!("{:.1?} to send an interrupt", costs.interrupt));
    }
    known.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::exits::tests::recorded;

    #[test]
    fn each_cost_is_said_once_with_its_source() {
        let here = |measured, vm: Option<&str>| {
            let recorded = vm.map(recorded);
            let costs = Costs { measured, ..Costs::ASSUMED }.with(recorded.as_ref());
            let by_the_host =
                recorded.as_ref().map(|recorded| recorded.notes(2).join(" ")).unwrap_or_default();
            (known_here(&costs, recorded.as_ref()), by_the_host)
        };
        let (wake, send) = ("to wake a halted vCPU", "to send an interrupt");
        let (alone, _) = here(true, None);
        assert!(alone.contains(wake) && alone.contains(send), "{alone}");
        let (known, by_the_host) = here(true, Some("ping"));
        assert!(
            known.contains(wake) && !known.contains(send) && by_the_host.contains(send),
            "{known} {by_the_host}"
        );
        let (known, by_the_host) = here(false, Some("ping"));
        assert!(
            !known.contains(wake) && by_the_host.contains("until a halted vCPU runs"),
            "{known} {by_the_host}"
        );
        // Its record has neither.
        let (known, _) = here(false, Some("quiet"));
        assert!(known.contains(wake) && known.contains(send), "{known}");
    }
}
