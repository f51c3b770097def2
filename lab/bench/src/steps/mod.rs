//! How quickly the speed adapts to the load: the number of busy clients steps from 1 to 16 and back,
//! untouched and under Gleaner, and each step is timed until the new speed is reached.

mod analysis;
mod expand;
mod load;
mod report;

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;

pub use analysis::{Step, analyse};
pub use expand::{ExpandReport, Reports, Rise, plan as expand_plan, run as run_expand};
pub use load::{PAIRS, Phase, Plan, Recording, Sample, run as run_load};
pub use report::{Direction, Measured, Report, Times};

use crate::mode::Mode;

/// Time between steps: long enough to settle and then to show the plateau.
pub const PHASE: Duration = Duration::from_millis(1500);

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum StepsError {
    /// A thread could not be started.
    #[error("step load: cannot start thread {name}: {source}")]
    Spawn {
        /// Name of the thread.
        name: String,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// A socket operation failed.
    #[error("step load: cannot {operation}: {source}")]
    Socket {
        /// The failed operation.
        operation: &'static str,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// A reply was wrong.
    #[error("step load: wrong reply to request {key}: expected {expected:x}, found {found:x}")]
    Wrong {
        /// Number of the request.
        key: u64,
        /// The expected reply.
        expected: u64,
        /// The received reply.
        found: u64,
    },
    /// A thread of the load panicked.
    #[error("step load: a thread panicked")]
    Panicked,
    /// The load could not be started.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// The program to start.
        program: PathBuf,
        /// The operating system's error.
        r#source: io::Error,
    },
    /// The load failed; its error is on standard error.
    #[error("the load, {mode}, ended with {status}")]
    Ended {
        /// How it was started.
        mode: String,
        /// Its exit status.
        status: ExitStatus,
    },
    /// Gleaner's journal cannot be written or read.
    #[error("the journal of the run: {source}")]
    Journal {
        /// What is wrong with it.
        r#source: io::Error,
    },
    /// The load's output is not a recording.
    #[error("the load, {mode}, printed no recording: {source}")]
    Recording {
        /// How it was started.
        mode: String,
        /// The parser's error.
        r#source: serde_json::Error,
    },
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// Number of rises, and of falls; at least 1.
    pub steps: u16,
    /// The `gleaner` binary.
    pub gleaner: PathBuf,
    /// This program, which is started again as the load.
    pub bench: PathBuf,
}

/// Runs the load untouched and then under Gleaner. Takes (2 × steps + 1) × [`PHASE`], twice.
///
/// # Errors
/// If a program cannot be started, or a load fails.
pub fn run(options: &Options) -> Result<Report, StepsError> {
    if let Err(source) = options.gleaner.metadata() {
        // Better reported before half a minute of measuring than after it.
        return Err(StepsError::Start { program: options.gleaner.clone(), source });
    }
    let load = ["--steps".to_owned(), options.steps.to_string()];
    let measure =
        |mode: &Mode| record(mode, &[], &load, options).map(|recording| Measured::new(recording, mode));
    Ok(Report::new(measure(&Mode::Default)?, measure(&Mode::Gleaner)?))
}

/// Runs the load once in its own process, with these additional options of `gleaner run` and of the load.
fn record(
    mode: &Mode,
    control: &[OsString],
    load: &[String],
    options: &Options,
) -> Result<Recording, StepsError> {
    let mut words = mode.wrapper(&options.gleaner, control);
    words.extend([options.bench.clone().into(), "step-load".into()]);
    words.extend(load.iter().map(OsString::from));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    end_with_us(&mut command);
    let output = command
        .spawn()
        .and_then(Child::wait_with_output)
        .map_err(|source| StepsError::Start { program: words[0].clone().into(), source })?;
    if !output.status.success() {
        return Err(StepsError::Ended { mode: mode.to_string(), status: output.status });
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|source| StepsError::Recording { mode: mode.to_string(), source })
}

/// If this process is killed, Gleaner must end cleanly and restore what it changed.
fn end_with_us(command: &mut Command) {
    // SAFETY: prctl(2) is async-signal-safe and touches no memory.
    unsafe {
        command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?));
    }
}
