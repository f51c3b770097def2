//! Compares the modes of a row by one number, paired by round.

use gleaner_proto::result::Better;

use crate::mode::Mode;
use crate::servers::Sample;
use crate::stats::{Estimate, estimate, paired_ratio, ratios, spread};

/// One number of each sample, by mode and round.
pub(super) struct Numbers<'a> {
    modes: &'a [Mode],
    values: Vec<Vec<Option<f64>>>,
    better: Better,
}

impl<'a> Numbers<'a> {
    /// `samples[mode][round]`.
    pub(super) fn new(
        modes: &'a [Mode],
        samples: &[Vec<Option<Sample>>],
        better: Better,
        number: impl Fn(&Sample) -> Option<f64>,
    ) -> Self {
        let of_mode = |mode: &Vec<Option<Sample>>| mode.iter().map(|s| number(s.as_ref()?)).collect();
        Self { modes, values: samples.iter().map(of_mode).collect(), better }
    }

    fn index(&self, wanted: &Mode) -> Option<usize> {
        self.modes.iter().position(|mode| mode == wanted)
    }

    fn present(&self, mode: usize) -> Vec<f64> {
        self.values[mode].iter().flatten().copied().collect()
    }

    /// Median and interval of a mode.
    pub(super) fn estimate(&self, mode: usize) -> Option<Estimate> {
        estimate(&self.present(mode))
    }

    /// Range of a mode relative to its median.
    pub(super) fn spread(&self, mode: usize) -> Option<f64> {
        spread(&self.present(mode))
    }

    /// Ratio of a mode to the default one.
    pub(super) fn of_default(&self, mode: usize) -> Option<Estimate> {
        paired_ratio(&self.values[mode], &self.values[self.index(&Mode::Default)?])
    }

    /// The fixed setting with the best median ratio to the default mode.
    pub(super) fn best_static(&self) -> Option<usize> {
        let worth = |mode: usize| {
            let ratio = self.of_default(mode)?.median;
            Some(if self.better == Better::Lower { -ratio } else { ratio })
        };
        (0..self.modes.len())
            .filter(|&mode| self.modes[mode].setting().is_some())
            .filter_map(|mode| Some((mode, worth(mode)?)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(mode, _)| mode)
    }

    /// Ratio of Gleaner to the default mode.
    pub(super) fn gleaner_of_default(&self) -> Option<Estimate> {
        self.of_default(self.index(&Mode::Gleaner)?)
    }

    /// Ratio of Gleaner to the best fixed setting.
    pub(super) fn gleaner_of_best_static(&self) -> Option<Estimate> {
        let (gleaner, best) = (self.index(&Mode::Gleaner)?, self.best_static()?);
        paired_ratio(&self.values[gleaner], &self.values[best])
    }

    /// That ratio in Gleaner's worst round.
    pub(super) fn worst_of_best_static(&self) -> Option<f64> {
        let (gleaner, best) = (self.index(&Mode::Gleaner)?, self.best_static()?);
        let ratios = ratios(&self.values[gleaner], &self.values[best]).into_iter();
        match self.better {
            Better::Lower => ratios.max_by(f64::total_cmp),
            Better::Higher | Better::Neither => ratios.min_by(f64::total_cmp),
        }
    }
}
