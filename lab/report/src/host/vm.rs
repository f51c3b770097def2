//! One VM: its causes, its waits, its exits, its vCPUs.

use gleaner_host_record::attribution::ReasonTimes;
use gleaner_host_record::cause::CauseCost;
use gleaner_host_record::discover::Vmm;
use gleaner_host_record::{Latencies, Reason, Report, StealBy, VcpuRecord, VmRecord};
use gleaner_proto::diagnosis::Lengths;
use gleaner_proto::histogram::Histogram;
use maud::{Markup, html};

use super::figures::PARTS;
use super::summary::counted;
use super::{seconds, share_of};
use crate::lengths::{self, histogram, reach};
use crate::number::{Unit, show};
use crate::page::{Figure, figures as shown};
use crate::table::{expandable, share};

/// A kind of wait: its name in file names, what it is, from when until when, what is counted, and its histogram.
struct Kind {
    name: &'static str,
    what: &'static str,
    length: &'static str,
    counted: &'static str,
    of: fn(&Latencies) -> &Histogram,
}

const UNTIL_RUN: &str = "from delivery until the vCPU runs";
const WOKEN_UNTIL_RUN: &str = "from the wake-up until the vCPU runs";
const UNTIL_PCPU: &str = "from delivery until the vCPU gets a pCPU";
const WAITING: &str = "waiting for a pCPU";

const KINDS: [Kind; 10] = [
    Kind {
        name: "waking",
        what: "interrupts for halted vCPUs",
        length: UNTIL_RUN,
        counted: "interrupts",
        of: |waits| &waits.waking,
    },
    Kind {
        name: "reschedule",
        what: "reschedule interrupts for others",
        length: UNTIL_RUN,
        counted: "interrupts",
        of: |waits| &waits.reschedule,
    },
    Kind {
        name: "call",
        what: "function calls",
        length: UNTIL_RUN,
        counted: "calls",
        of: |waits| &waits.call,
    },
    Kind {
        name: "timer",
        what: "timers for halted vCPUs",
        length: WOKEN_UNTIL_RUN,
        counted: "interrupts",
        of: |waits| &waits.timer,
    },
    Kind {
        name: "device",
        what: "device interrupts for halted vCPUs",
        length: WOKEN_UNTIL_RUN,
        counted: "interrupts",
        of: |waits| &waits.device,
    },
    Kind {
        name: "woken",
        what: "waits for a pCPU after a wake-up",
        length: WAITING,
        counted: "waits",
        of: |waits| &waits.woken,
    },
    Kind {
        name: "preempted",
        what: "waits for a pCPU after preemption",
        length: WAITING,
        counted: "waits",
        of: |waits| &waits.preempted,
    },
    Kind {
        name: "pcpu-halted",
        what: "interrupts for halted vCPUs",
        length: UNTIL_PCPU,
        counted: "interrupts",
        of: |waits| &waits.pcpu_halted,
    },
    Kind {
        name: "pcpu-reschedule",
        what: "reschedule interrupts for others",
        length: UNTIL_PCPU,
        counted: "interrupts",
        of: |waits| &waits.pcpu_reschedule,
    },
    Kind {
        name: "pcpu-call",
        what: "function calls",
        length: UNTIL_PCPU,
        counted: "calls",
        of: |waits| &waits.pcpu_call,
    },
];

/// Each kind of wait of the VM.
fn waits(record: &Report, vm: &VmRecord) -> [Lengths; KINDS.len()] {
    KINDS.map(|kind| Lengths::of(kind.what, &vm.latency(kind.of), seconds(record)))
}

/// Histograms of the waits that there were, all on one axis. `place`: the VM's, for the names of files.
pub(super) fn histograms(record: &Report, place: usize, vm: &VmRecord) -> Vec<Figure> {
    let waits = waits(record, vm);
    let within = reach(&waits);
    let figure = |(kind, lengths): (&Kind, &Lengths)| {
        let name = format!("vm-{place}-{}", kind.name);
        histogram(name, &lengths::title(lengths), kind.length, kind.counted, lengths, within)
    };
    KINDS.iter().zip(&waits).filter_map(figure).collect()
}

/// Everything about one VM; with histograms if it has a `place`.
pub(super) fn details(record: &Report, place: Option<usize>, vm: &VmRecord) -> Markup {
    let vmm = vm.vmm.map_or("ended", Vmm::name);
    let figures = place.map_or_else(Vec::new, |place| histograms(record, place, vm));
    html! {
        p class="by" {
            (vmm) ", process " (vm.pid) ": " (counted(vm.vcpus.len() + vm.silent_vcpus.len(), "vCPU")) ", "
            (show(Unit::Plain, vm.exits() as f64 / seconds(record))) " exits a second"
        }
        h3 { "What costs it time" }
        (causes(vm))
        h3 { "Interrupts until the vCPU runs, and waits for a pCPU" }
        (shown(&figures))
        (lengths::table(&format!("Waits of {}", vm.name), "wait", &waits(record, vm)))
        (waited_for(vm))
        h3 { "Exits" }
        (exits(record, vm))
        h3 { "vCPUs" }
        (vcpus(vm))
    }
}

