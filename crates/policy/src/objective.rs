//! What counts as better: more progress, or shorter waiting that is worth its price (docs/objective.md).
//!
//! A client that waits for each answer makes more progress when wake-ups are faster. Clients that set the rate
//! themselves do not: there the same answers come sooner, and only the wake-to-run latency of the workload's threads
//! shows it. A lock convoy is the reverse: its threads wait less and get less done.

use std::fmt;
use std::str::FromStr;

use crate::evidence::Evidence;
use crate::guard::Purpose;
use crate::noise::Noise;
use crate::progress::{Block, Difference, Signal, compare};

/// What polling is worth: the one price by which poll limits are chosen and saved waiting is weighed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Objective {
    /// Short wake-ups, also where much is polled for them.
    Latency,
    /// Polling that saves at least an eighth of its time.
    #[default]
    Balanced,
    /// Polling that saves at least half of its time: the host's CPU time is expensive.
    Efficiency,
}

impl Objective {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Latency, Self::Balanced, Self::Efficiency];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Balanced => "balanced",
            Self::Efficiency => "efficiency",
        }
    }

    /// What a microsecond of polling is worth in microseconds of waiting.
    pub const fn poll_price(self) -> f64 {
        match self {
            Self::Latency => 0.03125,
            Self::Balanced => 0.125,
            Self::Efficiency => 0.5,
        }
    }

    /// The one with this price.
    pub fn of_price(poll_price: f64) -> Option<Self> {
        Self::ALL.into_iter().find(|objective| objective.poll_price().total_cmp(&poll_price).is_eq())
    }
}

impl fmt::Display for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Objective {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::ALL.into_iter().find(|objective| objective.name() == name);
        known.ok_or_else(|| format!("`{name}` is none of latency, balanced and efficiency"))
    }
}

/// From so many pairs on, what was shown before is not taken back by one lucky or unlucky block.
const ENOUGH_PAIRS: u32 = 3;
/// The longest waits may grow by this factor where the mean shrinks.
const TAIL: f64 = 1.25;

/// What pairs of (baseline, candidate) blocks say of the candidate.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Comparison {
    /// By the best signal of progress that is valid.
    progress: Option<Evidence>,
    /// By the workload's wake-to-run latency; only where it may count for the candidate.
    waiting: Option<Evidence>,
    /// Whether progress is shown not to be lower, by more than its margin.
    not_lower: bool,
    /// Waiting that is shown to be longer, where more progress than that can be worth is ruled out.
    delay: Option<Evidence>,
}

impl Comparison {
    /// Compares the blocks, where a microsecond of polling is worth `poll_price` microseconds of waiting.
    pub(crate) fn of(
        pairs: &[(Block, Block)],
        difference: Difference,
        noise: &Noise,
        poll_price: f64,
    ) -> Self {
        let progress = compare(pairs, difference, noise);
        let exact = progress.filter(|e| e.signal.is_exact());
        let not_lower = exact.is_some_and(|e| e.is_not_lower());
        let may_count = exact.is_some_and(|e| !e.is_lower());
        let counts = may_count && waiting_saved(pairs) > poll_price * polled(pairs) && tail_stays(pairs);
        let known = evidence(Signal::Waiting, pairs, noise);
        let outweighed = progress.is_some_and(|e| e.high < TAIL);
        let delay = known.filter(|e| outweighed && e.high < 1.0 / TAIL);
        let waiting = known.filter(|_| counts);
        Self { progress, waiting, not_lower, delay }
    }

    /// What shows that the candidate is better.
    pub(crate) fn proof(&self, purpose: Purpose) -> Option<Evidence> {
        let proves = |e: &Evidence| match purpose {
            Purpose::Adopt => e.proves(),
            Purpose::Reprove => e.confirms(),
        };
        // What was shown before need only not look otherwise now.
        let looks_lower = |e: Evidence| e.pairs < ENOUGH_PAIRS || e.ratio < 1.0 - e.signal.margin();
        let still = purpose == Purpose::Reprove && !self.progress.is_some_and(looks_lower);
        let enough = |e: &Evidence| self.not_lower || (still && e.pairs >= ENOUGH_PAIRS);
        let waiting = self.waiting.filter(enough);
        [self.progress, waiting].into_iter().flatten().find(proves)
    }

    /// What shows that the candidate is not better.
    pub(crate) fn refutation(&self) -> Option<Evidence> {
        if self.waiting.is_some_and(|e| !e.refutes()) {
            return None;
        }
        self.progress.or(self.waiting).filter(Evidence::refutes).or(self.delay)
    }

