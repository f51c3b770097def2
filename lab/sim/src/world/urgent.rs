//! Demand-based coordination: interrupts make vCPUs urgent, and vCPUs that spin in vain yield their pCPU.

use gleaner_coordination::{NORMAL_SHARE, UrgentConfig};

use super::entity::{HostState, PcpuState, Phase};
use super::{Timer, World};
use crate::directed_yield::{DirectedYield, Spinner, yield_target};
use crate::ids::{FOREVER, Ns, Pcpu, Vcpu};
use crate::sched::Rule;
use crate::spec::PauseLoops;

/// The hardware's pause-loop window: 4096 cycles (ASPLOS'13 §4.3) at about 2.4 GHz.
pub(super) const PAUSE_WINDOW: Ns = 1_700;
/// The largest window that exits grow it to (KVM: `ple_window_max`, 2^30 cycles).
const PAUSE_WINDOW_MAX: Ns = 400_000_000;

impl World {
    /// The rules by which the vCPU becomes urgent.
    pub(super) fn rules(&self, v: Vcpu) -> &UrgentConfig {
        &self.vm(v).urgent.on_send
    }

    /// `from` starts to send an interrupt: the first access to its APIC, which the hypervisor sees.
    pub(super) fn accesses_apic(&mut self, from: Vcpu) {
        if self.vm(from).urgent.early {
            self.sends_resched(from);
        }
    }

    /// `from`, which holds a spinlock, will send a reschedule interrupt: even its wakee must not preempt it.
    pub(super) fn sends_resched(&mut self, from: Vcpu) {
        let (now, ns) = (self.now, self.rules(from).resched_dp_ns);
        self.v_mut(from).urgency.for_time(now, ns);
    }

    /// A reschedule interrupt was sent to `to`.
    pub(super) fn resched_sent(&mut self, to: Vcpu) {
        let (now, ns) = (self.now, self.rules(to).resched_co_ns);
        if ns > 0 {
            self.v_mut(to).urgency.for_time(now, ns);
            self.become_urgent(to);
        }
    }

    /// The interrupt of a TLB shootdown was sent, and `from` waits for the answer.
    pub(super) fn flush_sent(&mut self, from: Vcpu, to: Vcpu) {
        self.v_mut(from).urgency.awaits(1);
        if self.rules(to).tlb_co {
            self.v_mut(to).urgency.for_event();
            self.become_urgent(to);
        }
    }

    /// The vCPU has acknowledged every shootdown.
    pub(super) fn flush_acknowledged(&mut self, v: Vcpu) {
        self.v_mut(v).urgency.acknowledge();
    }

    /// A waiting vCPU that became urgent runs first, if fairness allows.
    fn become_urgent(&mut self, v: Vcpu) {
        if self.v(v).host != HostState::Waiting {
            return;
        }
        let p = self.v(v).pcpu;
        if !self.queue_urgent(p, v) {
            return;
        }
        self.charge(p);
        match self.p(p).state {
            PcpuState::Running(current) if self.overrides(v, current) => {
                self.preempt_unprotected(p, current);
            }
            PcpuState::Switching(next) => self.delay_until_switched(p, v, next),
            _ => {}
        }
    }

    /// While a pCPU switches to `next` it cannot switch again: `v` preempts it afterwards, if it then still has a reason
    /// (the kernel wakes tasks up with the runqueue locked, and sets the mark to reschedule). Not with CFS: the papers'
    /// costs of a switch under it contain most of the time for cold caches, in which the vCPU already runs.
    pub(super) fn delay_until_switched(&mut self, p: Pcpu, v: Vcpu, next: Vcpu) {
        if self.host.fair.rule == Rule::Eevdf && self.preempts(p, v, next) {
            self.p_mut(p).delayed = true;
        }
    }

    /// The pCPU has switched to `v`: preempts it for a vCPU that came meanwhile.
    pub(super) fn preempt_after_switch(&mut self, p: Pcpu, v: Vcpu) {
        if self.p(p).state == PcpuState::Running(v) && self.preemption_is_due(p, v) {
            self.preempt_unprotected(p, v);
        }
    }

    /// Preempts the pCPU's vCPU: at once, or when it is no longer protected. Returns whether it did.
    pub(super) fn preempt_unprotected(&mut self, p: Pcpu, current: Vcpu) -> bool {
        let protected = self.protection(current);
        if protected == 0 {
            self.preempt(p);
            return true;
        }
        self.p_mut(p).delayed = true;
        let ends = self.now + protected;
        self.set(Timer::Pcpu(p), self.turn_ends().map_or(ends, |turn| turn.min(ends)));
        false
    }

