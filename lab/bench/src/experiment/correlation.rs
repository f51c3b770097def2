//! The paper's Figure 1 as a number: are rows whose vCPUs become idle more often slowed down more?

use gleaner_proto::result::{BenchResult, Metric, Row};

use crate::mode::Mode;
use crate::stats::{Correlation, correlation};

/// Minimum number of rows for a meaningful correlation.
const ROWS: usize = 4;

/// Correlates two things over the rows of a result: how much slower the untouched system is than one whose
/// vCPUs never halt, and how often its vCPUs become idle. Both must be among the modes, the untouched one
/// first; the other one's name is returned, too. Uses only rows without co-runners that are judged by speed.
/// `None` for fewer than four such rows or missing numbers.
pub fn slowdown_by_idling(result: &BenchResult) -> Option<(&str, Correlation)> {
    let untouched = result.modes.first().filter(|mode| mode.name == Mode::DEFAULT)?;
    let awake = result.modes.iter().find(|mode| mode.name == Mode::IDLEPOLL)?;
    let point = |row: &Row| {
        if !row.co_runners.is_empty() || !matches!(row.primary, Metric::Throughput | Metric::WallS) {
            return None;
        }
        let idle = row.cell(&untouched.name)?.summaries.get(&Metric::IdlePerS)?.median;
        let ratio = row.comparison(&awake.name, row.primary)?.ratio.median;
        let slowdown = if row.primary == Metric::WallS { ratio.recip() } else { ratio };
        slowdown.is_finite().then_some((idle, slowdown))
    };
    let points: Vec<(f64, f64)> = result.rows.iter().filter_map(point).collect();
    let enough = points.len() >= ROWS;
    Some((awake.name.as_str(), correlation(&points).filter(|_| enough)?))
}
