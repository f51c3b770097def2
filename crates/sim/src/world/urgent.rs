//! The demand for coordination: interrupts make vCPUs urgent, and spinning in vain hands the pCPU over.

use gleaner_policy::host::{DirectedYield, Spinner, yield_target};

use super::World;
use super::entity::{HostState, PcpuState, Phase};
use crate::ids::{FOREVER, Ns, Pcpu, Vcpu};
use crate::spec::PauseLoops;

/// A spin of the hardware's pause-loop window: 4096 cycles (ASPLOS'13 §4.3) at about 2.4 GHz.
pub(super) const PAUSE_WINDOW: Ns = 1_700;
/// The longest window to which exits grow it (KVM: `ple_window_max`, 2^30 cycles).
const PAUSE_WINDOW_MAX: Ns = 400_000_000;

impl World {
    /// A reschedule interrupt is about to leave `from`, which holds a spinlock: not even who it wakes up may preempt it.
    pub(super) fn sends_resched(&mut self, from: Vcpu) {
        let (now, ns) = (self.now, self.host.urgent.resched_dp_ns);
        if ns > 0 {
            self.v_mut(from).urgency.for_time(now, ns);
        }
    }

    /// A reschedule interrupt left for `to`.
    pub(super) fn resched_sent(&mut self, to: Vcpu) {
        let (now, ns) = (self.now, self.host.urgent.resched_co_ns);
        if ns > 0 {
            self.v_mut(to).urgency.for_time(now, ns);
            self.become_urgent(to);
        }
    }

    /// The interrupt of a TLB shootdown left for `to`.
    pub(super) fn flush_sent(&mut self, to: Vcpu) {
        if self.host.urgent.tlb_co {
            self.v_mut(to).urgency.for_event();
            self.become_urgent(to);
        }
    }

    /// Every shootdown is acknowledged.
    pub(super) fn flush_acknowledged(&mut self, v: Vcpu) {
        self.v_mut(v).urgency.acknowledge();
    }

    /// A vCPU that became urgent while it waits runs first, if fairness allows.
    fn become_urgent(&mut self, v: Vcpu) {
        if self.v(v).host != HostState::Waiting {
            return;
        }
        let p = self.v(v).pcpu;
        let pcpu = self.p_mut(p);
        if !pcpu.queue.contains(&v) {
            return;
        }
        if !pcpu.urgent.contains(&v) {
            pcpu.urgent.push_back(v);
        }
        self.charge(p);
        if let PcpuState::Running(current) = self.p(p).state
            && self.overrides(v, current)
            && self.protection(current) == 0
        {
            self.preempt(p);
        }
    }

    /// Whether `v` runs before `current` although the fair scheduler would not have it so.
    pub(super) fn overrides(&self, v: Vcpu, current: Vcpu) -> bool {
        let own = self.v(v);
        let (urgent, runs) = self.rivals(own.pcpu, v, current);
        own.urgency.is_urgent(self.now) && self.host.urgent.may_preempt(urgent.vruntime, runs.vruntime)
    }

    /// The next urgent vCPU of the pCPU that may run now.
    pub(super) fn next_urgent(&mut self, p: Pcpu) -> Option<Vcpu> {
        let floor = self.p(p).floor;
        while let Some(v) = self.p_mut(p).urgent.pop_front() {
            let own = self.v(v);
            let still = own.urgency.is_urgent(self.now) && self.p(p).queue.contains(&v);
            if still && self.host.urgent.may_preempt(self.vruntime_of(p, v), floor) {
                return Some(v);
            }
        }
        None
    }

    /// For how long the running vCPU must not be preempted. Not at all once it is ahead of those that wait by more than the
    /// allowance: who sends interrupts all the time would never be preempted.
    pub(super) fn protection(&self, v: Vcpu) -> Ns {
        let vcpu = self.v(v);
        let pcpu = self.p(vcpu.pcpu);
        let too_far = |o: &Vcpu| {
            let (own, other) = self.rivals(vcpu.pcpu, v, *o);
            !self.host.urgent.may_preempt(own.vruntime, other.vruntime)
        };
        if pcpu.queue.iter().any(too_far) {
            return 0;
        }
        let from = pcpu.slice_from;
        vcpu.urgency.protected_for(self.now, from, self.host.urgent.slice_ns)
    }

    /// Lets the hardware watch a vCPU that spins in the kernel. Where no vCPU waits there is nobody to yield to.
    pub(super) fn watch_spin(&mut self, v: Vcpu) {
        if self.host.yielding == DirectedYield::Off || self.waiting == 0 || !self.vm(v).ple {
            return;
        }
        let window = self.v(v).pause_window;
        self.nudge(v, window);
    }

    /// A vCPU waits for a pCPU: siblings that spin may be waiting for it.
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

    /// The hardware noticed that the vCPU spins: somebody else may run.
    pub(super) fn pause_exit(&mut self, v: Vcpu) {
        let (now, exit) = (self.now, self.vm(v).costs.pause_exit);
        let target = self.choose_yield_target(v);
        let grows = self.host.pause_loops >= PauseLoops::Late;
        let vcpu = self.v_mut(v);
        vcpu.counts.pause_exits += 1;
        vcpu.urgency.cancel();
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
                // It goes on like this until a sibling waits: no event for each of these exits, they are counted by their time.
                vcpu.in_vain = true;
                self.arm(v);
            }
        }
    }

    /// How many pause-loop exits the vCPU had.
    pub(super) fn pause_exits(&self, v: Vcpu) -> u64 {
        let vcpu = self.v(v);
        vcpu.counts.pause_exits + vcpu.spun_in_vain / (PAUSE_WINDOW + self.vm(v).costs.pause_exit)
    }

    /// To whom to yield. Who gave its pCPU up in a pause-loop exit is passed over every other time: it would only spin again
    /// (kernel: `kvm_vcpu_eligible_for_directed_yield`). Who was preempted while it spun is not: the lock may be its own by now.
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
            let may = match version {
                PauseLoops::Blind | PauseLoops::Early => true,
                PauseLoops::Preempted => vcpu.preempted,
                PauseLoops::Late => vcpu.preempted && vcpu.phase.in_kernel(),
            };
            let preempted = vcpu.host == HostState::Waiting && o != v && may;
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

    /// Lets `target` run next where it waits, and whoever waits behind `v` on its own pCPU, as far as the fair scheduler allows
    /// (kernel: `yield_to`, which makes one the next buddy and the other one to be skipped).
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

    /// Whether the fair scheduler lets `v` run although it would pick `first`: if it is ahead by less than the wake-up granularity
    /// (kernel: `wakeup_preempt_entity`).
    pub(super) fn may_run_before(&self, p: Pcpu, v: Vcpu, first: Vcpu) -> bool {
        let (first, own) = self.rivals(p, first, v);
        !self.host.fair.preempts(&first, &own)
    }
}

/// What a pause-loop exit found.
enum Choice {
    /// A vCPU that could run but does not.
    Vcpu(Vcpu),
    /// Only such as gave up themselves, and whose turn it is next time.
    NotNow,
    /// None.
    Nobody,
}
