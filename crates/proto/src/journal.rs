//! The journal: what was seen, what was decided and why, for people (`gleaner why`) and for replay.

use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_policy::{CpuSet, Event, Observation, PolicyConfig, Setting, Strategy, Why};
use serde::{Deserialize, Serialize};

use crate::lines::{LineError, read_lines};

/// The version of the format that this crate reads and writes.
pub const VERSION: u32 = 2;

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
        /// The command, or what was attached to.
        workload: String,
        /// The vCPUs that the workload may use.
        vcpus: CpuSet,
        /// What the policy was built from.
        config: Box<PolicyConfig>,
        /// What is missing on this machine or was not permitted, as sentences.
        limits: Vec<String>,
    },
    /// What the policy was told.
    Observation {
        /// The setting that was in force during the interval.
        in_force: Setting,
        /// The interval.
        observation: Box<Observation>,
        /// So many observations since the record before it were not written: nothing was decided on them.
        #[serde(default, skip_serializing_if = "is_zero")]
        skipped: u32,
        /// The run was over: the policy was not asked.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        last: bool,
    },
    /// What the policy decided on the observation before.
    Decision {
        /// When.
        at: Duration,
        /// What, and why.
        event: Event,
    },
    /// Something that the engine met: a lever that failed, a thread that keeps its own affinity.
    Note {
        /// When.
        at: Duration,
        /// A sentence.
        text: String,
    },
    /// The last line of a run that ended in order.
    End {
        /// When.
        at: Duration,
        /// The account of the run.
        summary: Summary,
    },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The account of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// By whose rules the settings were chosen.
    pub strategy: Strategy,
    /// Wall time under the engine.
    pub elapsed: Duration,
    /// CPU time of the workload.
    pub workload_cpu: Duration,
    /// CPU time of the engine itself, yield threads excluded.
    pub engine_cpu: Duration,
    /// vCPU time retained by Gleaner's settings: polled or in yield threads.
    pub retained: Duration,
    /// vCPU time that the kernel polled while no setting of Gleaner's asked for it: the administrator's own limit.
    pub polled_otherwise: Duration,
    /// How long each setting was in force, in the order of first use.
    pub settings: Vec<SettingTime>,
    /// Trials that proved their candidate / that did not.
    pub proven: u32,
    /// See `proven`.
    pub refuted: u32,
    /// Changes of the active set because threads queued up or the workload changed.
    pub expanded: u32,
    /// vCPUs that the strategy `paper` deactivated, each time that it did.
    pub deactivated: u32,
    /// How often vCPUs were activated again because the smaller set did not hold up.
    pub rolled_back: u32,
    /// The setting that was to be held without proof, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Setting>,
    /// Why Gleaner's settings were not in force to the end, as a sentence: what failed or was refused, and the remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_in_force: Option<String>,
    /// The best evidence for what was kept: its sentence.
    pub evidence: Option<String>,
    /// What a dry run would have tried, in the order of first mention.
    pub would_try: Vec<WouldTry>,
    /// Changes that could not be put back, as sentences; empty when the machine is as it was.
    pub left_behind: Vec<String>,
}

/// Something that a dry run would have tried.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WouldTry {
    /// The setting; others that differ in the limit only count as the same.
    pub setting: Setting,
    /// What suggested it first.
    pub why: Why,
    /// How often it came up.
    pub times: u32,
}

/// How long a setting was in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SettingTime {
    /// The setting.
    pub setting: Setting,
    /// Its time.
    pub time: Duration,
}

impl Summary {
    /// A dry run would have tried `setting`. Only so many different ones are kept: it is an account, not the journal.
    pub fn would_try(&mut self, setting: &Setting, why: Why) {
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
/// See [`LineError`]; a journal begins with a start record.
pub fn read(path: &Path) -> Result<Vec<Record>, LineError> {
    let records = read_lines::<Record>(path, "journal")?;
    match records.first() {
        Some(Record::Start { version: VERSION, .. }) => Ok(records),
        _ => Err(LineError::Version { path: PathBuf::from(path), what: "journal", version: VERSION }),
    }
}
