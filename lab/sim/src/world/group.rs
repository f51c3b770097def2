//! Group scheduling: the vCPUs of a VM form a scheduling group with an entity on the runqueue of every pCPU,
//! as in the kernel's CFS (`kernel/sched/fair.c`, `CONFIG_FAIR_GROUP_SCHED`; a cgroup or autogroup per VM).
//! Scheduling compares the groups' entities between VMs, and the vCPUs' entities within a VM. A group's
//! weight on a pCPU is proportional to the part of the VM that runs there, so a VM with many busy vCPUs has
//! little weight on each: that decides which vCPU can preempt which on wake-up.

use super::World;
use super::entity::{PcpuState, VmData};
use crate::ids::{Ns, Pcpu, Vcpu, Vm};
use crate::sched::Entity;

/// Half-life of the kernel's per-entity load tracking (32 periods of 1,024 us, `LOAD_AVG_PERIOD`).
const LOAD_HALF_LIFE: Ns = 32 * 1_024_000;

/// A VM's group on the runqueue of a pCPU.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Group {
    pub(crate) entity: Entity,
    /// Minimum virtual run time of its vCPUs here; monotonic.
    pub(crate) floor: Ns,
    /// Number of its vCPUs that run or wait here.
    pub(crate) members: u32,
}

/// Moving average, over tens of milliseconds, of how many vCPUs of a VM are awake.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    average: f64,
    at: Ns,
}

impl Load {
    /// The average at `now`, if `awake` vCPUs have been awake since the last change. Uses only exact IEEE 754
    /// arithmetic, so that equal seeds give equal results on every machine: e^-x as (1 + x/8)^-8.
    fn average(&self, now: Ns, awake: u32) -> f64 {
        let awake = f64::from(awake);
        if now == self.at {
            // The same as the formula, without its divisions.
            return awake + (self.average - awake);
        }
        let x = (now - self.at) as f64 * (std::f64::consts::LN_2 / LOAD_HALF_LIFE as f64);
        let base = 1.0 + x / 8.0;
        let squared = base * base;
        let fourth = squared * squared;
        awake + (self.average - awake) / (fourth * fourth)
    }
}

impl VmData {
    /// Changes the number of awake vCPUs at `now`.
    pub(super) fn wakes(&mut self, now: Ns, change: i32) {
        self.load = Load { average: self.load.average(now, self.awake), at: now };
        self.awake = self.awake.saturating_add_signed(change);
    }

    /// Weight of the VM's group on a pCPU where `members` of its vCPUs run or wait (kernel:
    /// `calc_cfs_shares`). The other vCPUs count with their average.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "at most the VM's whole shares"
    )]
    fn weight(&self, now: Ns, members: u32) -> u64 {
        let whole = self.shares as f64 * f64::from(self.vcpus);
        let members = f64::from(members.clamp(1, self.vcpus));
        let others = self.load.average(now, self.awake) * (1.0 - members / f64::from(self.vcpus));
        ((whole * members / (members + others)) as u64).max(2)
    }
}

impl World {
    /// The group of a VM that has been on the pCPU.
    fn group_mut(&mut self, p: Pcpu, vm: Vm) -> &mut Group {
        &mut self.pcpus[p.index()].groups[vm.index()]
    }

    fn group(&self, p: Pcpu, vm: Vm) -> Group {
        self.p(p).groups.get(vm.index()).copied().unwrap_or_default()
    }

    /// Weight of `v`'s VM on its pCPU.
    pub(super) fn weight(&self, v: Vcpu) -> u64 {
        let members = self.group(self.v(v).pcpu, self.v(v).vm).members;
        self.vm(v).weight(self.now, members)
    }

    /// Load of a pCPU with one more vCPU of `v`'s VM.
    pub(super) fn load_with(&self, p: Pcpu, v: Vcpu) -> u64 {
        let vm = self.v(v).vm;
        let own = self.vms[vm.index()].weight(self.now, self.group(p, vm).members + 1);
        let others = self.present(p).filter(|(index, _)| *index != vm.index());
        own + others.map(|(index, group)| self.vms[index].weight(self.now, group.members)).sum::<u64>()
    }

    /// Load: the total weight of the VMs with a vCPU that runs or waits on the pCPU.
    pub(super) fn load(&self, p: Pcpu) -> u64 {
        self.present(p).map(|(index, group)| self.vms[index].weight(self.now, group.members)).sum()
    }

    /// The VMs with a vCPU that runs or waits on the pCPU.
    fn present(&self, p: Pcpu) -> impl Iterator<Item = (usize, &Group)> {
        self.p(p).groups.iter().enumerate().filter(|(_, group)| group.members > 0)
    }

    /// Whether no vCPU runs or waits on the pCPU.
    pub(super) fn unloaded(&self, p: Pcpu) -> bool {
        self.present(p).next().is_none()
    }

