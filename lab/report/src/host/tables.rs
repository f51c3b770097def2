//! All VMs in numbers, and the host.

use gleaner_host_record::{Group, Isa, Report, VmRecord};
use maud::{Markup, html};

use super::figures::{PARTS, group_ns};
use super::share_of;
use crate::number::{Unit, show};
use crate::table::{expandable, share};

/// Where each VM's time goes.
pub(super) fn times(vms: &[&VmRecord]) -> Markup {
    let heads = html! {
        th scope="col" { "VM" }
        th scope="col" class="n" { "vCPUs" }
        @for part in &PARTS { th scope="col" class="n" { (part.label) } }
    };
    let row = |vm: &&VmRecord| {
        let whole = vm.times.total_ns();
        html! {
            tr {
                th scope="row" { (vm.name) }
                td class="n" { (vm.vcpus.len() + vm.silent_vcpus.len()) }
                @for part in &PARTS { td class="n" { (share(share_of((part.of)(&vm.times), whole))) } }
            }
        }
    };
    expandable("Where the vCPUs' time goes, by VM", "VM", &heads, vms, row)
}

/// The hypervisor's time by group.
pub(super) fn groups(vms: &[&VmRecord]) -> Markup {
    let heads = html! {
        th scope="col" { "VM" }
        @for group in Group::ALL { th scope="col" class="n" { (group) } }
    };
    let row = |vm: &&VmRecord| {
        let wanted = vm.times.wanted_ns();
        html! {
            tr {
                th scope="row" { (vm.name) }
                @for group in Group::ALL { td class="n" { (share(share_of(group_ns(vm, group), wanted))) } }
            }
        }
    };
    html! {
        p { "Shares of the time in which the vCPUs want to run." }
        (expandable("The hypervisor's time by group and VM", "VM", &heads, vms, row))
    }
}

/// How KVM is set up.
pub(super) fn setup(record: &Report) -> Markup {
    let host = &record.host;
    let (virtualisation, delivery) = match host.isa {
        Isa::Svm => ("AMD SVM", "AVIC"),
        Isa::Vmx => ("Intel VMX", "APICv"),
    };
    let interrupts = if host.delivers_interrupts {
        format!("by the processor ({delivery})")
    } else {
        "by exits".to_owned()
    };
    let polling = match host.halt_poll_ns {
        None => "unknown".to_owned(),
        Some(0) => "off".to_owned(),
        Some(ns) => format!("up to {}", show(Unit::Seconds, ns as f64 / 1e9)),
    };
    let spinning = if host.detects_spinning { "reported" } else { "not reported" };
    html! {
        dl {
            dt { "Kernel" } dd { "Linux " (host.kernel) }
            dt { "Virtualisation" } dd { (virtualisation) }
            dt { "pCPUs" } dd { (host.pcpus) }
            dt { "Halt polling" } dd { (polling) }
            dt { "Interrupts for running vCPUs" } dd { (interrupts) }
            dt { "PAUSE loops" } dd { (spinning) }
        }
    }
}
