//! Scales: map values to positions and choose round tick values.

/// How values are spread along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Equal differences are equally far apart.
    Linear,
    /// Equal ratios are equally far apart; values must be positive.
    Log,
    /// For shares below 1: each further nine (90 %, 99 %, 99.9 %) takes the same space, so that the tail of a
    /// distribution is readable.
    Nines,
}

/// Values beyond this (or, on a logarithmic scale, below its inverse) are taken for errors and not drawn:
/// with them and the margins, sums and powers would overflow.
const MAX_MAGNITUDE: f64 = 1e200;

/// Upper end of [`Kind::Nines`]: six nines.
const MAX_NINES: f64 = 0.999_999;

impl Kind {
    /// Whether the value can be drawn on such a scale.
    pub fn shows(self, value: f64) -> bool {
        match self {
            Self::Linear => value.abs() <= MAX_MAGNITUDE,
            Self::Log => (1.0 / MAX_MAGNITUDE..=MAX_MAGNITUDE).contains(&value),
            Self::Nines => (0.0..=MAX_NINES).contains(&value),
        }
    }

    /// Maps the value to an axis with equal distances.
    fn flat(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => value.log10(),
            Self::Nines => -(1.0 - value).log10(),
        }
    }
}

/// Maps the values `low..=high` to the positions `from..=to`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    kind: Kind,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Scale {
    /// A scale that covers all drawable `values` between the positions `from` and `to` (in either order).
    /// `margin` is the share of the length that stays free beyond the outermost values.
    pub fn over(kind: Kind, values: impl IntoIterator<Item = f64>, margin: f64, from: f64, to: f64) -> Self {
        let mut low = f64::INFINITY;
        let mut high = f64::NEG_INFINITY;
        for value in values.into_iter().filter(|value| kind.shows(*value)) {
            low = low.min(value);
            high = high.max(value);
        }
        if low > high {
            (low, high) = if kind == Kind::Log { (1.0, 10.0) } else { (0.0, 0.9) };
        }
        let (mut flat_low, mut flat_high) = (kind.flat(low), kind.flat(high));
        if flat_high - flat_low <= flat_low.abs().max(flat_high.abs()) * 1e-9 {
            // A single value goes to the middle.
            let room = if kind == Kind::Linear && flat_low != 0.0 { flat_low.abs() * 0.1 } else { 0.5 };
            (flat_low, flat_high) = (flat_low - room, flat_high + room);
        }
        let room = (flat_high - flat_low) * margin;
        // The margin must not invent negative values.
        let floor = if kind != Kind::Log && low >= 0.0 { 0.0 } else { f64::NEG_INFINITY };
        Self { kind, low: (flat_low - room).max(floor), high: flat_high + room, from, to }
    }

    /// The position of `value`, clamped to the ends of the scale.
    pub fn at(&self, value: f64) -> f64 {
        let share = ((self.kind.flat(value) - self.low) / (self.high - self.low)).clamp(0.0, 1.0);
        // This order of operations keeps `to` exact.
        if share.is_finite() { self.from * (1.0 - share) + self.to * share } else { self.from }
    }

    /// The value at position `to`.
    pub fn last(&self) -> f64 {
        match self.kind {
            Kind::Linear => self.high,
            Kind::Log => 10f64.powf(self.high),
            Kind::Nines => 1.0 - 10f64.powf(-self.high),
        }
    }

    /// The value at position `from`.
    pub fn first(&self) -> f64 {
        match self.kind {
            Kind::Linear => self.low,
            Kind::Log => 10f64.powf(self.low),
            Kind::Nines => 1.0 - 10f64.powf(-self.low),
        }
    }

    /// Round values on the scale in ascending order: at most `most`, but room for two is always assumed.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        let most = most.max(2);
        match self.kind {
            Kind::Linear => linear_ticks(self.low, self.high, most),
            Kind::Log => self.log_ticks(most),
            Kind::Nines => {
                let nines = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, MAX_NINES];
                let mut ticks: Vec<f64> = nines.into_iter().filter(|share| self.covers(*share)).collect();
                ticks.truncate(most);
                ticks
            }
        }
    }

    /// The densest that fits of: round steps, six or three per decade, every n-th power of ten.
    fn log_ticks(&self, most: usize) -> Vec<f64> {
        let (first, last) = (self.first(), self.last());
        // Less than half a decade contains too few values of the 1-2-5 series.
        if self.high - self.low < 0.5 {
            return linear_ticks(first, last, most);
        }
        let powers = integers(self.low.floor(), self.high.ceil());
        let of = |mantissas: &[f64]| -> Vec<f64> {
            powers
                .iter()
                .flat_map(|power| mantissas.iter().map(move |m| m * 10f64.powf(*power)))
                .filter(|tick| self.covers(*tick))
                .collect()
        };
        for mantissas in [&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0][..], &[1.0, 2.0, 5.0], &[1.0, 3.0], &[1.0]] {
            let ticks = of(mantissas);
            if (2..=most).contains(&ticks.len()) {
                return ticks;
            }
        }
        let ticks = of(&[1.0]);
        if ticks.len() < 2 {
            return linear_ticks(first, last, most);
        }
        ticks.iter().copied().step_by(ticks.len().div_ceil(most)).collect()
    }

    /// Whether the value lies between the ends, allowing for rounding.
    fn covers(&self, value: f64) -> bool {
        let slack = (self.high - self.low) * 1e-9;
        (self.low - slack..=self.high + slack).contains(&self.kind.flat(value))
    }
}

