//! Idle vCPUs: entering the halt, and retention.

use gleaner_policy::Method;

use super::World;
use super::entity::Phase;
use crate::ids::{FOREVER, Ns, Vcpu, Vm};
use crate::spec::IdleMode;

impl World {
    /// The vCPU has nothing to run.
    pub(super) fn go_idle(&mut self, v: Vcpu) {
        self.settle(v);
        self.set_idle_bit(v, true);
        let mode = if self.is_active(v) { self.vm(v).idle } else { IdleMode::HALT };
        let now = self.now;
        let vcpu = self.v_mut(v);
        vcpu.current = None;
        vcpu.need_resched = false;
        vcpu.idle_since = now;
        vcpu.counts.idle_periods += 1;
        vcpu.then_poll = match mode.method {
            Method::Haltpoll => vcpu.poll_limit,
            Method::QosPoll => FOREVER,
            Method::Halt | Method::Yield | Method::YieldIpiFree => 0,
        };
        if matches!(mode.method, Method::Yield | Method::YieldIpiFree) {
            // To the kernel, a vCPU with a yield thread is not idle.
            vcpu.counts.polls += 1;
            self.begin(v, Phase::IdleYield, mode.limit);
        } else if vcpu.then_poll > 0 {
            vcpu.counts.polls += 1;
            let ns = self.vm(v).costs.poll_enter;
            self.begin(v, Phase::IdleEnter, ns);
        } else {
            self.enter_halt(v);
        }
    }

    fn enter_halt(&mut self, v: Vcpu) {
        let ns = self.vm(v).costs.idle_enter;
        self.begin(v, Phase::IdleEnter, ns);
    }

    /// The idle loop is about to poll or to halt.
    pub(super) fn idle_entered(&mut self, v: Vcpu) {
        let now = self.now;
        let vcpu = self.v_mut(v);
        let poll = std::mem::take(&mut vcpu.then_poll);
        if !vcpu.queue.is_empty() {
            vcpu.counts.polls_won += u64::from(poll > 0);
            self.end_idle(v);
            return;
        }
        if poll > 0 {
            vcpu.poll_ends = now.saturating_add(poll);
            self.begin(v, Phase::IdlePoll, poll);
            self.watch_spin(v);
            return;
        }
        vcpu.counts.halts += 1;
        vcpu.halted_since = now;
        (vcpu.phase, vcpu.left) = (Phase::Halted, FOREVER);
        if vcpu.pending == 0 {
            self.host_halt(v);
        } else {
            self.interrupt(v);
        }
    }

    /// Continues to poll after an interruption or preemption; the limit is wall-clock time.
    pub(super) fn continue_polling(&mut self, v: Vcpu) {
        let now = self.now;
        let vcpu = self.v_mut(v);
        let wanted = !vcpu.queue.is_empty();
        if !wanted {
            vcpu.left = if vcpu.poll_ends == FOREVER { FOREVER } else { vcpu.poll_ends.saturating_sub(now) };
        }
        self.arm(v);
        if !wanted {
            self.watch_spin(v);
        }
    }

    /// The poll ended: with work, at its limit, or because the hardware detected a `PAUSE` loop.
    pub(super) fn poll_over(&mut self, v: Vcpu) {
        let vcpu = self.v(v);
        if vcpu.queue.is_empty() && self.now < vcpu.poll_ends {
            self.pause_exit(v);
        } else {
            self.retention_over(v);
        }
    }

    /// Retention ended: a thread is there, or the limit is reached.
    pub(super) fn retention_over(&mut self, v: Vcpu) {
        if self.v(v).queue.is_empty() {
            self.enter_halt(v);
        } else {
            self.v_mut(v).counts.polls_won += 1;
            self.end_idle(v);
        }
    }

    /// An interrupt arrived while the vCPU was idle.
    pub(super) fn idle_interrupted(&mut self, v: Vcpu) {
        if self.v(v).phase == Phase::Halted {
            self.halt_ended(v);
        }
        if !self.v(v).queue.is_empty() {
            if self.v(v).phase != Phase::Halted {
                self.v_mut(v).counts.polls_won += 1;
            }
            self.end_idle(v);
        } else if self.v(v).phase == Phase::Halted {
            self.go_idle(v);
        } else {
            self.resume_phase(v);
        }
    }

    fn end_idle(&mut self, v: Vcpu) {
        let now = self.now;
        let vcpu = self.v_mut(v);
        // The kernel's `update_avg`: an eighth of the difference.
        let period = now - vcpu.idle_since;
        vcpu.average_idle = (vcpu.average_idle * 7 + period) / 8;
        vcpu.current = None;
        let (p, vm) = (vcpu.pcpu, vcpu.vm);
        self.guest_schedule(v);
        // A vCPU that polled can return to caches that another VM has filled.
        if self.p_mut(p).warm.replace(vm).is_some_and(|warm| warm != vm) {
            let refill = self.vm(v).costs.cache_refill;
            self.v_mut(v).left += refill;
            self.arm(v);
        }
    }

    /// The haltpoll governor adapts to the length of a halt (kernel: drivers/cpuidle/governors/haltpoll.c).
    /// Gleaner sets `grow_start` to the limit, so a single halt within it is enough to reach it; a lowered
    /// limit takes effect at once.
    fn halt_ended(&mut self, v: Vcpu) {
        let limit = self.limit(self.v(v).vm);
        let length = self.now - self.v(v).halted_since;
        let vcpu = self.v_mut(v);
        if limit < vcpu.poll_limit || length <= limit {
            vcpu.poll_limit = limit;
        }
    }

    /// Clamps the poll limit of every vCPU of `vm` to the setting in effect.
    pub(crate) fn reset_limits(&mut self, vm: Vm) {
        let limit = self.limit(vm);
        for v in self.vcpus_of(vm) {
            let vcpu = self.v_mut(v);
            vcpu.poll_limit = vcpu.poll_limit.min(limit);
        }
    }

    /// The idle loop's poll limit under the setting in effect.
    pub(super) fn limit(&self, vm: Vm) -> Ns {
        let idle = self.vms[vm.index()].idle;
        match idle.method {
            Method::Haltpoll => idle.limit,
            Method::QosPoll => FOREVER,
            Method::Halt | Method::Yield | Method::YieldIpiFree => 0,
        }
    }
}
