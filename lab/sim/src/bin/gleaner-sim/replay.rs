//! `gleaner replay`: what the policy decides on a recorded pattern or a journal, without the machine or the program.

mod change;
mod coordination;
mod decide;
mod journal_replay;
mod text;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use gleaner_policy::{Event, Mode, PolicyConfig};
use gleaner_print::{out, outln, say};
use gleaner_proto::journal::{self, Names, Record};
use gleaner_proto::trace_file::{EventKind, Header, Pattern, Reader, Reconstruction, is_trace};
use gleaner_sim::scx;
use serde::Serialize;

use gleaner_explain::{Sentence, sentences};

use change::Change;

/// Show what Gleaner would have tried on a recorded pattern, when and why, or decide on a journal again
///
/// The trace is turned into the observations that `gleaner run --dry-run` would have made, and given to the same policy.
/// Only the running program could show whether a trial would have succeeded: none is replayed. A journal holds what was seen
/// in its trials: the policy must decide the same again, byte for byte; with --policy it is shown where it decides
/// otherwise. A record of `scx_gleaner` holds what the kernel reported to it: the simulator must decide the same.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace that `gleaner record` made, a journal that `gleaner run --journal FILE` or `attach` wrote, or what
    /// `scx_gleaner --record FILE` wrote
    file: PathBuf,
    /// Replay with another policy than that of the recorded machine or run, as often as needed:
    /// method=NAME, wake-cost=TIME, poll-price=N, consolidate=true|false, most-threads=N
    #[arg(long = "policy", value_name = "KEY=VALUE")]
    policy: Vec<Change>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// Version of the JSON form.
const VERSION: u32 = 1;

/// What cannot be known from a trace.
const UNKNOWN: [&str; 3] = [
    "whether a change would have paid: trials find that out on the running program, so none is replayed, nor what would \
     have followed from one",
    "stolen time, CPU quotas, bytes moved and progress counters: a trace has none of them, so they count as absent",
    "how idle vCPUs waited during the recording: each idle period counts as one that halted",
];

#[derive(Debug, Clone, PartialEq, Serialize)]
struct DecidedEvent {
    at: Duration,
    event: Event,
}

#[derive(Serialize)]
struct Report {
    version: u32,
    trace: PathBuf,
    workload: String,
    /// Length of the recording.
    elapsed: Duration,
    events: u64,
    /// Number of events missing from the trace.
    lost: u64,
    /// Why the rest of the trace cannot be read.
    damage: Option<String>,
    config: PolicyConfig,
    /// What cannot be known from the trace.
    unknown: Vec<String>,
    decisions: Vec<DecidedEvent>,
    story: Vec<Sentence>,
    pattern: Pattern,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let bytes = fs::read(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    if scx::is_record(&bytes) {
        return coordination::run(args);
    }
    if !is_trace(&bytes) && journal::read(&args.file).is_ok() {
        return replay_journal(args);
    }
    let report = report(&args.file, &bytes, &args.policy)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out!("{}", text::text(&report))?;
    }
    match &report.damage {
        Some(damage) => {
            say!("gleaner-sim: {}: {damage}; everything before was replayed", args.file.display());
            Ok(ExitCode::FAILURE)
        }
        None => Ok(ExitCode::SUCCESS),
    }
}

fn replay_journal(args: &Args) -> anyhow::Result<ExitCode> {
    let report = journal_replay::replay(&args.file, &args.policy)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out!("{}", report.text())?;
    }
    Ok(if report.failed() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn report(path: &Path, bytes: &[u8], changes: &[Change]) -> anyhow::Result<Report> {
    let reader = Reader::open(bytes).with_context(|| path.display().to_string())?;
    let header = reader.header().clone();
    let mut config = PolicyConfig { mode: Mode::DryRun, ..*header.config.clone() };
    for change in changes {
        change.apply(&mut config);
    }
    let mut scan = reader.clone();
    let (mut events, mut lost, mut last_ns) = (0, 0, 0);
    let seen = scan.by_ref().inspect(|event| {
        events += 1;
        last_ns = event.at_ns;
        lost += if let EventKind::Lost { events } = event.what { events } else { 0 };
    });
    let mut reconstruction = Reconstruction::new(&header.vcpus, seen);
    let elapsed = Duration::from_nanos(scan.end().map_or(last_ns, |end| end.elapsed_ns).max(last_ns));
    let decisions = decide::decide(reader, &mut reconstruction, &config, &header.vcpus, elapsed)?;
    let unknown: Vec<String> = UNKNOWN.map(str::to_owned).to_vec();
    let story = sentences(&records(&header, &config, &unknown, &decisions));
    Ok(Report {
        version: VERSION,
        trace: path.to_owned(),
        workload: header.workload,
        elapsed,
        events,
        lost,
        damage: scan.damage().map(ToString::to_string),
        config,
        unknown,
        decisions,
        story,
        pattern: reconstruction.pattern(),
    })
}

/// The journal that a dry run would have written.
fn records(
    header: &Header,
    config: &PolicyConfig,
    unknown: &[String],
    decisions: &[DecidedEvent],
) -> Vec<Record> {
    let start = Record::Start {
        version: journal::VERSION,
        unix_ms: header.unix_ms,
        workload: header.workload.clone(),
        vcpus: header.vcpus.clone(),
        config: Box::new(config.clone()),
        limits: header.limits.iter().chain(unknown).cloned().collect(),
    };
    let decided = decisions.iter().map(|d| Record::Decision {
        at: d.at,
        event: d.event.clone(),
        names: Names::default(),
    });
    std::iter::once(start).chain(decided).collect()
}
