//! What-if: runs a recorded program on another machine, beside other VMs, and under different policies.

use std::num::NonZeroUsize;
use std::str::FromStr;

use gleaner_engine::Journal;
use gleaner_proto::source_text::{nearest, proposal};
use serde::Serialize;

use crate::cost::Costs;
use crate::ids::Ns;
use crate::library::{self, Parameters};
use crate::parallel;
use crate::recorded::{Recorded, Replay};
use crate::scenario::{Control, Scenario, ScenarioError};
use crate::sched::Fair;
use crate::spec::{HostSpec, Spec, VmSpec};
use crate::tuning::Tuning;
use crate::world::{End, Report};

const TRACED: &str = "trace";
/// A run is aborted when it takes this many times the recorded length.
const LIMIT_FACTOR: Ns = 200;

/// Identical co-located VMs: `COUNT:PROGRAM`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Neighbours {
    /// Number of VMs.
    pub count: u32,
    /// The library program that each of them repeats.
    pub program: String,
}

impl FromStr for Neighbours {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (count, program) =
            text.split_once(':').ok_or_else(|| format!("`{text}` is not COUNT:PROGRAM, such as 3:matmul"))?;
        let count = count.parse().ok().filter(|n| (1..=1000).contains(n));
        let count = count.ok_or_else(|| format!("`{text}`: the number of VMs lies between 1 and 1000"))?;
        if !library::names().any(|known| known == program) {
            let meant = proposal(nearest(program, library::names()));
            return Err(format!("there is no program `{program}`{meant}; `gleaner sim list` names them"));
        }
        Ok(Self { count, program: program.to_owned() })
    }
}

/// What controls the VM, `gleaner` or a fixed setting, with the name that the user gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedPolicy {
    /// As given by the user.
    pub name: String,
    /// The parsed meaning.
    pub control: Control,
}

impl FromStr for NamedPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let control = text.parse().map_err(|m| format!("{m}; or gleaner, or paper"))?;
        Ok(Self { name: text.to_owned(), control })
    }
}

/// The machine to simulate.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The program to run.
    pub recorded: &'a Recorded,
    /// vCPUs of the VM; each neighbour has as many.
    pub vcpus: u32,
    /// pCPUs of the host.
    pub pcpus: u32,
    /// VMs on the same host.
    pub neighbours: Vec<Neighbours>,
    /// Cost table of all VMs.
    pub costs: Costs,
    /// How the trace is replayed.
    pub replay: Replay,
}

/// Result of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// Seed of all random numbers.
    pub seed: u64,
    /// How the run ended.
    pub end: String,
    /// Run time in seconds; `None` if the run was aborted.
    pub seconds: Option<f64>,
    /// Hand-offs per second.
    pub hand_offs_per_s: f64,
    /// Wake-ups between threads, per second.
    pub wakes_per_s: f64,
    /// Their mean latency from the waker's call until the wakee runs, in microseconds.
    pub wake_us: f64,
    /// Reschedule interrupts per second, summed over the vCPUs.
    pub interrupts_per_s: f64,
    /// Halts per second, summed over the vCPUs.
    pub halts_per_s: f64,
    /// CPU time that the host spent on the VM until the end, polling included, in seconds.
    pub cpu_s: f64,
    /// Share (0..=1) of the vCPUs' time stolen by the host.
    pub steal: f64,
    /// Operations per second, summed over the neighbours.
    pub neighbours_per_s: f64,
}

