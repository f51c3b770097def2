//! Running a scenario.

use std::time::Duration;

use gleaner_engine::Journal;
use gleaner_policy::{ConfigError, CpuSet, Fixed, Method, Mode, PolicyConfig, Setting};
use gleaner_proto::journal::{Record, Summary, VERSION};

use super::{Control, Scenario, ScenarioError};
use crate::driver::{Governor, govern_all, put_in_force};
use crate::spec::VmSpec;
use crate::world::{End, Report, World};

/// Result of running a scenario.
#[derive(Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// Counters and times.
    pub report: Report,
    /// The engine's summary for each controlled VM, by name.
    pub accounts: Vec<(String, Summary)>,
    /// The world at its end, which holds the trace.
    pub world: World,
}

impl Scenario {
    /// Runs the scenario. `record` limits the number of recorded spans of vCPU activity; the journal is that
    /// of the first VM under the policy's control.
    ///
    /// # Errors
    /// The machine cannot be built, or the policy cannot control it.
    pub fn run(&self, record: Option<usize>, journal: &mut Journal) -> Result<Outcome, ScenarioError> {
        self.run_with(record, std::slice::from_mut(journal))
    }

    /// The VMs that the policy controls, in file order.
    pub fn governed(&self) -> impl Iterator<Item = &VmSpec> {
        self.governed_by().map(|(vm, ..)| vm)
    }

    /// The same, with how the policy decides.
    fn governed_by(&self) -> impl Iterator<Item = (&VmSpec, Mode, Method)> {
        self.spec.vms.iter().zip(&self.control).filter_map(|(vm, control)| match control {
            Control::Gleaner(method) => Some((vm, control.mode()?, *method)),
            // The paper's own method (§6).
            Control::Paper => Some((vm, control.mode()?, Method::Yield)),
            Control::Fixed(_) => None,
        })
    }

    /// Like [`Scenario::run`], with one journal per controlled VM, as far as there are any.
    ///
    /// # Errors
    /// The machine cannot be built, or the policy cannot control it.
    pub fn run_with(
        &self,
        record: Option<usize>,
        journals: &mut [Journal],
    ) -> Result<Outcome, ScenarioError> {
        let fixed = self.fixed_settings()?;
        let mut world = World::new(&self.spec)
            .map_err(|source| ScenarioError::Spec { file: self.title.clone(), source })?;
        if let Some(spans) = record {
            world.record(spans);
        }
        for (vm, setting) in fixed {
            if let Some(id) = world.vm_named(&vm.name) {
                put_in_force(&mut world, id, &setting);
            }
        }
        let mut governors = Vec::new();
        for (vm, mode, method) in self.governed_by() {
            let config = self.policy_config(vm, mode, method);
            if let Some(journal) = journals.get_mut(governors.len()) {
                write_start(journal, vm, &config);
            }
            governors.extend(world.vm_named(&vm.name).map(|id| Governor { vm: id, config, counter: false }));
        }
        let mut accounts = Vec::new();
        if !governors.is_empty() {
            let names: Vec<&str> = self.governed().map(|vm| vm.name.as_str()).collect();
            let cannot =
                |e: ConfigError| ScenarioError::Policy { vm: names.join("`, `"), message: e.to_string() };
            let (after, summaries) = govern_all(world, &governors, journals).map_err(cannot)?;
            let at = Duration::from_nanos(after.now());
            for (journal, summary) in journals.iter_mut().zip(&summaries) {
                journal.write(&Record::End { at, summary: summary.clone() });
            }
            world = after;
            accounts = names.into_iter().map(str::to_owned).zip(summaries).collect();
        }
        let end = world.run().clone();
        let report = world.report();
        Ok(Outcome { end, report, accounts, world })
    }

    /// The VMs with a fixed setting, and that setting.
    fn fixed_settings(&self) -> Result<Vec<(&VmSpec, Setting)>, ScenarioError> {
        let cannot = |vm: &VmSpec, message| ScenarioError::Policy { vm: vm.name.clone(), message };
        // Check first: sets of vCPUs support only so many.
        self.spec.check().map_err(|source| ScenarioError::Spec { file: self.title.clone(), source })?;
        let pairs = self.spec.vms.iter().zip(&self.control);
        let fixed = pairs.filter_map(|(vm, control)| match control {
            Control::Fixed(fixed) => Some((vm, fixed)),
            Control::Gleaner(_) | Control::Paper => None,
        });
        let on = |(vm, fixed): (_, &Fixed)| {
            let vm: &VmSpec = vm;
            fixed.on(&CpuSet::first(vm.vcpus)).map(|setting| (vm, setting)).map_err(|m| cannot(vm, m))
        };
        fixed.map(on).collect()
    }

    /// Policy configuration for a VM.
    fn policy_config(&self, vm: &VmSpec, mode: Mode, method: Method) -> PolicyConfig {
        let mut config = PolicyConfig {
            method,
            mode,
            wake_cost: Duration::from_nanos(vm.costs.wake()[2]),
            ..PolicyConfig::default()
        };
        self.tuning.apply(&mut config);
        config
    }
}

fn write_start(journal: &mut Journal, vm: &VmSpec, config: &PolicyConfig) {
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
}
