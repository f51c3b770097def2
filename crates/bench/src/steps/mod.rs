//! How fast the speed follows the load: the number of busy clients steps from 1 to 16 and back, untouched and under
//! Gleaner, and each step is timed until the new speed is there.
//!
//! The promise (SPECIFICATION.md): within 100 ms of a step the rate is at least 90 % of the new best.

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
pub use report::{Direction, Measured, PROMISE, Report, Times};

use crate::servers::Mode;

/// How long the load stays the same: long enough to settle and then to show its plateau.
pub const PHASE: Duration = Duration::from_millis(1500);

/// Why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No more threads.
    #[error("step load: cannot start thread {name}: {source}")]
    Spawn {
        /// The thread's name.
        name: String,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// A socket failed.
    #[error("step load: cannot {operation}: {source}")]
    Socket {
        /// What was being done.
        operation: &'static str,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// A reply was not what it must be.
    #[error("step load: wrong reply to request {key}: expected {expected:x}, found {found:x}")]
    Wrong {
        /// The request.
        key: u64,
        /// What the reply must be.
        expected: u64,
        /// What it was.
        found: u64,
    },
    /// A thread of the load panicked.
    #[error("step load: a thread panicked")]
    Panicked,
    /// The load could not be started.
    #[error("cannot start {}: {source}", program.display())]
    Start {
        /// What was to be started.
        program: PathBuf,
        /// The kernel's answer.
        r#source: io::Error,
    },
    /// The load failed; it has said why on standard error.
    #[error("the load, {mode}, ended with {status}")]
    Ended {
        /// How it was started.
        mode: String,
        /// How it ended.
        status: ExitStatus,
    },
    /// Gleaner's journal cannot be written or read.
    #[error("the journal of the run: {source}")]
    Journal {
        /// What is wrong with it.
        r#source: io::Error,
    },
    /// What the load printed is not a recording.
    #[error("the load, {mode}, printed no recording: {source}")]
    Recording {
        /// How it was started.
        mode: String,
        /// What is wrong with it.
        r#source: serde_json::Error,
    },
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct Options {
    /// How often the load rises, and how often it falls; at least 1.
    pub steps: u16,
    /// The `gleaner` binary.
    pub gleaner: PathBuf,
    /// This program, which is started anew as the load.
    pub bench: PathBuf,
}

/// Runs the load untouched and then under Gleaner. It takes (2 × steps + 1) × [`PHASE`], twice.
///
/// # Errors
/// A program that cannot be started, or a load that fails.
pub fn run(options: &Options) -> Result<Report, Error> {
    if let Err(source) = options.gleaner.metadata() {
        // Better known before half a minute of measuring than after it.
        return Err(Error::Start { program: options.gleaner.clone(), source });
    }
    let load = ["--steps".to_owned(), options.steps.to_string()];
    let measure =
        |mode: &Mode| record(mode, &[], &load, options).map(|recording| Measured::new(recording, mode));
    Ok(Report::new(measure(&Mode::Default)?, measure(&Mode::Gleaner)?))
}

/// One run of the load in a process of its own, with these options of `gleaner run` and of the load.
fn record(mode: &Mode, control: &[OsString], load: &[String], options: &Options) -> Result<Recording, Error> {
    let mut words = mode.wrapper_with(&options.gleaner, control);
    words.extend([options.bench.clone().into(), "step-load".into()]);
    words.extend(load.iter().map(OsString::from));
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    end_with_us(&mut command);
    let output = command
        .spawn()
        .and_then(Child::wait_with_output)
        .map_err(|source| Error::Start { program: words[0].clone().into(), source })?;
    if !output.status.success() {
        return Err(Error::Ended { mode: mode.to_string(), status: output.status });
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|source| Error::Recording { mode: mode.to_string(), source })
}

/// If this process is killed, Gleaner has to end in order and put back what it changed.
fn end_with_us(command: &mut Command) {
    // SAFETY: prctl(2) is async-signal-safe and touches no memory.
    unsafe {
        command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?));
    }
}
