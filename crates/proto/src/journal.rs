//! The journal: observations, decisions and reasons, for people (`gleaner why`) and for replay.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_policy::{
    CpuSet, Disturbance, Event, Observation, PolicyConfig, ReleaseReason, Setting, Strategy, TrialReason,
    WorkloadId,
};
use serde::{Deserialize, Serialize};

use crate::lines::{LineError, Lines, read_lines};

/// The version of the format that this crate reads and writes.
pub const VERSION: u32 = 3;

/// One line of a journal. Durations named `at` count from the start record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
pub enum Record {
    /// The first line.
    Start {
        /// [`VERSION`].
        version: u32,
        /// Milliseconds since the Unix epoch.
        unix_ms: u64,
        /// The command, or what Gleaner attached to.
        workload: String,
        /// The vCPUs that the workload is allowed to use.
        vcpus: CpuSet,
        /// The policy's configuration.
        config: Box<PolicyConfig>,
        /// What is missing on this machine or was not permitted, as sentences.
        limits: Vec<String>,
    },
    /// The policy's input.
    Observation {
        /// The setting that was in force during the interval.
        in_force: Setting,
        /// The interval observed.
        observation: Box<Observation>,
        /// The number of observations since the previous record that were not written, because nothing was
        /// decided on them.
        #[serde(default, skip_serializing_if = "is_zero")]
        skipped: u32,
        /// Whether the run was over, so that the policy was not asked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        last: bool,
    },
    /// A decision of the policy on the previous observation.
    Decision {
        /// Time of the decision.
        at: Duration,
        /// The decision and the reason.
        event: Event,
        /// The other workloads that the decisions of this step mention.
        #[serde(default, skip_serializing_if = "Names::is_empty")]
        names: Names,
    },
    /// A remark of the engine: a lever that failed, a thread that keeps its own affinity.
    Note {
        /// Time of the remark.
        at: Duration,
        /// The remark, as a sentence.
        text: String,
    },
    /// The last line of a run that ended normally.
    End {
        /// Time of the end.
        at: Duration,
        /// The account of the run.
        summary: Summary,
    },
}

/// The names of workloads that decisions mention by their numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
// By the number as text: within a tagged record, serde reads no numbers as keys.
pub struct Names(BTreeMap<String, String>);

impl Names {
    /// The names that `events` need, of all that `name` knows.
    pub fn mentioned(events: &[Event], name: impl Fn(WorkloadId) -> Option<String>) -> Self {
        let ids = events.iter().filter_map(|event| match event {
            Event::Shared { helps: id, .. }
            | Event::Confirmed { by: id, .. }
            | Event::Objected { by: id, .. }
            | Event::Released { why: ReleaseReason::Objection { by: id, .. } }
            | Event::TrialAbandoned { why: Disturbance::Set { by: id, .. }, .. } => Some(*id),
            _ => None,
        });
        Self(ids.filter_map(|id| Some((id.to_string(), name(id)?))).collect())
    }

    /// Whether nobody is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What to call a workload in a sentence.
    pub fn of(&self, id: WorkloadId) -> String {
        self.0.get(&id.to_string()).cloned().unwrap_or_else(|| format!("workload {id}"))
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The account of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The rules by which settings were chosen.
    pub strategy: Strategy,
    /// Wall time under the engine.
    pub elapsed: Duration,
    /// CPU time of the workload.
    pub workload_cpu: Duration,
    /// CPU time of the engine itself, yield threads excluded.
    pub engine_cpu: Duration,
    /// vCPU time retained by Gleaner's settings: polled or in yield threads.
    pub retained: Duration,
    /// vCPU time that the kernel polled although Gleaner's setting did not ask for it: the administrator's own
    /// limit.
    pub polled_otherwise: Duration,
    /// How long each setting was in force, in the order of first use.
    pub settings: Vec<SettingTime>,
    /// Number of trials that proved their candidate.
    pub proven: u32,
    /// Number of trials that did not.
    pub refuted: u32,
    /// Number of times that all vCPUs were activated because threads queued up or the workload changed.
    pub expanded: u32,
    /// Number of steps by which the strategy `paper` shrank the active set.
    pub consolidated: u32,
    /// Number of times that vCPUs were activated again because the smaller set proved worse.
    pub rolled_back: u32,
    /// The setting requested to be held without proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Setting>,
    /// Why Gleaner's settings were not in force until the end, as a sentence: what failed or was refused, and
    /// the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_in_force: Option<String>,
    /// The best evidence for a setting that was kept, as a sentence.
    pub evidence: Option<String>,
    /// Candidates of a dry run, in the order of first occurrence.
    pub would_try: Vec<WouldTry>,
    /// Changes that could not be undone, as sentences; empty when the machine is as it was.
    pub left_behind: Vec<String>,
}

/// A candidate of a dry run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WouldTry {
    /// The setting; settings that differ only in the limit count as the same.
    pub setting: Setting,
    /// What first made it worth trying.
    pub why: TrialReason,
    /// How often it was a candidate.
    pub times: u32,
}

