//! Which scheduler the kernel has, and what `scx_gleaner` says of itself, as text.

use std::fmt::Write as _;

use gleaner_kernel::Root;
use gleaner_scx_control::{Changed, OPS, Status, time_text};
use serde::Serialize;

use crate::discover::Vm;

const SCHED_EXT: &str = "/sys/kernel/sched_ext";

/// What the kernel says of `sched_ext`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelScheduler {
    /// `enabled`, `disabled`, or a step between these; `None`: the kernel has no `sched_ext`.
    pub state: Option<String>,
    /// The scheduler that is loaded.
    pub ops: Option<String>,
}

impl KernelScheduler {
    /// Reads it.
    pub fn read(root: &Root) -> Self {
        let read = |file: &str| root.read(format!("{SCHED_EXT}/{file}")).ok().filter(|text| !text.is_empty());
        let state = read("state");
        // The directory of the latest one can be there for a moment longer.
        let is_loaded = state.as_deref().is_some_and(|state| state != "disabled");
        Self { state, ops: if is_loaded { read("root/ops") } else { None } }
    }

    /// Whether `scx_gleaner` schedules the host.
    pub fn is_gleaner(&self) -> bool {
        self.state.as_deref() == Some("enabled") && self.ops.as_deref() == Some(OPS)
    }

    /// Whether `scx_gleaner` schedules the host, or is being loaded or unloaded.
    pub fn has_gleaner(&self) -> bool {
        self.ops.as_deref() == Some(OPS)
    }

    /// As a sentence.
    pub fn text(&self) -> String {
        match (&self.state, &self.ops) {
            (None, _) => {
                "the kernel's own scheduler schedules this host; this kernel has no sched_ext".to_owned()
            }
            (Some(state), Some(ops)) if state == "enabled" => {
                format!("the sched_ext scheduler {ops} schedules this host")
            }
            (Some(state), _) if state == "disabled" => {
                "the kernel's own scheduler schedules this host".to_owned()
            }
            (Some(state), ops) => {
                format!("the sched_ext scheduler {} is {state}", ops.as_deref().unwrap_or("without a name"))
            }
        }
    }
}

/// What is in force, the VMs, and what it has done. `vms` have the names.
pub fn status_text(status: &Status, pid: i32, vms: &[Vm]) -> String {
    let options = &status.options;
    let mut text = format!(
        "scx_gleaner {} schedules this host (process {pid})\n\
         default rules {}, preemption delay {}, urgent slice {}, allowance {}\n\
         until it ends: placement {}, {} symbiosis, slice {}\n",
        status.version,
        options.rules,
        time_text(options.preemption_delay_ns),
        time_text(options.urgent_slice_ns),
        time_text(options.allowance_ns),
        options.placement,
        if options.symbiosis { "with" } else { "without" },
        time_text(options.slice_ns),
    );
    if !status.sees_kvm {
        text.push_str(
            "KVM was not loaded when it started: nothing becomes urgent until it is started again\n",
        );
    }
    // Writing to a string cannot fail.
    if !status.vms.is_empty() {
        let _ = writeln!(
            text,
            "\n{:20} {:>8} {:>6} {:>6} {:>6}  rules",
            "VM", "process", "vCPUs", "active", "weight"
        );
    }
    for vm in &status.vms {
        let name = name(vms, vm.pid).unwrap_or(&vm.name);
        let whose = if vm.own_rules { "" } else { " (default)" };
        let _ = writeln!(
            text,
            "{name:20} {:>8} {:>6} {:>6} {:>6}  {}{whose}",
            vm.pid, vm.vcpus, vm.active, vm.weight, vm.rules
        );
        if !vm.decided.is_empty() {
            let _ = writeln!(text, "    {}", vm.decided);
        }
    }
    text.push_str("\nsince it started:\n");
    for stat in &status.stats {
        let _ = writeln!(text, "{:>12} {:16}  {} ({})", stat.count, stat.unit, stat.description, stat.name);
    }
    text
}

/// What was changed, a line each.
pub fn changed_text(changed: &[Changed], vms: &[Vm]) -> String {
    if changed.is_empty() {
        return "nothing is changed: all of it holds already\n".to_owned();
    }
    let line = |change: &Changed| {
        let whose = change.pid.map_or_else(String::new, |pid| match name(vms, pid) {
            Some(name) => format!("{name}: "),
            None => format!("process {pid}: "),
        });
        format!("{whose}{}: {} -> {}\n", change.what, change.from, change.to)
    };
    changed.iter().map(line).collect()
}

