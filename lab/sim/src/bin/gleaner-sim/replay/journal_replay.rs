//! Replays a journal: the same observations must lead to the same decisions, byte for byte.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use gleaner_policy::{CpuSet, Event, Observation, Policy, PolicyConfig, Setting};
use gleaner_proto::journal::{self, Names, Record};
use serde::Serialize;

use super::{Change, DecidedEvent, VERSION};
use gleaner_explain::sentences;

#[derive(Debug, Serialize)]
pub(super) struct JournalReplay {
    version: u32,
    journal: PathBuf,
    workload: String,
    /// Whether the policy differs from the journal's.
    changed: bool,
    observations: usize,
    /// Number of decisions that match, up to the first difference.
    same: usize,
    /// The first observation on which the policy decides differently. Later ones were made under the journal's
    /// decision, so they say nothing about what the other would have led to.
    difference: Option<Difference>,
}

#[derive(Debug, Serialize)]
struct Difference {
    /// Line of the observation in the journal.
    line: usize,
    at: Duration,
    recorded: Side,
    replayed: Side,
}

/// What was decided on one observation.
#[derive(Debug, PartialEq, Serialize)]
struct Side {
    /// The setting after it; unknown after the journal's last observation.
    setting: Option<Setting>,
    decisions: Vec<DecidedEvent>,
}

impl JournalReplay {
    /// Whether the journal's own policy decides differently: Gleaner's version differs, or the journal was edited.
    pub(super) fn failed(&self) -> bool {
        !self.changed && self.difference.is_some()
    }

    pub(super) fn text(&self) -> String {
        let Self { workload, observations, same, .. } = self;
        let counted = format!("`{workload}`: {observations} observations");
        let Some(difference) = &self.difference else {
            return format!("{counted}, {same} decisions, each the same again, byte for byte\n");
        };
        let at = difference.at.as_secs_f64();
        format!(
            "{counted}; after {same} decisions that are the same again they part\non what was seen at {at:.3} s (line {}) the journal has\n\
             {}{} now decides\n{}what was seen after that was seen under the journal's decision, so it ends here\n",
            difference.line,
            difference.recorded,
            if self.changed { "this policy" } else { "this version of Gleaner" },
            difference.replayed,
        )
    }
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let records: Vec<_> = self.decisions.iter().map(DecidedEvent::record).collect();
        for sentence in sentences(&records) {
            writeln!(f, "    {sentence}")?;
        }
        match &self.setting {
            Some(setting) => writeln!(f, "    from then on: {setting}"),
            None if records.is_empty() => writeln!(f, "    nothing"),
            None => Ok(()),
        }
    }
}

/// An observation that was decided on, with the decisions.
struct Step<'a> {
    line: usize,
    in_force: &'a Setting,
    observation: &'a Observation,
    decisions: Vec<DecidedEvent>,
    /// The decisions' lines as in the file.
    bytes: Vec<&'a str>,
}

/// Decides again on the observations of the journal at `path`, with its policy or a changed one.
///
/// # Errors
/// The journal cannot be read, or does not hold every observation.
pub(super) fn replay(path: &Path, changes: &[Change]) -> anyhow::Result<JournalReplay> {
    let records = journal::read(path)?;
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let Some(Record::Start { workload, vcpus, config, .. }) = records.first() else {
        bail!("{}: the first record is no start", path.display());
    };
    let mut config = PolicyConfig::clone(config);
    for change in changes {
        change.apply(&mut config);
    }
    let steps = steps(path, &records, &text)?;
    let (same, difference) = compare(&steps, config, vcpus.clone())?;
    Ok(JournalReplay {
        version: VERSION,
        journal: path.to_owned(),
        workload: workload.clone(),
        changed: !changes.is_empty(),
        observations: steps.len(),
        same,
        difference,
    })
}

/// The observations that were decided on, in order.
fn steps<'a>(path: &Path, records: &'a [Record], text: &'a str) -> anyhow::Result<Vec<Step<'a>>> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
    for ((index, bytes), record) in lines.zip(records) {
        match record {
            Record::Observation { in_force, observation, skipped: 0, last: false } => steps.push(Step {
                line: index + 1,
                in_force,
                observation,
                decisions: Vec::new(),
                bytes: Vec::new(),
            }),
            Record::Decision { at, event, .. } => match steps.last_mut() {
                Some(step) if step.observation.at == *at => {
                    step.decisions.push(DecidedEvent { at: *at, event: event.clone() });
                    step.bytes.push(bytes);
                }
                _ => bail!(incomplete(path)),
            },
            Record::Observation { skipped: 1.., .. } => bail!(incomplete(path)),
            _ => {}
        }
    }
    Ok(steps)
}

fn incomplete(path: &Path) -> String {
    format!(
        "{} keeps only the observations that explain its decisions: too few to decide again. `gleaner why` explains it; \
         one that `gleaner run --journal FILE` writes holds them all",
        path.display()
    )
}

fn compare(
    steps: &[Step<'_>],
    config: PolicyConfig,
    vcpus: CpuSet,
) -> anyhow::Result<(usize, Option<Difference>)> {
    let mut policy = Policy::new(config, vcpus)?;
    let mut same = 0;
    for (index, step) in steps.iter().enumerate() {
        let decision = policy.step(step.observation);
        let at = step.observation.at;
        let replayed: Vec<_> = decision.events.into_iter().map(|event| DecidedEvent { at, event }).collect();
        let bytes: Vec<String> = replayed
            .iter()
            .map(|decided| serde_json::to_string(&decided.record()))
            .collect::<Result<_, _>>()?;
        let after = steps.get(index + 1).map(|next| next.in_force.clone());
        if bytes != step.bytes || after.as_ref().is_some_and(|after| *after != decision.setting) {
            let setting = after.is_some().then_some(decision.setting);
            let recorded = Side { setting: after, decisions: step.decisions.clone() };
            let replayed = Side { setting, decisions: replayed };
            return Ok((same, Some(Difference { line: step.line, at, recorded, replayed })));
        }
        same += bytes.len();
    }
    Ok((same, None))
}

impl DecidedEvent {
    fn record(&self) -> Record {
        let event: Event = self.event.clone();
        Record::Decision { at: self.at, event, names: Names::default() }
    }
}