impl Question<'_> {
    /// Runs the program once per policy and seed on `workers` cores; `done` is called after each run. The
    /// result has the runs of each policy in the order of the seeds.
    ///
    /// # Errors
    /// The machine cannot be built, or the policy cannot control it.
    pub fn ask(
        &self,
        policies: &[NamedPolicy],
        seeds: &[u64],
        workers: NonZeroUsize,
        done: impl Fn() + Sync,
    ) -> Result<Vec<Vec<Run>>, ScenarioError> {
        let base = self.scenario()?;
        let jobs: Vec<(Control, u64)> =
            policies.iter().flat_map(|p| seeds.iter().map(|seed| (p.control, *seed))).collect();
        let run = |(control, seed): &(Control, u64)| {
            let mut scenario = base.clone();
            scenario.spec.seed = *seed;
            scenario.control[0] = *control;
            let outcome = scenario.run(None, &mut Journal::disabled())?;
            Ok(summary(*seed, &outcome.end, &outcome.report))
        };
        let runs: Vec<Run> =
            parallel::map(&jobs, workers, run, done).into_iter().collect::<Result<_, _>>()?;
        Ok(runs.chunks(seeds.len().max(1)).map(<[Run]>::to_vec).collect())
    }

    fn scenario(&self) -> Result<Scenario, ScenarioError> {
        let title = format!("`{}`, recorded", self.recorded.header.workload);
        let vm = |name: &str| VmSpec {
            fair: Fair::EEVDF,
            wake_queue: true,
            ..VmSpec::new(name, self.vcpus, self.costs)
        };
        let mut vms = vec![vm(TRACED).running(self.recorded.program(self.replay))];
        let endless = Parameters { threads: 0, work: 0, grain: 0 };
        for neighbours in &self.neighbours {
            for _ in 0..neighbours.count {
                let program = library::make(&neighbours.program, endless, self.vcpus);
                let name = format!("{}-{}", neighbours.program, vms.len());
                vms.extend(program.map(|program| vm(&name).repeating(program)));
            }
        }
        let host = HostSpec { cores: self.pcpus, fair: Fair::EEVDF, ..HostSpec::default() };
        let control = vec![halt().control; vms.len()];
        let mut spec = Spec::new(host, vms);
        let recorded = self.recorded.elapsed.saturating_mul(self.replay.times.max(1));
        spec.time_limit = spec.time_limit.min(recorded.saturating_mul(LIMIT_FACTOR).max(1_000_000_000));
        spec.check().map_err(|source| ScenarioError::Spec { file: title.clone(), source })?;
        Ok(Scenario { title, source: None, spec, control, tuning: Tuning::default() })
    }
}

/// The baseline: idle vCPUs halt.
pub fn halt() -> NamedPolicy {
    NamedPolicy { name: "halt".to_owned(), control: Control::HALT }
}

fn summary(seed: u64, end: &End, report: &Report) -> Run {
    let (vm, neighbours) = (&report.vms[0], &report.vms[1..]);
    let totals = &vm.tasks[0].totals;
    let ns = totals.finished.unwrap_or(report.elapsed).max(1);
    let per_s = |count: u64| count as f64 / (ns as f64 / 1e9);
    let others = neighbours.iter().flat_map(|vm| &vm.tasks).map(|t| t.totals.operations).sum();
    Run {
        seed,
        end: end.to_string(),
        seconds: totals.finished.map(|ns| ns as f64 / 1e9),
        hand_offs_per_s: per_s(totals.operations),
        wakes_per_s: per_s(totals.wakes),
        wake_us: if totals.wakes == 0 { 0.0 } else { totals.wake_ns as f64 / totals.wakes as f64 / 1e3 },
        interrupts_per_s: per_s(vm.count(|c| c.resched_ipis)),
        halts_per_s: per_s(vm.count(|c| c.halts)),
        cpu_s: vm.host_cpu() as f64 / 1e9,
        steal: vm.share(crate::Category::Steal),
        neighbours_per_s: per_s(others),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_and_policies_are_read_and_mistakes_named() {
        let three: Neighbours = "3:matmul".parse().unwrap();
        assert_eq!((three.count, three.program.as_str()), (3, "matmul"));
        for (text, expected) in [
            ("matmul", "COUNT:PROGRAM"),
            ("0:matmul", "between 1 and 1000"),
            ("2:matmull", "did you mean `matmul`?"),
        ] {
            let error = text.parse::<Neighbours>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!("gleaner".parse::<NamedPolicy>().unwrap().control, Control::GLEANER);
        assert_eq!("halt".parse::<NamedPolicy>().unwrap(), halt());
        assert!("poll".parse::<NamedPolicy>().unwrap_err().contains("or gleaner"));
    }
}