fn name(vms: &[Vm], pid: u32) -> Option<&String> {
    vms.iter().find(|vm| vm.pid == pid).map(|vm| &vm.name)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use gleaner_scx_control::{InForce, Rules, Stat, VmStatus};
    use gleaner_testing::tree::tree;

    use super::*;
    use crate::discover::Vmm;

    fn vm(pid: u32, name: &str) -> Vm {
        Vm { pid, name: name.to_owned(), vmm: Vmm::Qemu, vcpus: BTreeSet::new(), threads: Vec::new() }
    }

    #[test]
    fn the_kernels_scheduler_is_named() {
        let read = |files: &[(&str, &str)]| KernelScheduler::read(&Root::at(tree(files).path()));
        let (state, ops) = ("sys/kernel/sched_ext/state", "sys/kernel/sched_ext/root/ops");
        let none = read(&[]);
        assert!(none.text().ends_with("has no sched_ext") && !none.has_gleaner());
        let own = read(&[(state, "disabled\n"), (ops, "gleaner\n")]);
        assert_eq!(own.text(), "the kernel's own scheduler schedules this host");
        assert!(!own.has_gleaner(), "a leftover of the latest one");
        let other = read(&[(state, "enabled\n"), (ops, "flash\n")]);
        assert_eq!(other.text(), "the sched_ext scheduler flash schedules this host");
        assert!(!other.is_gleaner());
        let ours = read(&[(state, "enabled\n"), (ops, "gleaner\n")]);
        assert!(ours.is_gleaner());
        let between = read(&[(state, "enabling\n"), (ops, "gleaner\n")]);
        assert_eq!(between.text(), "the sched_ext scheduler gleaner is enabling");
        assert!(between.has_gleaner() && !between.is_gleaner());
    }

    #[test]
    fn the_status_names_vms_their_rules_and_what_each_count_says() {
        let status = Status {
            version: "0.1.0".to_owned(),
            sees_kvm: false,
            options: InForce {
                rules: Rules::PAPER,
                preemption_delay_ns: 300_000,
                urgent_slice_ns: 500_000,
                allowance_ns: 18_000_000,
                placement: "balance".to_owned(),
                symbiosis: true,
                slice_ns: 3_000_000,
            },
            vms: [
                (17, Rules::OFF, true, ""),
                (18, Rules::PAPER, false, "resched-co stays off: too little to compare"),
            ]
            .map(|(pid, rules, own_rules, decided)| VmStatus {
                pid,
                name: "qemu-system-x86".to_owned(),
                vcpus: 4,
                active: 2,
                weight: 300,
                rules,
                own_rules,
                decided: decided.to_owned(),
            })
            .to_vec(),
            stats: vec![Stat {
                name: "stolen".to_owned(),
                unit: "tasks".to_owned(),
                description: "Tasks that an idle pCPU took".to_owned(),
                count: 7,
            }],
        };
        let text = status_text(&status, 99, &[vm(17, "web-1")]);
        let expected = "\
scx_gleaner 0.1.0 schedules this host (process 99)
default rules resched-dp,tlb-co, preemption delay 300us, urgent slice 500us, allowance 18ms
until it ends: placement balance, with symbiosis, slice 3ms
KVM was not loaded when it started: nothing becomes urgent until it is started again

VM                    process  vCPUs active weight  rules
web-1                      17      4      2    300  off
qemu-system-x86            18      4      2    300  resched-dp,tlb-co (default)
    resched-co stays off: too little to compare

since it started:
           7 tasks             Tasks that an idle pCPU took (stolen)
";
        assert_eq!(text, expected);
    }

    #[test]
    fn each_change_says_what_from_and_to() {
        let change = |what: &str, pid| Changed {
            what: what.to_owned(),
            pid,
            from: "off".to_owned(),
            to: "tlb-co".to_owned(),
        };
        let changes = [change("default rules", None), change("rules", Some(17)), change("rules", Some(18))];
        let expected =
            "default rules: off -> tlb-co\nweb-1: rules: off -> tlb-co\nprocess 18: rules: off -> tlb-co\n";
        assert_eq!(changed_text(&changes, &[vm(17, "web-1")]), expected);
        assert!(changed_text(&[], &[]).contains("holds already"));
    }
}
