//! What Gleaner did during a sample, according to its journal.

use std::path::Path;
use std::time::Duration;

use gleaner_policy::{Mode, Setting};
use gleaner_proto::journal::{self, Record};
use gleaner_proto::result::Moment;

/// Share of the time from which a fixed setting counts as having been in force.
const MIN_IN_FORCE_SHARE: f64 = 0.9;

/// What a journal shows about a sample.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Control {
    /// The setting in force, from each change on.
    pub(super) timeline: Vec<Moment>,
    /// Why a fixed setting was not in force all the time; `None` if it was.
    pub(super) not_in_force: Option<String>,
}

impl Control {
    /// Reads the journal of one run.
    ///
    /// # Errors
    /// A sentence. Without a journal, Gleaner did not control the command at all.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let records = journal::read(path).map_err(|error| format!("Gleaner took no part: {error}"))?;
        Ok(Self { timeline: timeline(&records), not_in_force: not_in_force(&records) })
    }
}

fn timeline(records: &[Record]) -> Vec<Moment> {
    let mut timeline = Vec::new();
    let mut last: Option<&Setting> = None;
    for record in records {
        let Record::Observation { in_force, observation, .. } = record else { continue };
        if last != Some(in_force) {
            let retention = in_force.retention;
            timeline.push(Moment {
                at_s: observation.at.saturating_sub(observation.period).as_secs_f64(),
                active_vcpus: in_force.active.len(),
                retention: retention.method.to_string(),
                limit_us: retention.limit.as_secs_f64() * 1e6,
            });
            last = Some(in_force);
        }
    }
    timeline
}

/// Why the fixed setting in these records was not in force all the time; `None` if it was.
pub(crate) fn not_in_force(records: &[Record]) -> Option<String> {
    let fixed = records.iter().find_map(|record| match record {
        Record::Start { config, .. } => match &config.mode {
            Mode::Fixed(setting) => Some(setting),
            _ => None,
        },
        _ => None,
    })?;
    let summary = records.iter().rev().find_map(|record| match record {
        Record::End { summary, .. } => Some(summary),
        _ => None,
    });
    let Some(summary) = summary else { return Some("its journal has no end".to_owned()) };
    let held: Duration = summary.settings.iter().filter(|s| s.setting == *fixed).map(|s| s.time).sum();
    if held.as_secs_f64() >= MIN_IN_FORCE_SHARE * summary.elapsed.as_secs_f64() {
        return None;
    }
    let note = records.iter().find_map(|record| match record {
        Record::Note { text, .. } => Some(text.clone()),
        _ => None,
    });
    Some(
        summary
            .not_in_force
            .clone()
            .or(note)
            .unwrap_or_else(|| format!("{fixed} was held for {held:.2?} of {:.2?}", summary.elapsed)),
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use gleaner_policy::{CpuSet, Fixed, Observation, PolicyConfig, WorkloadInterval};
    use gleaner_proto::journal::{SettingTime, Summary};

    use super::*;

    fn observation(at_ms: u64, in_force: &Setting) -> Record {
        let observation = Observation {
            at: Duration::from_millis(at_ms),
            period: Duration::from_millis(100),
            vcpus: Vec::new(),
            workload: WorkloadInterval::default(),
            runnable: 0,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost: Duration::ZERO,
        };
        Record::Observation {
            in_force: in_force.clone(),
            observation: Box::new(observation),
            skipped: 0,
            last: false,
        }
    }

    fn journal(mode: Mode, held: &Setting) -> tempfile::NamedTempFile {
        let all = CpuSet::first(2);
        let untouched = Setting::untouched(&all);
        let config = PolicyConfig { mode, ..PolicyConfig::default() };
        let time = Duration::from_secs(1);
        let summary = Summary {
            elapsed: time,
            settings: vec![SettingTime { setting: held.clone(), time }],
            ..Summary::default()
        };
        let start = Record::Start {
            version: journal::VERSION,
            unix_ms: 0,
            workload: String::new(),
            vcpus: all,
            config: Box::new(config),
            limits: Vec::new(),
        };
        let at = Duration::ZERO;
        let records = [
            start,
            observation(100, &untouched),
            Record::Note { at, text: "the lever broke".into() },
            observation(200, held),
            observation(300, held),
            Record::End { at, summary },
        ];
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for record in records {
            writeln!(file, "{}", serde_json::to_string(&record).unwrap()).unwrap();
        }
        file
    }

    #[test]
    fn changes_become_moments() {
        let consolidated =
            "consolidate:1+haltpoll:50us".parse::<Fixed>().unwrap().on(&CpuSet::first(2)).unwrap();
        let file = journal(Mode::Adaptive, &consolidated);
        let control = Control::read(file.path()).unwrap();
        let moment = |at_s, active_vcpus, retention: &str, limit_us| Moment {
            at_s,
            active_vcpus,
            retention: retention.into(),
            limit_us,
        };
        assert_eq!(control.timeline.len(), 2);
        assert_eq!(control.timeline[0], moment(0.0, 2, "halt", 0.0));
        let second = &control.timeline[1];
        assert!((second.at_s - 0.1).abs() < 1e-9 && (second.limit_us - 50.0).abs() < 1e-9, "{second:?}");
        assert_eq!((second.active_vcpus, second.retention.as_str()), (1, "haltpoll"));
        assert_eq!(control.not_in_force, None);
    }

    #[test]
    fn a_fixed_setting_that_was_not_held_is_reported() {
        let fixed = "consolidate:1".parse::<Fixed>().unwrap().on(&CpuSet::first(2)).unwrap();
        let held = journal(Mode::Fixed(fixed.clone()), &fixed);
        assert_eq!(Control::read(held.path()).unwrap().not_in_force, None);
        let lost = journal(Mode::Fixed(fixed), &Setting::untouched(&CpuSet::first(2)));
        let why = Control::read(lost.path()).unwrap().not_in_force;
        assert_eq!(why.as_deref(), Some("the lever broke"));
        assert!(Control::read(Path::new("/no/journal")).unwrap_err().contains("took no part"));
    }
}
