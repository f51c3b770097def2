//! What a guest's controller can see and do.

use super::entity::Phase;
use super::{TaskTotals, VcpuReport, World};
use crate::ids::{Ns, Vcpu, Vm};
use crate::spec::IdleMode;

impl World {
    /// The VM called `name`.
    pub fn vm_named(&self, name: &str) -> Option<Vm> {
        self.vms.iter().position(|vm| vm.name == name).map(Vm::at)
    }

    pub(crate) fn vcpus(&self, vm: Vm) -> u32 {
        self.vms[vm.index()].vcpus
    }

    /// Counters of the VM's vCPUs and, summed, of its programs.
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

    /// Number of the VM's threads that run or are runnable.
    pub(crate) fn runnable(&self, vm: Vm) -> u32 {
        self.vms[vm.index()].ready
    }

    /// Number of its active vCPUs.
    pub(crate) fn active_vcpus(&self, vm: Vm) -> u32 {
        self.vcpus_of(vm).map(|v| u32::from(self.is_active(v))).sum()
    }

    /// Number of the VM's threads that have not exited.
    pub(crate) fn threads_of(&self, vm: Vm) -> u32 {
        self.vms[vm.index()].alive
    }

    /// Whether no active vCPU still polls beyond the limit in effect.
    pub(crate) fn settled(&self, vm: Vm) -> bool {
        let limit = self.limit(vm);
        self.vcpus_of(vm).all(|v| self.v(v).poll_limit <= limit)
    }

    pub(super) fn vcpus_of(&self, vm: Vm) -> impl Iterator<Item = Vcpu> + use<> {
        let data = &self.vms[vm.index()];
        (data.first..data.first + data.vcpus).map(Vcpu)
    }

    /// Charges the controller's CPU time to a busy vCPU.
    pub(crate) fn disturb(&mut self, vm: Vm, ns: Ns) {
        let busy = self.vcpus_of(vm).find_map(|v| self.v(v).current);
        if let Some(t) = busy {
            self.t_mut(t).owed += ns;
        }
    }

    /// Applies a setting: the active vCPUs, and what idle ones do.
    pub(crate) fn control(&mut self, vm: Vm, active: &[bool], idle: IdleMode) {
        let changed = self.vms[vm.index()].idle != idle;
        self.vms[vm.index()].idle = idle;
        if self.vms[vm.index()].active != active {
            self.set_active(vm, active);
        }
        // Another kind of retention starts with the next idle period; end the present one now.
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
