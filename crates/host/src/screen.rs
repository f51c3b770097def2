//! The screen of `gleaner-host top`: a report as lines of a fixed width and number.

use std::fmt::Write as _;

use crate::attribution::Times;
use crate::cause::WORTH;
use crate::reading::Pcpu;
use crate::report::{Report, VmRecord};
use crate::text::{length, percent};
use crate::{Group, Reason};

/// Lines for the VM that loses most, below the table: its causes, groups and reasons.
const DETAILS: usize = 10;
/// Width of a VM's name.
const NAME: usize = 16;

/// The report as exactly `height` lines of at most `width` columns: the pCPUs, the VMs by what they lose, and the details
/// of the first.
pub fn screen(report: &Report, width: usize, height: usize) -> Vec<String> {
    let mut lines = vec![head(report), String::new(), table_head()];
    let mut vms: Vec<&VmRecord> = report.vms.iter().collect();
    vms.sort_by_key(|vm| (std::cmp::Reverse(lost(&vm.times)), vm.pid));
    let room = height.saturating_sub(lines.len() + DETAILS + 1).max(1);
    lines.extend(vms.iter().take(room).map(|vm| row(vm, report.span_ns)));
    if vms.is_empty() {
        lines.push("no virtual machine runs here".to_owned());
    }
    if vms.len() > room {
        lines.push(format!("... and {} more", vms.len() - room));
    }
    if let Some(vm) = vms.first() {
        lines.push(String::new());
        lines.extend(details(vm, report.span_ns));
    }
    if !report.missing.is_empty() {
        lines.push(format!(
            "not followed here: {} kinds of events; `diagnose` names them",
            report.missing.len()
        ));
    }
    lines.resize(height, String::new());
    lines.into_iter().map(|line| line.chars().take(width).collect()).collect()
}

/// Time that vCPUs wanted to run and were not in the guest.
fn lost(times: &Times) -> u64 {
    times.wanted_ns().saturating_sub(times.guest_ns)
}

fn head(report: &Report) -> String {
    let mut sum = Pcpu::default();
    for pcpu in &report.pcpus {
        sum.vcpu_ns += pcpu.vcpu_ns;
        sum.other_ns += pcpu.other_ns;
        sum.idle_ns += pcpu.idle_ns;
    }
    let whole = sum.vcpu_ns + sum.other_ns + sum.idle_ns;
    let mut line = format!(
        "gleaner-host: {} pCPUs: vCPUs {}, other {}, idle {}",
        report.host.pcpus,
        percent(sum.vcpu_ns, whole),
        percent(sum.other_ns, whole),
        percent(sum.idle_ns, whole)
    );
    if let Some(cost) = report.cost {
        let _ = write!(line, "; following {:.1} %", 100.0 * cost.share);
    }
    if report.elapsed_ns.is_some() {
        let _ = write!(line, " in {:.0} % of the time", 100.0 / report.scale());
    }
    line
}

fn table_head() -> String {
    format!(
        "{:<NAME$} {:>5} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6}  {}",
        "VM", "vCPUs", "exits/s", "guest", "hyper", "wait", "block", "halted", "top cause"
    )
}

fn row(vm: &VmRecord, span_ns: u64) -> String {
    let times = &vm.times;
    let share = |ns: u64| format!("{:.1}", 100.0 * ns as f64 / times.total_ns().max(1) as f64);
    let name: String = vm.name.chars().take(NAME).collect();
    let top = vm.causes.first().filter(|cost| cost.share >= WORTH);
    let top =
        top.map_or("-".to_owned(), |cost| format!("{:.0} % {}", 100.0 * cost.share, cost.cause.short()));
    format!(
        "{name:<NAME$} {:>5} {:>7.0} {:>6} {:>6} {:>6} {:>6} {:>6}  {top}",
        vm.vcpus.len() + vm.silent_vcpus.len(),
        per_second(vm.exits(), span_ns),
        share(times.guest_ns),
        share(times.hypervisor_ns),
        share(times.woken_ns + times.preempted_ns),
        share(times.blocked_ns),
        share(times.halted_ns),
    )
}

fn per_second(count: u64, span_ns: u64) -> f64 {
    count as f64 * 1e9 / span_ns.max(1) as f64
}

