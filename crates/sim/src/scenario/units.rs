//! Lengths of time in words.

use crate::ids::Ns;

/// The time in `text`, such as `200us` or `1.5s`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be small and positive"
)]
pub(super) fn time(text: &str) -> Result<Ns, String> {
    const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let unit = UNITS.into_iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)));
    let ns = unit.and_then(|(number, ns)| Some(number.trim().parse::<f64>().ok()? * ns));
    // A day: everything longer is a typing error.
    ns.filter(|ns| (0.0..=86_400e9).contains(ns))
        .map(|ns| ns as Ns)
        .ok_or_else(|| format!("`{text}` is not a time of at most a day, such as 200us, 1.5ms or 10s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_units() {
        for (text, ns) in
            [("200us", 200_000), ("1.5s", 1_500_000_000), ("7 ms", 7_000_000), ("0s", 0), ("3ns", 3)]
        {
            assert_eq!(time(text), Ok(ns));
        }
        for text in ["", "10", "s", "-1s", "1h", "NaNs", "1e9s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
