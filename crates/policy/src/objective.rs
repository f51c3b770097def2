//! What counts as better: more progress, or shorter waiting that is worth its price (docs/objective.md).
//!
//! A client that waits for each answer makes more progress when wake-ups are faster. Clients that set the rate
//! themselves do not: the same answers come sooner, and only the wake-to-run latency of the workload's threads
//! shows it. A lock convoy is the reverse: its threads wait less and get less done.

use std::fmt;
use std::str::FromStr;

use crate::evidence::{ERROR_RATE, Evidence};
use crate::guard::Purpose;
use crate::noise::Noise;
use crate::progress::{Block, Difference, Signal, compare, is_mostly_idle, sums};

/// How much polling a wake-up is worth. This one price sets poll limits and weighs the waiting saved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Objective {
    /// The shortest wake-ups, even for a lot of polling.
    Latency,
    /// Polling must save at least a hundredth of its time.
    #[default]
    Balanced,
    /// Polling must save at least a tenth of its time: the host's CPU time is expensive.
    Efficiency,
}

impl Objective {
    /// All of them, the cheapest polling first.
    pub const ALL: [Self; 3] = [Self::Latency, Self::Balanced, Self::Efficiency];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Balanced => "balanced",
            Self::Efficiency => "efficiency",
        }
    }

    /// What a microsecond of polling costs in microseconds of waiting on an idle machine.
    pub const fn poll_price(self) -> f64 {
        match self {
            Self::Latency => 0.001,
            Self::Balanced => 0.01,
            Self::Efficiency => 0.1,
        }
    }

    /// The objective with this price.
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

/// Beside work on every vCPU polling costs this many times more than on an idle machine: it takes shared core,
/// cache and host time from that work.
const BUSY_PRICE_FACTOR: f64 = 12.0;

/// What a microsecond of polling costs in microseconds of waiting beside a workload that uses `load` vCPUs,
/// given the price on an idle machine.
pub(crate) fn price_at_load(load: f64, poll_price: f64) -> f64 {
    poll_price * (1.0 + (BUSY_PRICE_FACTOR - 1.0) * load.clamp(0.0, 1.0))
}

/// Fewer pairs refute nothing and show no harm: in a single lucky block of ten milliseconds waker and wakee can share a vCPU,
/// and in an unlucky one the host runs something else.
pub(crate) const ENOUGH_PAIRS: u32 = 3;
/// The factor by which the tail of the waiting may grow while its mean shrinks.
const MAX_TAIL_GROWTH: f64 = 1.25;

/// What blocks are judged by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Standard {
    /// What a microsecond of polling costs in microseconds of waiting on an idle machine.
    pub(crate) poll_price: f64,
    /// The probability of a false proof, at most.
    pub(crate) error: f64,
}

impl Standard {
    /// For a hypothesis that is tried for the first time.
    pub(crate) fn at_price(poll_price: f64) -> Self {
        Self { poll_price, error: ERROR_RATE }
    }
}

/// The comparison of pairs of (baseline, candidate) blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Comparison {
    /// Evidence from the best valid signal of progress.
    progress: Option<Evidence>,
    /// Evidence from the wake-to-run latency; only if it may count in the candidate's favour.
    waiting: Option<Evidence>,
    /// Progress is likely to stay the same: the load sets the rate, or might, and a smaller set is on trial.
    flat: bool,
    /// The load sets the rate, and its chance variations hide small losses for long.
    load_sets_rate: bool,
    /// Whether progress is shown not to be lower by more than its margin; where the load sets the rate,
    /// a neutral estimate is enough.
    not_lower: bool,
    /// Evidence of longer waiting, where a gain in progress large enough to outweigh it is ruled out.
    delay: Option<Evidence>,
}

