//! All rows in all modes: checks the requirements, runs the cells, builds the report.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_kernel::Root;
use gleaner_print::say;

use super::cell::prepare;
use super::error::{Result, ServersError};
use super::launch::Launch;
use super::machine::Meter;
use super::report::{Report, RowReport};
use super::rows::{Placement, Row, check_programs};
use super::sample::Measured;
use super::window::Window;
use crate::environment::{self, kernel_settings};
use crate::mode::Mode;
use crate::runner::{Plan, Problem, RowSamples};

/// The modes that are compared if no others are named.
pub const STANDARD_MODES: &str = "default,gleaner,haltpoll:200us,qos-poll,consolidate:1";

/// Timeout of a cell beyond its warm-up and window, for starting and stopping its server.
const CELL_TIMEOUT: Duration = Duration::from_secs(90);

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// Rows to measure, in order.
    pub rows: Vec<Row>,
    /// Modes to interleave.
    pub modes: Vec<Mode>,
    /// Measurements of each mode per row.
    pub rounds: usize,
    /// Warm-up of each cell; `None`: as each row needs it.
    pub warmup: Option<Duration>,
    /// Measured time of each cell; `None`: as each row needs it.
    pub length: Option<Duration>,
    /// Seed of the order of modes.
    pub seed: u64,
    /// The `gleaner` binary; not needed for the default mode.
    pub gleaner: PathBuf,
    /// The binary with the subcommand `cell ROW --warmup S --seconds S --state DIR --out FILE [-- WRAPPER…]`.
    pub bench: PathBuf,
    /// The command line that repeats this run, for the report.
    pub repeat_with: String,
}

/// Runs all cells, interleaved, and reports on those that could be measured. After a signal (see
/// [`crate::runner::watch`]), the report contains the measurements so far.
///
/// # Errors
/// If a program or the `gleaner` binary is missing, or a temporary directory cannot be created. A failed cell
/// is not an error; it is in the report.
pub fn run(options: &Options) -> Result<Report> {
    check(options)?;
    let state = State::new()?;
    let environment = environment::read(&Root::system())?;
    let meter = Meter::start(&Root::system())?;
    let plan = Plan {
        rows: options.rows.iter().map(|row| row.name.to_owned()).collect(),
        modes: options.modes.iter().map(Mode::to_string).collect(),
        rounds: options.rounds,
        warmup_rounds: 0,
        seed: options.seed,
    };
    let report = |row: usize, samples: &_| {
        let row = &options.rows[row];
        RowReport::new(row, options.window(row), &options.modes, samples)
    };
    let outcome = plan.run(
        |cell| {
            let problem = |ends_run| {
                let state = &state.0;
                move |e: ServersError| Problem { message: options.portable(&e.to_string(), state), ends_run }
            };
            let settled = kernel_settings::wait_for(&Root::system(), &environment.knobs);
            settled.map_err(|error| problem(true)(error.into()))?;
            run_cell(options, &options.rows[cell.row], &options.modes[cell.mode], &state.0)
                .map_err(problem(false))
        },
        |_, _| false,
        |row, samples| Some(report(row, samples).line()),
    );
    let (_, cpu) = meter.stop()?;
    let begun = |(_, row): &(usize, &RowSamples<_>)| row.samples.iter().flatten().any(Option::is_some);
    Ok(Report {
        repeat_with: options.repeat_with.clone(),
        environment,
        rounds: options.rounds,
        seed: options.seed,
        steal: cpu.steal,
        interrupted: outcome.interrupted,
        earlier: Vec::new(),
        rows: outcome
            .rows
            .iter()
            .enumerate()
            .filter(begun)
            .map(|(row, samples)| report(row, samples))
            .collect(),
        failures: outcome.failures,
    })
}

