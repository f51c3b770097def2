//! Times of the scheduler: up to a second, with their unit.

const EXPECTED: &str = "a time with its unit is expected: 500us, 18ms";

/// Parses a time with its unit: `500us`, `18ms`. Up to 1 s.
///
/// # Errors
/// A sentence that says what is expected.
pub fn parse_ns(text: &str) -> Result<u64, String> {
    let (digits, scale) = match text.strip_suffix("us") {
        Some(digits) => (digits, 1_000),
        None => (text.strip_suffix("ms").ok_or(EXPECTED)?, 1_000_000),
    };
    let number: u64 = digits.parse().map_err(|_| EXPECTED.to_owned())?;
    check_length(number.saturating_mul(scale))
}

/// Passes on times of up to 1 s.
pub(crate) fn check_length(ns: u64) -> Result<u64, String> {
    if ns <= 1_000_000_000 { Ok(ns) } else { Err("at most 1000ms are allowed".to_owned()) }
}

/// What [`parse_ns`] reads back, for a time of whole microseconds.
pub fn time_text(ns: u64) -> String {
    match ns {
        _ if ns > 0 && ns.is_multiple_of(1_000_000) => format!("{}ms", ns / 1_000_000),
        _ => format!("{}us", ns / 1_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        for (text, ns) in [("500us", 500_000), ("18ms", 18_000_000), ("0us", 0), ("1500us", 1_500_000)] {
            assert_eq!(parse_ns(text), Ok(ns));
            assert_eq!(time_text(ns), text);
        }
        for wrong in ["", "500", "ms", "-1us", "1001ms", "99999999999999999999us"] {
            assert!(parse_ns(wrong).is_err(), "{wrong}");
        }
    }
}
