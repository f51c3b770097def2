//! Did the workload get more done? Compares alternating blocks by the best signal that is valid for them.
//!
//! A guest cannot see a program's progress, only traces of it. Each signal is used only where it is known to
//! track progress, in order of decreasing trust.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::WorkloadInterval;
use crate::evidence::Evidence;
use crate::noise::Noise;

/// A block of a trial: the workload's interval under one of the two settings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// The block's length.
    pub period: Duration,
    /// The workload's share of the block.
    pub workload: WorkloadInterval,
    /// The CPU time of waking halted vCPUs, by the calibrated cost.
    pub waking: Duration,
    /// Polling time of all vCPUs of the setting.
    pub polled: Duration,
}

/// The signal used for a comparison, best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Signal {
    /// The user's progress counter.
    Counter,
    /// Bytes sent through sockets: a server's answers, a client's requests. Counted only for workloads that make few
    /// write calls: what these read and write are tables, log lines and other files. Bytes, not messages, since on a
    /// stream a message is whatever has accumulated: a server that is woken sooner sends more of them for the same
    /// answers.
    Sockets,
    /// Bytes moved by read and write calls: what a server or a pipeline is there to do.
    Moved,
    /// Hand-offs between threads. Each is the same piece of work as long as the computation granularity (paper
    /// §5) is the same. Valid only between active sets with the same retention: faster wake-ups make a lock
    /// convoy switch more and work less at nearly the same granularity.
    Handoffs,
    /// CPU time of the workload (`T_work`). With retention it grows if wake-ups had held the workload back, and
    /// stays if not (a lock convoy). Of a workload that is mostly idle only a rise counts: it falls by what waking halted
    /// vCPUs takes. Between active sets only a rise counts: on fewer vCPUs there is less of it to
    /// have, and what wake-ups took of it is saved, so that a fall says nothing.
    WorkTime,
    /// User-mode CPU time, sampled by the kernel's tick: generic, but coarse.
    UserTime,
    /// Mean wake-to-run latency of the workload's threads. Not progress, but what improves where the load sets
    /// the rate.
    Waiting,
}

impl Signal {
    /// Every signal; those of progress are ordered by trust.
    pub const ALL: [Self; 7] = [
        Self::Counter,
        Self::Sockets,
        Self::Moved,
        Self::Handoffs,
        Self::WorkTime,
        Self::UserTime,
        Self::Waiting,
    ];

