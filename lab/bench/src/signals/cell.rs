//! One cell: a case under one setting, once.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use gleaner_proto::result::Metric;
use serde::{Deserialize, Serialize};

use super::Options;
use super::case::{Case, Load, Rate};
use super::interval::{self, Interval, Part};
use crate::experiment::{ExperimentError, Program, Session, workload_outcome};
use crate::mode::Mode;
use crate::servers::log::{self, tail};
use crate::servers::{self, Window};

/// Window of a server's cell. Clients that print a line per second round both times up to whole seconds.
const WINDOW: Window = Window { warmup: Duration::from_millis(500), length: Duration::from_millis(1500) };
/// Timeout of a program.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Result of one cell: what the program reports, and what Gleaner observed in the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The program's own rate, per second.
    pub rate: f64,
    /// Mean latency for the clients of an open loop, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_us: Option<f64>,
    /// What Gleaner observed.
    pub interval: Interval,
}

/// Measures cells.
pub(super) struct Meter(Session);

impl Meter {
    /// Makes Gleaner calibrate wake-up costs if it has not.
    pub(super) fn new(options: &Options) -> Result<Self, ExperimentError> {
        let mut session = Session::new(&options.gleaner, &options.bench)?;
        session.calibrate(&[Mode::Gleaner])?;
        Ok(Self(session))
    }

    /// Measures a case under a setting. In any case, nothing keeps running.
    pub(super) fn measure(&mut self, case: &Case, setting: &str) -> Result<Sample, ExperimentError> {
        self.0.once(&case.name, |session| match &case.load {
            Load::Row(row) => servers::prepare(row, session.state()),
            Load::Program { prepare: Some(line), .. } => session.shell(line),
            Load::Program { prepare: None, .. } => Ok(()),
        })?;
        let mode = Mode::Fixed(setting.to_owned());
        self.0.settle(&mode)?;
        let (wrapper, journal) = self.0.wrapper(&mode)?;
        match &case.load {
            Load::Row(row) => {
                let sample = self.0.serve(row, WINDOW, &wrapper)?.sample;
                let length = Duration::from_secs_f64(sample.get(Metric::WallS));
                let interval = read(&journal, Part::From(sample.began_unix_ms, length), "")?;
                let latency_us = sample.metrics.get(&Metric::MeanUs).copied();
                Ok(Sample { rate: sample.rate(), latency_us, interval })
            }
            Load::Program { program, rate, .. } => self.run(program, rate, &wrapper, &journal),
        }
    }

    /// Replaces the run's own paths in `text`.
    pub(super) fn portable(&self, text: &str) -> String {
        self.0.portable(text)
    }

    fn run(
        &self,
        program: &Program,
        rate: &Rate,
        wrapper: &[OsString],
        journal: &Path,
    ) -> Result<Sample, ExperimentError> {
        let log = self.0.state().join("output");
        self.0.launch(program, wrapper).start(&log)?.wait_for_success(TIMEOUT)?;
        let output = log::read(&log)?;
        let sample = |rate, interval| Sample { rate, latency_us: None, interval };
        Ok(match rate {
            Rate::Outcome => {
                let outcome = workload_outcome(&output)?;
                // The program prepares itself first; the journal ends with the program.
                sample(outcome.throughput(), read(journal, Part::Last(outcome.elapsed), &output)?)
            }
            Rate::Reported(expression) => {
                let rate = expression.find(&output)?.get(&Metric::Throughput).copied().unwrap_or_default();
                sample(rate, read(journal, Part::Whole, &output)?)
            }
            Rate::Completion => {
                let interval = read(journal, Part::Whole, &output)?;
                sample(1.0 / interval.length.as_secs_f64().max(1e-9), interval)
            }
        })
    }
}

fn read(journal: &Path, part: Part, output: &str) -> Result<Interval, ExperimentError> {
    interval::read(journal, part).map_err(|why| ExperimentError::NotControlled { why, log: tail(output) })
}
