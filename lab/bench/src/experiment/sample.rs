//! Takes one sample: applies the mode, runs the command to its end, and reads the sensors before and after.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, Instant};

use gleaner_kernel::Root;
use gleaner_kernel::workload::process_times;
use gleaner_proto::result::{Metric, Placement};

use super::co_runner::{CoRunner, CoRunners};
use super::control::Control;
use super::output;
use super::session::Session;
use super::user::AppliedSetting;
use super::{ExperimentError, Program, Row};
use crate::mode::Mode;
use crate::runner::interrupted;
use crate::sensors::{CpuTime, Sensors};
use crate::servers::log::{read, tail};
use crate::servers::running::Running;
use crate::servers::{self, ServersError, Window};

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
    session: Session,
    sensors: Sensors,
}

impl Sampler {
    /// With the binaries `gleaner` and `gleaner-bench`.
    pub(super) fn new(gleaner: &Path, bench: &Path) -> Result<Self, ExperimentError> {
        let session = Session::new(gleaner, bench)?;
        Ok(Self { session, sensors: Sensors::new(&Root::system())? })
    }

    pub(super) fn sensors(&mut self) -> &mut Sensors {
        &mut self.sensors
    }

    /// Command line of a program, for the result.
    pub(super) fn line(&self, program: &Program) -> String {
        self.session.portable(&self.session.launch(program, &[]).line())
    }

    /// See [`Session::calibrate`].
    pub(super) fn calibrate(&mut self, modes: &[Mode]) -> Result<(), ExperimentError> {
        Ok(self.session.calibrate(modes)?)
    }

    /// See [`Session::portable`].
    pub(super) fn portable(&self, text: &str) -> String {
        self.session.portable(text)
    }

    /// Runs `row` once in `mode`. In any case, the mode is undone and nothing keeps running.
    ///
    /// # Errors
    /// See [`ExperimentError`].
    pub(super) fn measure(&mut self, row: &Row, mode: &Mode) -> Result<Measured, ExperimentError> {
        self.session.once(&row.name, |session| match (&row.program, &row.prepare) {
            (Program::Server { row, .. }, _) => servers::prepare(row, session.state()),
            (_, Some(line)) => session.shell(line),
            (_, None) => Ok(()),
        })?;
        self.session.settle(mode)?;
        let setting = mode.user().map(AppliedSetting::set).transpose()?;
        let daemon = self.session.daemon(mode)?;
        let co_runners = self.start_co_runners(row)?;
        let measured = self.run(row, mode);
        let beside = co_runners.stop();
        daemon.map_or(Ok(()), Running::stop)?;
        let undone = setting.map_or(Ok(()), AppliedSetting::unset);
        // The command's own error is the most informative.
        let mut measured = measured?;
        measured.metrics.extend(beside?.map(|throughput| (Metric::CoThroughput, throughput)));
        undone?;
        Ok(measured)
    }

    fn start_co_runners(&mut self, row: &Row) -> Result<CoRunners, ExperimentError> {
        for program in &row.co_runners {
            if let Program::Server { row, .. } = program {
                self.session.once(row.name, |session| servers::prepare(row, session.state()))?;
            }
        }
        let start = |(index, program): (usize, &Program)| {
            let log = self.session.state().join(format!("co-runner-{index}"));
            let running = self.session.launch(program, &[]).start(&log)?;
            let workload = program.workload();
            Ok(CoRunner { running, line: self.line(program), log, workload })
        };
        row.co_runners.iter().enumerate().map(start).collect::<Result<_, ExperimentError>>().map(CoRunners)
    }

    fn run(&mut self, row: &Row, mode: &Mode) -> Result<Measured, ExperimentError> {
        match &row.program {
            Program::Server { row, window } => self.serve(row, *window, mode),
            Program::Command(_) | Program::Workload { .. } => self.execute(row, mode),
        }
    }

    /// A server measures itself and the machine in its window.
    fn serve(&self, row: &servers::Row, window: Window, mode: &Mode) -> Result<Measured, ExperimentError> {
        let (wrapper, journal) = self.session.wrapper(mode)?;
        let began = Instant::now();
        let measured = self.session.serve(row, window, &wrapper)?;
        let words: Vec<_> = wrapper.iter().map(|word| word.to_string_lossy()).collect();
        let inside = row.placement == Placement::Inside && !words.is_empty();
        let before = if inside { format!("[inside `{} …`] ", words.join(" ")) } else { String::new() };
        let commands: Vec<String> = measured.commands.iter().map(|line| format!("{before}{line}")).collect();
        let command = self.session.portable(&commands.join("\n"));
        let control = control(&wrapper, &journal, "")?;
        Ok(Measured { began, command, metrics: measured.sample.metrics, control })
    }

    fn execute(&mut self, row: &Row, mode: &Mode) -> Result<Measured, ExperimentError> {
        let log = self.session.state().join("output");
        let (wrapper, journal) = self.session.wrapper(mode)?;
        let launch = self.session.launch(&row.program, &wrapper);
        let command = self.session.portable(&launch.line());
        let before = self.sensors.read()?;
        let began = Instant::now();
        let mut running = launch.start(&log)?;
        wait(&running, row.timeout)?;
        let wall = began.elapsed();
        let own = if wrapper.is_empty() { CpuTime::default() } else { own_time(&running)? };
        let status = running.wait(Duration::ZERO)?;
        let after = self.sensors.read()?;
        if let Some(status) = status.filter(|status| !status.success()) {
            return Err(running.ended(status).into());
        }
        let output = read(&log)?;
        let control = control(&wrapper, &journal, &output)?;
        let mut metrics = after.since(&before);
        metrics.insert(Metric::WallS, wall.as_secs_f64());
        metrics.extend(metrics_of(row, &output)?);
        add_cpu(&mut metrics, after.children_since(&before), own);
        Ok(Measured { began, command, metrics, control })
    }
}

/// What Gleaner did, if it was involved.
fn control(wrapper: &[OsString], journal: &Path, output: &str) -> Result<Control, ExperimentError> {
    if wrapper.is_empty() {
        return Ok(Control::default());
    }
    Control::read(journal).map_err(|why| ExperimentError::NotControlled { why, log: tail(output) })
}

/// CPU time of Gleaner itself, which is the started process; the command is its child.
fn own_time(running: &Running) -> Result<CpuTime, ExperimentError> {
    let pid = running.pid().as_raw().unsigned_abs();
    let (user, system) = process_times(&Root::system(), pid)?;
    Ok(CpuTime { user, system })
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