    /// The signal's name within a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Counter => "your progress counter",
            Self::Sockets => "bytes sent through sockets",
            Self::Moved => "bytes read and written",
            Self::Handoffs => "thread hand-offs",
            Self::WorkTime => "CPU time of the workload",
            Self::UserTime => "user-mode CPU time",
            Self::Waiting => "wake-to-run latency",
        }
    }

    /// A ratio of the signal as text.
    pub fn times(self, ratio: f64) -> String {
        match self {
            Self::Waiting => format!("wake-ups {ratio:.2} times as fast"),
            _ => format!("{ratio:.2} times the {}", self.name()),
        }
    }

    /// How far a ratio must exceed 1 to prove progress. `T_work` also contains the cost of waking, which
    /// retention removes, so it must rise clearly.
    pub const fn margin(self) -> f64 {
        match self {
            Self::Counter | Self::Sockets | Self::Moved | Self::Handoffs => 0.04,
            Self::WorkTime | Self::UserTime => 0.05,
            // Another core of the host makes a difference of a tenth.
            Self::Waiting => 0.1,
        }
    }

    fn amount(self, w: &WorkloadInterval) -> Option<f64> {
        match self {
            Self::Counter => w.counter,
            Self::Sockets => w.sockets.map(|s| s.bytes as f64),
            Self::Moved => w.moved_bytes.map(|b| b as f64),
            Self::Handoffs => Some(w.switches as f64),
            Self::WorkTime => Some(w.cpu_time.as_secs_f64()),
            Self::UserTime => Some(w.user_time.as_secs_f64()),
            Self::Waiting => w.waiting.map(|waiting| waiting.wake_ups as f64),
        }
    }

    /// The amount per second in a block.
    pub(crate) fn rate(self, b: &Block) -> Option<f64> {
        let seconds = b.period.as_secs_f64();
        (seconds > 0.0).then_some(self.amount(&b.workload)? / seconds)
    }

    /// Like `rate`, but at least the signal's floor; for waiting the inverse of the mean, so that more is
    /// always better.
    pub(crate) fn per_second(self, b: &Block) -> Option<f64> {
        let seconds = b.period.as_secs_f64();
        match (self, b.workload.waiting) {
            // A wake-up takes at least ten nanoseconds on any machine.
            (Self::Waiting, Some(waiting)) => Some(1.0 / waiting.mean().as_secs_f64().max(1e-8)),
            _ => (seconds > 0.0).then_some(self.amount(&b.workload)?.max(self.floor()) / seconds),
        }
    }

    /// Whether the block's amount is worth comparing.
    pub(crate) fn is_enough(self, b: &Block) -> bool {
        self.amount(&b.workload).is_some_and(|amount| amount >= self.floor())
    }

    /// Whether the signal counts what the program is there to do, so that it can rule out a loss. CPU time
    /// cannot: a lock convoy that is woken sooner works as long and does less.
    pub const fn is_exact(self) -> bool {
        matches!(self, Self::Counter | Self::Sockets | Self::Moved)
    }

    /// The logarithm of the ratio of the second block's rate to the first's; `None` if both have too little to
    /// compare. If only one has, it counts as the floor: a standstill is a loss, not a missing number.
    pub fn log_ratio(self, first: &Block, second: &Block) -> Option<f64> {
        let comparable = match self {
            Self::Waiting => {
                let source = |b: &Block| b.workload.waiting.map(|waiting| waiting.source);
                source(first) == source(second) && self.is_enough(first) && self.is_enough(second)
            }
            _ => self.is_enough(first) || self.is_enough(second),
        };
        let ratio = self.per_second(second)? / self.per_second(first)?;
        comparable.then_some(ratio.ln())
    }

    /// The least amount per block worth comparing.
    pub(crate) const fn floor(self) -> f64 {
        match self {
            Self::Counter => 1.0,
            // A handful of short requests and their answers; log lines do not go through sockets.
            Self::Sockets => 512.0,
            // 4 KiB: below that it is log lines and wake-up events, not the workload's data.
            Self::Moved => 4096.0,
            Self::Handoffs | Self::Waiting => 20.0,
            // Below that the program hardly runs, and its CPU time says nothing about its work.
            Self::WorkTime => 1e-3,
            // Ten ticks of the slowest common clock (250 Hz).
            Self::UserTime => 0.04,
        }
    }
}

impl Signal {
    /// Whether most of the (baseline, candidate) pairs have enough of the signal to compare.
    pub fn is_comparable(self, pairs: &[(Block, Block)]) -> bool {
        let comparable = pairs.iter().filter(|(b, c)| self.log_ratio(b, c).is_some()).count();
        // A pause of the load now and then does not invalidate a signal.
        comparable * 4 >= pairs.len() * 3
    }

    /// Whether it tracks progress in these pairs, whose settings differ in `difference`.
    pub fn is_valid(self, pairs: &[(Block, Block)], difference: Difference) -> bool {
        self.is_comparable(pairs)
            && match self {
                Self::Handoffs => difference == Difference::ActiveSet && same_granularity(pairs),
                Self::WorkTime => match difference {
                    Difference::Retention => rises(Self::WorkTime, pairs) || !is_mostly_idle(pairs),
                    // The candidate, a smaller set, makes the workload hand over more often and yet compute for longer: it had
                    // waited for wake-ups.
                    Difference::ActiveSet => rises(Self::WorkTime, pairs) && rises(Self::Handoffs, pairs),
                },
                Self::Counter | Self::Sockets | Self::Moved | Self::UserTime => true,
                Self::Waiting => false,
            }
    }

