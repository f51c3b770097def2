//! Times as people write them: a number and a unit, or seconds where an option says so.

use std::time::Duration;

/// Units and their seconds, the longest first.
const UNITS: [(&str, f64); 4] = [("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9)];

/// Parses `50us`, `1.5ms`, `2s` or `800ns`, rounded to a nanosecond.
///
/// # Errors
/// A text without one of these units, or a negative or invalid number: the message says what to write.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = UNITS.iter().find(|(name, _)| *name == &text[digits.len()..]);
    let number = digits.parse::<f64>().ok();
    unit.zip(number)
        .and_then(|((_, seconds), number)| Duration::try_from_secs_f64(number * seconds).ok())
        .ok_or_else(|| format!("`{text}` is not a time such as 50us, 1.5ms or 2s"))
}

/// Formats the time in the longest unit that yields an integer; [`parse_time`] reads it back exactly.
pub fn format_time(time: Duration) -> String {
    let ns = time.as_nanos();
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1)];
    let (name, size) = units.into_iter().find(|(_, size)| ns.is_multiple_of(*size)).unwrap_or(("ns", 1));
    format!("{}{name}", ns / size)
}

/// The value of an option: a time with its unit, from 10 ms to an hour.
///
/// # Errors
/// As [`parse_time`], or the time is out of this range.
pub fn time(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    let (least, most) = (Duration::from_millis(10), Duration::from_secs(3600));
    let fits = (least..=most).contains(&time);
    fits.then_some(time).ok_or_else(|| format!("`{text}` is not a time between 10ms and 3600s"))
}

/// The value of an option: a time in seconds, from 10 ms to an hour.
///
/// # Errors
/// Anything else.
pub fn seconds(text: &str) -> Result<Duration, String> {
    seconds_from(0.01, text)
}

/// The value of an option: a time in seconds, from none at all to an hour.
///
/// # Errors
/// Anything else.
pub fn seconds_or_none(text: &str) -> Result<Duration, String> {
    seconds_from(0.0, text)
}

fn seconds_from(least: f64, text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|s| (least..=3600.0).contains(s))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("`{text}` is not a time between {least} and 3600 seconds"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times() {
        let ns = |text| parse_time(text).unwrap().as_nanos();
        assert_eq!((ns("50us"), ns("1.5ms"), ns("2s"), ns("800ns")), (50_000, 1_500_000, 2_000_000_000, 800));
        assert_eq!(ns("0us"), 0);
        for wrong in ["", "us", "50", "-1us", "50 us", "1h", "nanus", "1e400s", "infs", "50µs"] {
            let error = parse_time(wrong).unwrap_err();
            assert!(error.contains("50us"), "{wrong}: {error}");
        }
    }

    #[test]
    fn writes_what_it_reads() {
        for text in ["50us", "1500us", "2s", "801ns", "1ms", "0s"] {
            assert_eq!(format_time(parse_time(text).unwrap()), text);
        }
    }
}
