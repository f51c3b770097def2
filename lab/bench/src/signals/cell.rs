//! One cell: a case under one setting, once.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use gleaner_kernel::Root;
use gleaner_proto::result::Metric;
use serde::{Deserialize, Serialize};

use super::Options;
use super::case::{Case, Load, Rate};
use super::interval::{self, Interval, Part};
use crate::environment::kernel_settings::{self, KernelSettings};
use crate::experiment::{ExperimentError, Program, portable, reset_polling, workload_outcome};
use crate::mode::Mode;
use crate::servers::launch::Launch;
use crate::servers::log::tail;
use crate::servers::{self, ServersError, Window, measure_apart};

/// Window of a server's cell. Clients that print a line per second round both times up to whole seconds.
const WINDOW: Window = Window { warmup: Duration::from_millis(500), length: Duration::from_millis(1500) };
/// Timeout of a program, and of the preparation of its input.
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
pub(super) struct Meter<'a> {
    options: &'a Options,
    root: Root,
    state: tempfile::TempDir,
    kernel_settings: KernelSettings,
    prepared: BTreeSet<String>,
}

impl<'a> Meter<'a> {
    /// Makes Gleaner calibrate wake-up costs if it has not.
    pub(super) fn new(options: &'a Options) -> Result<Self, ExperimentError> {
        let (root, dir) = (Root::system(), std::env::temp_dir());
        // Servers run as their own users and must be able to reach their directories in here.
        let open = Permissions::from_mode(0o755);
        let state = tempfile::Builder::new().prefix("gleaner-bench.").permissions(open).tempdir();
        let state = state.map_err(ServersError::file("make a directory in", &dir))?;
        Launch::new(&options.gleaner.to_string_lossy()).args(["run", "--quiet", "--", "true"]).output()?;
        Ok(Self {
            options,
            kernel_settings: kernel_settings::read(&root)?,
            root,
            state,
            prepared: BTreeSet::new(),
        })
    }

    /// Measures a case under a setting. In any case, nothing keeps running.
    pub(super) fn measure(&mut self, case: &Case, setting: &str) -> Result<Sample, ExperimentError> {
        self.prepare(case)?;
        kernel_settings::wait_for(&self.root, &self.kernel_settings)?;
        reset_polling()?;
        let journal = self.state.path().join("journal");
        // If Gleaner writes no journal, an earlier cell's must not be read.
        match fs::remove_file(&journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ServersError::file("remove", &journal)(error).into());
            }
            _ => {}
        }
        let mode = Mode::Fixed(setting.to_owned());
        let wrapper = mode.wrapper_with_journal(&self.options.gleaner, &journal);
        match &case.load {
            Load::Row(row) => {
                let state = self.state.path();
                let sample = measure_apart(&self.options.bench, row, WINDOW, &wrapper, state)?.sample;
                let interval = read(&journal, Part::From(sample.began_unix_ms, sample.window), "")?;
                let latency_us = sample.latency.map(|latency| latency.mean_us);
                Ok(Sample { rate: sample.rate, latency_us, interval })
            }
            Load::Program { program, rate, .. } => self.run(program, rate, &wrapper, &journal),
        }
    }

    /// Replaces the run's own paths in `text`.
    pub(super) fn portable(&self, text: &str) -> String {
        portable(text, &self.options.gleaner, self.state.path())
            .replace(&*self.options.bench.to_string_lossy(), "gleaner-bench")
    }

    /// Runs the case's preparation before its first cell.
    fn prepare(&mut self, case: &Case) -> Result<(), ExperimentError> {
        if self.prepared.contains(&case.name) {
            return Ok(());
        }
        match &case.load {
            Load::Row(row) => servers::prepare(row, self.state.path())?,
            Load::Program { prepare: Some(line), .. } => {
                let launch = Program::shell(line).launch(&self.options.gleaner, self.state.path());
                launch.start(&self.state.path().join("prepare"))?.wait_for_success(TIMEOUT)?;
            }
            Load::Program { prepare: None, .. } => {}
        }
        self.prepared.insert(case.name.clone());
        Ok(())
    }

    fn run(
        &self,
        program: &Program,
        rate: &Rate,
        wrapper: &[OsString],
        journal: &Path,
    ) -> Result<Sample, ExperimentError> {
        let log = self.state.path().join("output");
        let launch = program.launch(&self.options.gleaner, self.state.path()).wrapped(wrapper);
        launch.start(&log)?.wait_for_success(TIMEOUT)?;
        let output = fs::read(&log).map_err(ServersError::file("read", &log))?;
        let output = String::from_utf8_lossy(&output);
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
