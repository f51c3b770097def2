//! Takes one sample: applies the mode, runs the command to its end, and reads the sensors before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gleaner_kernel::Root;
use gleaner_kernel::workload::process_times;
use gleaner_proto::result::Metric;

use super::co_runner::{CoRunner, CoRunners};
use super::control::Control;
use super::output;
use super::program::portable;
use super::reset::reset_polling;
use super::sensors::{CpuTime, Sensors};
use super::user::AppliedSetting;
use super::{ExperimentError, Program, Row};
use crate::environment::kernel_settings::{self, KernelSettings};
use crate::mode::Mode;
use crate::runner::interrupted;
use crate::servers::ServersError;
use crate::servers::log::{read, tail};
use crate::servers::running::Running;

/// Timeout of a row's preparation.
const PREPARE: Duration = Duration::from_secs(3600);

/// Result of one run of a command.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// Start of the run.
    pub(super) began: Instant,
    /// The exact command line.
    pub(super) command: String,
    pub(super) metrics: BTreeMap<Metric, f64>,
    pub(super) control: Control,
}

/// Takes samples.
pub(super) struct Sampler {
    root: Root,
    gleaner: PathBuf,
    state: tempfile::TempDir,
    sensors: Sensors,
    kernel_settings: KernelSettings,
    prepared: BTreeSet<String>,
    /// Whether an earlier sample might have left vCPUs polling.
    could_poll: bool,
}

impl Sampler {
    /// Prepares a temporary directory; `gleaner` is the path of the `gleaner` binary.
    pub(super) fn new(gleaner: &Path) -> Result<Self, ExperimentError> {
        let (root, dir) = (Root::system(), std::env::temp_dir());
        // Servers run as their own users and must be able to reach their directories in here.
        let open = Permissions::from_mode(0o755);
        let state = tempfile::Builder::new().prefix("gleaner-bench.").permissions(open).tempdir();
        let state = state.map_err(ServersError::file("make a directory in", &dir))?;
        Ok(Self {
            sensors: Sensors::new(&root)?,
            kernel_settings: kernel_settings::read(&root)?,
            gleaner: gleaner.to_owned(),
            state,
            root,
            prepared: BTreeSet::new(),
            could_poll: false,
        })
    }

    pub(super) fn sensors(&mut self) -> &mut Sensors {
        &mut self.sensors
    }

    /// Command line of a program, for the result.
    pub(super) fn line(&self, program: &Program) -> String {
        let line = program.launch(&self.gleaner, self.state.path()).line();
        portable(&line, &self.gleaner, self.state.path())
    }

    /// Makes Gleaner calibrate wake-up costs if one of `modes` needs it: otherwise, the first run after a
    /// boot would do so within its sample.
    ///
    /// # Errors
    /// If `gleaner run` does not work at all.
    pub(super) fn calibrate(&self, modes: &[Mode]) -> Result<(), ExperimentError> {
        if !modes.contains(&Mode::Gleaner) {
            return Ok(());
        }
        let wrapper = Mode::Gleaner.wrapper(&self.gleaner, &[]);
        let nothing = Program::Command(vec!["true".into()]);
        nothing.launch(&self.gleaner, self.state.path()).wrapped(&wrapper).output()?;
        Ok(())
    }

    /// Runs `row` once in `mode`. In any case, the mode is undone and nothing keeps running.
    ///
    /// # Errors
    /// See [`ExperimentError`].
    pub(super) fn measure(&mut self, row: &Row, mode: &Mode) -> Result<Measured, ExperimentError> {
        self.prepare(row)?;
        kernel_settings::wait_for(&self.root, &self.kernel_settings)?;
        // For every sample after the first such mode, so that none has an advantage.
        if self.could_poll {
            reset_polling()?;
        }
        self.could_poll |= *mode != Mode::Default;
        let setting = mode.user().map(AppliedSetting::set).transpose()?;
        let co_runners = self.start_co_runners(row)?;
        let measured = self.run(row, mode);
        let beside = co_runners.stop();
        let undone = setting.map_or(Ok(()), AppliedSetting::unset);
        // The command's own error is the most informative.
        let mut measured = measured?;
        measured.metrics.extend(beside?.map(|throughput| (Metric::CoThroughput, throughput)));
        undone?;
        Ok(measured)
    }

    /// Runs the row's preparation before its first sample.
    fn prepare(&mut self, row: &Row) -> Result<(), ExperimentError> {
        if let Some(line) = row.prepare.as_ref().filter(|_| !self.prepared.contains(&row.name)) {
            let launch = Program::shell(line).launch(&self.gleaner, self.state.path());
            let mut running = launch.start(&self.state.path().join("prepare"))?;
            wait(&running, PREPARE)?;
            if let Some(status) = running.wait(Duration::ZERO)?.filter(|status| !status.success()) {
                return Err(running.ended(status).into());
            }
            self.prepared.insert(row.name.clone());
        }
        Ok(())
    }

