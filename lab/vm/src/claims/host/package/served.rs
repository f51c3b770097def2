//! What the unit serves.

use std::thread;
use std::time::{Duration, Instant};

use crate::claims::packaged::{is_whole, scrape};
use crate::error::Result;
use crate::vm::Guest;

/// Where the unit listens.
pub(super) const PORT: u16 = 9840;
/// Time for what is expected to be served. VMs are looked for each minute at least, and a busy machine's clock can be slow.
const WITHIN: Duration = Duration::from_secs(240);
/// It reads its counters at most once a second.
const INTERVAL: Duration = Duration::from_secs(1);

/// An answer; empty if there was none.
pub(super) struct Served(String);

impl Served {
    /// The lines of a series or, without its labels, of a metric.
    fn lines<'a>(&'a self, series: &'a str) -> impl Iterator<Item = &'a str> {
        let of_it =
            move |line: &&str| line.strip_prefix(series).is_some_and(|rest| rest.starts_with([' ', '{']));
        self.0.lines().filter(of_it)
    }

    /// The sum of a metric over its series; none if there is none.
    pub(super) fn value(&self, series: &str) -> Option<f64> {
        let values = self.lines(series).map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        values.reduce(|sum, value| Some(sum? + value?)).flatten()
    }

    /// A metric's first line, to be shown.
    pub(super) fn line(&self, series: &str) -> String {
        self.lines(series).next().map_or_else(|| format!("there is no {series}"), str::to_owned)
    }
}

/// The exits of all VMs.
pub(super) fn exits(now: &Served) -> f64 {
    now.value("gleaner_host_exits_total").unwrap_or(0.0)
}

/// The last answer, and whether it is as wanted.
pub(super) struct Found {
    pub(super) holds: bool,
    pub(super) now: Served,
}

/// Asks until the answer is as wanted, or else for a while.
pub(super) fn until(host: &Guest, wanted: impl Fn(&Served) -> bool) -> Result<Found> {
    let end = Instant::now() + WITHIN;
    loop {
        let answer = scrape(host, PORT)?;
        let now = Served(if is_whole(&answer) { answer.text() } else { String::new() });
        let holds = wanted(&now);
        if holds || Instant::now() > end {
            return Ok(Found { holds, now });
        }
        thread::sleep(INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_summed_over_a_metrics_series_alone() {
        let served = Served("a_total{x=\"1 2\"} 1.5\na_total{x=\"3\"} 2\na_total_more 9\nb 4\n".to_owned());
        assert_eq!(served.value("a_total"), Some(3.5));
        assert_eq!(served.value("a_total{x=\"3\"}"), Some(2.0));
        assert_eq!((served.value("b"), served.value("c")), (Some(4.0), None));
        assert_eq!(served.line("c"), "there is no c");
    }
}
