//! Runs workloads in a guest, and compares two modes round by round.

use std::time::Duration;

use gleaner_bench::workload::Outcome;

use crate::error::{Error, Result};
use crate::vm::{Guest, Step};

/// A way to run a workload.
#[derive(Debug, Clone, Copy)]
pub struct Mode {
    /// Its name in checks.
    pub name: &'static str,
    /// Arguments before the workload's command.
    pub prefix: &'static [&'static str],
}

impl Mode {
    /// The untouched system.
    pub const UNTOUCHED: Self = Self { name: "untouched", prefix: &[] };
    /// Under Gleaner, with a journal for `claims::journal`.
    pub const JOURNALLED: Self = Self {
        name: "gleaner",
        prefix: &["gleaner", "run", "-q", "--no-memory", "--journal", super::journal::PATH, "--"],
    };
}

/// The result of one run.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// Operations per second.
    pub throughput: f64,
    /// Busy vCPU seconds of the whole guest per operation, including polling and Gleaner itself.
    pub busy_per_operation: f64,
}

/// Runs a workload once.
pub fn sample(guest: &Guest, mode: Mode, workload: &[&str], time: Duration) -> Result<Sample> {
    let time_word = format!("{}ms", time.as_millis());
    let own = ["gleaner", "workload", "--json", "--for", &time_word];
    let words = [mode.prefix, &own, workload].concat();
    let before = busy(guest)?;
    // Under emulation a machine can be many times slower than its clock.
    let text = guest.succeed(Step::new(&words).timeout(time * 5 + Step::TIMEOUT))?;
    let busy = busy(guest)? - before;
    let outcome = outcome(&format!("`{}` in VM `{}`", words.join(" "), guest.spec().name), &text)?;
    let operations = outcome.operations.max(1) as f64;
    Ok(Sample { throughput: outcome.throughput(), busy_per_operation: busy / operations })
}

/// What a workload with `--json` has printed; `who` it is, for an error.
pub fn outcome(who: &str, text: &str) -> Result<Outcome> {
    let line = text.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default();
    serde_json::from_str(line)
        .map_err(|error| Error::Protocol { who: who.to_owned(), what: format!("{error}: {text}") })
}

/// Ratios of two modes, round by round.
pub fn ratios(of: &[Sample], to: &[Sample], measure: impl Fn(&Sample) -> f64) -> Vec<f64> {
    of.iter().zip(to).map(|(of, to)| measure(of) / measure(to)).collect()
}

/// Seconds since boot that the guest's vCPUs were not idle.
fn busy(guest: &Guest) -> Result<f64> {
    let stat = guest.read_text("/proc/stat")?;
    busy_ticks(&stat).map(|ticks| ticks as f64 / 100.0).ok_or_else(|| Error::Protocol {
        who: "/proc/stat".to_owned(),
        what: stat.lines().next().unwrap_or_default().to_owned(),
    })
}

/// Ticks (1/100 s) in all states but idle, I/O wait and stolen: fields 1-3, 6 and 7 of the first line (proc(5)).
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<u64> =
        line.split_whitespace().map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    [0, 1, 2, 5, 6].into_iter().map(|field| fields.get(field)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_all_but_idle_and_stolen() {
        assert_eq!(busy_ticks("cpu  1 2 4 8 16 32 64 128 0 0\ncpu0 9\n"), Some(1 + 2 + 4 + 32 + 64));
        assert_eq!(busy_ticks("cpu  1 2\n"), None);
    }

    #[test]
    fn ratios_are_per_round() {
        let sample = |throughput| Sample { throughput, busy_per_operation: 1.0 };
        let of = [sample(2.0), sample(9.0)];
        let to = [sample(1.0), sample(3.0)];
        assert_eq!(ratios(&of, &to, |s| s.throughput), [2.0, 3.0]);
    }
}