impl Comparison {
    /// Compares the blocks by this `standard`.
    pub(crate) fn of(
        pairs: &[(Block, Block)],
        difference: Difference,
        noise: &Noise,
        standard: Standard,
    ) -> Self {
        let Standard { poll_price, error } = standard;
        let progress = compare(pairs, difference, noise, error);
        let exact = progress.filter(|e| e.signal.is_exact());
        let load_sets_rate = exact.is_some_and(|e| load_sets_rate(&e, pairs, noise));
        let flat = load_sets_rate || difference == Difference::ActiveSet && is_mostly_idle(pairs);
        let is_unhurt =
            |e: &Evidence| load_sets_rate && e.seems_unchanged() && takes_no_longer(e.signal, pairs);
        let not_lower = exact.is_some_and(|e| e.is_not_lower() || is_unhurt(&e));
        let may_count = exact.is_some_and(|e| !e.is_lower());
        let price = price_at_load(work(pairs).0, poll_price);
        let counts = may_count && waiting_saved(pairs) > price * polled(pairs) && tail_is_bounded(pairs);
        let known = evidence(Signal::Waiting, pairs, noise, error);
        let outweighed = progress.is_some_and(|e| e.high < MAX_TAIL_GROWTH);
        let delay = known.filter(|e| outweighed && e.high < 1.0 / MAX_TAIL_GROWTH);
        let waiting = known.filter(|_| counts);
        Self { progress, waiting, flat, load_sets_rate, not_lower, delay }
    }

    /// Evidence that the candidate is better.
    pub(crate) fn proof(&self, purpose: Purpose) -> Option<Evidence> {
        let proves = |e: &Evidence| match purpose {
            Purpose::Adopt => e.proves(),
            Purpose::Reprove => e.confirms(),
        };
        // What was proven before needs only no sign of the opposite.
        let seems_lower = |e: Evidence| e.pairs < ENOUGH_PAIRS || e.ratio < 1.0 - e.signal.margin();
        let unchanged = purpose == Purpose::Reprove && !self.progress.is_some_and(seems_lower);
        let sufficient = |e: &Evidence| self.not_lower || (unchanged && e.pairs >= ENOUGH_PAIRS);
        let waiting = self.waiting.filter(sufficient);
        [self.progress, waiting].into_iter().flatten().find(proves)
    }

    /// Evidence that the candidate is not better.
    pub(crate) fn refutation(&self) -> Option<Evidence> {
        if self.waiting.is_some_and(|e| !e.refutes()) {
            return None;
        }
        self.progress.or(self.waiting).filter(Evidence::refutes).or(self.delay)
    }

    /// The evidence so far, conclusive or not. Where the load sets the rate, fewer requests by chance are no
    /// loss while the estimated waiting is shorter.
    pub(crate) fn evidence(&self) -> Option<Evidence> {
        self.waiting.filter(|e| self.load_sets_rate && e.seems_better()).or(self.progress).or(self.waiting)
    }

    /// Evidence that the candidate, tried for another workload's sake, harms this one.
    pub(crate) fn harm(&self) -> Option<Evidence> {
        let harm = [self.progress.filter(Evidence::is_harm), self.delay];
        harm.into_iter().flatten().find(|e| e.pairs >= ENOUGH_PAIRS)
    }

    /// Whether harm is ruled out, or nothing can show it.
    pub(crate) fn is_harmless(&self) -> bool {
        self.not_lower || self.progress.is_none_or(|e| e.is_not_lower())
    }

    /// Whether there is nothing to compare.
    pub(crate) fn shows_nothing(&self) -> bool {
        self.progress.is_none() && self.delay.is_none()
    }

    /// Evidence of harm by more than chance, shown or not.
    pub(crate) fn seeming_harm(&self) -> Option<Evidence> {
        self.progress.filter(Evidence::is_worse_beyond_chance)
    }

    /// Whether more pairs are unlikely to prove the candidate: progress is likely to stay the same, and nothing seems better
    /// by more than chance.
    pub(crate) fn is_futile(&self) -> bool {
        let promising = [self.progress, self.waiting].into_iter().flatten().any(|e| e.is_beyond_chance());
        self.flat && self.progress.is_some_and(|e| e.has_known_spread()) && !promising
    }
}

/// Whether the load sets the rate: the workload leaves most of a vCPU idle, and its few requests vary so much
/// by chance that a loss would stay hidden for longer than a trial.
fn load_sets_rate(progress: &Evidence, pairs: &[(Block, Block)], noise: &Noise) -> bool {
    noise.spread(progress.signal) > 2.0 * progress.signal.margin() && is_mostly_idle(pairs)
}

/// Whether the CPU time per piece of work did not grow.
fn takes_no_longer(done: Signal, pairs: &[(Block, Block)]) -> bool {
    let (before, after) = work(pairs);
    let (done_before, done_after) = sums(pairs, |b| done.rate(b).unwrap_or(0.0) * b.period.as_secs_f64());
    after * done_before <= before * done_after * (1.0 + done.margin())
}

