//! Searching the policy's parameters over a set of scenarios, and judging what was found on others that the search has
//! not seen.

mod field;
mod search;
#[cfg(test)]
mod tests;

use std::num::NonZeroUsize;

use gleaner_engine::Journal;
use serde::Serialize;

use crate::parallel;
use crate::scenario::{Scenario, ScenarioError};
use crate::tuning::Tuning;
use crate::world::Report;

pub use field::field;
pub use search::{Found, Search};

/// How a scenario ended with some parameters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measure {
    /// Operations per second of the governed VMs' programs, as the sum of their logarithms.
    log_speed: f64,
    /// CPU time that the host spent for the governed VMs, per operation, in the same way.
    log_cpu: f64,
    /// The same of the other VMs' programs: what governing costs them.
    log_others: f64,
    /// How many programs are in the sums.
    programs: (u32, u32),
}

/// What counts how much.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Weights {
    /// By how much a program must be faster, as a power, for twice the CPU time per operation to be worth it.
    pub cpu: f64,
}

impl Default for Weights {
    /// The policy's own price of polling.
    fn default() -> Self {
        Self { cpu: 0.125 }
    }
}

/// What a change of parameters brought in one scenario, as factors; above 1 is better but for the CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// Operations per second.
    pub speed: f64,
    /// CPU time per operation.
    pub cpu: f64,
    /// Operations per second of the VMs beside; 1 without any.
    pub others: f64,
}

impl Gain {
    /// From `before` to `after`.
    fn between(before: &Measure, after: &Measure) -> Self {
        let per = |sum: f64, count: u32| (sum / f64::from(count.max(1))).exp();
        Self {
            speed: per(after.log_speed - before.log_speed, before.programs.0),
            cpu: per(after.log_cpu - before.log_cpu, before.programs.0),
            others: per(after.log_others - before.log_others, before.programs.1),
        }
    }

    /// All in one, as a logarithm: above 0 is better.
    pub fn score(&self, weights: Weights) -> f64 {
        self.speed.ln() + self.others.ln() - weights.cpu * self.cpu.ln()
    }
}

impl Measure {
    /// `scenario` with these parameters and this seed.
    fn of(scenario: &Scenario, tuning: &Tuning, seed: u64) -> Result<Self, ScenarioError> {
        let mut scenario = scenario.clone();
        scenario.tuning = tuning.clone();
        scenario.spec.seed = seed;
        let outcome = scenario.run_with(None, &mut [] as &mut [Journal])?;
        let governed: Vec<&str> = scenario.governed().map(|vm| vm.name.as_str()).collect();
        Ok(Self::from(&outcome.report, &governed))
    }

    fn from(report: &Report, governed: &[&str]) -> Self {
        let mut sum = Self { log_speed: 0.0, log_cpu: 0.0, log_others: 0.0, programs: (0, 0) };
        for vm in &report.vms {
            let ours = governed.contains(&vm.name.as_str());
            // Time in which nothing was done counts as half an operation: a logarithm needs one.
            let operations = |task: &crate::TaskReport| (task.totals.operations as f64).max(0.5);
            let all: f64 = vm.tasks.iter().map(operations).sum();
            for task in &vm.tasks {
                let ns = task.totals.finished.unwrap_or(report.elapsed).max(1);
                let speed = (operations(task) / ns as f64).ln();
                if ours {
                    sum.log_speed += speed;
                    sum.log_cpu += (vm.host_cpu().max(1) as f64 / all).ln();
                    sum.programs.0 += 1;
                } else {
                    sum.log_others += speed;
                    sum.programs.1 += 1;
                }
            }
        }
        sum
    }
}

/// A held-out scenario's verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Its title.
    pub scenario: String,
    /// The gain with each seed.
    pub gains: Vec<Gain>,
}

/// What `tuning` brings in each of `scenarios` against the defaults, with each of `seeds`.
///
/// # Errors
/// A scenario cannot be run.
pub fn judge(
    scenarios: &[Scenario],
    tuning: &Tuning,
    seeds: &[u64],
    workers: NonZeroUsize,
    done: impl Fn() + Sync,
) -> Result<Vec<Verdict>, ScenarioError> {
    let jobs: Vec<(usize, u64)> =
        (0..scenarios.len()).flat_map(|s| seeds.iter().map(move |seed| (s, *seed))).collect();
    let run = |(scenario, seed): &(usize, u64)| {
        let scenario = &scenarios[*scenario];
        let before = Measure::of(scenario, &Tuning::default(), *seed)?;
        Ok(Gain::between(&before, &Measure::of(scenario, tuning, *seed)?))
    };
    let gains: Vec<Gain> =
        parallel::map(&jobs, workers, run, done).into_iter().collect::<Result<_, ScenarioError>>()?;
    let verdict = |(scenario, gains): (&Scenario, &[Gain])| Verdict {
        scenario: scenario.title.clone(),
        gains: gains.to_vec(),
    };
    Ok(scenarios.iter().zip(gains.chunks(seeds.len().max(1))).map(verdict).collect())
}