    /// What the pairs say so far, decided or not.
    pub(crate) fn evidence(&self) -> Option<Evidence> {
        self.progress.or(self.waiting)
    }
}

fn evidence(signal: Signal, pairs: &[(Block, Block)], noise: &Noise) -> Option<Evidence> {
    let ratios: Vec<_> = pairs.iter().filter_map(|(b, c)| signal.log_ratio(b, c)).collect();
    (ratios.len() * 4 >= pairs.len() * 3)
        .then(|| Evidence::of(signal, &ratios, noise.spread(signal)))
        .flatten()
}

/// The sums of both sides, per second.
fn sums(pairs: &[(Block, Block)], of: impl Fn(&Block) -> f64) -> (f64, f64) {
    let side = |pick: fn(&(Block, Block)) -> &Block| {
        let (amount, seconds) =
            pairs.iter().map(pick).fold((0.0, 0.0), |(a, s), b| (a + of(b), s + b.period.as_secs_f64()));
        amount / f64::max(seconds, f64::MIN_POSITIVE)
    };
    (side(|p| &p.0), side(|p| &p.1))
}

/// The polling that the candidate adds: vCPU time per time.
fn polled(pairs: &[(Block, Block)]) -> f64 {
    let (before, after) = sums(pairs, |b| b.polled.as_secs_f64());
    after - before
}

/// The waiting that the candidate saves: of all threads, per time.
fn waiting_saved(pairs: &[(Block, Block)]) -> f64 {
    let (wake_ups, _) = sums(pairs, |b| b.workload.waiting.map_or(0.0, |w| w.wake_ups as f64));
    let mean =
        |b: &Block| b.workload.waiting.map_or(0.0, |w| w.mean().as_secs_f64() * b.period.as_secs_f64());
    let (before, after) = sums(pairs, mean);
    wake_ups * (before - after)
}

