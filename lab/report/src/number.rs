//! Numbers for people: units, prefixes, and no more digits than carry information.

/// The unit of a number; decides its prefix and suffix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// A plain number.
    Plain,
    /// A multiple of another value, written `3.54×`.
    Ratio,
    /// Seconds, written in s, ms, µs or ns.
    Seconds,
    /// A share of 1, written as a percentage.
    Share,
}

/// A common format for the numbers of an axis or table column, so that they align digit by digit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Format {
    factor: f64,
    decimals: usize,
    suffix: &'static str,
    /// Whether the numbers are too large or too small to be written out.
    scientific: bool,
    /// Whether the suffix is a unit name, which an axis shows once and a single number carries itself.
    named: bool,
}

/// Most decimals before scientific notation is used.
const MAX_DECIMALS: f64 = 6.0;

/// Numbers from here on use scientific notation.
const SCIENTIFIC_FROM: f64 = 1e7;

impl Format {
    /// For numbers of about the size of `typical`, with steps of `step` still visible.
    pub fn new(unit: Unit, typical: f64, step: f64) -> Self {
        let size = typical.abs();
        let (factor, suffix, named) = match unit {
            Unit::Ratio => (1.0, "×", false),
            Unit::Share => (100.0, " %", false),
            Unit::Seconds if size >= 1.0 || size == 0.0 => (1.0, "s", true),
            Unit::Seconds if size >= 1e-3 => (1e3, "ms", true),
            Unit::Seconds if size >= 1e-6 => (1e6, "µs", true),
            Unit::Seconds => (1e9, "ns", true),
            Unit::Plain if size >= 1e10 => (1e-9, "G", false),
            Unit::Plain if size >= 1e7 => (1e-6, "M", false),
            Unit::Plain if size >= 1e4 => (1e-3, "k", false),
            Unit::Plain => (1.0, "", false),
        };
        let decimals = -(step * factor).abs().log10();
        // Half a percent of slack: a step of 0.1 must not need two decimals because of its last bit.
        let decimals = if decimals.is_finite() { (decimals - 0.005).ceil().max(0.0) } else { 0.0 };
        if decimals > MAX_DECIMALS || size * factor >= SCIENTIFIC_FROM {
            let suffix = if unit == Unit::Seconds { "s" } else { suffix.trim_matches(['k', 'M', 'G']) };
            let factor = if unit == Unit::Share { factor } else { 1.0 };
            return Self { factor, decimals: 2, suffix, scientific: true, named };
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 6")]
        Self { factor, decimals: decimals as usize, suffix, scientific: false, named }
    }

    /// For one number with three significant digits.
    pub fn single(unit: Unit, value: f64) -> Self {
        let size = value.abs();
        let step = match unit {
            // Ratios are stacked in columns: those of ordinary size get equally many digits.
            Unit::Ratio if (0.1..100.0).contains(&size) => 0.01,
            _ if size > 0.0 => 10f64.powf(size.log10().floor() - 2.0),
            _ => 1.0,
        };
        Self::new(unit, value, step)
    }

    /// Formats the number without its unit name.
    pub fn number(&self, value: f64) -> String {
        let scaled = value * self.factor;
        if self.scientific {
            let suffix = if self.named { "" } else { self.suffix };
            return format!("{scaled:.*e}{suffix}", self.decimals);
        }
        let text = format!("{scaled:.*}", self.decimals);
        // Zero thousands are just zero.
        let plain = self.named || (value == 0.0 && self.factor < 1.0);
        let suffix = if plain { "" } else { self.suffix };
        format!("{}{suffix}", grouped(&text))
    }

    /// Formats the number with its unit.
    pub fn full(&self, value: f64) -> String {
        let number = self.number(value);
        if self.named { format!("{number} {}", self.suffix) } else { number }
    }

    /// Unit for an axis label: `ms`; empty if the numbers carry it themselves.
    pub const fn unit(&self) -> &'static str {
        if self.named { self.suffix } else { "" }
    }
}

/// One number with its unit and three significant digits, e.g. `3.54×`, `12.3 ms`, `21.1k`.
pub fn show(unit: Unit, value: f64) -> String {
    Format::single(unit, value).full(value)
}

/// Like [`show`], but without the `×` of a ratio: for interval bounds after a number that has it.
pub fn bare(unit: Unit, value: f64) -> String {
    let mut text = show(unit, value);
    if unit == Unit::Ratio {
        text.truncate(text.trim_end_matches('×').len());
    }
    text
}

/// `text` with a comma between thousands, and no sign on zero.
fn grouped(text: &str) -> String {
    let zero = text.bytes().all(|b| matches!(b, b'-' | b'0' | b'.'));
    let (sign, text) = match text.strip_prefix('-') {
        Some(rest) if zero => ("", rest),
        Some(rest) => ("−", rest),
        None => ("", text),
    };
    let (whole, fraction) = text.find('.').map_or((text, ""), |point| text.split_at(point));
    let mut out = sign.to_owned();
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_numbers_have_three_digits_and_their_unit() {
        let cases = [
            (Unit::Plain, 21_084.6, "21.1k"),
            (Unit::Plain, 9_772.0, "9,772"),
            (Unit::Plain, 0.0123, "0.0123"),
            (Unit::Plain, 0.0, "0"),
            (Unit::Plain, -12.5, "−12.5"),
            (Unit::Plain, 3.2e12, "3,200G"),
            (Unit::Plain, 3.2e18, "3.20e18"),
            (Unit::Plain, 1e-12, "1.00e-12"),
            (Unit::Seconds, 1e-15, "1.00e-15 s"),
            (Unit::Ratio, 3.5406, "3.54×"),
            (Unit::Ratio, 1.0, "1.00×"),
            (Unit::Ratio, 0.7194, "0.72×"),
            (Unit::Ratio, 0.0123, "0.0123×"),
            (Unit::Ratio, 123.4, "123×"),
            (Unit::Seconds, 0.000_012_34, "12.3 µs"),
            (Unit::Seconds, 2.0, "2.00 s"),
            (Unit::Seconds, 5e-9, "5.00 ns"),
            (Unit::Share, 0.125, "12.5 %"),
        ];
        for (unit, value, text) in cases {
            assert_eq!(show(unit, value), text);
        }
    }

    #[test]
    fn an_axis_has_one_unit_and_no_needless_digits() {
        let format = Format::new(Unit::Seconds, 0.004, 0.0005);
        assert_eq!((format.number(0.0015).as_str(), format.unit()), ("1.5", "ms"));
        let format = Format::new(Unit::Plain, 80_000.0, 20_000.0);
        assert_eq!((format.number(20_000.0).as_str(), format.unit()), ("20k", ""));
        assert_eq!(format.number(0.0), "0");
        let format = Format::new(Unit::Plain, 0.3, 0.1);
        assert_eq!(format.number(0.3), "0.3");
        assert_eq!(format.number(-0.000_01), "0.0");
    }

    #[test]
    fn no_number_is_too_strange_to_be_written() {
        for value in [f64::MAX, f64::MIN_POSITIVE, -1e-300] {
            for unit in [Unit::Plain, Unit::Ratio, Unit::Seconds, Unit::Share] {
                let text = show(unit, value);
                assert!((1..=14).contains(&text.chars().count()), "{text}");
            }
        }
    }
}
