//! Compares the modes of a row by one metric, paired by round.

use std::collections::BTreeMap;

use gleaner_proto::result::{Better, Metric, Row};

use crate::mode::Mode;
use crate::stats::{Estimate, estimate, paired_ratio, ratios};

/// The values of one metric, by mode and round.
pub(super) struct Numbers<'r> {
    row: &'r Row,
    metric: Metric,
    values: Vec<Vec<Option<f64>>>,
}

impl<'r> Numbers<'r> {
    pub(super) fn new(row: &'r Row, metric: Metric) -> Self {
        let rounds = row.rounds();
        Self { row, metric, values: row.cells.iter().map(|cell| cell.by_round(metric, rounds)).collect() }
    }

    /// Number of modes.
    pub(super) fn modes(&self) -> usize {
        self.row.cells.len()
    }

    /// Name of a mode.
    pub(super) fn name(&self, mode: usize) -> &'r str {
        &self.row.cells[mode].mode
    }

    /// The mode called `name`.
    pub(super) fn index(&self, name: &str) -> Option<usize> {
        (0..self.modes()).find(|mode| self.name(*mode) == name)
    }

    /// Median and interval of a mode.
    pub(super) fn estimate(&self, mode: usize) -> Option<Estimate> {
        estimate(&self.values[mode].iter().flatten().copied().collect::<Vec<f64>>())
    }

    /// Ratio of a mode to the default one.
    pub(super) fn of_default(&self, mode: usize) -> Option<Estimate> {
        self.ratio(mode, self.index(Mode::DEFAULT)?)
    }

    /// The static setting with the best median ratio to the default mode.
    pub(super) fn best_static(&self) -> Option<usize> {
        let is_static = |mode: &usize| {
            let mode = Mode::parse(self.name(*mode), &BTreeMap::new());
            mode.is_ok_and(|mode| mode.setting().is_some())
        };
        let worth = |mode: usize| {
            let ratio = self.of_default(mode)?.median;
            Some(if self.metric.better() == Better::Lower { -ratio } else { ratio })
        };
        (0..self.modes())
            .filter(is_static)
            .filter_map(|mode| Some((mode, worth(mode)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(mode, _)| mode)
    }

    /// Ratio of a mode to another one, paired by round.
    pub(super) fn ratio(&self, mode: usize, base: usize) -> Option<Estimate> {
        paired_ratio(&self.values[mode], &self.values[base])
    }

    /// That ratio in its worst round.
    pub(super) fn worst(&self, mode: usize, base: usize) -> Option<f64> {
        let ratios = ratios(&self.values[mode], &self.values[base]).into_iter();
        match self.metric.better() {
            Better::Lower => ratios.max_by(f64::total_cmp),
            Better::Higher | Better::Neither => ratios.min_by(f64::total_cmp),
        }
    }
}
