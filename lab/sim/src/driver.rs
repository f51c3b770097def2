//! Connects the simulated machine to the engine, so that the policy of `gleaner run` controls it unchanged.

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

/// A VM and the configuration of its policy.
#[derive(Debug, Clone)]
pub struct Governor {
    /// The VM to control.
    pub vm: Vm,
    /// The policy's configuration.
    pub config: PolicyConfig,
    /// Whether to report the program's operations as a user-supplied counter.
    pub counter: bool,
}

/// Applies `setting` to `vm`, once.
pub(crate) fn put_in_force(world: &mut World, vm: Vm, setting: &Setting) {
    let active: Vec<bool> = (0..world.vcpus(vm)).map(|cpu| setting.active.contains(CpuId(cpu))).collect();
    let limit = match setting.retention.method {
        Method::Halt => 0,
        _ => ns(setting.retention.limit),
    };
    world.control(vm, &active, IdleMode { method: setting.retention.method, limit });
}

/// Runs the world to its end with a policy controlling `vm`; returns the world and the engine's summary.
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

/// A VM under control of its policy.
#[derive(Debug)]
struct Seat<'a> {
    governor: &'a Governor,
    /// Counters at the last observation.
    last: Snapshot,
    run: Run<'a>,
    /// The pause that its run is in; `None` once the run is over.
    paused: Option<Paused>,
    /// Time of the last overload report.
    reported: Option<Ns>,
}

/// Runs the world to its end with a separate policy controlling each of the VMs; returns the world and the
/// engine's summaries. The n-th governor writes to the n-th journal, if there is one.
///
/// Each VM runs the loop of `gleaner run`. Simulated time passes while all of them pause; it and the order of
/// the VMs alone determine which one continues next.
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
    let mut disabled: Vec<_> = governors.iter().skip(journals.len()).map(|_| Journal::disabled()).collect();
    let journals = journals.iter_mut().chain(&mut disabled);
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
    while let Some((next, seat)) = first_to_check(&mut seats) {
        world.run_until(next);
        seat.check(&mut world);
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

/// The VM whose pause is the first to be checked, and when.
fn first_to_check<'a, 'b>(seats: &'a mut [Seat<'b>]) -> Option<(Ns, &'a mut Seat<'b>)> {
    let paused = seats.iter_mut().filter_map(|seat| Some((seat.paused.as_ref()?.next(), seat)));
    paused.min_by_key(|(next, _)| *next)
}

impl Seat<'_> {
    /// Checks whether the pause is over, and continues the run if so.
    fn check(&mut self, world: &mut World) {
        let Some(paused) = &mut self.paused else { return };
        let (wake, overload) = match paused.check(world, self.governor.vm) {
            _ if world.end().is_some() => (Wake::Ended, None),
            Some(End::Due) => (Wake::Observe, None),
            Some(End::Overload(overload)) => (Wake::Observe, Some(overload)),
            None => return,
        };
        if overload.is_some() {
            self.reported = Some(world.now());
        }
        let mut machine = SimMachine::new(world, self.governor, &mut self.last).with_overload(overload);
        let pause = self.run.resume(&mut machine, Ok(wake));
        self.paused = pause.map(|pause| Paused::new(world, pause, self.reported));
    }
}

fn ns(duration: Duration) -> Ns {
    Ns::try_from(duration.as_nanos()).unwrap_or(Ns::MAX)
}
