//! The simulated machine as the engine sees it: the policy of `gleaner run` drives it unchanged.

mod stage;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::time::Duration;

use gleaner_engine::{Journal, Machine, Wake};
use gleaner_policy::{
    CpuId, CpuSet, Method, Observation, Policy, PolicyConfig, Setting, Strategy, VcpuInterval, Watch,
    WorkloadInterval,
};
use gleaner_proto::journal::Summary;

use crate::ids::{Ns, Vm};
use crate::spec::IdleMode;
use crate::world::{Category, TaskTotals, VcpuReport, World};
use stage::Stage;

/// What an observation costs a guest with few threads (measured with `gleaner run` on a 2-vCPU guest).
const LOOK: Duration = Duration::from_micros(100);

/// A VM of a simulated machine, under control of a policy. VMs of one world that are governed at the same time take
/// turns ([`Stage`]).
#[derive(Debug)]
pub(crate) struct SimMachine<'a> {
    stage: &'a Stage,
    seat: usize,
    vm: Vm,
    /// Whether the program's operations are shown as its own counter.
    counter: bool,
    last: Snapshot,
}

/// A VM and what its policy is built from.
#[derive(Debug, Clone)]
pub struct Governor {
    /// The VM.
    pub vm: Vm,
    /// The policy's settings.
    pub config: PolicyConfig,
    /// Whether the program's operations are shown as the counter that a user would name.
    pub counter: bool,
}

/// Counters at the last observation.
#[derive(Debug, Clone)]
struct Snapshot {
    at: Ns,
    vcpus: Vec<VcpuReport>,
    workload: TaskTotals,
}

impl<'a> SimMachine<'a> {
    /// The VM of `seat`, until the world's own end.
    fn new(stage: &'a Stage, seat: usize, governor: &Governor) -> Self {
        let Governor { vm, counter, .. } = *governor;
        let last = Snapshot::of(&mut stage.world().world, vm);
        Self { stage, seat, vm, counter, last }
    }
}

/// Puts `setting` in force in `vm`, once.
pub(crate) fn put_in_force(world: &mut World, vm: Vm, setting: &Setting) {
    let active: Vec<bool> = (0..world.vcpus(vm)).map(|cpu| setting.active.contains(CpuId(cpu))).collect();
    let limit = match setting.retention.method {
        Method::Halt => 0,
        _ => ns(setting.retention.limit),
    };
    world.control(vm, &active, IdleMode { method: setting.retention.method, limit });
}

/// Runs the world to its end with `policy` in charge of `vm`, and gives the world back with the engine's account.
///
/// # Errors
/// The policy's configuration does not fit the VM.
pub fn govern(
    world: World,
    vm: Vm,
    config: PolicyConfig,
    counter: bool,
    journal: &mut Journal,
) -> Result<(World, Summary), gleaner_policy::ConfigError> {
    let journals = std::slice::from_mut(journal);
    let governors = vec![Governor { vm, config, counter }];
    let (world, mut summaries) = govern_all(world, governors, journals)?;
    Ok((world, summaries.pop().unwrap_or_default()))
}

/// Runs the world to its end with a policy of its own in charge of each of the VMs, and gives the world back with the
/// engine's accounts. The n-th governor writes the n-th journal, if there is one.
///
/// Each VM's engine loop is the one of `gleaner run`, on a thread of its own; they take turns in the order of simulated
/// time, so that the outcome does not depend on the threads.
///
/// # Errors
/// A policy's configuration does not fit its VM.
pub fn govern_all(
    world: World,
    governors: Vec<Governor>,
    journals: &mut [Journal],
) -> Result<(World, Vec<Summary>), gleaner_policy::ConfigError> {
    let vms: Vec<Vm> = governors.iter().map(|g| g.vm).collect();
    let stage = Stage::new(world, &vms);
    let mut runs = Vec::with_capacity(governors.len());
    let mut journals = journals.iter_mut();
    for (seat, governor) in governors.into_iter().enumerate() {
        let machine = SimMachine::new(&stage, seat, &governor);
        let strategy = governor.config.mode.strategy();
        let policy = Policy::new(governor.config, machine.allowed())?;
        runs.push((machine, policy, strategy, journals.next()));
    }
    let summaries = std::thread::scope(|scope| {
        let start = |run: (SimMachine, Policy, Strategy, Option<&mut Journal>)| {
            let (mut machine, mut policy, strategy, journal) = run;
            let _seat = machine.stage.sit_down(machine.seat);
            let mut nowhere = Journal::nowhere();
            let journal = journal.unwrap_or(&mut nowhere);
            Summary { strategy, ..gleaner_engine::run(&mut machine, &mut policy, journal) }
        };
        let threads: Vec<_> = runs.into_iter().map(|run| scope.spawn(move || start(run))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Summary>| match thread.join() {
            Ok(summary) => summary,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().map(join).collect()
    });
    let mut world = stage.into_world();
    world.run();
    Ok((world, summaries))
}

impl Snapshot {
    fn of(world: &mut World, vm: Vm) -> Self {
        let (vcpus, workload) = world.counters(vm);
        Self { at: world.now(), vcpus, workload }
    }
}

fn ns(duration: Duration) -> Ns {
    Ns::try_from(duration.as_nanos()).unwrap_or(Ns::MAX)
}

impl Machine for SimMachine<'_> {
    type Error = Infallible;

    fn now(&self) -> Duration {
        Duration::from_nanos(self.stage.world().world.now())
    }

    fn allowed(&self) -> CpuSet {
        CpuSet::first(u32::try_from(self.last.vcpus.len()).unwrap_or(u32::MAX))
    }

    fn wait(&mut self, next: Duration, watch: Option<Watch>) -> Result<Wake, Self::Error> {
        Ok(self.stage.wait(self.seat, ns(next), watch))
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        let cost = LOOK;
        let mut stage = self.stage.world();
        let world = &mut stage.world;
        let runnable = world.runnable(self.vm);
        world.disturb(self.vm, ns(cost));
        let now = Snapshot::of(world, self.vm);
        let before = std::mem::replace(&mut self.last, now);
        let vcpus = self.last.vcpus.iter().zip(&before.vcpus).zip(0..);
        let (w, b) = (&self.last.workload, &before.workload);
        Ok(Observation {
            at: Duration::from_nanos(self.last.at),
            period: Duration::from_nanos(self.last.at - before.at),
            vcpus: vcpus.map(|((now, before), cpu)| interval(CpuId(cpu), now, before)).collect(),
            workload: WorkloadInterval {
                cpu_time: Duration::from_nanos(w.cpu - b.cpu),
                user_time: Duration::from_nanos(w.user - b.user),
                run_delay: Duration::from_nanos(w.run_delay - b.run_delay),
                switches: w.switches - b.switches,
                moved_bytes: Some(w.moved - b.moved),
                counter: self.counter.then_some((w.operations - b.operations) as f64),
                threads: world.threads_of(self.vm),
                waiting: None,
                sockets: None,
            },
            runnable,
            crowd: None,
            throttled: 0.0,
            settled: world.settled(self.vm),
            cost,
        })
    }

    fn forget(&mut self) -> Result<(), Self::Error> {
        self.stage.world().world.forget_limits(self.vm);
        Ok(())
    }

    fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, Self::Error> {
        put_in_force(&mut self.stage.world().world, self.vm, setting);
        Ok(Vec::new())
    }
}

/// What a vCPU did between two looks, as the guest's own counters tell it.
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
