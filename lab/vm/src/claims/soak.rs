//! How long claims go on that are about a long time.

use std::time::Duration;

use crate::error::{Error, Result};

/// Seconds; also of `gleanerd`'s soak test. It is passed on to a nested host.
pub(super) const VARIABLE: &str = "GLEANER_SOAK_S";

/// The time that was asked for; none: as short as the claim can be.
pub(super) fn time() -> Result<Duration> {
    std::env::var_os(VARIABLE).map_or(Ok(Duration::ZERO), |text| parse(&text.to_string_lossy()))
}

fn parse(text: &str) -> Result<Duration> {
    text.parse().map(Duration::from_secs).map_err(|_| Error::Variable {
        name: VARIABLE,
        value: text.to_owned(),
        wanted: "whole seconds, e.g. 600",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_are_a_time_and_all_else_is_refused() {
        assert_eq!(parse("600").unwrap(), Duration::from_secs(600));
        for text in ["", "10m", "-1", "1.5"] {
            let said = parse(text).unwrap_err().to_string();
            assert!(said.contains(VARIABLE) && said.contains(&format!("`{text}`")), "{said}");
            assert!(said.contains("whole seconds"), "{said}");
        }
    }
}
