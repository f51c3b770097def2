//! `gleaner why`: what a run did and why, from its journal, or what the daemon did for its workloads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use gleaner_control::{Client, WhyRequest};
use gleaner_engine::{StateDir, unix_ms};
use gleaner_explain::Sentence;
use gleaner_print::outln;
use gleaner_proto::journal::{self, Record, Summary};
use serde::Serialize;

use crate::client;

/// Say what gleanerd or the latest run did, when and why, from the journal
///
/// Each change was a hypothesis: it was tried in blocks that alternated with blocks without it, and kept only if it
/// proved itself. Under `--fixed` and `--strategy paper` nothing is proven, and the story says so. Times count from the
/// start of the run, or from when gleanerd engaged the workload.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A workload of gleanerd, as `gleaner status` names it, or a journal's path [default: all workloads if gleanerd
    /// runs, else the journal of the latest run without `--journal`]
    #[arg(value_name = "WORKLOAD|FILE")]
    of: Option<String>,
    /// Leave out what is older, e.g. 90s, 10min, 1h or 2d
    #[arg(long, value_name = "TIME", value_parser = ago)]
    since: Option<Duration>,
    /// Print the story as JSON
    #[arg(long)]
    json: bool,
}

/// Units of `--since` and their seconds.
const UNITS: [(&str, f64); 4] = [("s", 1.0), ("min", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// Parses how long ago something was.
fn ago(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = UNITS.iter().find(|(unit, _)| *unit == &text[number.len()..]);
    unit.zip(number.parse::<f64>().ok())
        .and_then(|((_, seconds), number)| Duration::try_from_secs_f64(number * seconds).ok())
        .ok_or_else(|| format!("`{text}` is not a time such as 90s, 10min, 1h or 2d"))
}

/// Version of the JSON form.
const VERSION: u32 = 1;

/// The story of a run.
#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    journal: PathBuf,
    story: Vec<Sentence>,
    summary: Option<&'a Summary>,
}

/// The stories of the daemon's workloads.
#[derive(Serialize)]
struct DaemonReport<'a> {
    version: u32,
    workloads: Vec<WorkloadReport<'a>>,
}

#[derive(Serialize)]
struct WorkloadReport<'a> {
    workload: &'a str,
    story: Vec<Sentence>,
    summary: Option<&'a Summary>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match source(args.of.as_deref())? {
        Source::Journal(path) => of_journal(path, args)?,
        Source::Daemon(daemon, workload) => of_daemon(daemon, workload, args)?,
    }
    Ok(ExitCode::SUCCESS)
}

enum Source {
    Journal(PathBuf),
    /// One of its workloads, or all.
    Daemon(Client, Option<String>),
}

/// What the user means.
fn source(of: Option<&str>) -> anyhow::Result<Source> {
    if let Some(path) = of.filter(|of| of.contains('/') || Path::new(of).exists()) {
        return Ok(Source::Journal(path.into()));
    }
    let latest = || StateDir::default_place().map(|state| state.journal());
    match (client::find(), of) {
        (Ok(Some(daemon)), workload) => Ok(Source::Daemon(daemon, workload.map(str::to_owned))),
        (Ok(None), Some(name)) => {
            bail!("{name} is no file, and gleanerd, which would know a workload, is not running")
        }
        (Err(error), Some(_)) => Err(error.into()),
        // Who is not allowed to ask root's daemon can have runs of their own.
        (found, None) => match (latest()?, found) {
            (path, _) if path.exists() => Ok(Source::Journal(path)),
            (_, Err(error)) => Err(error.into()),
            (path, Ok(_)) => bail!(
                "no run has been recorded yet: {} does not exist; `gleaner run -- COMMAND` makes it",
                path.display()
            ),
        },
    }
}

fn of_journal(path: PathBuf, args: &Args) -> anyhow::Result<()> {
    let records = recent(journal::read(&path)?, args.since);
    let story = gleaner_explain::journal_sentences(&records);
    if args.json {
        let report = Report { version: VERSION, journal: path, story, summary: summary(&records) };
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        for sentence in story {
            outln!("{sentence}")?;
        }
    }
    Ok(())
}

/// The records of the last `since`, and the first one, which says what it is about.
fn recent(mut records: Vec<Record>, since: Option<Duration>) -> Vec<Record> {
    let Some((since, Record::Start { unix_ms: start, .. })) = since.zip(records.first()) else {
        return records;
    };
    let oldest = Duration::from_millis(unix_ms().saturating_sub(*start)).saturating_sub(since);
    records.retain(|record| match record {
        Record::Start { .. } => true,
        Record::Observation { observation, .. } => observation.at >= oldest,
        Record::Decision { at, .. } | Record::Note { at, .. } | Record::End { at, .. } => *at >= oldest,
    });
    records
}

fn of_daemon(daemon: Client, workload: Option<String>, args: &Args) -> anyhow::Result<()> {
    let since_ms = args.since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let mut journals = BTreeMap::<String, Vec<Record>>::new();
    for reply in daemon.why(&WhyRequest { workload, since_ms })? {
        let reply = reply?;
        journals.entry(reply.workload).or_default().push(reply.record);
    }
    let stories = journals.iter().map(|(workload, records)| WorkloadReport {
        workload,
        story: gleaner_explain::sentences(records),
        summary: summary(records),
    });
    if args.json {
        let report = DaemonReport { version: VERSION, workloads: stories.collect() };
        return Ok(outln!("{}", serde_json::to_string_pretty(&report)?)?);
    }
    for (index, WorkloadReport { story, .. }) in stories.enumerate() {
        if index > 0 {
            outln!()?;
        }
        for sentence in story {
            outln!("{sentence}")?;
        }
    }
    Ok(())
}

fn summary(records: &[Record]) -> Option<&Summary> {
    records.iter().rev().find_map(|record| match record {
        Record::End { summary, .. } => Some(summary),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn since_when() {
        let s = |text| ago(text).map(|time| time.as_secs());
        assert_eq!(["90s", "10min", "1.5h", "2d"].map(s), [Ok(90), Ok(600), Ok(5400), Ok(172_800)]);
        for wrong in ["", "1", "h", "1 h", "-1h", "1w", "1e400s", "infd"] {
            assert!(s(wrong).unwrap_err().contains("10min"), "{wrong}");
        }
    }
}
