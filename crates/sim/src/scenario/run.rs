//! Running a scenario.

use std::time::Duration;

use gleaner_engine::Journal;
use gleaner_policy::{CpuSet, Method, PolicyConfig};
use gleaner_proto::journal::{Record, Summary, VERSION};

use super::{Control, Scenario, ScenarioError};
use crate::driver::{SimMachine, govern};
use crate::world::{End, Report, World};

/// What came of a scenario.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// The numbers.
    pub report: Report,
    /// The account of the policy, where it was in charge of a VM.
    pub summary: Option<Summary>,
    /// The world at its end, for its trace.
    pub world: World,
}

impl Scenario {
    /// Runs it. `record` is the number of spans to record of what the vCPUs do.
    ///
    /// # Errors
    /// The machine cannot be built, or the policy cannot govern it.
    pub fn run(&self, record: Option<usize>, journal: &mut Journal) -> Result<Outcome, ScenarioError> {
        let mut world = World::new(&self.spec)
            .map_err(|source| ScenarioError::Spec { file: self.title.clone(), source })?;
        if let Some(spans) = record {
            world.record(spans);
        }
        let mut governed = None;
        for (vm, control) in self.spec.vms.iter().zip(&self.control) {
            let Some(id) = world.vm_named(&vm.name) else { continue };
            match control {
                Control::Fixed(fixed) => {
                    let mut machine = SimMachine::new(world, id);
                    let setting = fixed.on(&CpuSet::first(vm.vcpus));
                    // A simulated machine's levers cannot fail: its error has no values.
                    let Ok(_) = gleaner_engine::Machine::apply(&mut machine, &setting);
                    world = machine.into_world();
                }
                Control::Gleaner if governed.is_none() => governed = Some((id, vm)),
                Control::Gleaner => {
                    return Err(ScenarioError::Policy {
                        vm: vm.name.clone(),
                        message: "it governs one VM of a scenario; give the others a fixed policy".to_owned(),
                    });
                }
            }
        }
        let mut summary = None;
        if let Some((id, vm)) = governed {
            let config = PolicyConfig {
                // What calibration would choose: the method with the cheapest wake-up.
                method: Method::Haltpoll,
                wake_cost: Duration::from_nanos(vm.costs.wake()[2]),
                ..PolicyConfig::default()
            };
            let programs: Vec<&str> = vm.tasks.iter().map(|t| t.program.name.as_str()).collect();
            journal.write(&Record::Start {
                version: VERSION,
                // Simulated time has no date.
                unix_ms: 0,
                workload: format!("{} in VM {} (simulated)", programs.join(", "), vm.name),
                vcpus: CpuSet::first(vm.vcpus),
                config: Box::new(config.clone()),
                limits: Vec::new(),
            });
            let (after, account) = govern(world, id, config, false, journal)
                .map_err(|e| ScenarioError::Policy { vm: vm.name.clone(), message: e.to_string() })?;
            let at = Duration::from_nanos(after.now());
            journal.write(&Record::End { at, summary: account.clone() });
            (world, summary) = (after, Some(account));
        }
        let end = world.run().clone();
        let report = world.report();
        Ok(Outcome { end, report, summary, world })
    }
}
