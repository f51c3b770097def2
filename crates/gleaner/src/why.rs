//! `gleaner why`: what a run did and why, from its journal, or what the daemon did for its workloads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use gleaner_control::{Client, ClientError, State, WhyRequest};
use gleaner_engine::{StateDir, unix_ms};
use gleaner_explain::Sentence;
use gleaner_print::outln;
use gleaner_proto::journal::{self, Record, Summary};
use gleaner_proto::source_text::nearest;
use serde::Serialize;

use crate::{client, status};

/// Say what gleanerd or the latest run did, when and why, from the journal
///
/// Each change was a hypothesis: it was tried in blocks that alternated with blocks without it, and kept only if it
/// proved itself. Under `--fixed` and `--strategy paper` nothing is proven, and the story says so. Times count from the
/// start of the run, or of gleanerd; then the time of day in UTC is shown, too. Of a workload
/// that is not engaged now, it says why not. After gleanerd has ended, what it did can still be read by a workload's name.
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
    /// From when its times count, in milliseconds since the Unix epoch; `None` if it was never engaged.
    start_unix_ms: Option<u64>,
    story: Vec<Sentence>,
    summary: Option<&'a Summary>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match source(args.of.as_deref())? {
        Source::Journal(path) => of_journal(path, args)?,
        Source::Daemon(daemon) => match (of_daemon(daemon, args), &args.of) {
            (Err(error), Some(name)) if is_unknown(&error) => of_unrecorded(name, args, error)?,
            (done, _) => done?,
        },
    }
    Ok(ExitCode::SUCCESS)
}

fn is_unknown(error: &anyhow::Error) -> bool {
    use gleaner_control::Error::{NotFound, NothingRecorded};
    matches!(error.downcast_ref(), Some(ClientError::Refused(NotFound { .. } | NothingRecorded {})))
}

/// What there is to say of a name of which the daemon has no journal: a workload that was never engaged, or a file. Else
/// that is the error.
fn of_unrecorded(name: &str, args: &Args, error: anyhow::Error) -> anyhow::Result<()> {
    let Some(text) = why_not(name)? else {
        return if Path::new(name).exists() { of_journal(name.into(), args) } else { Err(error) };
    };
    if !args.json {
        return Ok(outln!("{text}")?);
    }
    let story = vec![Sentence::plain(text)];
    print_json(vec![WorkloadReport { workload: name, start_unix_ms: None, story, summary: None }])
}

/// Why a workload of the daemon is not engaged; `None` if it is, or is not known.
fn why_not(name: &str) -> anyhow::Result<Option<String>> {
    let workloads = client::connect()?.status()?.workloads;
    let found = workloads.into_iter().find(|w| w.name == name && w.state != State::Engaged);
    Ok(found.map(|workload| {
        let reason = workload.reason.as_deref().unwrap_or("no reason is given");
        format!("`{name}` is {}: {reason}", status::state(workload.state))
    }))
}

enum Source {
    Journal(PathBuf),
    /// What it is asked for is in the arguments.
    Daemon(Client),
}

/// What the user means.
fn source(of: Option<&str>) -> anyhow::Result<Source> {
    if let Some(path) = of.filter(|of| of.contains('/')) {
        return Ok(Source::Journal(path.into()));
    }
    let found = client::find();
    if let Ok(Some(daemon)) = found {
        return Ok(Source::Daemon(daemon));
    }
    let refusal = found.err();
    let path = match of {
        Some(file) if Path::new(file).exists() => file.into(),
        Some(name) => match refusal {
            Some(error) => return Err(error.into()),
            None => of_ended_daemon(name)?,
        },
        None => latest_run(refusal)?,
    };
    Ok(Source::Journal(path))
}

/// The journal of a workload of a daemon that has ended.
fn of_ended_daemon(name: &str) -> anyhow::Result<PathBuf> {
    let state = StateDir::default_place()?;
    let path = state.journal_of(name);
    if path.exists() {
        return Ok(path);
    }
    let known = state.workloads().unwrap_or_default();
    let hint = nearest(name, known.iter().map(String::as_str))
        .map_or_else(String::new, |near| format!("; it has left a journal of `{near}`"));
    bail!("there is no file `{name}`, and gleanerd, which would know a workload, is not running{hint}")
}

/// The journal of the latest run. Who is not allowed to ask root's daemon, for which `refusal` is the reason, can have
/// runs of their own.
fn latest_run(refusal: Option<ClientError>) -> anyhow::Result<PathBuf> {
    let state = StateDir::default_place()?;
    let path = state.journal();
    if path.exists() {
        return Ok(path);
    }
    if let Some(error) = refusal {
        return Err(error.into());
    }
    let known = state.workloads().unwrap_or_default();
    if !known.is_empty() {
        bail!(
            "gleanerd is not running; it has left journals of {}: name one of them",
            known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
        );
    }
    bail!(
        "no run has been recorded yet: {} does not exist; `gleaner run -- COMMAND` makes it",
        path.display()
    )
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

fn of_daemon(daemon: Client, args: &Args) -> anyhow::Result<()> {
    let since_ms = args.since.map(|since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let mut journals = BTreeMap::<String, Vec<Record>>::new();
    for reply in daemon.why(&WhyRequest { workload: args.of.clone(), since_ms })? {
        let reply = reply?;
        // Most records are observations, of which there is nothing to say.
        if !matches!(reply.record, Record::Observation { .. }) {
            journals.entry(reply.workload).or_default().push(reply.record);
        }
    }
    // Of all workloads, those of which there is nothing to say are left out.
    let has_story = |records: &[Record]| args.of.is_some() || args.since.is_none() || records.len() > 1;
    journals.retain(|_, records| has_story(records));
    let now = args.of.as_deref().map(why_not).transpose()?.flatten();
    let stories = journals.iter().map(|(workload, records)| WorkloadReport {
        workload,
        start_unix_ms: start_unix_ms(records),
        story: gleaner_explain::sentences(records)
            .into_iter()
            .chain(now.clone().map(Sentence::plain))
            .collect(),
        summary: summary(records),
    });
    if args.json {
        return print_json(stories.collect());
    }
    if journals.is_empty() {
        outln!("nothing was decided in this time")?;
    }
    for (index, story) in stories.enumerate() {
        if index > 0 {
            outln!()?;
        }
        for sentence in &story.story {
            outln!("{}", with_time_of_day(sentence, story.start_unix_ms))?;
        }
    }
    Ok(())
}

fn print_json(workloads: Vec<WorkloadReport<'_>>) -> anyhow::Result<()> {
    let report = DaemonReport { version: VERSION, workloads };
    Ok(outln!("{}", serde_json::to_string_pretty(&report)?)?)
}

/// A sentence of a journal that started then, with the time of day at which it holds.
fn with_time_of_day(sentence: &Sentence, start_unix_ms: Option<u64>) -> String {
    let at = sentence.at_s().and_then(|at| Duration::try_from_secs_f64(at).ok());
    match start_unix_ms.zip(at) {
        Some((start, at)) => {
            let at_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
            format!("{}, {sentence}", gleaner_explain::utc(start.saturating_add(at_ms)))
        }
        None => sentence.to_string(),
    }
}

fn start_unix_ms(records: &[Record]) -> Option<u64> {
    match records.first() {
        Some(Record::Start { unix_ms, .. }) => Some(*unix_ms),
        _ => None,
    }
}

fn summary(records: &[Record]) -> Option<&Summary> {
    match records.last() {
        Some(Record::End { summary, .. }) => Some(summary),
        _ => None,
    }
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