    /// Whether the preemption of the pCPU's vCPU, which was delayed, still has a reason.
    pub(super) fn preemption_is_due(&self, p: Pcpu, current: Vcpu) -> bool {
        let pcpu = self.p(p);
        pcpu.delayed && pcpu.queue.iter().any(|v| self.preempts(p, *v, current))
    }

    /// Whether a waiting vCPU preempts the pCPU's: by the fair scheduler, or because it is urgent.
    pub(super) fn preempts(&self, p: Pcpu, v: Vcpu, current: Vcpu) -> bool {
        let (waits, runs) = self.rivals(p, v, current);
        self.host.fair.preempts(&waits, &runs) || self.overrides(v, current)
    }

    /// Puts a vCPU that waits for the pCPU at the end of its urgent queue, if it is urgent. Returns whether it is there.
    pub(super) fn queue_urgent(&mut self, p: Pcpu, v: Vcpu) -> bool {
        if !self.v(v).urgency.is_urgent(self.now) || !self.p(p).queue.contains(&v) {
            return false;
        }
        let urgent = &mut self.p_mut(p).urgent;
        if !urgent.contains(&v) {
            urgent.push_back(v);
        }
        true
    }

    /// Whether `v` is urgent enough to run before `current` against the fair scheduler's order.
    pub(super) fn overrides(&self, v: Vcpu, current: Vcpu) -> bool {
        let own = self.v(v);
        let (urgent, runs) = self.rivals(own.pcpu, v, current);
        own.urgency.is_urgent(self.now) && self.within_allowance(v, urgent.vruntime, runs.vruntime)
    }

    /// Whether fairness lets `v` run before another. As in the paper, the allowance is virtual time, whatever the vCPU's share.
    fn within_allowance(&self, v: Vcpu, own: Ns, other: Ns) -> bool {
        self.rules(v).may_preempt(NORMAL_SHARE, own, other)
    }

    /// The first of the pCPU's urgent vCPUs that fairness lets run now. Those that it does not stay where they are.
    pub(super) fn next_urgent(&mut self, p: Pcpu) -> Option<Vcpu> {
        let mut urgent = std::mem::take(&mut self.p_mut(p).urgent);
        urgent.retain(|v| self.v(*v).urgency.is_urgent(self.now));
        let floor = self.p(p).floor;
        let chosen =
            urgent.iter().copied().find(|v| self.within_allowance(*v, self.vruntime_of(p, *v), floor));
        self.p_mut(p).urgent = urgent;
        chosen
    }

    /// How long the running vCPU is protected from preemption. Zero once it is ahead of the waiting ones by
    /// more than the allowance: otherwise a vCPU that keeps sending interrupts would never be preempted.
    pub(super) fn protection(&self, v: Vcpu) -> Ns {
        let vcpu = self.v(v);
        let pcpu = self.p(vcpu.pcpu);
        let too_far = |o: &Vcpu| {
            let (own, other) = self.rivals(vcpu.pcpu, v, *o);
            !self.within_allowance(v, own.vruntime, other.vruntime)
        };
        if pcpu.queue.iter().any(too_far) {
            return 0;
        }
        let from = pcpu.slice_from;
        vcpu.urgency.protected_for(self.now, from, self.rules(v).slice_ns)
    }

    /// Arms pause-loop detection for a vCPU spinning in the kernel, if another vCPU waits.
    pub(super) fn watch_spin(&mut self, v: Vcpu) {
        if self.host.yielding == DirectedYield::Off || self.waiting == 0 || !self.vm(v).ple {
            return;
        }
        let window = self.v(v).pause_window;
        self.nudge(v, window);
    }

    /// A vCPU waits for a pCPU: its siblings might be spinning for it.
    pub(super) fn watch_spins_of(&mut self, v: Vcpu) {
        let vm = self.vm(v);
        if self.host.yielding == DirectedYield::Off || vm.spinning == 0 {
            return;
        }
        for other in (vm.first..vm.first + vm.vcpus).map(Vcpu) {
            let vcpu = self.v(other);
            let unwatched = vcpu.left == FOREVER || vcpu.phase == Phase::IdlePoll && vcpu.queue.is_empty();
            if vcpu.phase.spins() && self.running(other) && unwatched {
                self.watch_spin(other);
            }
        }
    }