/// The causes with their remedies.
fn causes(vm: &VmRecord) -> Markup {
    let heads = html! {
        th scope="col" { "cause" }
        th scope="col" class="n" { "time" }
        th scope="col" class="n" { "of the time in which its vCPUs want to run" }
        th scope="col" class="wrap" { "what to do" }
    };
    let row = |cause: &CauseCost| {
        let bar = 100.0 * cause.share.clamp(0.0, 1.0);
        html! {
            tr {
                th scope="row" { (cause.cause) }
                td class="n" { (time(cause.ns)) }
                td class="n share" style=(format!("--share:{bar:.1}%")) { (share(cause.share)) }
                td class="wrap" {
                    @for (index, remedy) in cause.remedies.iter().enumerate() { @if index > 0 { br; } (remedy) }
                }
            }
        }
    };
    expandable(&format!("Causes of {}", vm.name), "cause", &heads, &vm.causes, row)
}

/// Who had the pCPUs for which it waited.
fn waited_for(vm: &VmRecord) -> Markup {
    let heads = html! {
        th scope="col" { "waited for a pCPU after" }
        th scope="col" class="n" { "times" }
        th scope="col" class="n" { "time" }
    };
    let row = |by: &StealBy| {
        html! {
            tr {
                th scope="row" { (by.who) }
                td class="n" { (by.count) }
                td class="n" { (time(by.ns)) }
            }
        }
    };
    expandable(&format!("Whom {} waited for", vm.name), "wait for a pCPU", &heads, &vm.waited_for, row)
}

/// Exits by reason, those that took the most time first.
fn exits(record: &Report, vm: &VmRecord) -> Markup {
    let wanted = vm.times.wanted_ns();
    let mut reasons: Vec<(&Reason, &ReasonTimes)> =
        vm.reasons.iter().filter(|(_, sum)| sum.count > 0 || sum.run_ns > 0).collect();
    reasons.sort_by_key(|(_, sum)| std::cmp::Reverse(sum.run_ns));
    let heads = html! {
        th scope="col" { "exit reason" }
        th scope="col" class="n" { "a second" }
        th scope="col" class="n" { "each" }
        th scope="col" class="n" { "in the hypervisor" }
        th scope="col" class="n" { "woken" }
        th scope="col" class="n" { "preempted" }
        th scope="col" class="n" { "asleep" }
        th scope="col" class="n" { "to the VMM" }
    };
    let row = |(reason, sum): &(&Reason, &ReasonTimes)| {
        html! {
            tr {
                th scope="row" { (reason) }
                td class="n" { (show(Unit::Plain, sum.count as f64 / seconds(record))) }
                td class="n" { (time(sum.run_ns.checked_div(sum.count).unwrap_or_default())) }
                td class="n" { (share(share_of(sum.run_ns, wanted))) }
                td class="n" { (share(share_of(sum.woken_ns, wanted))) }
                td class="n" { (share(share_of(sum.preempted_ns, wanted))) }
                td class="n" { (time(sum.sleep_ns)) }
                td class="n" { (sum.to_vmm) }
            }
        }
    };
    html! {
        p { "Shares of the time in which the vCPUs want to run." }
        (expandable(&format!("Exits of {}", vm.name), "exit", &heads, &reasons, row))
    }
}

/// Where each vCPU's time goes, and its halts.
fn vcpus(vm: &VmRecord) -> Markup {
    let heads = html! {
        th scope="col" { "vCPU" }
        @for part in &PARTS { th scope="col" class="n" { (part.label) } }
        th scope="col" class="n" { "halts" }
        th scope="col" class="n" { "ended by polling" }
        th scope="col" class="n" { "polling in vain" }
        th scope="col" class="n" { "migrations" }
    };
    let row = |vcpu: &VcpuRecord| {
        let whole = vcpu.times.total_ns();
        let halts = vcpu.halts.polled.saturating_add(vcpu.halts.blocked);
        html! {
            tr {
                th scope="row" { (vcpu.vcpu) }
                @for part in &PARTS { td class="n" { (share(share_of((part.of)(&vcpu.times), whole))) } }
                td class="n" { (halts) }
                td class="n" { (share(share_of(vcpu.halts.polled, halts))) }
                td class="n" { (time(vcpu.halts.poll_fail_ns)) }
                td class="n" { (vcpu.migrations) }
            }
        }
    };
    let list = |numbers: Vec<u32>| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let silent = list(vm.silent_vcpus.iter().copied().collect());
    let polling = list(vm.vcpus.iter().filter(|vcpu| vcpu.halts.guest_polls).map(|vcpu| vcpu.vcpu).collect());
    html! {
        (expandable(&format!("vCPUs of {}", vm.name), "vCPU", &heads, &vm.vcpus, row))
        @if !silent.is_empty() {
            p { "vCPUs without an event, halted throughout or never started: " (silent) "." }
        }
        @if !polling.is_empty() {
            p { "vCPUs that poll themselves and asked the host not to: " (polling) "." }
        }
    }
}

/// A length of time.
fn time(ns: u64) -> String {
    show(Unit::Seconds, ns as f64 / 1e9)
}