/// Checks the requirements up front rather than after the first rows.
fn check(options: &Options) -> Result<()> {
    check_programs(&options.rows)?;
    if options.modes.iter().any(|mode| *mode != Mode::Default) {
        fs::metadata(&options.gleaner).map_err(ServersError::file("find", &options.gleaner))?;
    }
    Ok(())
}

/// Prepares the row's data outside of the mode, then measures it in its own process.
fn run_cell(options: &Options, row: &Row, mode: &Mode, state: &Path) -> Result<Measured> {
    prepare(row, state)?;
    let wrapper = mode.wrapper(&options.gleaner, &[]);
    let mut measured = measure_apart(&options.bench, row, options.window(row), &wrapper, state)?;
    if row.placement == Placement::Inside && !wrapper.is_empty() {
        let words: Vec<_> = wrapper.iter().map(|w| w.to_string_lossy()).collect();
        for command in &mut measured.commands {
            *command = format!("[inside `{} …`] {command}", words.join(" "));
        }
    }
    for command in &mut measured.commands {
        *command = options.portable(command, state);
    }
    Ok(measured)
}

/// Measures a prepared row in its own process, using the binary `bench`, see [`Options::bench`]. `wrapper` is
/// put before that process or before the server's command line, depending on the row's placement.
///
/// # Errors
/// If that process fails, times out or writes something unknown, or if a signal arrives.
pub(crate) fn measure_apart(
    bench: &Path,
    row: &Row,
    window: Window,
    wrapper: &[OsString],
    state: &Path,
) -> Result<Measured> {
    let out = state.join("out.json");
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    let mut launch = Launch::new(&bench.to_string_lossy())
        .args(["cell", row.name])
        .args([String::from("--warmup"), seconds(window.warmup)])
        .args([String::from("--seconds"), seconds(window.length)])
        .args([OsString::from("--state"), state.into(), OsString::from("--out"), out.clone().into()])
        .group();
    match row.placement {
        Placement::Inside => launch = launch.wrapped(wrapper),
        Placement::ServerOnly if wrapper.is_empty() => {}
        Placement::ServerOnly => launch = launch.arg("--").args(wrapper),
    }
    let cell = launch.start(&state.join("cell.log"))?;
    cell.wait_for_success(window.warmup + window.length + CELL_TIMEOUT)?;
    let text = fs::read_to_string(&out).map_err(ServersError::file("read", &out))?;
    // Otherwise, a later cell that writes nothing would get this result.
    fs::remove_file(&out).map_err(ServersError::file("remove", &out))?;
    serde_json::from_str(&text)
        .map_err(|_| ServersError::Answer { program: "gleaner-bench cell", answer: text })
}

impl Options {
    fn window(&self, row: &Row) -> Window {
        row.window(self.warmup, self.length)
    }

    /// Replaces the run's own paths in `text`, so that reports of two runs can be compared.
    fn portable(&self, text: &str, state: &Path) -> String {
        let text = text.replace(&*state.to_string_lossy(), "$STATE");
        text.replace(&*self.gleaner.to_string_lossy(), "gleaner")
            .replace(&*self.bench.to_string_lossy(), "gleaner-bench")
    }
}

/// A temporary directory for data, sockets and logs; deleted when dropped.
struct State(PathBuf);

impl State {
    fn new() -> Result<Self> {
        let template = std::env::temp_dir().join("gleaner-bench.XXXXXX");
        let made = nix::unistd::mkdtemp(&template);
        let dir = made.map_err(|errno| ServersError::file("make a directory", &template)(errno.into()))?;
        let state = Self(dir);
        // Servers run as their own users and must be able to reach their directories in here.
        let open = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&state.0, open).map_err(ServersError::file("open", &state.0))?;
        Ok(state)
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            say!("cannot remove {}: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_directory_is_open_to_servers_and_removed() {
        let state = State::new().unwrap();
        let dir = state.0.clone();
        assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o755);
        fs::write(dir.join("x"), "x").unwrap();
        drop(state);
        assert!(!dir.exists());
    }
}