/// Multiples of 1, 2 or 5 times a power of ten between `low` and `high`, at most `most`.
fn linear_ticks(low: f64, high: f64, most: usize) -> Vec<f64> {
    let span = high - low;
    if !span.is_finite() || span <= 0.0 {
        return Vec::new();
    }
    let power = 10f64.powf((span / most as f64).log10().floor());
    for step in [1.0, 2.0, 5.0, 10.0, 20.0].map(|m| m * power) {
        // The slack keeps ends that are round but for their last bit.
        let (first, last) = ((low / step - 1e-9).ceil(), (high / step + 1e-9).floor());
        if last - first < most as f64 {
            return integers(first, last).into_iter().map(|n| n * step).filter(|n| n.is_finite()).collect();
        }
    }
    Vec::new()
}

/// The integers from `first` to `last`, at most a thousand.
fn integers(first: f64, last: f64) -> Vec<f64> {
    std::iter::successors(Some(first), |n| Some(n + 1.0)).take_while(|n| *n <= last).take(1000).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ticks(kind: Kind, low: f64, high: f64, most: usize) -> Vec<f64> {
        Scale::over(kind, [low, high], 0.0, 0.0, 100.0).ticks(most)
    }

    fn close(found: &[f64], expected: &[f64]) {
        assert!(
            found.len() == expected.len()
                && found.iter().zip(expected).all(|(a, b)| (a - b).abs() <= b.abs() * 1e-9),
            "{found:?} is not {expected:?}"
        );
    }

    #[test]
    fn ticks_are_round() {
        close(&ticks(Kind::Linear, 0.0, 100.0, 6), &[0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        close(&ticks(Kind::Linear, 0.93, 1.07, 4), &[0.95, 1.0, 1.05]);
        close(&ticks(Kind::Log, 0.5, 12.0, 6), &[0.5, 1.0, 2.0, 5.0, 10.0]);
        close(&ticks(Kind::Log, 1.0, 1e6, 4), &[1.0, 100.0, 1e4, 1e6]);
        close(&ticks(Kind::Log, 0.95, 1.1, 4), &[0.95, 1.0, 1.05, 1.1]);
        close(&ticks(Kind::Nines, 0.5, 0.9995, 5), &[0.5, 0.9, 0.99, 0.999]);
    }

    #[test]
    fn positions_are_where_they_should_be() {
        let log = Scale::over(Kind::Log, [0.1, 10.0], 0.0, 0.0, 100.0);
        assert!((log.at(1.0) - 50.0).abs() < 1e-9);
        let down = Scale::over(Kind::Linear, [0.0, 4.0], 0.0, 200.0, 0.0);
        assert!((down.at(1.0) - 150.0).abs() < 1e-9);
        let nines = Scale::over(Kind::Nines, [0.0, 0.99], 0.0, 0.0, 100.0);
        assert!((nines.at(0.9) - 50.0).abs() < 1e-9);
    }

    #[test]
    fn one_value_and_none_have_a_scale_too() {
        let one = Scale::over(Kind::Linear, [7.0], 0.0, 0.0, 100.0);
        assert!((one.at(7.0) - 50.0).abs() < 1e-9);
        let none = Scale::over(Kind::Log, [f64::NAN, -1.0, 0.0], 0.1, 0.0, 100.0);
        assert!(none.at(3.0).is_finite() && none.ticks(5).len() >= 2);
    }

    proptest! {
        #[test]
        fn every_value_has_a_place_and_every_tick_lies_on_the_scale(
            values in proptest::collection::vec(any::<f64>(), 0..8), most in 2usize..12, margin in 0.0..0.2,
        ) {
            for kind in [Kind::Linear, Kind::Log, Kind::Nines] {
                let scale = Scale::over(kind, values.iter().copied(), margin, 10.0, 300.0);
                for value in &values {
                    prop_assert!((10.0..=300.0).contains(&scale.at(*value)), "{kind:?}");
                }
                let ticks = scale.ticks(most);
                prop_assert!(ticks.len() <= most && ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
                prop_assert!(ticks.iter().all(|tick| tick.is_finite() && (kind != Kind::Log || *tick > 0.0)));
            }
        }

        #[test]
        fn ordinary_ranges_have_enough_ticks(low in -1e6..1e6f64, span in 1e-3..1e6f64, most in 5usize..12) {
            let found = ticks(Kind::Linear, low, low + span, most).len();
            prop_assert!((2..=most).contains(&found), "{found}");
        }
    }
}