    /// The signal used to compare these pairs: the first valid one.
    pub fn of_comparison(pairs: &[(Block, Block)], difference: Difference) -> Option<Self> {
        Self::ALL.into_iter().find(|signal| signal.is_valid(pairs, difference))
    }
}

/// What differs between the two settings of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Difference {
    /// Only the retention of idle vCPUs.
    Retention,
    /// The set of active vCPUs.
    ActiveSet,
}

/// If the workload uses less of one vCPU than this, CPU time does not limit its progress.
pub(crate) const MOSTLY_IDLE_LOAD: f64 = 0.5;

/// Hand-offs whose computation granularity differs by more than this factor are different pieces of work.
const SAME_GRANULARITY: f64 = 1.5;

/// Whether this ratio of computation granularities can be that of the same kind of work.
pub(crate) fn is_same_granularity(ratio: f64) -> bool {
    (1.0 / SAME_GRANULARITY..=SAME_GRANULARITY).contains(&ratio)
}

/// Compares (baseline, candidate) pairs by the first valid signal; `None` if there is none. For `error` see [`Evidence::of`].
pub(crate) fn compare(
    pairs: &[(Block, Block)],
    difference: Difference,
    noise: &Noise,
    error: f64,
) -> Option<Evidence> {
    let signal = Signal::of_comparison(pairs, difference)?;
    let ratios: Vec<_> = pairs.iter().filter_map(|(b, c)| signal.log_ratio(b, c)).collect();
    Evidence::of(signal, &ratios, noise.spread(signal), error)
}

/// Whether there is more of the signal under the candidate, by its margin.
fn rises(signal: Signal, pairs: &[(Block, Block)]) -> bool {
    let (before, after) = sums(pairs, |b| signal.amount(&b.workload).unwrap_or(0.0));
    after > before * (1.0 + signal.margin())
}

/// Whether the workload uses so little of a vCPU that CPU time does not limit its progress.
pub(crate) fn is_mostly_idle(pairs: &[(Block, Block)]) -> bool {
    sums(pairs, |b| b.workload.cpu_time.as_secs_f64()).0 < MOSTLY_IDLE_LOAD
}

/// The sums of both sides, per second.
pub(crate) fn sums(pairs: &[(Block, Block)], of: impl Fn(&Block) -> f64) -> (f64, f64) {
    let side = |pick: fn(&(Block, Block)) -> &Block| {
        let (amount, seconds) =
            pairs.iter().map(pick).fold((0.0, 0.0), |(a, s), b| (a + of(b), s + b.period.as_secs_f64()));
        amount / f64::max(seconds, f64::MIN_POSITIVE)
    };
    (side(|p| &p.0), side(|p| &p.1))
}