/// The number of vCPUs in use on both sides.
fn work(pairs: &[(Block, Block)]) -> (f64, f64) {
    sums(pairs, |b| b.workload.cpu_time.as_secs_f64())
}

fn evidence(signal: Signal, pairs: &[(Block, Block)], noise: &Noise, error: f64) -> Option<Evidence> {
    let ratios: Vec<_> = pairs.iter().filter_map(|(b, c)| signal.log_ratio(b, c)).collect();
    (ratios.len() * 4 >= pairs.len() * 3)
        .then(|| Evidence::of(signal, &ratios, noise.spread(signal), error))
        .flatten()
}

/// The vCPU time that the candidate adds in polling, per unit of time.
fn polled(pairs: &[(Block, Block)]) -> f64 {
    let (before, after) = sums(pairs, |b| b.polled.as_secs_f64());
    after - before
}

/// The waiting of all threads that the candidate saves, per unit of time.
fn waiting_saved(pairs: &[(Block, Block)]) -> f64 {
    let (wake_ups, _) = sums(pairs, |b| b.workload.waiting.map_or(0.0, |w| w.wake_ups as f64));
    let mean =
        |b: &Block| b.workload.waiting.map_or(0.0, |w| w.mean().as_secs_f64() * b.period.as_secs_f64());
    let (before, after) = sums(pairs, mean);
    wake_ups * (before - after)
}

