//! The simulated machine as the engine sees it: the policy of `gleaner run` drives it unchanged.

mod machine;
mod pause;
#[cfg(test)]
mod tests;

use std::time::Duration;

use gleaner_engine::{Journal, Run, Wake};
use gleaner_policy::{CpuId, CpuSet, Method, Policy, PolicyConfig, Setting};
use gleaner_proto::journal::Summary;

use self::machine::{SimMachine, Snapshot};
use self::pause::{End, Paused};
use crate::ids::{Ns, Vm};
use crate::spec::IdleMode;
use crate::world::World;

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
    let governors = [Governor { vm, config, counter }];
    let (world, mut summaries) = govern_all(world, &governors, journals)?;
    Ok((world, summaries.pop().unwrap_or_default()))
}

/// A governed VM.
#[derive(Debug)]
struct Seat<'a> {
    governor: &'a Governor,
    /// Its counters at the last observation.
    last: Snapshot,
    run: Run<'a>,
    /// What its run waits for; nothing once it is over.
    paused: Option<Paused>,
    /// When threads queued up last.
    reported: Option<Ns>,
}

/// Runs the world to its end with a policy of its own in charge of each of the VMs, and gives the world back with the
/// engine's accounts. The n-th governor writes the n-th journal, if there is one.
///
/// Each VM's loop is the one of `gleaner run`. Simulated time passes while all of them pause; who goes on next follows from
/// it and the order of the VMs alone.
///
/// # Errors
/// A policy's configuration does not fit its VM.
pub fn govern_all(
    mut world: World,
    governors: &[Governor],
    journals: &mut [Journal],
) -> Result<(World, Vec<Summary>), gleaner_policy::ConfigError> {
    let mut policies = Vec::with_capacity(governors.len());
    for governor in governors {
        policies.push(Policy::new(governor.config.clone(), CpuSet::first(world.vcpus(governor.vm)))?);
    }
    let mut nowhere: Vec<_> = governors.iter().skip(journals.len()).map(|_| Journal::nowhere()).collect();
    let journals = journals.iter_mut().chain(&mut nowhere);
    let mut seats = Vec::with_capacity(governors.len());
    for ((governor, policy), journal) in governors.iter().zip(&mut policies).zip(journals) {
        let mut last = Snapshot::of(&mut world, governor.vm);
        let run = Run::new(&SimMachine::new(&mut world, governor, &mut last), policy, journal);
        seats.push(Seat { governor, last, run, paused: None, reported: None });
    }
    for seat in &mut seats {
        let pause = seat.run.start(&mut SimMachine::new(&mut world, seat.governor, &mut seat.last));
        seat.paused = pause.map(|pause| Paused::new(&world, pause, None));
    }
    while let Some((next, seat)) = first_to_look(&mut seats) {
        world.run_until(next);
        seat.look(&mut world);
    }
    let summary = |seat: Seat<'_>| {
        let Seat { governor, mut last, run, .. } = seat;
        let summary = run.end(&mut SimMachine::new(&mut world, governor, &mut last));
        Summary { strategy: governor.config.mode.strategy(), ..summary }
    };
    let summaries = seats.into_iter().map(summary).collect();
    world.run();
    Ok((world, summaries))
}

/// The one that pauses and looks first, and when.
fn first_to_look<'a, 'b>(seats: &'a mut [Seat<'b>]) -> Option<(Ns, &'a mut Seat<'b>)> {
    let paused = seats.iter_mut().filter_map(|seat| Some((seat.paused.as_ref()?.next(), seat)));
    paused.min_by_key(|(next, _)| *next)
}

impl Seat<'_> {
    /// Looks whether the pause is over, and goes on if it is.
    fn look(&mut self, world: &mut World) {
        let Some(paused) = &mut self.paused else { return };
        let (wake, overload) = match paused.look(world, self.governor.vm) {
            _ if world.end().is_some() => (Wake::Ended, None),
            Some(End::Due) => (Wake::Observe, None),
            Some(End::Overload(overload)) => (Wake::Observe, Some(overload)),
            None => return,
        };
        if overload.is_some() {
            self.reported = Some(world.now());
        }
        let mut machine = SimMachine::new(world, self.governor, &mut self.last).with_overload(overload);
        let pause = self.run.go_on(&mut machine, Ok(wake));
        self.paused = pause.map(|pause| Paused::new(world, pause, self.reported));
    }
}

fn ns(duration: Duration) -> Ns {
    Ns::try_from(duration.as_nanos()).unwrap_or(Ns::MAX)
}
