//! Reports as text.

use std::fmt::Write as _;

use gleaner_trace::Histogram;

use crate::attribution::Times;
use crate::cause::WORTH;
use crate::discover::{Role, Vm};
use crate::report::{Latencies, Report, VcpuRecord, VmRecord};
use crate::{Group, Reason};

/// The list of VMs: one line each.
pub fn list(vms: &[Vm]) -> String {
    let width = vms.iter().map(|vm| vm.name.chars().count()).max().unwrap_or(0).max(4);
    let mut text = format!(
        "{:<width$}  {:>8}  {:<16}  {:>5}  {:>5}  {:>3}\n",
        "VM", "process", "VMM", "vCPUs", "vhost", "I/O"
    );
    for vm in vms {
        let Vm { name, pid, vmm, vcpus, .. } = vm;
        let (vhost, io) = (vm.count(Role::Vhost), vm.count(Role::Io));
        let _ = writeln!(
            text,
            "{name:<width$}  {pid:>8}  {:<16}  {:>5}  {vhost:>5}  {io:>3}",
            vmm.name(),
            vcpus.len()
        );
    }
    text
}

/// A diagnosis: for each VM its time, its causes with remedies, and the hypervisor's time by group. `all` adds each exit
/// reason and each vCPU.
pub fn diagnosis(report: &Report, all: bool) -> String {
    let mut text = String::new();
    let (seconds, elapsed) = (report.span_ns as f64 / 1e9, report.elapsed_s());
    let _ = writeln!(
        text,
        "{} in {elapsed:.1} s on {} pCPUs, Linux {}",
        if report.vms.len() == 1 { "1 VM".to_owned() } else { format!("{} VMs", report.vms.len()) },
        report.host.pcpus,
        report.host.kernel
    );
    if let Some(cost) = report.cost {
        let (share, pcpus) = (100.0 * cost.share, 100.0 * cost.pcpus);
        let _ =
            writeln!(text, "following them takes {share:.2} % of the vCPUs' time, {pcpus:.2} % of one pCPU");
    }
    if report.elapsed_ns.is_some() {
        let _ =
            writeln!(text, "to keep within the budget they were followed for {seconds:.2} s of that time");
    }
    if report.lost.matters() {
        let lost = report.lost;
        let _ = writeln!(
            text,
            "not counted for want of room: {} vCPUs, {} threads, {} pairs of VMs",
            lost.vcpus, lost.storage, lost.pairs
        );
    }
    for vm in &report.vms {
        text.push('\n');
        describe(&mut text, vm, seconds, all);
    }
    text
}

fn describe(text: &mut String, vm: &VmRecord, seconds: f64, all: bool) {
    let vmm = vm.vmm.map_or("ended", |vmm| vmm.name());
    let _ = writeln!(
        text,
        "{} ({vmm}, process {}): {} vCPUs, {:.0} exits/s",
        vm.name,
        vm.pid,
        vm.vcpus.len() + vm.silent_vcpus.len(),
        vm.exits() as f64 / seconds.max(1e-9)
    );
    let _ = writeln!(text, "  time: {}", times(&vm.times));
    causes(text, vm);
    let groups: Vec<String> = Group::ALL
        .iter()
        .filter_map(|group| Some((group, *vm.groups.get(group)?)))
        // What would show as 0.0 % is left out.
        .filter(|(_, ns)| ns.saturating_mul(2000) > vm.times.wanted_ns())
        .map(|(group, ns)| format!("{group} {}", percent(ns, vm.times.wanted_ns())))
        .collect();
    if !groups.is_empty() {
        let _ = writeln!(text, "  in the hypervisor: {}", groups.join(", "));
    }
    latencies(text, vm);
    let waited: Vec<String> =
        vm.waited_for.iter().take(4).map(|by| format!("{} {}", by.who, length(by.ns))).collect();
    if !waited.is_empty() {
        let _ = writeln!(text, "  waited for pCPUs after: {}", waited.join(", "));
    }
    polling(text, vm);
    if !vm.silent_vcpus.is_empty() {
        let names: Vec<String> = vm.silent_vcpus.iter().map(ToString::to_string).collect();
        let _ = writeln!(
            text,
            "  vCPUs without an event, halted throughout or never started: {}",
            names.join(", ")
        );
    }
    if all {
        reasons(text, vm);
        for vcpu in &vm.vcpus {
            describe_vcpu(text, vcpu);
        }
    }
}

fn causes(text: &mut String, vm: &VmRecord) {
    if vm.causes.first().is_none_or(|cost| cost.share < WORTH) {
        let _ = writeln!(
            text,
            "  nothing costs it {:.0} % of the time in which its vCPUs want to run",
            100.0 * WORTH
        );
    }
    for (place, cost) in (1..).zip(vm.causes.iter().filter(|cost| cost.share >= WORTH)) {
        let _ = writeln!(
            text,
            "  {place}. {}: {:.1} % of the time in which its vCPUs want to run",
            cost.cause,
            100.0 * cost.share
        );
        for remedy in &cost.remedies {
            let _ = writeln!(text, "     - {remedy}");
        }
    }
}

