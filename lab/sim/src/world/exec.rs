//! Phases: what a vCPU executes, how long it still takes, and how its time is accounted.

use super::entity::{Category, HostState, Phase, irq};
use super::{Timer, World};
use crate::ids::{FOREVER, Ns, Vcpu};

impl World {
    pub(super) fn running(&self, v: Vcpu) -> bool {
        self.v(v).host == HostState::Running
    }

    fn category(host: HostState, phase: Phase) -> Category {
        match host {
            HostState::Waking => Category::Waking,
            HostState::Waiting => Category::Steal,
            HostState::Polled => Category::HostPoll,
            HostState::Blocked => Category::Halted,
            HostState::Running => match phase {
                Phase::User => Category::User,
                Phase::UserSpin => Category::UserSpin,
                Phase::Kernel => Category::Kernel,
                Phase::LockSpin => Category::LockSpin,
                Phase::AckSpin => Category::TlbSpin,
                Phase::Irq => Category::Irq,
                Phase::Switch => Category::Switch,
                Phase::IdleEnter => Category::IdleEnter,
                Phase::IdlePoll => Category::Poll,
                Phase::IdleYield => Category::Yield,
                Phase::Halted => Category::Halted,
            },
        }
    }

    /// Accounts for the vCPU's time until now.
    #[inline]
    pub(super) fn settle(&mut self, v: Vcpu) {
        // Most calls come from event handlers that have already done so.
        if self.v(v).since != self.now {
            self.account(v);
        }
    }

    #[inline(never)]
    fn account(&mut self, v: Vcpu) {
        let now = self.now;
        let vcpu = &mut self.vcpus[v.index()];
        let elapsed = now - vcpu.since;
        let since = std::mem::replace(&mut vcpu.since, now);
        let category = Self::category(vcpu.host, vcpu.phase);
        vcpu.time[category as usize] += elapsed;
        if vcpu.host == HostState::Running {
            if vcpu.in_vain && vcpu.phase.spins() {
                vcpu.spun_in_vain += elapsed;
            }
            if vcpu.left != FOREVER {
                let work = if vcpu.speed == 1000 { elapsed } else { elapsed * vcpu.speed / 1000 };
                vcpu.left = vcpu.left.saturating_sub(work);
            }
            if let Some(t) = vcpu.current {
                let vm = &mut self.vms[vcpu.vm.index()];
                let thread = &mut self.threads[t.index()];
                vm.fair.charge(&mut thread.entity, elapsed);
                if let Some(bandwidth) = &mut vm.bandwidth {
                    bandwidth.charge(elapsed);
                }
                let totals = &mut self.tasks[thread.task.index()].totals;
                totals.cpu += elapsed;
                if matches!(category, Category::User | Category::UserSpin) {
                    totals.user += elapsed;
                }
                if category == Category::UserSpin && thread.spin_left != FOREVER {
                    thread.spin_left = thread.spin_left.saturating_sub(elapsed);
                }
            }
        }
        if let Some(trace) = &mut self.trace {
            let current = self.vcpus[v.index()].current;
            trace.span(v, category, current, since, now);
        }
    }

    /// Accounts for the time of all vCPUs and pCPUs until now.
    pub(super) fn settle_all(&mut self) {
        for v in 0..self.vcpus.len() {
            self.settle(Vcpu::at(v));
        }
        for p in 0..self.pcpus.len() {
            self.settle_pcpu(crate::ids::Pcpu::at(p));
        }
    }

    /// Starts a phase of the vCPU that takes `ns`.
    pub(super) fn begin(&mut self, v: Vcpu, phase: Phase, ns: Ns) {
        self.settle(v);
        let vcpu = self.v_mut(v);
        let spun = vcpu.phase.spins();
        vcpu.phase = phase;
        vcpu.left = ns;
        vcpu.in_vain = false;
        match (spun, phase.spins()) {
            (false, true) => self.vm_mut(v).spinning += 1,
            (true, false) => self.vm_mut(v).spinning -= 1,
            _ => {}
        }
        let vcpu = self.v(v);
        if vcpu.host != HostState::Running {
            return;
        }
        if vcpu.pending != 0 && phase.interruptible() {
            self.interrupt(v);
        } else {
            self.arm(v);
        }
    }

