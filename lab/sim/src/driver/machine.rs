//! A VM of a simulated machine as the engine's [`Machine`].

use std::convert::Infallible;
use std::time::Duration;

use gleaner_engine::Machine;
use gleaner_policy::{CpuId, CpuSet, Observation, Overload, Setting, VcpuInterval, WorkloadInterval};

use super::{Governor, put_in_force};
use crate::ids::{Ns, Vm};
use crate::world::{Category, TaskTotals, VcpuReport, World};

/// CPU time of an observation in a guest with few threads (measured with `gleaner run` on a 2-vCPU guest).
const SAMPLE_COST: Duration = Duration::from_micros(100);

/// A VM during one step of its run.
#[derive(Debug)]
pub(super) struct SimMachine<'a> {
    world: &'a mut World,
    governor: &'a Governor,
    last: &'a mut Snapshot,
    /// The overload that ended the previous pause, if any.
    overload: Option<Overload>,
}

#[derive(Debug)]
pub(super) struct Snapshot {
    at: Ns,
    vcpus: Vec<VcpuReport>,
    workload: TaskTotals,
    throttled: Ns,
}

impl<'a> SimMachine<'a> {
    pub(super) fn new(world: &'a mut World, governor: &'a Governor, last: &'a mut Snapshot) -> Self {
        Self { world, governor, last, overload: None }
    }

    /// The same, after a pause that was ended by this overload.
    pub(super) fn with_overload(self, overload: Option<Overload>) -> Self {
        Self { overload, ..self }
    }
}

impl Snapshot {
    pub(super) fn of(world: &mut World, vm: Vm) -> Self {
        let (vcpus, workload) = world.counters(vm);
        Self { at: world.now(), vcpus, workload, throttled: world.throttled(vm) }
    }
}

impl Machine for SimMachine<'_> {
    type Error = Infallible;

    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.now())
    }

    fn allowed(&self) -> CpuSet {
        CpuSet::first(self.world.vcpus(self.governor.vm))
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        let vm = self.governor.vm;
        let runnable = self.world.runnable(vm);
        self.world.disturb(vm, super::ns(SAMPLE_COST));
        let now = Snapshot::of(self.world, vm);
        let before = std::mem::replace(self.last, now);
        let vcpus = self.last.vcpus.iter().zip(&before.vcpus).zip(0..);
        let (w, b) = (&self.last.workload, &before.workload);
        let period = self.last.at - before.at;
        let throttled = self.last.throttled - before.throttled;
        Ok(Observation {
            at: Duration::from_nanos(self.last.at),
            period: Duration::from_nanos(period),
            vcpus: vcpus.map(|((now, before), cpu)| interval(CpuId(cpu), now, before)).collect(),
            workload: WorkloadInterval {
                cpu_time: Duration::from_nanos(w.cpu - b.cpu),
                user_time: Duration::from_nanos(w.user - b.user),
                run_delay: Duration::from_nanos(w.run_delay - b.run_delay),
                switches: w.switches - b.switches,
                moved_bytes: Some(w.moved - b.moved),
                counter: self.governor.counter.then_some((w.operations - b.operations) as f64),
                threads: self.world.threads_of(vm),
                ran: None,
                waiting: None,
                sockets: None,
                incomplete: false,
            },
            runnable,
            overload: self.overload.take(),
            throttled: throttled as f64 / period.max(1) as f64,
            settled: self.world.settled(vm),
            cost: SAMPLE_COST,
        })
    }

    fn reset_poll_limits(&mut self) -> Result<(), Self::Error> {
        self.world.reset_limits(self.governor.vm);
        Ok(())
    }

    fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, Self::Error> {
        put_in_force(self.world, self.governor.vm, setting);
        Ok(Vec::new())
    }
}

/// A vCPU's activity between two observations, as the guest's own counters show it.
fn interval(cpu: CpuId, now: &VcpuReport, before: &VcpuReport) -> VcpuInterval {
    let time = |categories: &[Category]| {
        let sum: Ns = categories.iter().map(|c| now.time[*c as usize] - before.time[*c as usize]).sum();
        Duration::from_nanos(sum)
    };
    VcpuInterval {
        cpu,
        halts: now.counts.halts - before.counts.halts,
        halt_time: time(&[Category::IdleEnter, Category::Halted, Category::HostPoll, Category::Waking]),
        polls: now.counts.polls - before.counts.polls,
        poll_time: time(&[Category::Poll, Category::Yield]),
        steal: time(&[Category::Steal]),
    }
}
