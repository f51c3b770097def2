//! Overhead of a sample: an empty command through the harness, against the same under `sh -c`.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use gleaner_proto::result::{Estimate, Metric};
use serde::Serialize;

use super::sample::Sampler;
use super::{ExperimentError, Program, Row};
use crate::mode::Mode;
use crate::runner::interrupted;
use crate::servers::ServersError;
use crate::stats::{self, Rng};

/// The measured overhead, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Overhead {
    /// A sample of an empty command, from before the first to after the last reading.
    pub harness_s: Estimate,
    /// The same command under `sh -c`.
    pub shell_s: Estimate,
    /// The paired difference of the two.
    pub difference_s: Estimate,
}

/// Measures `pairs` pairs (at least one), each in random order.
///
/// # Errors
/// If a sample cannot be taken, or a signal arrived.
pub fn measure(gleaner: &Path, pairs: u16) -> Result<Overhead, ExperimentError> {
    let mut sampler = Sampler::new(gleaner, &gleaner.with_file_name("gleaner-bench"))?;
    let (row, mode) = (empty(), Mode::Default);
    let mut rng = Rng::new(1);
    let (mut harness, mut shell) = (Vec::new(), Vec::new());
    for _ in 0..pairs.max(1) {
        if interrupted() {
            return Err(ServersError::Interrupted.into());
        }
        let mut ways = [true, false];
        rng.shuffle(&mut ways);
        for through_harness in ways {
            let began = Instant::now();
            if through_harness {
                sampler.measure(&row, &mode)?;
                harness.push(began.elapsed().as_secs_f64());
            } else {
                let mut command = Command::new("sh");
                let command = command.args(["-c", "true"]).stdin(Stdio::null()).stdout(Stdio::null());
                command.status().map_err(ServersError::system("start sh"))?;
                shell.push(began.elapsed().as_secs_f64());
            }
        }
    }
    let differences: Vec<f64> = harness.iter().zip(&shell).map(|(harness, shell)| harness - shell).collect();
    let estimate = |values: &[f64]| stats::estimate(values).ok_or(ServersError::Interrupted);
    Ok(Overhead {
        harness_s: estimate(&harness)?,
        shell_s: estimate(&shell)?,
        difference_s: estimate(&differences)?,
    })
}

fn empty() -> Row {
    Row {
        name: "true".to_owned(),
        program: Program::Command(vec!["true".into()]),
        unit: String::new(),
        primary: Metric::WallS,
        expressions: Vec::new(),
        co_runners: Vec::new(),
        prepare: None,
        paper_ratio: std::collections::BTreeMap::new(),
        adapter: None,
        paper: std::collections::BTreeMap::new(),
        timeout: Duration::from_secs(10),
    }
}

impl fmt::Display for Overhead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |e: &Estimate| format!("{:.2} ms [{:.2}, {:.2}]", e.median * 1e3, e.low * 1e3, e.high * 1e3);
        writeln!(f, "an empty command, median of {} pairs with its 95 % interval", self.harness_s.n)?;
        writeln!(f, "  through the harness  {}", ms(&self.harness_s))?;
        writeln!(f, "  under sh -c          {}", ms(&self.shell_s))?;
        writeln!(f, "  difference           {}", ms(&self.difference_s))
    }
}
