//! How long the blocks of a trial are.

use std::time::Duration;

use crate::consolidation::scale;
use crate::progress::{Block, Difference, MOSTLY_IDLE_LOAD, Signal};
use crate::{CpuSet, Observation};

/// Hand-offs per block below which counts are not worth comparing.
const SWITCHES_PER_BLOCK: f64 = 200.0;
/// The shortest block: well above the time for one observation.
const SHORTEST_BLOCK: Duration = Duration::from_millis(10);
/// Blocks are made longer to give an exact signal enough to count, but not longer than this, unless the workload is mostly
/// idle and CPU time shows nothing.
const LONGEST_EXACT_BLOCK: Duration = Duration::from_millis(40);
/// The longest block: it bounds what a bad candidate costs in one go.
const LONGEST_BLOCK: Duration = Duration::from_millis(120);
/// Block length for the coarse user-time signal: 25 to 120 ticks.
pub(super) const USER_TIME_BLOCK: Duration = Duration::from_millis(100);

/// The block of a workload on the vCPUs `active` in the interval of `o`, where a waker spends `waker_cost` of CPU time on
/// each halted vCPU.
pub(crate) fn block_of(o: &Observation, active: &CpuSet, waker_cost: Duration) -> Block {
    let halts: u64 = o.on(active).map(|v| v.halts).sum();
    let wake_ups = halts.min(o.workload.switches) as f64;
    let polled = o.on(active).map(|v| v.poll_time).sum();
    Block { period: o.period, workload: o.workload, waking: scale(waker_cost, wake_ups), polled }
}

/// The block length for a workload last seen doing `seen`, where one observation takes `cost` of CPU time.
pub(super) fn block_length(seen: &Block, cost: Duration) -> Duration {
    let of = |amount: f64, per_s: f64| Duration::from_secs_f64((amount / per_s.max(1e-9)).min(1.0));
    let wanted = of(SWITCHES_PER_BLOCK, seen.workload.switches as f64 / seen.period.as_secs_f64().max(1e-3));
    // A signal that suffices in only some of the blocks would leave the decision to a weaker one.
    let idle = seen.workload.cpu_time < seen.period.mul_f64(MOSTLY_IDLE_LOAD);
    let longest = if idle { LONGEST_BLOCK } else { LONGEST_EXACT_BLOCK };
    let exact = Signal::ALL.into_iter().filter(|signal| signal.is_exact());
    let enough = exact.filter_map(|signal| {
        let length = of(2.0 * signal.floor(), signal.rate(seen)?);
        (length <= longest).then_some(length)
    });
    let wanted = wanted.max(enough.min().unwrap_or_default());
    // Reading a thousand threads takes milliseconds: a block must be thirty times longer than its sample.
    let shortest = SHORTEST_BLOCK.max(cost * 30).min(LONGEST_BLOCK);
    wanted.clamp(shortest, LONGEST_BLOCK)
}

/// The block lengths of a trial of a workload last seen doing `seen`, where one observation takes `cost` of CPU
/// time. The second is used if no signal is valid with the first.
pub fn block_lengths(seen: &Block, cost: Duration, difference: Difference) -> Vec<Duration> {
    let first = block_length(seen, cost);
    let longer = (difference == Difference::ActiveSet && first < USER_TIME_BLOCK).then_some(USER_TIME_BLOCK);
    [first].into_iter().chain(longer).collect()
}