    fn start_co_runners(&self, row: &Row) -> Result<CoRunners, ExperimentError> {
        let start = |(index, program): (usize, &Program)| {
            let log = self.state.path().join(format!("co-runner-{index}"));
            let running = program.launch(&self.gleaner, self.state.path()).start(&log)?;
            let workload = program.workload();
            Ok(CoRunner { running, line: self.line(program), log, workload })
        };
        row.co_runners.iter().enumerate().map(start).collect::<Result<_, ExperimentError>>().map(CoRunners)
    }

    fn run(&mut self, row: &Row, mode: &Mode) -> Result<Measured, ExperimentError> {
        let state = self.state.path();
        let (journal, log) = (state.join("journal"), state.join("output"));
        let wrapper = mode.wrapper_with_journal(&self.gleaner, &journal);
        let launch = row.program.launch(&self.gleaner, state).wrapped(&wrapper);
        let command = portable(&launch.line(), &self.gleaner, state);
        // If Gleaner writes no journal, an earlier sample's must not be read.
        match fs::remove_file(&journal) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(ServersError::file("remove", &journal)(error).into());
            }
            _ => {}
        }
        let before = self.sensors.read()?;
        let began = Instant::now();
        let mut running = launch.start(&log)?;
        wait(&running, row.timeout)?;
        let wall = began.elapsed();
        let own = if wrapper.is_empty() { CpuTime::default() } else { self.own_time(&running)? };
        let status = running.wait(Duration::ZERO)?;
        let after = self.sensors.read()?;
        if let Some(status) = status.filter(|status| !status.success()) {
            return Err(running.ended(status).into());
        }
        let output = read(&log)?;
        let control = if wrapper.is_empty() {
            Control::default()
        } else {
            Control::read(&journal)
                .map_err(|why| ExperimentError::NotControlled { why, log: tail(&output) })?
        };
        let mut metrics = after.since(&before);
        metrics.insert(Metric::WallS, wall.as_secs_f64());
        metrics.extend(metrics_of(row, &output)?);
        add_cpu(&mut metrics, after.children_since(&before), own);
        Ok(Measured { began, command, metrics, control })
    }

    /// CPU time of Gleaner itself, which is the started process; the command is its child.
    fn own_time(&self, running: &Running) -> Result<CpuTime, ExperimentError> {
        let pid = running.pid().as_raw().unsigned_abs();
        let (user, system) = process_times(&self.root, pid)?;
        Ok(CpuTime { user, system })
    }
}

/// Waits for the program's end and leaves it unreaped, so that `/proc` still has it.
fn wait(running: &Running, limit: Duration) -> Result<(), ExperimentError> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if running.wait_unreaped(left)? {
            return Ok(());
        }
        if interrupted() {
            return Err(ServersError::Interrupted.into());
        }
        if left.is_zero() {
            return Err(running.timed_out("end", limit).into());
        }
    }
}

/// Metrics from the program's output.
fn metrics_of(row: &Row, output: &str) -> Result<BTreeMap<Metric, f64>, ExperimentError> {
    let mut metrics = BTreeMap::new();
    if row.program.workload().is_some() {
        metrics.extend(output::outcome(output)?);
    }
    for expression in &row.expressions {
        metrics.extend(expression.find(output)?);
    }
    Ok(metrics)
}

/// Adds CPU times: `all` is that of the started process and its descendants, `own` is Gleaner's.
fn add_cpu(metrics: &mut BTreeMap<Metric, f64>, all: CpuTime, own: CpuTime) {
    let command = all.minus(own);
    metrics.insert(Metric::CpuUserS, command.user.as_secs_f64());
    metrics.insert(Metric::CpuSystemS, command.system.as_secs_f64());
    metrics.insert(Metric::CpuYieldS, own.total().as_secs_f64());
    let get = |metric| metrics.get(&metric).copied();
    let units = get(Metric::Operations)
        .or_else(|| Some(get(Metric::Throughput)? * get(Metric::WallS)?))
        .filter(|units| *units > 0.0)
        .unwrap_or(1.0);
    let polling = get(Metric::CpuPollingS).unwrap_or_default();
    metrics.insert(Metric::CpuSPerOp, (all.total().as_secs_f64() + polling) / units);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_cost_is_per_unit_of_work() {
        let ms = Duration::from_millis;
        let all = CpuTime { user: ms(700), system: ms(200) };
        let own = CpuTime { user: ms(100), system: ms(100) };
        let mut metrics =
            BTreeMap::from([(Metric::Operations, 10.0), (Metric::CpuPollingS, 0.1), (Metric::WallS, 2.0)]);
        add_cpu(&mut metrics, all, own);
        let value = |metrics: &BTreeMap<Metric, f64>, metric| (metrics[&metric] * 1e6).round() / 1e6;
        assert!((value(&metrics, Metric::CpuUserS) - 0.6).abs() < 1e-9);
        assert!((value(&metrics, Metric::CpuSystemS) - 0.1).abs() < 1e-9);
        assert!((value(&metrics, Metric::CpuYieldS) - 0.2).abs() < 1e-9);
        assert!((value(&metrics, Metric::CpuSPerOp) - 0.1).abs() < 1e-9);
        metrics.remove(&Metric::Operations);
        metrics.insert(Metric::Throughput, 50.0);
        add_cpu(&mut metrics, all, own);
        assert!((value(&metrics, Metric::CpuSPerOp) - 0.01).abs() < 1e-9);
    }
}
