//! Every setting of Table 2, under every retention method, for several vCPU pairs.

use std::collections::BTreeMap;
use std::error::Error;
use std::time::{Duration, Instant};

use gleaner_policy::{CpuId, CpuSet, Method};
use serde::Serialize;

use super::{Case, Plan, WakeError, WakeSamples};

/// The shortest block worth its set-up: some hundred wake-ups.
const MIN_BLOCK: Duration = Duration::from_millis(5);

/// What [`matrix`] measures, and in how much time.
#[derive(Debug, Clone)]
pub struct MatrixPlan {
    /// The vCPU pairs, for example from [`representative_pairs`].
    pub pairs: Vec<(CpuId, CpuId)>,
    /// The retention methods to compare.
    pub methods: Vec<Method>,
    /// The settings of Table 2.
    pub cases: Vec<Case>,
    /// Number of blocks per measurement; the blocks of all measurements are interleaved.
    pub blocks: u32,
    /// Maximum time of one block. The budget can shorten blocks to no less than 5 ms.
    pub block: Duration,
    /// Total time, excluding the caller's switching of methods.
    pub budget: Duration,
    /// As in [`Plan::gap`].
    pub gap: Duration,
    /// Maximum rounds of one block, as in [`Plan::rounds`].
    pub rounds: u32,
    /// As in [`Plan::timeout`].
    pub timeout: Duration,
}

impl MatrixPlan {
    /// All four settings in four blocks of at most 120 ms each, within 7 s.
    pub fn new(pairs: Vec<(CpuId, CpuId)>, methods: Vec<Method>) -> Self {
        Self {
            pairs,
            methods,
            cases: Case::ALL.to_vec(),
            blocks: 4,
            block: Duration::from_millis(120),
            budget: Duration::from_secs(7),
            gap: Plan::DEFAULT_GAP,
            rounds: Plan::MAX_ROUNDS,
            timeout: Plan::DEFAULT_TIMEOUT,
        }
    }

    /// The time of one block such that all blocks fit into the budget.
    pub fn block_time(&self) -> Duration {
        let blocks = self.pairs.len() * self.methods.len() * self.cases.len();
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX).saturating_mul(self.blocks).max(1);
        (self.budget / blocks).max(MIN_BLOCK).min(self.block)
    }
}

/// One measurement of the matrix.
#[derive(Debug, Clone, Serialize)]
pub struct Cell {
    /// The setting of Table 2.
    pub case: Case,
    /// The active retention method.
    pub method: Method,
    /// The vCPU pair; with [`Case::SameVcpu`], both threads ran on the first one.
    pub pair: (CpuId, CpuId),
    /// The wake-ups of all blocks.
    pub samples: WakeSamples,
}

/// Runs every case under every method for every pair, in short interleaved blocks, so that the machine's
/// noise affects all alike.
///
/// `switch` activates a retention method and returns whether this machine has it; otherwise the method is
/// left out. The caller has to restore the earlier method afterwards. The measured threads inherit the
/// scheduling policy of the calling thread, which `switch` sets to `SCHED_BATCH` for
/// [`Method::YieldIpiFree`]. Cells are ordered by case, method and pair; those without any wake-up are left
/// out, as are blocks that no longer fit into the budget on a starved machine.
///
/// # Errors
/// As [`measure`](super::measure), and those of `switch`. Blocks without a sample or, on an overloaded host,
/// without running threads are skipped, unless no cell at all is left.
pub fn matrix<F>(plan: &MatrixPlan, mut switch: F) -> Result<Vec<Cell>, WakeError>
where
    F: FnMut(Method) -> Result<bool, Box<dyn Error + Send + Sync>>,
{
    let block = plan.block_time();
    // By index in the plan, which determines the order of the result.
    let mut cells: BTreeMap<(usize, usize, usize), WakeSamples> = BTreeMap::new();
    let mut starved = None;
    let mut measuring = Duration::ZERO;
    for round in 0..plan.blocks as usize {
        for turn in 0..plan.methods.len() {
            // Each round starts with another method, so that a slow drift favours none.
            let m = (round + turn) % plan.methods.len();
            let method = plan.methods[m];
            if !switch(method).map_err(|source| WakeError::Switch { method, source })? {
                continue;
            }
            let started = Instant::now();
            for (p, (waker, wakee)) in plan.pairs.iter().copied().enumerate() {
                for (c, case) in plan.cases.iter().enumerate() {
                    if measuring + started.elapsed() > plan.budget {
                        break;
                    }
                    let MatrixPlan { gap, rounds, timeout, .. } = *plan;
                    let block = Plan { waker, wakee, rounds, budget: block, gap, timeout };
                    match case.measure(&block) {
                        Ok(samples) => match cells.get_mut(&(c, m, p)) {
                            Some(cell) => cell.merge(samples),
                            None => drop(cells.insert((c, m, p), samples)),
                        },
                        Err(WakeError::NoWake { .. }) => {}
                        Err(error @ WakeError::Starved { .. }) => starved = Some(error),
                        Err(error) => return Err(error),
                    }
                }
            }
            measuring += started.elapsed();
        }
    }
    if let (true, Some(error)) = (cells.is_empty(), starved) {
        return Err(error);
    }
    Ok(cells
        .into_iter()
        .map(|((c, m, p), samples)| Cell {
            case: plan.cases[c],
            method: plan.methods[m],
            pair: plan.pairs[p],
            samples,
        })
        .collect())
}

/// One pair of vCPUs for each `relation` between two of `cpus` (SMT siblings, shared cache, two sockets…), in
/// the order of the relations; empty for fewer than two vCPUs.
pub fn representative_pairs<K, F>(cpus: &CpuSet, relation: F) -> Vec<(CpuId, CpuId)>
where
    K: Ord,
    F: Fn(CpuId, CpuId) -> K,
{
    let mut pairs = BTreeMap::new();
    for a in cpus.iter() {
        for b in cpus.iter().filter(|b| *b > a) {
            pairs.entry(relation(a, b)).or_insert((a, b));
        }
    }
    pairs.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_one_pair_of_each_relation() {
        // Two sockets of two cores with two siblings each.
        let relation = |a: CpuId, b: CpuId| (a.0 / 4 != b.0 / 4, a.0 / 2 != b.0 / 2);
        let pairs = representative_pairs(&CpuSet::first(8), relation);
        let numbers: Vec<_> = pairs.iter().map(|(a, b)| (a.0, b.0)).collect();
        assert_eq!(numbers, [(0, 1), (0, 2), (0, 4)]);
        assert!(representative_pairs(&CpuSet::first(1), relation).is_empty());
    }

    #[test]
    fn blocks_fit_into_the_budget() {
        let methods = vec![Method::Halt, Method::Haltpoll, Method::QosPoll, Method::Yield];
        let mut plan = MatrixPlan::new(vec![(CpuId(0), CpuId(1))], methods);
        assert!(plan.block_time() * 4 * 4 * plan.blocks <= plan.budget);
        plan.methods.truncate(1);
        assert_eq!(plan.block_time(), plan.block);
        plan.pairs = vec![(CpuId(0), CpuId(1)); 1000];
        assert_eq!(plan.block_time(), MIN_BLOCK);
    }
}
