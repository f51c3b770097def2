//! All VMs side by side: where their time goes, and the hypervisor's part of it by group.

use gleaner_host_record::attribution::Times;
use gleaner_host_record::{Group, VmRecord};

use super::{MOST_BARS, share_of};
use crate::page::Figure;
use crate::plot::{Composition, CompositionBar, StackPart};

/// One part of a vCPU's time.
pub(super) struct Part {
    pub(super) label: &'static str,
    series: usize,
    pale: bool,
    pub(super) of: fn(&Times) -> u64,
}

/// The parts, left to right.
pub(super) const PARTS: [Part; 7] = [
    Part { label: "guest", series: 3, pale: false, of: |times| times.guest_ns },
    Part { label: "hypervisor", series: 2, pale: false, of: |times| times.hypervisor_ns },
    Part { label: "woken, waiting", series: 5, pale: false, of: |times| times.woken_ns },
    Part { label: "preempted, waiting", series: 4, pale: false, of: |times| times.preempted_ns },
    Part { label: "blocked", series: 1, pale: false, of: |times| times.blocked_ns },
    Part { label: "halted", series: 0, pale: true, of: |times| times.halted_ns },
    Part { label: "unknown", series: 0, pale: false, of: |times| times.unknown_ns },
];

/// Series and paleness of each group, in the order of [`Group::ALL`].
const GROUP_STYLES: [(usize, bool); 9] =
    [(1, false), (2, false), (3, false), (4, false), (5, false), (3, true), (1, true), (2, true), (0, true)];

/// A bar per VM: where its vCPUs' time goes. No figure without a VM.
pub(super) fn times(vms: &[&VmRecord]) -> Vec<Figure> {
    let bars = bars(vms, |vm| {
        let whole = vm.times.total_ns();
        PARTS.iter().map(|part| share_of((part.of)(&vm.times), whole)).collect()
    });
    let parts = PARTS.iter().map(|part| StackPart {
        label: part.label.to_owned(),
        series: part.series,
        pale: part.pale,
    });
    figure(
        "times",
        "What each VM's vCPUs spend their time on",
        "share of the vCPUs' time",
        "Woken: waiting for a pCPU after a wake-up. Preempted: waiting for a pCPU although it was running. Blocked: the \
         VMM or the kernel works for the vCPU.",
        parts.collect(),
        bars,
        vms.len(),
    )
}

/// A bar per VM, as in TPDS'21 Figure 9: the hypervisor's time by group. No figure if there is none.
pub(super) fn groups(vms: &[&VmRecord]) -> Vec<Figure> {
    let bars = bars(vms, |vm| {
        let wanted = vm.times.wanted_ns();
        Group::ALL.iter().map(|group| share_of(group_ns(vm, *group), wanted)).collect()
    });
    let parts = Group::ALL.iter().zip(GROUP_STYLES).map(|(group, (series, pale))| StackPart {
        label: group.name().to_owned(),
        series,
        pale,
    });
    figure(
        "groups",
        "Time in the hypervisor, by group of exits",
        "share of the time in which the vCPUs want to run",
        "The groups of Figure 9 of TPDS'21, on pCPUs alone: what vCPUs wait is not in it. Scheduling is what follows HLT, \
         KVM's polling included.",
        parts.collect(),
        bars,
        vms.len(),
    )
}

/// Time of a group, in ns.
pub(super) fn group_ns(vm: &VmRecord, group: Group) -> u64 {
    vm.groups.get(&group).copied().unwrap_or_default()
}

fn bars(vms: &[&VmRecord], shares: impl Fn(&VmRecord) -> Vec<f64>) -> Vec<CompositionBar> {
    let bar = |vm: &&VmRecord| CompositionBar { label: vm.name.clone(), shares: shares(vm) };
    vms.iter().take(MOST_BARS).map(bar).collect()
}

fn figure(
    name: &str,
    title: &str,
    axis: &str,
    caption: &str,
    parts: Vec<StackPart>,
    bars: Vec<CompositionBar>,
    vms: usize,
) -> Vec<Figure> {
    if bars.iter().all(|bar| bar.shares.iter().all(|share| *share <= 0.0)) {
        return Vec::new();
    }
    let left_out = match vms - bars.len() {
        0 => String::new(),
        n => format!(" The {n} VMs that lose the least are only in the table."),
    };
    vec![Figure {
        name: name.to_owned(),
        title: title.to_owned(),
        caption: format!("{caption}{left_out}"),
        half: false,
        plot: Box::new(Composition {
            title: title.to_owned(),
            about: "Stacked bars, one for each VM; the table below has the numbers.".to_owned(),
            axis: axis.to_owned(),
            parts,
            bars,
        }),
    }]
}
