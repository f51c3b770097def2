//! `gleaner record`: traces a workload's pattern, for `gleaner replay` and other programs.

mod translate;

use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gleaner_engine::{StateDir, unix_ms};
use gleaner_kernel::Root;
use gleaner_kernel::topology::Topology;
use gleaner_policy::Objective;
use gleaner_print::outln;
use gleaner_proto::trace_file::{End, Header};
use gleaner_trace::Recorder;
use nix::sys::signal::Signal;

use crate::control::{calibrated, configure};
use crate::diagnose::Target;
use crate::diagnose::observe::{Signals, end, exit_code, spawn};
use crate::options::{ControlArgs, StrategyName};

use translate::Translator;

/// How long to record something that already runs, by default.
const DEFAULT_TIME: Duration = Duration::from_secs(5);
/// Sampling interval: far shorter than the events' buffer takes to fill.
const SAMPLING_INTERVAL: Duration = Duration::from_millis(10);

/// Record which threads run, wait and wake each other, as a compact trace
///
/// Each switch and wake-up of a program's threads and each idle period of a vCPU goes into a file, which `gleaner replay`
/// shows to the policy. docs/trace-format.md describes the file, so that other programs can read it. Events that come
/// faster than they can be written are counted, in the file too. Needs root, and a kernel with BTF.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file, which is replaced
    #[arg(short, long, value_name = "FILE", default_value = "gleaner.trace")]
    output: PathBuf,
    /// How long to record; a command that runs longer is then ended. Without it: 5 s, or to the command's end
    #[arg(long, value_name = "S", value_parser = gleaner_print::times::seconds)]
    seconds: Option<Duration>,
    /// The largest size of the file, in MiB; when it is reached the recording ends, and the command goes on
    #[arg(long, value_name = "MIB", default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=4096))]
    max_size: u64,
    #[command(flatten)]
    target: Target,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let header = header(args)?;
    let signals = Signals::block()?;
    let recorder = Recorder::start(&args.target.scope()?)?;
    let cannot = || format!("cannot write {}", args.output.display());
    let file = File::create(&args.output).with_context(cannot)?;
    let mut recording = Recording {
        recorder,
        translator: Translator::new(file, &header, args.max_size << 20).with_context(cannot)?,
        ended: None,
    };
    let mut child = spawn(args.target.command(), &signals)?;
    let status = record(&mut recording, &mut child, &signals, args.seconds);
    let finished = recording.finish();
    // Whatever happened to the recording, do not leave the command running.
    if let (Some(child), Ok(None) | Err(_)) = (&mut child, &status) {
        end(child, &signals)?;
    }
    let status = status?;
    let (end_of_file, threads) = finished.with_context(cannot)?;
    outln!("{}", account(&args.output, &header.workload, &end_of_file, threads)?)?;
    Ok(exit_code(status))
}

/// The trace's header, with the policy's configuration for this machine. Measures and changes nothing.
fn header(args: &Args) -> anyhow::Result<Header> {
    let root = Root::system();
    let control = ControlArgs {
        quiet: true,
        journal: None,
        progress: None,
        method: None,
        no_consolidate: false,
        no_retain: false,
        no_memory: true,
        no_bpf: true,
        trace_waiting: false,
        strategy: StrategyName::Adaptive,
        objective: Objective::default(),
        dry_run: true,
        fixed: None,
    };
    let choice = calibrated(&StateDir::default_place()?, &root, &control);
    let vcpus = Topology::read(&root)?.online;
    Ok(Header {
        unix_ms: unix_ms(),
        workload: args.target.name(),
        config: Box::new(configure(&root, &control, &vcpus, &choice)?),
        vcpus,
        limits: choice.limits,
    })
}

/// A recording in progress.
struct Recording {
    recorder: Recorder,
    translator: Translator<File>,
    /// Length of the recording, once it has ended.
    ended: Option<Duration>,
}

impl Recording {
    /// Writes the events since the last call. Stops recording once the file is full.
    fn sample(&mut self) -> anyhow::Result<()> {
        if self.ended.is_none() {
            self.translator.write(self.recorder.take()?)?;
            if self.translator.is_full() {
                self.stop();
            }
        }
        Ok(())
    }

    fn stop(&mut self) {
        self.ended = Some(self.recorder.elapsed());
        self.recorder.stop();
    }

    /// The file's last record, and the number of threads.
    fn finish(mut self) -> anyhow::Result<(End, u32)> {
        if self.ended.is_none() {
            self.stop();
            self.translator.write(self.recorder.take()?)?;
        }
        Ok(self.translator.finish(self.ended.unwrap_or_default())?)
    }
}

/// Records until the time is over, a signal comes, or the command ends, whose status it then returns.
fn record(
    recording: &mut Recording,
    child: &mut Option<Child>,
    signals: &Signals,
    time: Option<Duration>,
) -> anyhow::Result<Option<ExitStatus>> {
    let started = Instant::now();
    let limit = time.or_else(|| child.is_none().then_some(DEFAULT_TIME));
    while limit.is_none_or(|limit| started.elapsed() < limit) {
        let left = limit.map_or(SAMPLING_INTERVAL, |limit| {
            limit.saturating_sub(started.elapsed()).min(SAMPLING_INTERVAL)
        });
        if signals.wait(left)?.is_some_and(|signal| signal != Signal::SIGCHLD) {
            break;
        }
        recording.sample()?;
        match child {
            Some(child) => {
                if let Some(status) = child.try_wait().context("cannot wait for the command")? {
                    return Ok(Some(status));
                }
            }
            None if recording.ended.is_some() => break,
            None => {}
        }
    }
    Ok(None)
}

fn account(path: &Path, workload: &str, end: &End, threads: u32) -> anyhow::Result<String> {
    let bytes = path.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
    let mut text = format!(
        "recorded {:.2} s of `{workload}`: {} events of {threads} threads, {bytes} bytes in {}; `gleaner replay {}` \
         shows what Gleaner would have tried",
        Duration::from_nanos(end.elapsed_ns).as_secs_f64(),
        end.events,
        path.display(),
        path.display(),
    );
    if end.lost > 0 {
        // Writing to a string cannot fail.
        let lost = end.lost;
        let _ = write!(text, "\n{lost} events more were lost: they came faster than they could be written");
    }
    if end.full {
        text += "\nthe recording ended early: the file has reached its largest size, see --max-size";
    }
    Ok(text)
}
