//! Null models: a scenario with one mechanism switched off.

use std::str::FromStr;

use gleaner_coordination::VcpuPlacement;

use crate::cost::Costs;
use crate::program::{BarrierKind, ObjectKind, Op};
use crate::scenario::{Control, Scenario};
use crate::spec::{Spec, UrgentRules, VmSpec};

/// A mechanism that a row is about. A row that comes out without it is no evidence for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Off {
    /// The hypervisor: a VM costs what the bare machine does, with neither exits for pause loops nor halt polling.
    Hypervisor,
    /// All costs of the kernel and the hypervisor: they take no time.
    Costs,
    /// Whatever shares the machine: other VMs, other programs of the system.
    Neighbours,
    /// Gleaner: idle vCPUs halt, and all are active.
    Gleaner,
    /// The urgency rules of ASPLOS'13.
    Urgent,
    /// The placement of vCPUs: uncoordinated.
    Placement,
    /// Both of these: the baseline of ASPLOS'13.
    Scheme,
    /// Guests that send their interrupts after they have released the queue's lock.
    DelayedInterrupts,
    /// Polling in the guest's idle loop.
    IdlePolling,
    /// Polling in the hypervisor.
    HaltPolling,
    /// Exits for pause loops.
    PauseLoops,
    /// Paravirtual spinlocks.
    PvLocks,
    /// TLB shootdowns that leave preempted vCPUs out.
    PvTlb,
    /// Programs' TLB shootdowns.
    Shootdowns,
    /// Spinning in user mode: waiters block at once.
    UserSpinning,
    /// Programs' locks, barriers and TLB shootdowns: threads compute and never wait for each other.
    Synchronisation,
}

/// The names in the rows.
const NAMES: [(&str, Off); 16] = [
    ("hypervisor", Off::Hypervisor),
    ("costs", Off::Costs),
    ("neighbours", Off::Neighbours),
    ("gleaner", Off::Gleaner),
    ("urgent", Off::Urgent),
    ("placement", Off::Placement),
    ("scheme", Off::Scheme),
    ("delayed interrupts", Off::DelayedInterrupts),
    ("idle polling", Off::IdlePolling),
    ("halt polling", Off::HaltPolling),
    ("pause loops", Off::PauseLoops),
    ("pv locks", Off::PvLocks),
    ("pv tlb", Off::PvTlb),
    ("shootdowns", Off::Shootdowns),
    ("user spinning", Off::UserSpinning),
    ("synchronisation", Off::Synchronisation),
];

impl FromStr for Off {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(name, _)| *name == text).map(|(_, off)| *off);
        found.ok_or_else(|| format!("`{text}` is no mechanism that can be switched off"))
    }
}

impl Off {
    /// Switches the mechanism off.
    pub fn apply(self, scenario: &mut Scenario) {
        let spec = &mut scenario.spec;
        match self {
            Self::Hypervisor => {
                for vm in &mut spec.vms {
                    (vm.costs, vm.ple, vm.halt_poll_max) = (Costs::ATC14_NATIVE, false, 0);
                }
            }
            Self::Costs => spec.vms.iter_mut().for_each(|vm| vm.costs = Costs::NONE),
            Self::Neighbours => {
                spec.vms.truncate(1);
                spec.vms[0].tasks.truncate(1);
                scenario.control.truncate(1);
            }
            Self::Gleaner | Self::IdlePolling => scenario.control.fill(Control::HALT),
            Self::Urgent => no_urgency(spec),
            Self::Placement => spec.host.placement = VcpuPlacement::Uncoordinated,
            Self::Scheme => {
                no_urgency(spec);
                spec.host.placement = VcpuPlacement::Uncoordinated;
            }
            Self::DelayedInterrupts => spec.vms.iter_mut().for_each(|vm| vm.wake_queue = false),
            Self::HaltPolling => spec.vms.iter_mut().for_each(|vm| vm.halt_poll_max = 0),
            Self::PauseLoops => spec.vms.iter_mut().for_each(|vm| vm.ple = false),
            Self::PvLocks => spec.vms.iter_mut().for_each(|vm| vm.pv_lock = false),
            Self::PvTlb => spec.vms.iter_mut().for_each(|vm| vm.pv_tlb = false),
            Self::Shootdowns => spec.vms.iter_mut().for_each(|vm| skip(vm, |op| *op == Op::Shootdown)),
            Self::UserSpinning => spec.vms.iter_mut().for_each(block_at_once),
            Self::Synchronisation => spec.vms.iter_mut().for_each(|vm| {
                skip(vm, |op| matches!(op, Op::Shootdown | Op::Lock(_) | Op::Unlock(_) | Op::Barrier(_)));
            }),
        }
    }
}

/// Replaces steps of the VM's programs by one that takes no time, so that the others keep their numbers.
fn skip(vm: &mut VmSpec, wanted: impl Fn(&Op) -> bool) {
    let roles = vm.tasks.iter_mut().flat_map(|task| &mut task.program.roles);
    for op in roles.flat_map(|role| &mut role.code).filter(|op| wanted(op)) {
        *op = Op::Done(0);
    }
}

/// Waiters of the VM's programs sleep without spinning first.
fn block_at_once(vm: &mut VmSpec) {
    for object in vm.tasks.iter_mut().flat_map(|task| &mut task.program.objects) {
        match object {
            ObjectKind::Mutex { spin, .. } | ObjectKind::Queue { spin, .. } => *spin = 0,
            ObjectKind::Barrier { kind: kind @ BarrierKind::Condition(_), .. } => {
                *kind = BarrierKind::Condition(0);
            }
            ObjectKind::Barrier { kind, .. } => *kind = BarrierKind::Block,
            ObjectKind::Condition | ObjectKind::Channel(_) => {}
        }
    }
}

fn no_urgency(spec: &mut Spec) {
    spec.host.urgent = UrgentRules::OFF;
    for vm in &mut spec.vms {
        vm.urgent = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::End;
    use gleaner_engine::Journal;

    /// A scenario in which every mechanism has something to do.
    fn scenario() -> Scenario {
        let text = r#"
title = "everything"
time = "50ms"
[host]
cores = 2
placement = "load-conscious"
urgent = { resched_dp = true }
[[vm]]
name = "a"
count = 2
vcpus = 2
costs = "atc14-vm"
policy = "gleaner"
halt_poll = "200us"
pv_tlb = true
pv_lock = true
wake_queue = true
[[vm.program]]
name = "volrend"
variant = "tpds21"
[[vm.program]]
name = "dedup"
"#;
        Scenario::parse("x.toml", text).unwrap()
    }

    #[test]
    fn each_changes_the_scenario_and_leaves_one_that_runs() {
        for (name, off) in NAMES {
            assert_eq!(name.parse(), Ok(off));
            let mut changed = scenario();
            off.apply(&mut changed);
            assert_ne!(changed, scenario(), "{name}");
            let outcome = changed.run(None, &mut Journal::disabled()).unwrap();
            assert!(matches!(outcome.end, End::TimeLimit | End::Finished), "{name}: {}", outcome.end);
            let mut twice = changed.clone();
            off.apply(&mut twice);
            assert_eq!(changed, twice, "{name}");
        }
        assert!("gravity".parse::<Off>().unwrap_err().contains("gravity"));
    }
}