fn tail_is_bounded(pairs: &[(Block, Block)]) -> bool {
    let tail = |b: &Block| {
        let seconds = b.workload.waiting.map_or(0.0, |w| w.tail.as_secs_f64());
        f64::max(seconds, 1e-9).ln() * b.period.as_secs_f64()
    };
    let (before, after) = sums(pairs, tail);
    (after - before).exp() < MAX_TAIL_GROWTH
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Sockets, Waiting, WaitingSource, WorkloadInterval};

    const PRICE: f64 = 0.125;
    const US: Duration = Duration::from_micros(1);

    /// Ten milliseconds of a server: hand-offs, wake-to-run latency, its tail, CPU time, polling.
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
        Comparison::of(
            &vec![(baseline, candidate); 40],
            Difference::Retention,
            &Noise::quiet(),
            Standard::at_price(PRICE),
        )
    }

    #[test]
    fn an_open_loop_is_served_by_its_latency() {
        // The load's rate stays the same, and nothing else does: waiting falls from 40 to 3 us, and CPU time
        // with it.
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
        let c = Comparison::of(&[pair; 2], Difference::Retention, &Noise::new(), Standard::at_price(PRICE));
        assert!(c.proof(Purpose::Adopt).is_none() && c.refutation().is_none());
    }

    #[test]
    fn few_requests_need_not_show_what_their_chance_hides_for_long() {
        let before = block(200, 40, 90, 2000, 0);
        let of = |candidate, n, noise: &Noise| {
            let c = Comparison::of(
                &vec![(before, candidate); n],
                Difference::Retention,
                noise,
                Standard::at_price(PRICE),
            );
            c.proof(Purpose::Adopt).map(|e| e.signal)
        };
        let (same, noise) = (block(200, 3, 20, 2000, 9000), Noise::new());
        assert_eq!(of(same, 6, &noise), Some(Signal::Waiting));
        assert_eq!(of(same, 5, &noise), None, "one lucky block");
        assert_eq!(of(block(190, 3, 20, 1900, 9000), 6, &noise), None, "it seems lower");
        assert_eq!(of(block(200, 3, 20, 2200, 9000), 6, &noise), None, "each piece of work takes longer");
        // If CPU time could limit progress, or a loss would show soon, the loss has to be ruled out.
        let busy = vec![(block(200, 40, 90, 6000, 0), block(200, 3, 20, 6000, 9000)); 6];
        assert!(
            Comparison::of(&busy, Difference::Retention, &noise, Standard::at_price(PRICE))
                .proof(Purpose::Adopt)
                .is_none()
        );
        assert_eq!(of(block(196, 3, 20, 1960, 9000), 6, &Noise::quiet()), None);
    }

    #[test]
    fn what_changes_nothing_for_a_mostly_idle_workload_is_not_tried_for_long() {
        let is_futile = |cpu_us, gain: u64, n| {
            let pair = (block(200, 40, 90, cpu_us, 0), block(200 + gain, 40, 90, cpu_us, 0));
            Comparison::of(&vec![pair; n], Difference::ActiveSet, &Noise::quiet(), Standard::at_price(PRICE))
                .is_futile()
        };
        assert!(is_futile(2000, 0, 6) && !is_futile(2000, 0, 5));
        assert!(!is_futile(2000, 10, 6), "a closed loop gains something");
        assert!(!is_futile(6000, 0, 6), "CPU time might limit it");
    }

    #[test]
    fn shorter_waiting_is_what_the_pairs_say_where_the_load_decides() {
        let of = |cpu_us| {
            let pair = (block(200, 40, 90, cpu_us, 0), block(198, 3, 20, cpu_us, 9000));
            let c =
                Comparison::of(&[pair; 4], Difference::Retention, &Noise::new(), Standard::at_price(PRICE));
            c.evidence().map(|e| e.signal)
        };
        assert_eq!(of(2000), Some(Signal::Waiting), "a dip of the requests is no loss");
        assert_eq!(of(6000), Some(Signal::Moved));
    }

    #[test]
    fn where_the_load_decides_a_change_without_a_hope_ends_early() {
        let is_futile = |cpu_us, mean_us, n| {
            let pair = (block(200, 40, 90, cpu_us, 0), block(200, mean_us, 90, cpu_us, 0));
            Comparison::of(&vec![pair; n], Difference::ActiveSet, &Noise::new(), Standard::at_price(PRICE))
                .is_futile()
        };
        assert!(is_futile(2000, 40, 6));
        assert!(!is_futile(2000, 40, 5), "chance");
        assert!(!is_futile(2000, 20, 6), "waiting is shorter");
        assert!(!is_futile(6000, 40, 6), "a closed loop can show more");
    }

    #[test]
    fn polling_beside_work_has_to_save_more() {
        let proven = |cpu_us| {
            // 600 us of waiting are saved by 9 ms of polling.
            let pair = (block(60, 18, 90, cpu_us, 0), block(60, 8, 90, cpu_us, 9000));
            let c = Comparison::of(
                &vec![pair; 40],
                Difference::Retention,
                &Noise::quiet(),
                Standard::at_price(0.01),
            );
            c.proof(Purpose::Adopt).is_some()
        };
        assert_eq!([100, 3000, 5000, 9000].map(proven), [true, true, true, false]);
    }

    #[test]
    fn a_proof_is_repeated_by_few_pairs_unless_progress_seems_lower() {
        let before = block(200, 40, 90, 5000, 0);
        let of = |cpu_us, switches| {
            let pair = (before, block(switches, 3, 20, cpu_us, 9000));
            Comparison::of(&[pair; 4], Difference::Retention, &Noise::new(), Standard::at_price(PRICE))
                .proof(Purpose::Reprove)
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
        // In 10 ms 60 us of waiting are saved by 11 ms of polling, beside hardly any work.
        let pair = (block(60, 8, 90, 200, 0), block(60, 7, 90, 200, 11_000));
        let proven = |objective: Objective| {
            let price = objective.poll_price();
            let c = Comparison::of(
                &vec![pair; 40],
                Difference::Retention,
                &Noise::quiet(),
                Standard::at_price(price),
            );
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
            Comparison::of(&vec![pair; n], Difference::ActiveSet, &noise, Standard::at_price(PRICE))
                .refutation()
        };
        assert!(of(200, 2).is_none(), "two pairs rule nothing out");
        assert_eq!(of(200, 8).map(|e| e.signal), Some(Signal::Waiting), "it says why");
        // What a pipeline gains on one vCPU is worth it.
        assert!(of(320, 8).is_none());
    }

    #[test]
    fn fewer_than_three_pairs_are_no_harm_however_long_the_waiting() {
        let of = |n| {
            let mut pair = (block(200, 10, 90, 5000, 0), block(200, 60, 300, 5000, 0));
            (pair.0.workload.moved_bytes, pair.1.workload.moved_bytes) = (Some(20_000), Some(10_000));
            Comparison::of(&vec![pair; n], Difference::Retention, &Noise::new(), Standard::at_price(PRICE))
        };
        assert!(of(2).delay.is_some() && of(2).harm().is_none());
        assert!(of(3).harm().is_some());
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
