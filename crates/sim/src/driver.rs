//! The simulated machine as the engine sees it: the policy of `gleaner run` drives it unchanged.

use std::convert::Infallible;
use std::time::Duration;

use gleaner_engine::{Journal, Machine, Wake};
use gleaner_policy::{
    CpuId, CpuSet, Method, Observation, Policy, PolicyConfig, Setting, VcpuInterval, Watch, WorkloadInterval,
};
use gleaner_proto::journal::Summary;

use crate::ids::{Ns, Vm};
use crate::spec::IdleMode;
use crate::world::{Category, TaskTotals, VcpuReport, World};

/// What an observation costs a guest with few threads (measured with `gleaner run` on a 2-vCPU guest).
const LOOK: Duration = Duration::from_micros(100);

/// A VM of a simulated machine, under control of a policy.
#[derive(Debug)]
pub struct SimMachine {
    world: World,
    vm: Vm,
    /// Whether the program's operations are shown as its own counter.
    counter: bool,
    until: Ns,
    last: Snapshot,
}

/// Counters at the last observation.
#[derive(Debug, Clone)]
struct Snapshot {
    at: Ns,
    vcpus: Vec<VcpuReport>,
    workload: TaskTotals,
}

impl SimMachine {
    /// The VM `vm` of `world`, until the world's own end.
    pub fn new(mut world: World, vm: Vm) -> Self {
        let last = Snapshot::of(&mut world, vm);
        Self { world, vm, counter: false, until: Ns::MAX, last }
    }

    /// Shows the program's operations as the counter that a user would name.
    #[must_use]
    pub fn with_counter(mut self) -> Self {
        self.counter = true;
        self
    }

    /// The machine.
    pub fn into_world(self) -> World {
        self.world
    }
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
    let mut machine = SimMachine::new(world, vm);
    machine.counter = counter;
    let mut policy = Policy::new(config, machine.allowed())?;
    let summary = gleaner_engine::run(&mut machine, &mut policy, journal);
    let mut world = machine.into_world();
    world.run();
    Ok((world, summary))
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

impl Machine for SimMachine {
    type Error = Infallible;

    fn now(&self) -> Duration {
        Duration::from_nanos(self.world.now())
    }

    fn allowed(&self) -> CpuSet {
        CpuSet::first(u32::try_from(self.last.vcpus.len()).unwrap_or(u32::MAX))
    }

    fn wait(&mut self, next: Duration, watch: Option<Watch>) -> Result<Wake, Self::Error> {
        let until = self.world.now().saturating_add(ns(next)).min(self.until);
        let mut streak = 0;
        while self.world.now() < until && self.world.end().is_none() {
            let step = watch.map_or(until, |w| self.world.now().saturating_add(ns(w.every).max(1)));
            self.world.run_until(step.min(until));
            if let Some(watch) = watch {
                let runnable = self.world.runnable(self.vm);
                streak = if watch.matches(runnable) { streak + 1 } else { 0 };
                if streak >= watch.times {
                    break;
                }
            }
        }
        Ok(if self.world.end().is_some() { Wake::Ended } else { Wake::Observe })
    }

    fn observe(&mut self) -> Result<Observation, Self::Error> {
        let cost = LOOK;
        let runnable = self.world.runnable(self.vm);
        self.world.disturb(self.vm, ns(cost));
        let now = Snapshot::of(&mut self.world, self.vm);
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
                threads: self.world.threads_of(self.vm),
            },
            runnable,
            throttled: 0.0,
            settled: self.world.settled(self.vm),
            cost,
        })
    }

    fn forget(&mut self) -> Result<(), Self::Error> {
        self.world.forget_limits(self.vm);
        Ok(())
    }

    fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, Self::Error> {
        let active: Vec<bool> =
            (0..self.last.vcpus.len()).zip(0..).map(|(_, cpu)| setting.active.contains(CpuId(cpu))).collect();
        let limit = match setting.retention.method {
            Method::Halt => 0,
            _ => ns(setting.retention.limit),
        };
        self.world.control(self.vm, &active, IdleMode { method: setting.retention.method, limit });
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

#[cfg(test)]
mod tests;
