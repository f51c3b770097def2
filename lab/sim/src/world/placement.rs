//! Placement of woken vCPUs.

use gleaner_coordination::{PcpuLoad, Placement, VcpuPlacement};

use super::World;
use super::entity::PcpuState;
use crate::ids::{Pcpu, Vcpu};

impl World {
    fn free(&self, p: Pcpu) -> bool {
        matches!(self.p(p).state, PcpuState::Idle) && self.p(p).queue.is_empty()
    }

    /// The pCPU for the woken vCPU, within what the host policy allows.
    pub(super) fn choose_pcpu(&self, v: Vcpu) -> Pcpu {
        let last = self.v(v).pcpu;
        if self.vm(v).pinned {
            return last;
        }
        if self.host.placement == VcpuPlacement::Uncoordinated {
            let waker = self.v(v).woken_from;
            let target = if waker != last && self.wake_affine(v, waker, last) { waker } else { last };
            return self.idle_sibling(target, last);
        }
        let loads: Vec<PcpuLoad> = (0..self.pcpus.len()).map(|p| self.load_of(Pcpu::at(p), v)).collect();
        let (rule, placement) = (self.host.placement, Placement::among(&loads));
        self.least_loaded(last, &|p: Pcpu| placement.allows(rule, loads[p.index()]))
    }

    /// Whether the woken vCPU goes to its waker's pCPU instead of its last one: if, including it, that pCPU's
    /// load exceeds the last one's by at most an eighth (kernel: `wake_affine`). This stacks siblings when a
    /// heavy VM runs on the last pCPU. If either is unloaded, no weights are needed.
    fn wake_affine(&self, v: Vcpu, waker: Pcpu, last: Pcpu) -> bool {
        self.unloaded(waker) || !self.unloaded(last) && 8 * self.load_with(waker, v) <= 9 * self.load(last)
    }

    /// `target` if it is idle, else an idle pCPU with the same last-level cache (kernel:
    /// `select_idle_sibling`). Load is left to the balancer.
    fn idle_sibling(&self, target: Pcpu, last: Pcpu) -> Pcpu {
        let socket = self.p(target).socket;
        if self.free(target) {
            return target;
        }
        if self.p(last).socket == socket && self.free(last) {
            return last;
        }
        let near = (0..self.pcpus.len()).map(Pcpu::at).filter(|p| self.p(*p).socket == socket);
        near.filter(|p| self.free(*p)).min_by_key(|p| (self.half_busy(*p), p.0)).unwrap_or(target)
    }

    /// Whether the core's other hardware thread is busy.
    fn half_busy(&self, p: Pcpu) -> bool {
        self.p(p).sibling.is_some_and(|s| !self.free(s))
    }

    /// Its last pCPU if idle, else an idle one nearby, else the least loaded one.
    fn least_loaded(&self, last: Pcpu, eligible: &dyn Fn(Pcpu) -> bool) -> Pcpu {
        if eligible(last) && self.free(last) {
            return last;
        }
        let socket = self.p(last).socket;
        let allowed = || (0..self.pcpus.len()).map(Pcpu::at).filter(|p| eligible(*p));
        let idle = allowed().filter(|p| self.free(*p));
        idle.min_by_key(|p| (self.p(*p).socket != socket, self.half_busy(*p), p.0))
            .or_else(|| allowed().min_by_key(|p| (self.load(*p), *p != last, p.0)))
            .unwrap_or(last)
    }

    fn load_of(&self, p: Pcpu, v: Vcpu) -> PcpuLoad {
        let vm = self.v(v).vm;
        let pcpu = self.p(p);
        let runs = match pcpu.state {
            PcpuState::Running(o) | PcpuState::Switching(o) => o != v && self.v(o).vm == vm,
            PcpuState::Idle | PcpuState::Polling(_) => false,
        };
        let has_sibling = runs || pcpu.queue.iter().any(|o| *o != v && self.v(*o).vm == vm);
        PcpuLoad { load: self.load(p), has_sibling }
    }

    /// Whether the balancer may move a waiting vCPU to `p`: balance scheduling keeps siblings apart; its
    /// load-conscious form lets the balancer stack them.
    pub(super) fn may_move(&self, v: Vcpu, p: Pcpu) -> bool {
        self.host.placement != VcpuPlacement::Balance || !self.load_of(p, v).has_sibling
    }
}
