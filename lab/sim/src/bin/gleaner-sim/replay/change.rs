//! `--policy KEY=VALUE`: a policy that differs from the recorded one.

use std::str::FromStr;
use std::time::Duration;

use gleaner_policy::{Method, PolicyConfig};
use gleaner_print::times::parse_time;

/// One changed value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Change {
    Method(Method),
    WakeCost(Duration),
    PollPrice(f64),
    Consolidate(bool),
    MostThreads(u32),
}

impl Change {
    pub(super) fn apply(&self, config: &mut PolicyConfig) {
        match *self {
            Self::Method(method) => config.method = method,
            Self::WakeCost(cost) => config.wake_cost = cost,
            Self::PollPrice(price) => config.poll_price = price,
            Self::Consolidate(allowed) => config.consolidate = allowed,
            Self::MostThreads(threads) => config.most_threads = threads,
        }
    }
}

impl FromStr for Change {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
        let bad = |what: &str| format!("{key}: `{value}` is not {what}");
        let most = Duration::from_secs(1);
        match key {
            "method" => value.parse().map(Self::Method),
            "wake-cost" => {
                let cost = parse_time(value).ok().filter(|cost| !cost.is_zero() && *cost <= most);
                cost.map(Self::WakeCost).ok_or_else(|| bad("a time above 0 and up to 1s, such as 30us"))
            }
            "poll-price" => {
                let price = value.parse().ok().filter(|price| (0.0..=10.0).contains(price));
                price.map(Self::PollPrice).ok_or_else(|| bad("a number from 0 to 10"))
            }
            "consolidate" => value.parse().map(Self::Consolidate).map_err(|_| bad("true or false")),
            "most-threads" => value.parse().map(Self::MostThreads).map_err(|_| bad("a number of threads")),
            _ => Err(format!(
                "there is no `{key}`; use method, wake-cost, poll-price, consolidate or most-threads"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_changes_its_value_and_a_wrong_one_is_named() {
        let mut config = PolicyConfig::default();
        for text in
            ["method=yield", "wake-cost=48us", "poll-price=0.5", "consolidate=false", "most-threads=7"]
        {
            text.parse::<Change>().unwrap().apply(&mut config);
        }
        let expected = PolicyConfig {
            method: Method::Yield,
            wake_cost: Duration::from_micros(48),
            poll_price: 0.5,
            consolidate: false,
            most_threads: 7,
            ..PolicyConfig::default()
        };
        assert_eq!(config, expected);
        for (text, named) in [
            ("method", "KEY=VALUE"),
            ("method=fast", "fast"),
            ("wake-cost=0us", "wake-cost"),
            ("wake-cost=2s", "wake-cost"),
            ("poll-price=NaN", "poll-price"),
            ("consolidate=maybe", "consolidate"),
            ("most-threads=-1", "most-threads"),
            ("speed=9", "speed"),
        ] {
            let error = text.parse::<Change>().unwrap_err();
            assert!(error.contains(named), "{error}");
        }
    }
}