/// Whether a hand-off is the same piece of work on both sides, with or without the cost of waking, since on
/// fewer vCPUs each piece contains less of it. That cost is known for an idle machine only, so it is capped at
/// half of the time.
fn same_granularity(pairs: &[(Block, Block)]) -> bool {
    let g_comp = |side: fn(&(Block, Block)) -> &Block, with_waking: bool| {
        let (time, switches) = pairs.iter().map(side).fold((0.0, 0), |(t, s), b| {
            let work = b.workload.cpu_time.as_secs_f64();
            let waking = if with_waking { 0.0 } else { b.waking.as_secs_f64().min(0.5 * work) };
            (t + work - waking, s + b.workload.switches)
        });
        time / switches.max(1) as f64
    };
    [true, false].into_iter().any(|with_waking| {
        let factor = g_comp(|p| &p.1, with_waking) / g_comp(|p| &p.0, with_waking);
        is_same_granularity(factor)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::ERROR_RATE;

    fn block(cpu_ms: f64, user_ms: f64, switches: u64, moved: Option<u64>) -> Block {
        let ms = |x: f64| Duration::from_secs_f64(x / 1e3);
        Block {
            period: ms(10.0),
            workload: WorkloadInterval {
                cpu_time: ms(cpu_ms),
                user_time: ms(user_ms),
                switches,
                moved_bytes: moved,
                ..WorkloadInterval::default()
            },
            waking: Duration::ZERO,
            polled: Duration::ZERO,
        }
    }

    fn pairs(baseline: Block, candidate: Block) -> Vec<(Block, Block)> {
        vec![(baseline, candidate); 8]
    }

    /// For a machine where nothing else runs.
    fn compare(pairs: &[(Block, Block)], difference: Difference) -> Option<Evidence> {
        super::compare(pairs, difference, &Noise::quiet(), ERROR_RATE)
    }

    // The numbers below were measured (10 ms of them) in a 2-vCPU guest.
    #[test]
    fn retention_of_a_ping_pong_is_proven_by_work_time() {
        let p = pairs(block(8.15, 1.6, 314, Some(0)), block(10.9, 4.6, 1287, Some(0)));
        let e = compare(&p, Difference::Retention).unwrap();
        assert_eq!(e.signal, Signal::WorkTime);
        assert!(e.proves() && !e.refutes(), "{e:?}");
    }

    #[test]
    fn retention_of_a_lock_convoy_is_refuted_although_it_switches_more() {
        let p = pairs(block(12.98, 1.3, 543, Some(0)), block(12.42, 0.9, 857, Some(0)));
        let e = compare(&p, Difference::Retention).unwrap();
        assert_eq!(e.signal, Signal::WorkTime);
        assert!(e.refutes(), "{e:?}");
    }

    #[test]
    fn a_mostly_idle_workload_that_takes_less_cpu_time_has_lost_nothing() {
        // memcached behind an open loop: the same requests, without the time of waking a halted vCPU for each.
        let (halting, polling) = (block(2.4, 0.9, 50, None), block(1.8, 0.9, 50, None));
        assert_eq!(compare(&pairs(halting, polling), Difference::Retention), None);
        // A closed loop of the same load that was held back by wake-ups.
        let e = compare(&pairs(halting, block(4.0, 1.9, 110, None)), Difference::Retention);
        assert!(e.is_some_and(|e| e.signal == Signal::WorkTime && e.proves()), "{e:?}");
    }

    #[test]
    fn moved_bytes_outrank_work_time() {
        // Eight redis connections over TCP: more CPU time, fewer answers.
        let p = pairs(block(16.5, 1.5, 157, Some(92_847)), block(16.9, 1.2, 370, Some(88_756)));
        let e = compare(&p, Difference::Retention).unwrap();
        assert_eq!(e.signal, Signal::Moved);
        assert!(e.refutes(), "{e:?}");
    }

    fn with_sockets(b: Block, bytes: u64) -> Block {
        let sockets = Some(crate::Sockets { messages: bytes / 100, bytes });
        Block { workload: WorkloadInterval { sockets, ..b.workload }, ..b }
    }

    #[test]
    fn what_goes_through_sockets_outranks_work_time_and_log_lines() {
        // More CPU time and more log lines, fewer answers.
        let (b, c) = (block(16.5, 1.5, 157, Some(5000)), block(16.9, 1.2, 370, Some(9000)));
        let e = compare(&pairs(with_sockets(b, 92_847), with_sockets(c, 88_756)), Difference::Retention);
        let e = e.unwrap();
        assert_eq!(e.signal, Signal::Sockets);
        assert!(e.refutes(), "{e:?}");
        // Also between active sets.
        let e = compare(&pairs(with_sockets(b, 9000), with_sockets(c, 12_000)), Difference::ActiveSet);
        assert!(e.is_some_and(|e| e.signal == Signal::Sockets && e.proves()), "{e:?}");
    }

    #[test]
    fn silent_sockets_and_ones_that_are_counted_too_late_judge_nothing() {
        let (b, c) = (block(12.98, 1.3, 543, Some(0)), block(12.42, 0.9, 857, Some(0)));
        let e = compare(&pairs(with_sockets(b, 0), with_sockets(c, 300)), Difference::Retention).unwrap();
        assert_eq!(e.signal, Signal::WorkTime, "a heartbeat is not what a convoy is there for");
        // Counting starts halfway through the trial.
        let mut p = pairs(b, c);
        for (b, c) in p.iter_mut().skip(4) {
            (*b, *c) = (with_sockets(*b, 90_000), with_sockets(*c, 300_000));
        }
        assert_eq!(compare(&p, Difference::Retention).unwrap().signal, Signal::WorkTime);
    }

    #[test]
    fn consolidation_of_a_ping_pong_is_judged_by_hand_offs() {
        let p = pairs(block(10.2, 0.8, 3420, None), block(10.0, 1.0, 4560, None));
        let e = compare(&p, Difference::ActiveSet).unwrap();
        assert_eq!(e.signal, Signal::Handoffs);
        assert!(e.proves(), "{e:?}");
    }

    #[test]
    fn consolidation_of_a_convoy_is_not_judged_by_hand_offs() {
        // 3.8 times the switches and a sixth of the work: the granularity shows it.
        let p = pairs(block(13.0, 1.3, 543, None), block(10.0, 1.4, 6170, None));
        assert_eq!(compare(&p, Difference::ActiveSet), None, "no valid signal in so short a block");
    }

    #[test]
    fn on_fewer_vcpus_more_hand_offs_and_more_cpu_time_are_progress() {
        // A Java queue of two threads: sixteen times the hand-offs on one vCPU, each a ninth of the work.
        let p = pairs(block(7.6, 1.0, 380, Some(0)), block(10.0, 2.7, 5400, Some(0)));
        let e = compare(&p, Difference::ActiveSet).unwrap();
        assert_eq!(e.signal, Signal::WorkTime);
        assert!(e.proves(), "{e:?}");
        // Its CPU time alone does not rise because more is done: a spinning program's does, too.
        let p = pairs(block(7.6, 1.0, 380, Some(0)), block(10.0, 2.7, 370, Some(0)));
        assert!(compare(&p, Difference::ActiveSet).is_none_or(|e| e.signal != Signal::WorkTime));
    }

    #[test]
    fn what_waking_took_does_not_make_a_hand_off_another_piece_of_work() {
        // A pipeline of three threads on eight emulated vCPUs, then on one; waking one took 28.6 us.
        let mut p = pairs(block(9.9, 3.3, 129, None), block(10.0, 4.0, 218, None));
        assert_eq!(compare(&p, Difference::ActiveSet), None);
        for (spread, _) in &mut p {
            spread.waking = Duration::from_micros(3689);
        }
        let e = compare(&p, Difference::ActiveSet).unwrap();
        assert!(e.signal == Signal::Handoffs && e.proves(), "{e:?}");
        // A convoy's pieces are different, however much of them is waking.
        let mut p = pairs(block(13.0, 1.3, 543, None), block(10.0, 1.4, 6170, None));
        for (spread, _) in &mut p {
            spread.waking = Duration::from_millis(13);
        }
        assert_eq!(compare(&p, Difference::ActiveSet), None);
    }

    #[test]
    fn the_users_counter_outranks_everything() {
        let mut p = pairs(block(8.0, 1.0, 300, Some(9000)), block(8.0, 1.0, 300, Some(9000)));
        for (b, c) in &mut p {
            (b.workload.counter, c.workload.counter) = (Some(100.0), Some(150.0));
        }
        let e = compare(&p, Difference::Retention).unwrap();
        assert_eq!(e.signal, Signal::Counter);
        assert!((e.ratio - 1.5).abs() < 1e-9);
    }

    #[test]
    fn nothing_to_compare_is_no_evidence() {
        assert_eq!(compare(&[], Difference::Retention), None);
    }
}
