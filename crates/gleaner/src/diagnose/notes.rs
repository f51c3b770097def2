//! Notes on the numbers: what estimates are based on, what tracing cost, what is missing.

use gleaner_trace::Lost;

use super::report::Report;

pub(super) fn notes(report: &Report) -> Vec<String> {
    let (snapshot, costs) = (&report.counted, &report.costs);
    let how =
        if costs.measured { "measured on this machine" } else { "assumed; `gleaner doctor` measures them" };
    let mut notes: Vec<String> = report.vanished.iter().cloned().collect();
    if snapshot.threads.is_empty() {
        notes.push("No thread of it was seen to run: there might be none, or all of them slept.".to_owned());
    }
    notes.extend([
        format!(
            "Times lost are estimates: a guest cannot see what the hypervisor does. Costs {how}: {:.1?} to wake a halted \
             vCPU, {:.1?} on the waker's own, {:.1?} to send an interrupt.",
            costs.halted, costs.ready, costs.interrupt
        ),
        format!(
            "Tracing cost {:.1} % of the CPU time in use, as far as the kernel accounts for it{}.",
            100.0 * snapshot.cost.share,
            if snapshot.one_in > 1 {
                format!("; it followed threads for 1/{} of the time, at random moments", snapshot.one_in)
            } else {
                String::new()
            }
        ),
    ]);
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
