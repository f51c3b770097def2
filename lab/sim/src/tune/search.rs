//! The search: random candidates first, then steps around the best one.

use std::num::NonZeroUsize;

use gleaner_policy::PolicyConfig;
use rand_distr::{Distribution as _, StandardNormal, StandardUniform};

use super::{Gain, Measure, Weights};
use crate::parallel;
use crate::random::{Generator, Seeds};
use crate::scenario::{Scenario, ScenarioError};
use crate::tuning::{PolicyParameter, Tuning};

/// Candidates evaluated together. Constant, so that the result does not depend on the number of cores.
const BATCH: usize = 8;
/// Share of the budget for candidates from the whole space.
const GLOBAL_SHARE: f64 = 0.4;

/// What to search, on which scenarios, with which budget.
#[derive(Debug, Clone)]
pub struct Search<'a> {
    /// Scenarios on which candidates are scored.
    pub scenarios: &'a [Scenario],
    /// Parameters to vary.
    pub parameters: Vec<&'static PolicyParameter>,
    /// Maximum number of simulations.
    pub budget: usize,
    /// Seed of the candidates and of the scenarios.
    pub seed: u64,
    /// Weights of the objectives.
    pub weights: Weights,
}

/// Result of a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The best parameters found.
    pub tuning: Tuning,
    /// Their mean score over the searched scenarios against the defaults: a logarithm.
    pub score: f64,
    /// Number of simulations run.
    pub runs: usize,
    /// Number of candidates evaluated.
    pub candidates: usize,
}

/// A candidate: for each parameter, the position (0..=1) in its range.
#[derive(Debug, Clone)]
struct Candidate(Vec<f64>);

impl Search<'_> {
    /// The smallest sensible budget: the defaults and one candidate.
    pub fn least_budget(&self) -> usize {
        2 * self.scenarios.len()
    }

    /// Runs the search on `workers` cores. `done` is called after each simulation.
    ///
    /// # Errors
    /// A scenario cannot be run.
    pub fn run(&self, workers: NonZeroUsize, done: impl Fn() + Sync) -> Result<Found, ScenarioError> {
        let defaults = self.measures(&[Tuning::default()], workers, &done)?;
        let before = &defaults[0];
        let candidates = (self.budget / self.scenarios.len().max(1)).saturating_sub(1);
        let mut generator = Seeds(self.seed).generator("tune", 0);
        let start = PolicyConfig::default();
        let mut best = Candidate(self.parameters.iter().map(|k| k.share(k.get(&start))).collect());
        let (mut best_tuning, mut best_score) = (Tuning::default(), 0.0);
        let mut judged = 0;
        while judged < candidates {
            let count = BATCH.min(candidates - judged);
            let progress = judged as f64 / candidates as f64;
            let batch: Vec<Candidate> =
                (0..count).map(|_| propose(&best, progress, &mut generator)).collect();
            let tunings: Vec<Tuning> = batch.iter().map(|c| self.tuning(c)).collect();
            let measures = self.measures(&tunings, workers, &done)?;
            for ((candidate, tuning), after) in batch.into_iter().zip(tunings).zip(&measures) {
                let score = self.score(before, after);
                if score > best_score {
                    (best, best_tuning, best_score) = (candidate, tuning, score);
                }
            }
            judged += count;
        }
        let runs = (1 + judged) * self.scenarios.len();
        Ok(Found { tuning: best_tuning, score: best_score, runs, candidates: judged })
    }

    fn tuning(&self, candidate: &Candidate) -> Tuning {
        let mut tuning = Tuning::default();
        for (parameter, share) in self.parameters.iter().zip(&candidate.0) {
            // Three digits: more would suggest false precision.
            let value = rounded(parameter.at(*share)).clamp(parameter.low, parameter.high);
            // Cannot fail: the value was just clamped to the range.
            let _ = tuning.set(parameter, value);
        }
        tuning
    }

    /// Results by candidate and scenario.
    fn measures(
        &self,
        tunings: &[Tuning],
        workers: NonZeroUsize,
        done: &(impl Fn() + Sync),
    ) -> Result<Vec<Vec<Measure>>, ScenarioError> {
        let jobs: Vec<(&Tuning, &Scenario)> =
            tunings.iter().flat_map(|t| self.scenarios.iter().map(move |s| (t, s))).collect();
        let run = |(tuning, scenario): &(&Tuning, &Scenario)| Measure::of(scenario, tuning, self.seed);
        let all: Vec<Measure> =
            parallel::map(&jobs, workers, run, done).into_iter().collect::<Result<_, _>>()?;
        Ok(all.chunks(self.scenarios.len().max(1)).map(<[Measure]>::to_vec).collect())
    }

    fn score(&self, before: &[Measure], after: &[Measure]) -> f64 {
        let each = before.iter().zip(after).map(|(b, a)| Gain::between(b, a).score(self.weights));
        each.sum::<f64>() / before.len().max(1) as f64
    }
}

/// Uniform at first; later around the best candidate, changing some of its parameters by ever smaller steps.
fn propose(best: &Candidate, progress: f64, generator: &mut Generator) -> Candidate {
    let count = best.0.len();
    if progress < GLOBAL_SHARE {
        return Candidate((0..count).map(|_| uniform(generator)).collect());
    }
    let mut shares = best.0.clone();
    // At least one of them changes.
    let sure = uniform(generator) * count as f64;
    let reach = 0.3 * (1.0 - progress) / (1.0 - GLOBAL_SHARE) + 0.03;
    for (index, share) in shares.iter_mut().enumerate() {
        let (chosen, normal) = (uniform(generator) < 0.3, StandardNormal.sample(generator));
        if chosen || (index as f64..(index + 1) as f64).contains(&sure) {
            let step: f64 = normal;
            *share = (*share + reach * step).clamp(0.0, 1.0);
        }
    }
    Candidate(shares)
}

fn uniform(generator: &mut Generator) -> f64 {
    StandardUniform.sample(generator)
}

/// `value` with three significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.2e}").parse().unwrap_or(value)
}