    /// Sets the timer for the end of the phase, if the vCPU is running.
    pub(super) fn arm(&mut self, v: Vcpu) {
        let vcpu = self.v(v);
        if vcpu.host != HostState::Running {
            return;
        }
        if vcpu.left == FOREVER {
            self.cancel(Timer::Work(v));
        } else {
            let ns = if vcpu.speed == 1000 { vcpu.left } else { (vcpu.left * 1000).div_ceil(vcpu.speed) };
            self.set(Timer::Work(v), self.now + ns);
        }
    }

    /// Ends a waiting phase after `ns`, because what it waits for has happened.
    pub(super) fn nudge(&mut self, v: Vcpu, ns: Ns) {
        self.settle(v);
        let vcpu = self.v_mut(v);
        vcpu.left = vcpu.left.min(ns);
        vcpu.in_vain = false;
        if vcpu.host == HostState::Running {
            self.arm(v);
        }
    }

    /// Takes the pending interrupts; the present phase is suspended.
    pub(super) fn interrupt(&mut self, v: Vcpu) {
        self.settle(v);
        let costs = self.vm(v).costs;
        let vcpu = self.v_mut(v);
        vcpu.saved = (vcpu.phase, vcpu.left);
        let mut ns = 0;
        if vcpu.pending & (irq::RESCHED | irq::FLUSH) != 0 {
            ns += costs.irq;
        }
        if vcpu.pending & irq::FLUSH != 0 {
            ns += costs.tlb_flush;
        }
        if vcpu.pending & (irq::TIMER | irq::TICK) != 0 {
            ns += costs.timer_irq;
        }
        if vcpu.phase == Phase::Halted {
            ns += costs.idle_exit;
        }
        vcpu.phase = Phase::Irq;
        vcpu.left = ns;
        self.arm(v);
    }

    /// The host lets the vCPU execute again.
    pub(super) fn resume(&mut self, v: Vcpu) {
        self.settle(v);
        self.learn_halt(v);
        let vcpu = self.v_mut(v);
        vcpu.host = HostState::Running;
        (vcpu.preempted, vcpu.gave_up, vcpu.next_time) = (false, false, false);
        vcpu.pause_window = super::urgent::PAUSE_WINDOW;
        if vcpu.phase.interruptible() && (vcpu.pending != 0 || vcpu.phase == Phase::Halted) {
            self.interrupt(v);
        } else {
            self.resume_phase(v);
        }
    }

    /// Continues the phase after an interruption; what it waits for might have happened meanwhile.
    pub(super) fn resume_phase(&mut self, v: Vcpu) {
        match self.v(v).phase {
            Phase::LockSpin => self.spin_for_lock(v),
            Phase::AckSpin => self.spin_for_acks(v),
            Phase::UserSpin => self.nudge(v, 50),
            Phase::IdlePoll => self.continue_polling(v),
            _ => self.arm(v),
        }
    }

    /// The phase has ended.
    pub(super) fn work_done(&mut self, v: Vcpu) {
        self.settle(v);
        self.v_mut(v).left = 0;
        match self.v(v).phase {
            Phase::User => self.computed(v),
            Phase::UserSpin => self.return_to_user(v),
            Phase::Kernel => self.kernel_done(v, self.v(v).step),
            Phase::LockSpin => self.lock_spin_over(v),
            Phase::AckSpin => self.ack_spin_over(v),
            Phase::Irq => self.irq_done(v),
            Phase::Switch => self.switched(v),
            Phase::IdleEnter => self.idle_entered(v),
            Phase::IdlePoll => self.poll_over(v),
            Phase::IdleYield => self.retention_over(v),
            Phase::Halted => {}
        }
    }
}