/// How long a setting was in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingTime {
    /// The setting in force.
    pub setting: Setting,
    /// Total time in force.
    pub time: Duration,
}

impl Summary {
    /// A dry run would have tried `setting`. Keeps only a few different ones: this is a summary.
    pub fn would_try(&mut self, setting: &Setting, why: TrialReason) {
        const KEPT: usize = 8;
        let same = |known: &Setting| {
            known.active == setting.active && known.retention.method == setting.retention.method
        };
        if let Some(known) = self.would_try.iter_mut().find(|known| same(&known.setting)) {
            known.times += 1;
        } else if self.would_try.len() < KEPT {
            self.would_try.push(WouldTry { setting: setting.clone(), why, times: 1 });
        }
    }

    /// Adds `time` under `setting`.
    pub fn count(&mut self, setting: &Setting, time: Duration) {
        self.elapsed += time;
        match self.settings.iter_mut().find(|s| s.setting == *setting) {
            Some(known) => known.time += time,
            None => self.settings.push(SettingTime { setting: setting.clone(), time }),
        }
    }
}

/// Reads the journal at `path`.
///
/// # Errors
/// See [`LineError`]; a journal starts with a start record.
pub fn read(path: &Path) -> Result<Vec<Record>, LineError> {
    let records = read_lines::<Record>(path, "journal")?;
    starts(records.first()).then_some(records).ok_or_else(|| unknown_version(path))
}

/// The same, record by record: a journal has megabytes, most of them observations.
///
/// # Errors
/// As [`read`], as far as its first record; then each record may be an error.
pub fn records(
    path: &Path,
) -> Result<impl Iterator<Item = Result<Record, LineError>> + Send + use<>, LineError> {
    let mut lines = Lines::open(path, "journal")?;
    let first = lines.next().transpose()?;
    if !starts(first.as_ref()) {
        return Err(unknown_version(path));
    }
    Ok(first.map(Ok).into_iter().chain(lines))
}

fn starts(first: Option<&Record>) -> bool {
    matches!(first, Some(Record::Start { version: VERSION, .. }))
}

fn unknown_version(path: &Path) -> LineError {
    LineError::Version { path: PathBuf::from(path), what: "journal", version: VERSION }
}

#[cfg(test)]
mod tests {
    use gleaner_policy::{Evidence, Method, Retention, Signal};

    use super::*;

    #[test]
    fn a_decision_with_names_is_read_back() {
        let evidence = Evidence { signal: Signal::Counter, ratio: 2.0, low: 1.5, high: 2.5, pairs: 3 };
        let retention = Retention { method: Method::Haltpoll, limit: Duration::from_micros(200) };
        let event = Event::Shared { retention, helps: WorkloadId(12), evidence: Some(evidence) };
        let names = Names::mentioned(std::slice::from_ref(&event), |_| Some("redis-server".to_owned()));
        let record = Record::Decision { at: Duration::ZERO, event, names };
        let line = serde_json::to_string(&record).unwrap();
        assert!(line.contains(r#""names":{"12":"redis-server"}"#), "{line}");
        let read: Record = serde_json::from_str(&line).unwrap();
        assert_eq!(read, record);
    }
}