    /// Charges the running vCPU and its VM for their time.
    pub(super) fn charge(&mut self, p: Pcpu) {
        let (PcpuState::Running(v) | PcpuState::Polling(v)) = self.p(p).state else { return };
        let now = self.now;
        let ns = now - std::mem::replace(&mut self.p_mut(p).charged, now);
        if ns == 0 {
            return;
        }
        let (fair, vm, weight) = (self.host.fair, self.v(v).vm, self.weight(v));
        fair.charge(&mut self.v_mut(v).entity, ns);
        let group = self.group_mut(p, vm);
        group.entity.weight = weight;
        fair.charge(&mut group.entity, ns);
        let (mut in_group, mut here) = (self.v(v).entity.vruntime, self.group(p, vm).entity.vruntime);
        for other in &self.p(p).queue {
            let of = self.v(*other).vm;
            if of == vm {
                in_group = in_group.min(self.v(*other).entity.vruntime);
            } else {
                here = here.min(self.group(p, of).entity.vruntime);
            }
        }
        let group = self.group_mut(p, vm);
        group.floor = group.floor.max(in_group);
        let pcpu = self.p_mut(p);
        pcpu.floor = pcpu.floor.max(here);
    }

    /// Moves `v` from the runqueue of `from` to that of `p`; virtual times are relative to the runqueue.
    pub(super) fn join(&mut self, p: Pcpu, from: Pcpu, v: Vcpu, woken: bool) {
        let (fair, vm, floor) = (self.host.fair, self.v(v).vm, self.p(p).floor);
        let old = self.group(from, vm).floor;
        let now = self.now;
        let groups = &mut self.pcpus[p.index()].groups;
        if groups.len() <= vm.index() {
            groups.resize(vm.index() + 1, Group::default());
        }
        let group = &mut groups[vm.index()];
        if group.members == 0 {
            fair.place(&mut group.entity, floor);
        }
        group.members += 1;
        group.entity.weight = self.vms[vm.index()].weight(now, group.members);
        let new = group.floor;
        let entity = &mut self.v_mut(v).entity;
        if from != p {
            entity.vruntime = (entity.vruntime + new).saturating_sub(old);
        }
        if woken {
            fair.place(entity, new);
        }
    }

    /// A vCPU of `v`'s VM no longer runs or waits on the pCPU.
    pub(super) fn part(&mut self, p: Pcpu, v: Vcpu) {
        let vm = self.v(v).vm;
        self.group_mut(p, vm).members -= 1;
    }

    /// The entities that the fair scheduler compares for two vCPUs of a pCPU.
    pub(super) fn rivals(&self, p: Pcpu, a: Vcpu, b: Vcpu) -> (Entity, Entity) {
        let (of_a, of_b) = (self.v(a).vm, self.v(b).vm);
        if of_a == of_b {
            (self.v(a).entity, self.v(b).entity)
        } else {
            (self.group(p, of_a).entity, self.group(p, of_b).entity)
        }
    }

    /// Sort key for running next on the pCPU, smallest first: by VM, then by vCPU.
    pub(super) fn key(&self, p: Pcpu, v: Vcpu) -> (Ns, u32, Ns, u32) {
        let (fair, vcpu) = (self.host.fair, self.v(v));
        (fair.key(&self.group(p, vcpu.vm).entity), vcpu.vm.0, fair.key(&vcpu.entity), v.0)
    }

    /// Virtual run time of `v`'s VM on the pCPU.
    pub(super) fn vruntime_of(&self, p: Pcpu, v: Vcpu) -> Ns {
        self.group(p, self.v(v).vm).entity.vruntime
    }

    /// Whether the host's tick preempts the running vCPU (kernel: `check_preempt_tick`, between the VMs and
    /// among the vCPUs of its VM).
    pub(super) fn slice_ended(&self, p: Pcpu, v: Vcpu) -> bool {
        let vm = self.v(v).vm;
        let ran = self.now - self.p(p).slice_from;
        let rival = |same: bool| {
            let waiting = self.p(p).queue.iter().filter(|o| (self.v(**o).vm == vm) == same);
            waiting.min_by_key(|o| self.key(p, **o)).map(|o| self.rivals(p, v, *o))
        };
        let fair = self.host.fair;
        let vms = self.present(p).count() as u64;
        let members = u64::from(self.group(p, vm).members.max(1));
        let share = |period: Ns| period * self.weight(v) / self.load(p).max(1);
        let ends = |rivals: Option<(Entity, Entity)>, slice| {
            rivals.is_some_and(|(own, least)| fair.slice_ended(ran, slice, &own, &least))
        };
        ends(rival(false), share(fair.period(vms)))
            || ends(rival(true), share(fair.period(members)) / members)
    }
}
