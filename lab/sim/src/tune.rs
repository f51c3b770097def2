//! Searches the policy's parameters over a set of scenarios, and evaluates the result on scenarios that the
//! search has not seen.

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

/// How a scenario performed with some parameters.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Measure {
    /// Sum of log(operations per second) over the programs of the controlled VMs.
    log_speed: f64,
    /// Sum of log(host CPU time per operation) over the same programs.
    log_cpu: f64,
    /// Sum of log(operations per second) over the programs of the other VMs: what control costs them.
    log_others: f64,
    /// Number of programs in the sums: in controlled VMs, in others.
    programs: (u32, u32),
}

/// Weights of the objectives.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Weights {
    /// Price of CPU time: the p for which a speed-up of 2^p justifies twice the CPU time per operation.
    pub cpu: f64,
}

impl Default for Weights {
    /// With an eighth, 9 % more speed justify twice the CPU time per operation. The policy's `poll_price` is
    /// another price: that of polling alone, in waiting rather than speed.
    fn default() -> Self {
        Self { cpu: 0.125 }
    }
}

/// Effect of changed parameters in one scenario, as factors; above 1 is better except for CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Gain {
    /// Operations per second.
    pub speed: f64,
    /// CPU time per operation.
    pub cpu: f64,
    /// Operations per second of the other VMs; 1 without any.
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

    /// Weighted logarithm of all factors: above 0 is better.
    pub fn score(&self, weights: Weights) -> f64 {
        self.speed.ln() + self.others.ln() - weights.cpu * self.cpu.ln()
    }
}

impl Measure {
    /// Runs `scenario` with these parameters and this seed.
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
            // No operation counts as half of one, since the logarithm needs a positive value.
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

/// Result for a held-out scenario.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Title of the scenario.
    pub scenario: String,
    /// Gain with each seed.
    pub gains: Vec<Gain>,
}

/// Evaluates `tuning` against the defaults in each of `scenarios` with each of `seeds`.
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
