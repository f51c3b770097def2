//! Shares: virtual times, and the vCPUs among which a VM's weight is divided (`fair.bpf.h`).

use gleaner_coordination::record::Task;
use gleaner_coordination::{ACTIVE_UNIT, active_average, share, virtual_time, vtime_after_sleep};

use super::host::Host;

impl Host {
    /// The share of the task, in units of `logic.h`.
    pub(super) fn share_of(&mut self, task: Task) -> u64 {
        let own = self.task(task);
        let (vm, weight) = (own.vm, own.weight);
        match vm.and_then(|vm| self.vms.get(&vm)) {
            Some(vm) => share(vm.weight, vm.average),
            None => share(weight, ACTIVE_UNIT),
        }
    }

    /// The virtual time of the task that runs on the pCPU, at `at`.
    pub(super) fn current_vtime(&self, cpu: u32, at: u64) -> u64 {
        let Some(pcpu) = self.pcpus.get(cpu as usize) else { return self.floor };
        pcpu.vtime.wrapping_add(virtual_time(at.saturating_sub(pcpu.ran_from), pcpu.share))
    }

    /// A task that slept starts again.
    pub(super) fn catch_up(&mut self, task: Task, cpu: u32, at: u64) {
        let (here, floor, slice) = (self.current_vtime(cpu, at), self.floor, self.header.slice_ns);
        let own = self.task(task);
        own.vtime = vtime_after_sleep(own.vtime, own.ahead, here, floor, slice);
    }

    /// `by` more of the VM's vCPUs are active from `at` on.
    pub(super) fn average_active(&mut self, vm: u32, by: i32, at: u64) {
        let window = self.header.average_ns;
        let Some(vm) = self.vms.get_mut(&vm) else { return };
        let summed = u64::from(vm.active).wrapping_mul(at.saturating_sub(vm.changed_at));
        vm.sum = vm.sum.wrapping_add(summed);
        vm.changed_at = at;
        vm.active = vm.active.wrapping_add_signed(by);
        if at < vm.summed_from.saturating_add(window) {
            return;
        }
        vm.average = active_average(vm.average, vm.sum, at - vm.summed_from, window);
        (vm.summed_from, vm.sum) = (at, 0);
    }

    pub(super) fn set_active(&mut self, task: Task, active: bool, at: u64) {
        let own = self.task(task);
        let Some(vm) = own.vm else { return };
        if std::mem::replace(&mut own.active, active) != active {
            self.average_active(vm, if active { 1 } else { -1 }, at);
        }
    }

    /// Takes the task out of the load in which it is counted.
    pub(super) fn uncount(&mut self, task: Task) {
        let own = self.task(task);
        let load = own.load;
        if let Some(cpu) = own.counted.take()
            && let Some(pcpu) = self.pcpu(cpu)
        {
            pcpu.load = pcpu.load.wrapping_sub(load);
        }
    }

    /// Counts it in the load of this pCPU alone.
    pub(super) fn count_on(&mut self, task: Task, cpu: u32) {
        if self.task(task).counted == Some(cpu) {
            return;
        }
        self.uncount(task);
        let load = self.share_of(task);
        let own = self.task(task);
        (own.load, own.counted) = (load, Some(cpu));
        if let Some(pcpu) = self.pcpu(cpu) {
            pcpu.load = pcpu.load.wrapping_add(load);
        }
    }
}
