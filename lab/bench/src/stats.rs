//! The statistics of a comparison, each with its source. `docs/statistics.md` explains the choices and how
//! often they are right.
//!
//! Throughput on a shared machine is skewed, its outliers are one-sided, and samples are few. So everything
//! here uses ranks and order statistics, which assume no distribution: the [median](median()) and its
//! [interval](estimate), the [ratio](paired_ratio) of values measured in the same round, two
//! [tests](mann_whitney), and the [verdict](judge()) by a declared rule. [`outliers`] and [`drift`] are
//! reported; nothing is dropped.

mod judge;
mod median;
mod paired;
mod quality;
mod rank;
mod rank_sum;
mod rng;

pub use gleaner_proto::result::{Correlation, Estimate, correlation};
pub use judge::{Judgement, RELEVANCE, SIGNIFICANCE, judge, judge_unpaired};
pub use median::{estimate, median, nearest_rank, spread};
pub use paired::{SignedRank, paired_ratio, ratio, ratios, signed_rank};
pub use quality::{Drift, Outlier, drift, outliers};
pub use rank_sum::{MannWhitney, mann_whitney, unpaired_ratio};
pub use rng::Rng;

/// Target coverage of the intervals.
pub const LEVEL: f64 = 0.95;

/// The fewest rounds that can distinguish two modes at all.
pub const MIN_ROUNDS: usize = 5;

/// The fewest rounds for an interval with 95 % coverage.
pub const FULL_ROUNDS: usize = 6;
