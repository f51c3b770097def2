//! A run's journal as sentences with numbers, and its account in a few lines.

pub mod summary;
mod wrap;

use std::fmt;
use std::time::Duration;

use gleaner_policy::{
    Disturbance, Event, Evidence, Mode, Objective, PolicyConfig, Purpose, ReleaseReason, Setting, Strategy,
    Verdict,
};
use gleaner_proto::journal::{Names, Record, Summary};
use jiff::Timestamp;
use serde::Serialize;

use summary::action_counts;
pub use wrap::{WIDTH, wrap};

/// One sentence about a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sentence {
    /// Seconds since the start; `None` if it has no time of its own.
    at_s: Option<f64>,
    text: String,
}

impl Sentence {
    fn at(at: Duration, text: impl Into<String>) -> Self {
        Self { at_s: Some(at.as_secs_f64()), text: text.into() }
    }

    /// Seconds since the start; `None` if it has no time of its own.
    pub fn at_s(&self) -> Option<f64> {
        self.at_s
    }

    /// A sentence that has no time of its own.
    pub fn plain(text: impl Into<String>) -> Self {
        Self { at_s: None, text: text.into() }
    }
}

impl fmt::Display for Sentence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.at_s {
            Some(at) => write!(f, "at {at:.3} s: {}", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// Consecutive changes of the poll limit, reported as one.
struct Limits {
    first: Duration,
    last: Duration,
    from: Duration,
    to: Duration,
    changes: usize,
}

impl Limits {
    fn sentence(&self) -> Sentence {
        let (from, to) = (us(self.from), us(self.to));
        if self.changes == 1 {
            return Sentence::at(self.first, format!("the idle lengths moved the limit from {from} to {to}"));
        }
        Sentence::at(
            self.first,
            format!(
                "the idle lengths moved the limit from {from} to {to}, in {} steps until {:.3} s",
                self.changes,
                self.last.as_secs_f64()
            ),
        )
    }
}

/// The whole journal as sentences.
pub fn journal_sentences(records: &[Record]) -> Vec<Sentence> {
    let mut story = sentences(records);
    if !records.iter().any(|record| matches!(record, Record::End { .. })) {
        story.push(Sentence::plain("the journal has no end: the run goes on, or was killed"));
    }
    story
}

/// Any part of a journal as sentences.
pub fn sentences(records: &[Record]) -> Vec<Sentence> {
    let mut story = Vec::new();
    let mut limits: Option<Limits> = None;
    let mut dry_run = false;
    for record in records {
        if let Record::Decision { at, event: Event::LimitChanged { from, to }, .. } = record {
            let run =
                limits.get_or_insert(Limits { first: *at, last: *at, from: *from, to: *to, changes: 0 });
            (run.last, run.to, run.changes) = (*at, *to, run.changes + 1);
            continue;
        }
        if matches!(record, Record::Observation { .. }) {
            continue;
        }
        story.extend(limits.take().map(|run| run.sentence()));
        match record {
            Record::Start { unix_ms, workload, vcpus, config, limits, .. } => {
                dry_run = config.mode == Mode::DryRun;
                story.push(Sentence::plain(format!(
                    "`{workload}` on {}, started {} UTC; {}",
                    vcpus.named(),
                    utc(*unix_ms),
                    terms(config)
                )));
                story.extend(limits.iter().map(|limit| Sentence::plain(format!("not available: {limit}"))));
            }
            Record::Decision { at, event, names } => story.push(Sentence::at(*at, decision(event, names))),
            Record::Note { at, text } => story.push(Sentence::at(*at, text)),
            Record::End { at, summary } => story.extend(account(*at, summary, dry_run)),
            Record::Observation { .. } => {}
        }
    }
    story.extend(limits.take().map(|run| run.sentence()));
    story
}

/// What a run did, for a table's footnote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneLineSummary {
    /// One sentence.
    pub text: String,
    /// Whether a trial proved a change. Trials compare blocks of a few milliseconds, not whole runs.
    pub proven: bool,
}

impl OneLineSummary {
    /// For a run of which only this is known.
    pub fn of(text: impl Into<String>) -> Self {
        Self { text: text.into(), proven: false }
    }
}

/// What a run did, in one sentence.
pub fn one_line_summary(records: &[Record]) -> OneLineSummary {
    let Some(Record::End { summary, .. }) = records.last() else {
        return OneLineSummary::of("the journal has no end");
    };
    let longest = summary.settings.iter().max_by_key(|s| s.time);
    let held = longest.map_or_else(String::new, |s| {
        format!("{:.0} % of the time {}", share(s.time, summary.elapsed), s.setting)
    });
    match &summary.evidence {
        Some(evidence) => OneLineSummary { text: format!("{held}; best trial: {evidence}"), proven: true },
        None if summary.strategy == Strategy::Adaptive => {
            OneLineSummary::of(format!("{held}; no trial proved a change ({} did not)", summary.refuted))
        }
        None => OneLineSummary::of(format!("{held}; {}", summary::outcome(summary))),
    }
}

/// The terms under which the run started.
fn terms(config: &PolicyConfig) -> String {
    let method = format!("retention by {}", config.method);
    let cost = us(config.wake_cost);
    let objective = match Objective::of_price(config.poll_price) {
        Some(Objective::Balanced) => String::new(),
        Some(objective) => format!(", the objective is {objective}"),
        None => format!(", a microsecond of polling counts as {} of waiting", config.poll_price),
    };
    match &config.mode {
        Mode::Adaptive => format!("{method}, a wake-up costs {cost}{objective}"),
        Mode::Fixed(setting) => format!("held unproven: {setting}"),
        Mode::DryRun => format!("a dry run that changes nothing; {method}, a wake-up costs {cost}"),
        Mode::Paper => format!("by the paper's rules, unproven; {method}, a wake-up costs {cost}"),
    }
}

/// What a policy decided, and why. `names` are those of the other workloads.
pub fn decision(event: &Event, names: &Names) -> String {
    match event {
        Event::TrialStarted { baseline, candidate, purpose: Purpose::Adopt, why } => {
            format!("tried {candidate} against {baseline}, because {why}")
        }
        Event::TrialStarted { baseline, candidate, purpose: Purpose::Reprove, why } => {
            format!("tested {candidate} again, against {baseline}: {why}")
        }
        Event::TrialEnded { candidate, purpose, verdict, kept, again_at } => {
            outcome(candidate, *purpose, verdict, kept, *again_at)
        }
        Event::Consolidated { cpu, active, conditions } => {
            format!("vCPU {cpu} made inactive, active now: {active}; {conditions}")
        }
        Event::RolledBack { active, refutation, then } => {
            format!("rolled back to vCPUs {active}: {refutation}; {then}")
        }
        Event::Resumed { setting, known: None } => format!("work came back: {setting}, as proven before"),
        Event::Resumed { setting, known: Some(e) } => format!(
            "put {setting} in force at once, known from an earlier run of the program: {}; to be proven now",
            measured(e)
        ),
        Event::LimitChanged { from, to } => format!("the limit went from {} to {}", us(*from), us(*to)),
        Event::Released { why: ReleaseReason::Objection { by, evidence } } => {
            format!("released: it harms {}: {}", names.of(*by), evidence.signal.times(evidence.ratio))
        }
        Event::Released { why } => format!("released: {why}"),
        Event::MajorChange { change } => format!("every vCPU active again, the workload changed: {change}"),
        Event::Expanded { runnable, active, source } => format!(
            "every vCPU active again: {runnable} threads wanted to run, but only {} {} active ({active}){}",
            active.len(),
            if active.len() == 1 { "vCPU was" } else { "vCPUs were" },
            source.map_or_else(String::new, |source| format!(", {source}"))
        ),
        Event::AllowedChanged { from, to } => {
            format!("the workload is now allowed to use vCPUs {to}, instead of {from}")
        }
        Event::Shared { retention, helps, evidence } => format!(
            "{retention} is in force, since it helps {}{}",
            names.of(*helps),
            evidence.map_or_else(String::new, |e| format!(": {}", measured(&e)))
        ),
        Event::Confirmed { by, retention, evidence } => {
            format!("{retention} still helps {}: {}", names.of(*by), measured(evidence))
        }
        Event::Objected { by, retention, evidence } => {
            format!("{retention} harms {}: {}", names.of(*by), measured(evidence))
        }
        Event::TrialAbandoned { candidate, why: Disturbance::Set { by, from, to } } => format!(
            "gave up the trial of {candidate}: {} went from {} to {}",
            names.of(*by),
            from.named(),
            to.named()
        ),
        Event::TrialAbandoned { candidate, why } => format!("gave up the trial of {candidate}: {why}"),
        Event::MadeRoom { cpu, load, active } => format!(
            "every vCPU active again, instead of {active}: several workloads were confined to vCPU {cpu}, with a load \
             of {load:.2}"
        ),
        Event::WouldTry { candidate, why } => format!("would try {candidate}, because {why}"),
    }
}

fn outcome(
    candidate: &Setting,
    purpose: Purpose,
    verdict: &Verdict,
    kept: &Setting,
    again_at: Duration,
) -> String {
    let taken = kept == candidate;
    let start = match (verdict, purpose, taken) {
        (Verdict::Proven(e), _, true) => format!("kept {candidate}: {}", measured(e)),
        (Verdict::Proven(e), _, false) => format!("{candidate} proved itself ({}), now {kept}", measured(e)),
        (Verdict::Refuted(e), Purpose::Adopt, _) => {
            format!("undid {candidate}, it does not pay: {}; now {kept}", measured(e))
        }
        (Verdict::Refuted(e), Purpose::Reprove, _) => {
            format!("gave up {candidate}, it no longer pays: {}; now {kept}", measured(e))
        }
        (Verdict::Undecided(e), _, _) => {
            let why = e.as_ref().map_or_else(
                || "no signal of progress was clear enough".to_owned(),
                |e| format!("no clear difference, {}", measured(e)),
            );
            let what = match (purpose, taken) {
                (_, true) => "kept",
                (Purpose::Adopt, false) => "undid",
                (Purpose::Reprove, false) => "gave up",
            };
            let now = if taken { String::new() } else { format!("; now {kept}") };
            format!("{what} {candidate}: {why}{now}")
        }
    };
    format!("{start}; next trial at {:.1} s", again_at.as_secs_f64())
}

fn measured(e: &Evidence) -> String {
    format!(
        "{} ({:.2} to {:.2}, {} {} of blocks)",
        e.signal.times(e.ratio),
        e.low,
        e.high,
        e.pairs,
        if e.pairs == 1 { "pair" } else { "pairs" }
    )
}

/// The last lines: where the time went and what was gained.
fn account(at: Duration, summary: &Summary, dry_run: bool) -> Vec<Sentence> {
    if dry_run {
        let what = match summary.would_try.len() {
            0 => "nothing would have been tried".to_owned(),
            n => format!("{n} different changes would have been tried, and nothing was changed"),
        };
        return vec![Sentence::at(at, format!("the dry run ended: {what}"))];
    }
    let mut story = vec![Sentence::at(
        at,
        format!(
            "the run ended: {}; Gleaner itself took {:.2} % of a vCPU, and {:.0} % of a vCPU was spent on keeping \
             vCPUs awake",
            action_counts(summary),
            share(summary.engine_cpu, summary.elapsed),
            share(summary.retained, summary.elapsed),
        ),
    )];
    let mut settings: Vec<_> = summary.settings.iter().collect();
    settings.sort_by_key(|s| std::cmp::Reverse(s.time));
    story.extend(settings.into_iter().map(|s| {
        Sentence::plain(format!("  {:5.1} % of the time: {}", share(s.time, summary.elapsed), s.setting))
    }));
    story.extend(summary::polled_otherwise(summary).map(Sentence::plain));
    story.push(Sentence::plain(match &summary.evidence {
        Some(evidence) => format!("what it brought: {evidence}"),
        None => summary::outcome(summary),
    }));
    story.extend(summary.left_behind.iter().map(|l| Sentence::plain(format!("could not be put back: {l}"))));
    story
}

fn share(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() * 100.0 }
}

fn us(time: Duration) -> String {
    format!("{:.1} us", time.as_secs_f64() * 1e6)
}

/// Date and time of day, UTC, of milliseconds since the Unix epoch.
pub fn utc(unix_ms: u64) -> String {
    let at = i64::try_from(unix_ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    at.map_or_else(|| "an unknown time".to_owned(), |at| at.strftime("%Y-%m-%d %H:%M:%S").to_string())
}
