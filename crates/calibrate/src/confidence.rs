//! Whether a calibration can be trusted, and which of two to keep.

/// Share of samples with other programs running above which a measurement is doubtful: a vCPU that they keep busy does
/// not halt, so halting seems to cost nothing.
///
/// Steal does not count. It is a lasting property of a host, under which other methods can pay (the paper's Table 2),
/// and on KVM it includes the time that waking a halted vCPU takes.
const DOUBTFUL_SHARE: f64 = 0.3;

/// How far a calibration can be trusted. Its length does not matter: a long measurement beside a compiler is as wrong
/// as a short one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Confidence {
    /// Next to nothing else ran.
    Good,
    /// Other programs ran.
    Doubtful {
        /// Share of the samples that found other programs running, 0..=1.
        disturbed: f64,
    },
}

impl Confidence {
    /// Judges a measurement by the share of its samples (0..=1) that found other programs running.
    pub fn of(disturbed: f64) -> Self {
        if disturbed > DOUBTFUL_SHARE { Self::Doubtful { disturbed } } else { Self::Good }
    }

    /// Whether a new calibration replaces the `saved` one (`None`: no valid one is saved).
    ///
    /// A good one replaces anything, being the newest. A doubtful one never replaces a good one; of two doubtful ones
    /// the less disturbed is kept.
    pub fn replaces(self, saved: Option<Self>) -> bool {
        match (self, saved) {
            (Self::Good, _) | (Self::Doubtful { .. }, None) => true,
            (Self::Doubtful { .. }, Some(Self::Good)) => false,
            (Self::Doubtful { disturbed: new }, Some(Self::Doubtful { disturbed: old })) => new <= old,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_calibration_never_replaces_a_good_one() {
        let (little, much) = (Confidence::of(0.4), Confidence::of(1.0));
        let good = Confidence::Good;
        for (new, saved, replaces) in [
            (good, None, true),
            (good, Some(good), true),
            (good, Some(little), true),
            (good, Some(much), true),
            (little, None, true),
            (little, Some(good), false),
            (little, Some(little), true),
            (little, Some(much), true),
            (much, None, true),
            (much, Some(good), false),
            (much, Some(little), false),
            (much, Some(much), true),
        ] {
            assert_eq!(new.replaces(saved), replaces, "{new:?} in place of {saved:?}");
        }
    }

    #[test]
    fn a_sample_or_two_that_found_another_program_are_no_disturbance() {
        assert_eq!(Confidence::of(0.0), Confidence::Good);
        assert_eq!(Confidence::of(DOUBTFUL_SHARE), Confidence::Good);
        assert_eq!(Confidence::of(0.5), Confidence::Doubtful { disturbed: 0.5 });
    }
}