fn details(vm: &VmRecord, span_ns: u64) -> Vec<String> {
    let wanted = vm.times.wanted_ns();
    let groups: Vec<String> = Group::ALL
        .iter()
        .filter_map(|group| {
            Some((group, *vm.groups.get(group).filter(|ns| ns.saturating_mul(2000) > wanted)?))
        })
        .map(|(group, ns)| format!("{group} {}", percent(ns, wanted)))
        .collect();
    let mut lines = vec![format!("{}: {}", vm.name, groups.join(", "))];
    let mut reasons: Vec<_> = vm.reasons.iter().filter(|(_, sum)| sum.count > 0).collect();
    reasons.sort_by_key(|(reason, sum)| (std::cmp::Reverse(sum.total_ns() - sum.sleep_ns), **reason));
    lines.push(format!(
        "{:<18} {:>9} {:>10} {:>10} {:>10} {:>10}",
        "exit reason", "per s", "each", "run", "waited", "asleep"
    ));
    for (reason, sum) in reasons.into_iter().take(DETAILS - 3) {
        lines.push(format!(
            "{:<18} {:>9.0} {:>10} {:>10} {:>10} {:>10}",
            Reason::name(*reason),
            per_second(sum.count, span_ns),
            length(sum.run_ns / sum.count.max(1)),
            percent(sum.run_ns, wanted),
            percent(sum.woken_ns + sum.preempted_ns, wanted),
            length(sum.sleep_ns),
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::attribution::ReasonTimes;
    use crate::cause::{Cause, CauseCost};
    use crate::discover::Vmm;
    use crate::reading::Lost;
    use crate::{HostSetup, Isa};

    fn vm(pid: u32, name: &str, guest_ns: u64, run_ns: u64) -> VmRecord {
        let hlt = ReasonTimes { count: 1000, run_ns, sleep_ns: 100, ..ReasonTimes::default() };
        let reasons: BTreeMap<Reason, ReasonTimes> = [(Reason::Hlt, hlt)].into();
        VmRecord {
            pid,
            name: name.to_owned(),
            vmm: Some(Vmm::Qemu),
            silent_vcpus: BTreeSet::from([0, 1]),
            times: Times::of(0, guest_ns, &reasons),
            groups: [(Group::Scheduling, run_ns)].into(),
            reasons,
            causes: vec![CauseCost { cause: Cause::WakeUps, ns: run_ns, share: 0.25, remedies: Vec::new() }],
            waited_for: Vec::new(),
            vcpus: Vec::new(),
        }
    }

    fn report(vms: Vec<VmRecord>) -> Report {
        Report {
            format: 1,
            host: HostSetup {
                kernel: "6.12".to_owned(),
                isa: Isa::Svm,
                pcpus: 4,
                halt_poll_ns: None,
                delivers_interrupts: false,
                detects_spinning: false,
            },
            span_ns: 1_000_000_000,
            elapsed_ns: None,
            hidden: Vec::new(),
            missing: Vec::new(),
            lost: Lost::default(),
            cost: None,
            pcpus: vec![Pcpu { vcpu_ns: 30, other_ns: 10, idle_ns: 60 }],
            timeline: Vec::new(),
            vms,
        }
    }

    #[test]
    fn the_vm_that_loses_most_comes_first_and_has_its_reasons() {
        let lines = screen(&report(vec![vm(1, "little", 900, 100), vm(2, "much", 300_000, 100_000)]), 80, 24);
        assert_eq!(lines[0], "gleaner-host: 4 pCPUs: vCPUs 30.0 %, other 10.0 %, idle 60.0 %");
        assert!(lines[3].starts_with("much                 2    1000   75.0   25.0"), "{}", lines[3]);
        assert!(lines[3].ends_with("25 % wake-ups"), "{}", lines[3]);
        assert!(lines[4].starts_with("little"), "{}", lines[4]);
        assert_eq!(lines[6], "much: scheduling 25.0 %");
        assert!(lines[8].starts_with("HLT                     1000     100 ns     25.0 %"), "{}", lines[8]);
    }

    #[test]
    fn any_number_of_vms_fits_and_those_left_out_are_counted() {
        for vms in [0, 1, 12, 500_u32] {
            let report = report(
                (0..vms).map(|pid| vm(pid, &format!("a-name-that-is-long-{pid}"), 900, 100)).collect(),
            );
            for (width, height) in [(80, 24), (40, 12), (200, 60)] {
                let lines = screen(&report, width, height);
                assert_eq!(lines.len(), height);
                assert!(lines.iter().all(|line| line.chars().count() <= width));
            }
        }
        let many = screen(&report((0..50).map(|pid| vm(pid, "x", 900, 100)).collect()), 80, 24);
        assert!(many.contains(&"... and 40 more".to_owned()), "{many:#?}");
    }
}
