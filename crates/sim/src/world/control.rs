//! What a guest's controller sees and can do.

use super::entity::Phase;
use super::{TaskTotals, VcpuReport, World};
use crate::ids::{Ns, Vcpu, Vm};
use crate::spec::IdleMode;

impl World {
    /// The VM called `name`.
    pub fn vm_named(&self, name: &str) -> Option<Vm> {
        self.vms.iter().position(|vm| vm.name == name).map(Vm::at)
    }

    /// How many vCPUs the VM has.
    pub(crate) fn vcpus(&self, vm: Vm) -> u32 {
        self.vms[vm.index()].vcpus
    }

    /// The counters of the VM's vCPUs and, summed, of its programs.
    pub(crate) fn counters(&mut self, vm: Vm) -> (Vec<VcpuReport>, TaskTotals) {
        let data = &self.vms[vm.index()];
        let vcpus = (data.first..data.first + data.vcpus).map(Vcpu);
        let vcpus = vcpus
            .map(|v| {
                self.settle(v);
                self.vcpu_report(v)
            })
            .collect();
        let mut sum = TaskTotals::default();
        for totals in self.tasks.iter().filter(|t| t.vm == vm).map(|t| t.totals) {
            sum.cpu += totals.cpu;
            sum.user += totals.user;
            sum.run_delay += totals.run_delay;
            sum.switches += totals.switches;
            sum.moved += totals.moved;
            sum.operations += totals.operations;
        }
        (vcpus, sum)
    }

    /// Threads of the VM that run or want to.
    pub(crate) fn runnable(&self, vm: Vm) -> u32 {
        self.vms[vm.index()].ready
    }

    /// How many of its vCPUs may run threads.
    pub(crate) fn active_vcpus(&self, vm: Vm) -> u32 {
        self.vcpus_of(vm).map(|v| u32::from(self.is_active(v))).sum()
    }

    /// Threads of the VM that have not ended.
    pub(crate) fn threads_of(&self, vm: Vm) -> u32 {
        self.vms[vm.index()].alive
    }

    /// Whether no active vCPU polls longer than it is told to.
    pub(crate) fn settled(&self, vm: Vm) -> bool {
        let limit = self.limit(vm);
        self.vcpus_of(vm).all(|v| self.v(v).poll_limit <= limit)
    }

    pub(super) fn vcpus_of(&self, vm: Vm) -> impl Iterator<Item = Vcpu> + use<> {
        let data = &self.vms[vm.index()];
        (data.first..data.first + data.vcpus).map(Vcpu)
    }

    /// The controller used so much CPU time of a vCPU that works.
    pub(crate) fn disturb(&mut self, vm: Vm, ns: Ns) {
        let busy = self.vcpus_of(vm).find_map(|v| self.v(v).current);
        if let Some(t) = busy {
            self.t_mut(t).owed += ns;
        }
    }

    /// Puts a setting in force: which vCPUs are active, and what idle ones do.
    pub(crate) fn control(&mut self, vm: Vm, active: &[bool], idle: IdleMode) {
        let changed = self.vms[vm.index()].idle != idle;
        self.vms[vm.index()].idle = idle;
        if self.vms[vm.index()].active != active {
            self.set_active(vm, active);
        }
        // Retention of another kind begins at the next idle period; the present one ends now.
        for v in self.vcpus_of(vm) {
            let ends = changed || !self.is_active(v);
            if ends {
                self.v_mut(v).then_poll = 0;
            }
            if ends && matches!(self.v(v).phase, Phase::IdlePoll | Phase::IdleYield) {
                self.nudge(v, 0);
            }
        }
    }
}