    /// The hardware detected that the vCPU spins: it can yield to another one.
    pub(super) fn pause_exit(&mut self, v: Vcpu) {
        let (now, exit, rules) = (self.now, self.vm(v).costs.pause_exit, *self.rules(v));
        let yields = self.v_mut(v).urgency.spins(&rules);
        let target = if yields { self.choose_yield_target(v) } else { Choice::NotNow };
        let grows = self.host.pause_loops >= PauseLoops::Late;
        let vcpu = self.v_mut(v);
        vcpu.counts.pause_exits += 1;
        let polls = vcpu.phase == Phase::IdlePoll;
        vcpu.left =
            if polls && vcpu.poll_ends != FOREVER { vcpu.poll_ends.saturating_sub(now) } else { FOREVER };
        if grows {
            vcpu.pause_window = (vcpu.pause_window * 2).min(PAUSE_WINDOW_MAX);
        }
        let window = vcpu.pause_window;
        match target {
            Choice::Vcpu(target) => {
                self.nudge(v, window + exit);
                self.yield_to(v, target);
            }
            Choice::NotNow => self.nudge(v, window + exit),
            Choice::Nobody if grows => self.nudge(v, window + exit),
            Choice::Nobody => {
                // Nothing changes until a sibling waits, so these exits need no events; time counts them.
                vcpu.in_vain = true;
                self.arm(v);
            }
        }
    }

    /// Number of the vCPU's pause-loop exits.
    pub(super) fn pause_exits(&self, v: Vcpu) -> u64 {
        let vcpu = self.v(v);
        vcpu.counts.pause_exits + vcpu.spun_in_vain / (PAUSE_WINDOW + self.vm(v).costs.pause_exit)
    }

    /// Chooses the vCPU to yield to. One that itself yielded in a pause-loop exit is skipped every other
    /// time, since it would only spin again (kernel: `kvm_vcpu_eligible_for_directed_yield`). One that was
    /// preempted while spinning is not skipped: it might have the lock by now.
    fn choose_yield_target(&mut self, v: Vcpu) -> Choice {
        if self.waiting == 0 {
            return Choice::Nobody;
        }
        let vm = self.vm(v);
        let (first, count, from) = (vm.first, vm.vcpus, vm.yield_from);
        let mut passed_over = false;
        let version = self.host.pause_loops;
        let spinner = |o: Vcpu| {
            let vcpu = self.v_mut(o);
            let eligible = match version {
                PauseLoops::Blind | PauseLoops::Early => true,
                PauseLoops::Preempted => vcpu.preempted,
                PauseLoops::Late => vcpu.preempted && vcpu.phase.in_kernel(),
            };
            let preempted = vcpu.host == HostState::Waiting && o != v && eligible;
            let spins = version > PauseLoops::Blind && vcpu.gave_up && !vcpu.next_time;
            vcpu.next_time = spins;
            passed_over |= preempted && spins;
            Spinner { preempted, interrupted: vcpu.pending != 0, spins }
        };
        let vcpus: Vec<Spinner> = (first..first + count).map(Vcpu).map(spinner).collect();
        let Some(chosen) = yield_target(self.host.yielding, &vcpus, from as usize) else {
            return if passed_over { Choice::NotNow } else { Choice::Nobody };
        };
        let chosen = Vcpu::at(chosen).0;
        self.vm_mut(v).yield_from = (chosen + 1) % count;
        Choice::Vcpu(Vcpu(first + chosen))
    }

    /// Runs `target` next where it waits, and the next vCPU in place of `v` on its own pCPU, as far as the
    /// fair scheduler allows (kernel: `yield_to`, which sets the next buddy and the skip buddy).
    fn yield_to(&mut self, v: Vcpu, target: Vcpu) {
        let p = self.v(target).pcpu;
        if !self.p(p).queue.contains(&target) || self.must_wait(target) {
            return;
        }
        self.p_mut(p).buddy = Some(target);
        if let PcpuState::Running(current) = self.p(p).state
            && (current == v || self.protection(current) == 0)
        {
            self.charge(p);
            if self.may_run_before(p, target, current) {
                self.preempt(p);
            }
        }
        let own = self.v(v).pcpu;
        if own != p && self.p(own).state == PcpuState::Running(v) {
            self.charge(own);
            if let Some(second) = self.fairest(own)
                && self.may_run_before(own, second, v)
            {
                self.v_mut(v).gave_up = true;
                self.p_mut(own).buddy = Some(second);
                self.preempt(own);
            }
        }
    }

    /// Whether the fair scheduler lets `v` run although it would pick `first`: if `v` is ahead by less than
    /// the wake-up granularity (kernel: `wakeup_preempt_entity`).
    pub(super) fn may_run_before(&self, p: Pcpu, v: Vcpu, first: Vcpu) -> bool {
        let (first, own) = self.rivals(p, first, v);
        !self.host.fair.preempts(&first, &own)
    }
}

/// Result of searching for a vCPU to yield to.
enum Choice {
    /// A vCPU that is runnable but not running.
    Vcpu(Vcpu),
    /// Only vCPUs that yielded themselves, which are eligible next time; or the answer comes soon.
    NotNow,
    /// None.
    Nobody,
}
