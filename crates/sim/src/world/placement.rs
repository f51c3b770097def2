//! On which pCPU a woken vCPU is put.

use gleaner_policy::host::{PcpuLoad, VcpuPlacement, affinity};

use super::World;
use super::entity::PcpuState;
use crate::ids::{Pcpu, Vcpu};

impl World {
    fn free(&self, p: Pcpu) -> bool {
        matches!(self.p(p).state, PcpuState::Idle) && self.p(p).queue.is_empty()
    }

    /// Where the woken vCPU goes: its last pCPU if that is idle, else an idle one nearby, else by load; within what the
    /// host policy allows.
    pub(super) fn choose_pcpu(&self, v: Vcpu) -> Pcpu {
        let last = self.v(v).pcpu;
        if self.vm(v).pinned {
            return last;
        }
        if self.host.placement == VcpuPlacement::Uncoordinated {
            return self.uncoordinated(last, &|_| true);
        }
        let loads: Vec<PcpuLoad> = (0..self.pcpus.len()).map(|p| self.load_of(Pcpu::at(p), v)).collect();
        let may = affinity(self.host.placement, &loads);
        self.uncoordinated(last, &|p: Pcpu| may(p.index()))
    }

    fn uncoordinated(&self, last: Pcpu, may: &dyn Fn(Pcpu) -> bool) -> Pcpu {
        if may(last) && self.free(last) {
            return last;
        }
        let socket = self.p(last).socket;
        let allowed = || (0..self.pcpus.len()).map(Pcpu::at).filter(|p| may(*p));
        // A whole idle core before the sibling of a busy one.
        let busy_core = |p: &Pcpu| self.p(*p).sibling.is_some_and(|s| !self.free(s));
        let idle = allowed().filter(|p| self.free(*p));
        if let Some(p) = idle.min_by_key(|p| (self.p(*p).socket != socket, busy_core(p), p.0)) {
            return p;
        }
        if may(last) && self.host.placement == VcpuPlacement::Uncoordinated {
            // As wake_affine: the kernel looks at the last pCPU and its neighbours only; load is the balancer's job.
            return last;
        }
        allowed().min_by_key(|p| (self.load(*p), *p != last, p.0)).unwrap_or(last)
    }

    /// The weights of what runs and waits on the pCPU.
    fn load(&self, p: Pcpu) -> u64 {
        let pcpu = self.p(p);
        let running = match pcpu.state {
            PcpuState::Running(v) | PcpuState::Switching(v) => self.weight(v),
            PcpuState::Idle | PcpuState::Polling(_) => 0,
        };
        running + pcpu.queue.iter().map(|v| self.weight(*v)).sum::<u64>()
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

    /// Whether the balancer may move a waiting vCPU to `p`: balance scheduling keeps siblings apart, its load-conscious form
    /// lets the balancer stack them.
    pub(super) fn may_move(&self, v: Vcpu, p: Pcpu) -> bool {
        self.host.placement != VcpuPlacement::Balance || !self.load_of(p, v).has_sibling
    }
}
