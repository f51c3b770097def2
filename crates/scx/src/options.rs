//! What can be chosen.

use gleaner_coordination::{UrgentConfig, VcpuPlacement};
use gleaner_kernel::Root;
use gleaner_kernel::lever::ThreadKey;
use gleaner_scx_control::{ReschedCo, Rules};

/// How the host is scheduled.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Rules of VMs that have none of their own.
    pub rules: Rules,
    /// For how long the sender of a reschedule interrupt is not preempted, in ns.
    pub preemption_delay_ns: u64,
    /// For how long an urgent vCPU runs before the next one, and the recipient of a reschedule interrupt is urgent, in ns.
    pub urgent_slice_ns: u64,
    /// Time on a pCPU by which an urgent vCPU may be ahead of others, in ns.
    pub allowance_ns: u64,
    /// VMs with rules of their own.
    pub vms: Vec<VmRules>,
    /// Where woken vCPUs go.
    pub placement: VcpuPlacement,
    /// Whether it matters who runs on the other threads of a core.
    pub symbiosis: bool,
    /// Slice of whoever is not urgent, in ns. It ends with a tick.
    pub slice_ns: u64,
}

impl Options {
    /// These rules with the times that all VMs share. What is decided by experiment is off.
    pub fn config(&self, rules: Rules) -> UrgentConfig {
        self.config_with(rules, rules.resched_co == ReschedCo::On)
    }

    /// The same, with Resched-Co or without.
    pub fn config_with(&self, rules: Rules, resched_co: bool) -> UrgentConfig {
        let if_on = |on, ns| if on { ns } else { 0 };
        UrgentConfig {
            resched_dp_ns: if_on(rules.resched_dp, self.preemption_delay_ns),
            resched_co_ns: if_on(resched_co, self.urgent_slice_ns),
            slice_ns: self.urgent_slice_ns,
            allowance_ns: self.allowance_ns,
            tlb_co: rules.tlb_co,
            tlb_wait: rules.tlb_wait,
        }
    }

    /// The rules that hold for a VM, by its VMM's process.
    pub fn rules_of(&self, pid: u32) -> Rules {
        self.own_rules(pid).unwrap_or(self.rules)
    }

    /// Whether rules change by experiment.
    pub fn has_auto(&self) -> bool {
        let mut all = self.vms.iter().map(|vm| vm.rules).chain([self.rules]);
        all.any(|rules| rules.resched_co == ReschedCo::Auto)
    }

    /// The rules that a VM has of its own, by its VMM's process.
    pub fn own_rules(&self, pid: u32) -> Option<Rules> {
        self.vms.iter().find(|vm| vm.pid == pid).map(|vm| vm.rules)
    }

    /// Forgets VMs whose process has ended, so that another one of its number is not taken for it.
    pub fn forget_ended(&mut self, root: &Root) {
        self.vms.retain(|vm| vm.process.is_some() && ThreadKey::of(root, vm.pid).ok() == vm.process);
    }
}

/// A VM with rules of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct VmRules {
    /// Process of its VMM.
    pub pid: u32,
    /// The one that had this number when the rules were made; `None`: there was none.
    pub process: Option<ThreadKey>,
    /// Its rules.
    pub rules: Rules,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rules: Rules::PAPER,
            preemption_delay_ns: UrgentConfig::PAPER.resched_dp_ns,
            urgent_slice_ns: UrgentConfig::PAPER.slice_ns,
            allowance_ns: UrgentConfig::PAPER.allowance_ns,
            vms: Vec::new(),
            placement: VcpuPlacement::LoadConscious,
            symbiosis: true,
            slice_ns: 3_000_000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_papers() {
        let options = Options::default();
        assert_eq!(options.config(options.rules), UrgentConfig::PAPER);
        assert_eq!(options.config(Rules::OFF), UrgentConfig::OFF);
    }

    #[test]
    fn rules_share_the_times() {
        let options =
            Options { preemption_delay_ns: 200_000, urgent_slice_ns: 300_000, ..Options::default() };
        let rules = options.config(Rules { resched_dp: true, ..Rules::OFF });
        assert_eq!((rules.resched_dp_ns, rules.resched_co_ns, rules.slice_ns), (200_000, 0, 300_000));
        assert!(!rules.tlb_co);
        let rules = Rules { resched_co: ReschedCo::Auto, ..Rules::OFF };
        assert_eq!(options.config(rules), options.config(Rules::OFF));
        assert_eq!(options.config_with(rules, true).resched_co_ns, 300_000);
    }

    #[test]
    fn rules_end_with_the_process_that_they_were_made_for() {
        let stat = |start: u64| format!("42 (qemu) S{} {start} 0", " 0".repeat(18));
        let (first, later) = (stat(1000), stat(2000));
        let dir = gleaner_testing::tree::tree(&[("proc/42/task/42/stat", first.as_str())]);
        let root = Root::at(dir.path());
        let vm = |pid| VmRules { pid, process: ThreadKey::of(&root, pid).ok(), rules: Rules::OFF };
        let mut options = Options { vms: vec![vm(42), vm(43)], ..Options::default() };
        options.forget_ended(&root);
        assert_eq!(options.vms, [vm(42)]);
        std::fs::write(dir.path().join("proc/42/task/42/stat"), later).unwrap();
        options.forget_ended(&root);
        assert_eq!(options.vms, []);
    }
}
