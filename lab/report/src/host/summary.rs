//! A record in sentences.

use gleaner_host_record::{Report, VmRecord};

use super::{seconds, share_of};
use crate::number::{Unit, show};
use crate::table::share;

/// How many VMs there are, on what.
pub(super) fn title(record: &Report) -> String {
    format!("{} on {}", counted(record.vms.len(), "VM"), counted(record.host.pcpus as usize, "pCPU"))
}

/// For how long the vCPUs were followed, on which kernel, at which cost.
pub(super) fn followed(record: &Report) -> String {
    let cost = record.cost.map_or_else(String::new, |cost| {
        format!("; following the vCPUs took {} of their time", share(cost.share))
    });
    format!("{} on Linux {}{cost}", show(Unit::Seconds, record.elapsed_s()), record.host.kernel)
}

/// `1 VM`, `2 VMs`.
pub(super) fn counted(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Time in which the vCPUs want to run and are not in the guest.
pub(super) fn lost_ns(vm: &VmRecord) -> u64 {
    vm.times.wanted_ns().saturating_sub(vm.times.guest_ns)
}

/// Which VM loses the most time, to what, and what to do. `vms`: that VM first.
pub(super) fn verdict(vms: &[&VmRecord]) -> String {
    let Some(vm) = vms.first() else { return "No virtual machine ran here.".to_owned() };
    let lost = share(share_of(lost_ns(vm), vm.times.wanted_ns()));
    let most = if vms.len() == 1 { "loses" } else { "loses the most time:" };
    let loses = format!("{} {most} {lost} of the time in which its vCPUs want to run.", vm.name);
    // Only what is worth it has remedies.
    let Some((cause, remedy)) = vm.causes.first().and_then(|cause| Some((cause, cause.remedies.first()?)))
    else {
        return format!("{loses} No single cause takes enough of it to act on.");
    };
    format!("{loses} Top cause: {}, {}. First thing to try: {remedy}.", cause.cause, share(cause.share))
}

/// What is not in the numbers.
pub(super) fn warnings(record: &Report) -> Vec<String> {
    let lost = record.lost;
    let room = lost.matters().then(|| {
        format!(
            "Not counted for want of room: {} vCPUs, {} threads, {} pairs of VMs.",
            lost.vcpus, lost.storage, lost.pairs
        )
    });
    let missing = record.missing.iter().map(|missing| format!("Not followed: {missing}."));
    let hidden = record.hidden.iter().map(|hidden| format!("{hidden}."));
    room.into_iter().chain(missing).chain(hidden).collect()
}

/// How the numbers came about.
pub(super) fn notes(record: &Report) -> Vec<String> {
    let mut notes = vec![
        "BPF programs at the tracepoints of KVM and the scheduler attribute the time of each vCPU. Each event ends one \
         part and starts the next, so the parts add up to the time for which the vCPU was followed."
            .to_owned(),
        "Time in the hypervisor belongs to the exit that led to it; a cause takes in all exits that come with it, and \
         the waiting. Shares of causes are of the time in which the vCPUs want to run: all but halted."
            .to_owned(),
        "Waiting for a pCPU is charged to whoever had it just before.".to_owned(),
    ];
    notes.extend(record.cost.map(|cost| {
        format!(
            "Following the vCPUs took {} of their time on pCPUs, {} of one pCPU.",
            share(cost.share),
            share(cost.pcpus)
        )
    }));
    notes.extend(record.elapsed_ns.map(|_| {
        format!(
            "To keep within the budget they were followed for {} of the {}, in windows of 50 ms; all times and counts here are \
             of these.",
            show(Unit::Seconds, seconds(record)),
            show(Unit::Seconds, record.elapsed_s())
        )
    }));
    notes
}
