//! The quota of a VM's programs: so much CPU time in each period, on all vCPUs together (kernel: CFS bandwidth control,
//! `throttle_cfs_rq` and `unthrottle_cfs_rq` in kernel/sched/fair.c; control groups: `cpu.max`).

use super::entity::irq;
use super::{Timer, World};
use crate::ids::{Ns, Thread, Vcpu, Vm};
use crate::spec::Quota;

/// The quota is checked at most this often, so programs overrun it by up to this time on each vCPU. What they have
/// overrun counts in the next period, as in the kernel, whose checks are its ticks.
const CHECK_INTERVAL: Ns = 1_000_000;

/// How much of its quota a VM has used.
#[derive(Debug)]
pub(crate) struct Bandwidth {
    quota: Quota,
    /// When the present period ends.
    period_ends: Ns,
    /// CPU time of the present period.
    used: Ns,
    /// Since when no thread may run.
    throttled_since: Option<Ns>,
    /// Time for which no thread was allowed to run, up to `throttled_since`.
    throttled: Ns,
    /// Runnable threads that must wait for the next period, on no runqueue.
    parked: Vec<Thread>,
}

impl Bandwidth {
    pub(super) fn new(quota: Quota) -> Self {
        Self {
            quota,
            period_ends: quota.period,
            used: 0,
            throttled_since: None,
            throttled: 0,
            parked: Vec::new(),
        }
    }

    /// Adds CPU time of a program.
    pub(super) fn charge(&mut self, ns: Ns) {
        self.used += ns;
    }

    /// The time for which threads were kept from running, until `now`.
    fn throttled(&self, now: Ns) -> Ns {
        self.throttled + self.throttled_since.map_or(0, |since| now - since)
    }

    /// When to check next: at the end of the period, or when `vcpus` could have used up the quota.
    fn next_check(&self, now: Ns, vcpus: u32) -> Ns {
        if self.throttled_since.is_some() {
            return self.period_ends;
        }
        let left = self.quota.runtime.saturating_sub(self.used) / Ns::from(vcpus);
        self.period_ends.min(now + left.max(CHECK_INTERVAL))
    }
}

impl World {
    /// The time for which the VM's quota has kept its programs from running.
    pub(crate) fn throttled(&self, vm: Vm) -> Ns {
        self.vms[vm.index()].bandwidth.as_ref().map_or(0, |b| b.throttled(self.now))
    }

    /// Whether the quota of the vCPU's VM is used up.
    pub(super) fn is_throttled(&self, v: Vcpu) -> bool {
        self.vm(v).bandwidth.as_ref().is_some_and(|b| b.throttled_since.is_some())
    }

    /// Starts the first period.
    pub(super) fn start_quota(&mut self, vm: Vm) {
        let data = &self.vms[vm.index()];
        if let Some(bandwidth) = &data.bandwidth {
            self.set(Timer::Quota(vm), bandwidth.next_check(self.now, data.vcpus));
        }
    }

    /// Compares what was used with the quota; starts the next period if the present one is over.
    pub(super) fn check_quota(&mut self, vm: Vm) {
        for v in self.vcpus_of(vm) {
            self.settle(v);
        }
        let now = self.now;
        let vcpus = self.vms[vm.index()].vcpus;
        let Some(bandwidth) = &mut self.vms[vm.index()].bandwidth else { return };
        if now >= bandwidth.period_ends {
            bandwidth.used = bandwidth.used.saturating_sub(bandwidth.quota.runtime);
            bandwidth.period_ends += bandwidth.quota.period;
        }
        let used_up = bandwidth.used >= bandwidth.quota.runtime;
        let change = used_up != bandwidth.throttled_since.is_some();
        if change {
            bandwidth.throttled = bandwidth.throttled(now);
            bandwidth.throttled_since = used_up.then_some(now);
        }
        let next = bandwidth.next_check(now, vcpus);
        self.set(Timer::Quota(vm), next);
        match (change, used_up) {
            (true, true) => self.throttle(vm),
            (true, false) => self.unthrottle(vm),
            (false, _) => {}
        }
    }

    /// Waiting threads leave their runqueues at once, running ones when they next return to user mode.
    fn throttle(&mut self, vm: Vm) {
        for v in self.vcpus_of(vm) {
            while let Some(t) = self.v_mut(v).queue.pop() {
                self.vm_mut(v).queued -= 1;
                self.park(v, t);
            }
            if self.v(v).current.is_some() {
                self.raise(v, irq::TICK);
            }
        }
    }

    /// Keeps a runnable thread, which last ran on `v`, until the next period.
    pub(super) fn park(&mut self, v: Vcpu, t: Thread) {
        if let Some(bandwidth) = &mut self.vm_mut(v).bandwidth {
            bandwidth.parked.push(t);
        }
    }

    /// The threads that had to wait are runnable again, in the order in which they were kept.
    fn unthrottle(&mut self, vm: Vm) {
        let parked = self.vms[vm.index()].bandwidth.as_mut().map(|b| std::mem::take(&mut b.parked));
        for t in parked.unwrap_or_default() {
            let waited_from = self.t(t).ready_at;
            let v = self.t(t).vcpu;
            let target = self.place(t, v, false);
            // Whether its vCPU is idle or not, the timer of the period interrupts it.
            self.enqueue(target, t, v);
            self.t_mut(t).ready_at = waited_from;
            self.raise(target, irq::RESCHED);
        }
    }
}