fn tail_stays(pairs: &[(Block, Block)]) -> bool {
    let tail = |b: &Block| {
        let seconds = b.workload.waiting.map_or(0.0, |w| w.tail.as_secs_f64());
        f64::max(seconds, 1e-9).ln() * b.period.as_secs_f64()
    };
    let (before, after) = sums(pairs, tail);
    (after - before).exp() < TAIL
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Sockets, Waiting, WaitingSource, WorkloadInterval};

    const PRICE: f64 = 0.125;
    const US: Duration = Duration::from_micros(1);

    /// Ten milliseconds of a server: hand-offs, wake-to-run latency, the tail, CPU time, polling.
    fn block(switches: u64, mean_us: u32, tail_us: u32, cpu_us: u32, polled_us: u32) -> Block {
        let waiting = Waiting {
            wake_ups: switches,
            total: US * mean_us * u32::try_from(switches).unwrap(),
            tail: US * tail_us,
            source: WaitingSource::Traced,
        };
        let workload = WorkloadInterval {
            switches,
            cpu_time: US * cpu_us,
            moved_bytes: Some(100 * switches),
            waiting: Some(waiting),
            ..WorkloadInterval::default()
        };
        Block { period: US * 10_000, workload, waking: Duration::ZERO, polled: US * polled_us }
    }

    fn of(baseline: Block, candidate: Block) -> Comparison {
        Comparison::of(&vec![(baseline, candidate); 40], Difference::Retention, &Noise::quiet(), PRICE)
    }

    #[test]
    fn an_open_loop_is_served_by_its_latency() {
        // The load's rate stays, and so does nothing else: waiting falls from 40 to 3 us, and CPU time with it.
        let c = of(block(200, 40, 90, 5000, 0), block(200, 3, 20, 3500, 9000));
        let proof = c.proof(Purpose::Adopt).unwrap();
        assert_eq!(proof.signal, Signal::Waiting);
        assert!(proof.ratio > 10.0, "{proof:?}");
        assert!(c.refutation().is_none());
    }

    #[test]
    fn an_open_loop_whose_bytes_only_sockets_show_is_served_too() {
        let unseen = |b: Block| {
            let workload = WorkloadInterval { moved_bytes: Some(0), ..b.workload };
            Block { workload, ..b }
        };
        let seen = |b: Block| {
            let sockets = Some(Sockets { messages: 200, bytes: 20_000 });
            Block { workload: WorkloadInterval { sockets, ..unseen(b).workload }, ..b }
        };
        let (b, c) = (block(200, 40, 90, 5000, 0), block(200, 3, 20, 5000, 9000));
        assert!(of(unseen(b), unseen(c)).proof(Purpose::Adopt).is_none(), "CPU time is not exact");
        let proof = of(seen(b), seen(c)).proof(Purpose::Adopt).unwrap();
        assert_eq!(proof.signal, Signal::Waiting);
    }

    #[test]
    fn waiting_proves_nothing_before_progress_is_shown_not_to_be_lower() {
        let pair = (block(200, 40, 90, 5000, 0), block(200, 3, 20, 3500, 9000));
        let c = Comparison::of(&[pair; 2], Difference::Retention, &Noise::new(), PRICE);
        assert!(c.proof(Purpose::Adopt).is_none() && c.refutation().is_none());
    }

    #[test]
    fn a_proof_is_repeated_by_few_pairs_unless_progress_looks_lower() {
        let before = block(200, 40, 90, 5000, 0);
        let of = |cpu_us, switches| {
            let pair = (before, block(switches, 3, 20, cpu_us, 9000));
            Comparison::of(&[pair; 4], Difference::Retention, &Noise::new(), PRICE).proof(Purpose::Reprove)
        };
        assert_eq!(of(4900, 200).map(|e| e.signal), Some(Signal::Waiting));
        assert_eq!(of(3500, 180), None);
    }

    #[test]
    fn a_convoy_that_waits_less_and_works_as_long_is_not_proven() {
        let mut pair = (block(543, 40, 90, 12_980, 0), block(560, 2, 9, 12_900, 3000));
        for b in [&mut pair.0, &mut pair.1] {
            b.workload.moved_bytes = None;
        }
        let c = of(pair.0, pair.1);
        assert!(c.proof(Purpose::Adopt).is_none() && c.proof(Purpose::Reprove).is_none());
        assert!(c.refutation().is_some());
    }

    #[test]
    fn polling_that_costs_more_than_it_saves_is_not_worth_it() {
        let c = of(block(20, 40, 90, 500, 0), block(20, 3, 20, 400, 19_000));
        assert!(c.proof(Purpose::Adopt).is_none());
    }

    #[test]
    fn what_is_worth_it_is_a_matter_of_the_objective() {
        // In 10 ms 1 ms of waiting is saved by 11 ms of polling.
        let pair = (block(200, 8, 90, 5000, 0), block(200, 3, 20, 4900, 11_000));
        let proven = |objective: Objective| {
            let price = objective.poll_price();
            let c = Comparison::of(&vec![pair; 40], Difference::Retention, &Noise::quiet(), price);
            c.proof(Purpose::Adopt).is_some()
        };
        assert_eq!(Objective::ALL.map(proven), [true, false, false]);
    }

    #[test]
    fn every_objective_has_a_name_and_a_price_of_its_own() {
        for objective in Objective::ALL {
            assert_eq!(objective.name().parse(), Ok(objective));
            assert_eq!(Objective::of_price(objective.poll_price()), Some(objective));
        }
        assert!(Objective::of_price(0.2).is_none() && "fast".parse::<Objective>().is_err());
    }

    #[test]
    fn longer_waiting_for_at_most_little_progress_is_not_tried_for_long() {
        let noise = Noise::new();
        let of = |switches, n| {
            let mut pair = (block(200, 10, 90, 5000, 0), block(switches, 60, 300, 5000, 0));
            pair.1.workload.moved_bytes = Some(100 * switches);
            Comparison::of(&vec![pair; n], Difference::ActiveSet, &noise, PRICE).refutation()
        };
        assert!(of(200, 2).is_none(), "two pairs rule nothing out");
        assert_eq!(of(200, 8).map(|e| e.signal), Some(Signal::Waiting), "it says why");
        // What a pipeline gains on one vCPU is worth it.
        assert!(of(320, 8).is_none());
    }

    #[test]
    fn a_longer_tail_is_not_bought_with_a_shorter_mean() {
        let c = of(block(200, 40, 90, 5000, 0), block(200, 20, 200, 4900, 3000));
        assert!(c.proof(Purpose::Adopt).is_none());
    }

    #[test]
    fn traced_and_estimated_waiting_are_not_compared() {
        let mut estimated = block(200, 3, 20, 5000, 1000);
        if let Some(waiting) = &mut estimated.workload.waiting {
            waiting.source = WaitingSource::Estimated;
        }
        assert!(of(block(200, 40, 90, 5000, 0), estimated).proof(Purpose::Adopt).is_none());
    }
}