/// A kind of wait.
type Kind = fn(&Latencies) -> &Histogram;

fn latencies(text: &mut String, vm: &VmRecord) {
    let kinds: [(&str, Kind); 10] = [
        ("interrupts for halted vCPUs until the vCPU runs", |of| &of.waking),
        ("reschedule interrupts for others until the vCPU runs", |of| &of.reschedule),
        ("function calls until the vCPU runs", |of| &of.call),
        ("timers for halted vCPUs until the vCPU runs", |of| &of.timer),
        ("device interrupts for halted vCPUs until the vCPU runs", |of| &of.device),
        ("waits for a pCPU after a wake-up", |of| &of.woken),
        ("waits for a pCPU after preemption", |of| &of.preempted),
        ("interrupts for halted vCPUs until they get a pCPU", |of| &of.pcpu_halted),
        ("reschedule interrupts for others until they get a pCPU", |of| &of.pcpu_reschedule),
        ("function calls until the vCPU gets a pCPU", |of| &of.pcpu_call),
    ];
    for (name, of) in kinds {
        if let Some(line) = quantiles(&vm.latency(of)) {
            let _ = writeln!(text, "  {name}: {line}");
        }
    }
}

fn quantiles(of: &Histogram) -> Option<String> {
    let ns = |q| of.quantile(q).map(|length| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX));
    Some(format!("{} times, median {}, p99 {}", of.count, length(ns(0.5)?), length(ns(0.99)?)))
}

fn polling(text: &mut String, vm: &VmRecord) {
    let (mut polled, mut blocked, mut success, mut fail) = (0, 0, 0, 0);
    for halts in vm.vcpus.iter().map(|vcpu| &vcpu.halts) {
        polled += halts.polled;
        blocked += halts.blocked;
        success += halts.poll_success_ns;
        fail += halts.poll_fail_ns;
    }
    if polled + blocked == 0 {
        return;
    }
    let _ = writeln!(
        text,
        "  halts: {} ended while KVM polled, {blocked} gave the pCPU away; polling took {} with and {} without success",
        polled,
        length(success),
        length(fail)
    );
    let own: Vec<String> =
        vm.vcpus.iter().filter(|vcpu| vcpu.halts.guest_polls).map(|vcpu| vcpu.vcpu.to_string()).collect();
    if !own.is_empty() {
        let _ = writeln!(text, "  vCPUs that poll themselves and asked the host not to: {}", own.join(", "));
    }
}

fn reasons(text: &mut String, vm: &VmRecord) {
    let _ = writeln!(
        text,
        "  {:<18} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}",
        "exit reason", "exits", "time", "asleep", "woken", "preempted", "to VMM"
    );
    let mut sums: Vec<_> = vm.reasons.iter().filter(|(_, sum)| sum.count > 0 || sum.run_ns > 0).collect();
    sums.sort_by_key(|(reason, sum)| (std::cmp::Reverse(sum.run_ns), **reason));
    for (reason, sum) in sums {
        let _ = writeln!(
            text,
            "  {:<18} {:>10} {:>10} {:>10} {:>10} {:>10} {:>8}",
            Reason::name(*reason),
            sum.count,
            length(sum.run_ns),
            length(sum.sleep_ns),
            length(sum.woken_ns),
            length(sum.preempted_ns),
            sum.to_vmm
        );
    }
}

fn describe_vcpu(text: &mut String, vcpu: &VcpuRecord) {
    let _ = writeln!(
        text,
        "  vCPU {} (thread {}{}): {}; {} migrations",
        vcpu.vcpu,
        vcpu.tid,
        if vcpu.ended { ", ended" } else { "" },
        times(&vcpu.times),
        vcpu.migrations
    );
}

/// The parts of the time, in per cent of the whole.
fn times(times: &Times) -> String {
    let whole = times.total_ns();
    let parts = [
        ("guest", times.guest_ns),
        ("hypervisor", times.hypervisor_ns),
        ("woken", times.woken_ns),
        ("preempted", times.preempted_ns),
        ("blocked", times.blocked_ns),
        ("halted", times.halted_ns),
        ("unknown", times.unknown_ns),
    ];
    let shown: Vec<String> = parts
        .iter()
        .filter(|(name, ns)| *ns > 0 || matches!(*name, "guest" | "hypervisor" | "halted"))
        .map(|(name, ns)| format!("{name} {}", percent(*ns, whole)))
        .collect();
    shown.join(", ")
}

pub(crate) fn percent(part: u64, whole: u64) -> String {
    format!("{:.1} %", 100.0 * part as f64 / whole.max(1) as f64)
}

/// A length of time with three digits.
pub(crate) fn length(ns: u64) -> String {
    let ns = ns as f64;
    let (value, unit) = match ns {
        ns if ns < 1e3 => return format!("{ns:.0} ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {unit}")
}
