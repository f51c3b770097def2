//! The state of a run, as recorded in its journal so far.

use std::collections::VecDeque;
use std::time::Duration;

use gleaner_policy::{CpuSet, Event, Method, Mode, Observation, Paper, Setting};
use gleaner_proto::journal::{Record, VERSION};

use gleaner_explain::{Sentence, sentences};

/// How many decisions can be scrolled back.
const MAX_DECISIONS: usize = 200;

#[derive(Debug, Clone)]
pub(super) struct Run {
    /// The command, or what was attached to.
    pub(super) workload: String,
    /// The vCPUs that it is allowed to use.
    pub(super) allowed: CpuSet,
    /// The retention method used when retention pays.
    pub(super) method: Method,
    /// The setting in effect when the journal was last written.
    pub(super) setting: Setting,
    /// Candidate and baseline of the current trial.
    pub(super) trial: Option<(Setting, Setting)>,
    /// The latest observation in the journal.
    pub(super) observed: Option<Observation>,
    /// Time of the latest record, since the start.
    pub(super) at: Duration,
    /// Whether the journal has its end record.
    pub(super) ended: bool,
    decided: VecDeque<Record>,
}

impl Run {
    /// The run that `record` starts; `None` if it is not a start of a known version.
    pub(super) fn start(record: Record) -> Option<Self> {
        let Record::Start { version: VERSION, workload, vcpus, config, .. } = record else { return None };
        let setting = match &config.mode {
            Mode::Fixed(setting) => setting.clone(),
            Mode::Adaptive | Mode::DryRun => Setting::untouched(&vcpus),
            Mode::Paper => Paper::new(config.as_ref().clone(), vcpus.clone())
                .map_or_else(|_| Setting::untouched(&vcpus), |paper| paper.setting()),
        };
        Some(Self {
            workload,
            allowed: vcpus,
            method: config.method,
            setting,
            trial: None,
            observed: None,
            at: Duration::ZERO,
            ended: false,
            decided: VecDeque::new(),
        })
    }

    /// Applies one record.
    pub(super) fn update(&mut self, record: Record) {
        match &record {
            Record::Start { .. } => {}
            Record::Observation { in_force, observation, .. } => {
                self.at = observation.at;
                self.setting = in_force.clone();
                self.observed = Some(observation.as_ref().clone());
            }
            Record::Decision { at, event, .. } => {
                self.at = *at;
                self.decide(event);
                self.keep(record);
            }
            Record::Note { at, .. } => {
                self.at = *at;
                self.keep(record);
            }
            Record::End { at, .. } => {
                self.at = *at;
                self.ended = true;
                self.trial = None;
                self.setting = Setting::untouched(&self.allowed);
            }
        }
    }

    /// The latest decisions, newest first.
    pub(super) fn decisions(&self) -> Vec<Sentence> {
        let records: Vec<Record> = self.decided.iter().cloned().collect();
        let mut newest_first = sentences(&records);
        newest_first.reverse();
        newest_first
    }

    fn keep(&mut self, record: Record) {
        if self.decided.len() == MAX_DECISIONS {
            self.decided.pop_front();
        }
        self.decided.push_back(record);
    }

    fn decide(&mut self, event: &Event) {
        match event {
            Event::TrialStarted { candidate, baseline, .. } => {
                self.trial = Some((candidate.clone(), baseline.clone()));
            }
            Event::TrialEnded { kept, .. } => {
                self.trial = None;
                self.setting = kept.clone();
            }
            Event::RolledBack { active, .. } | Event::Consolidated { active, .. } => {
                self.setting.active = active.clone();
            }
            Event::Resumed { setting, .. } => self.setting = setting.clone(),
            Event::LimitChanged { to, .. } => self.setting.retention.limit = *to,
            Event::Released { .. } => {
                self.trial = None;
                self.setting.retention = gleaner_policy::Retention::NONE;
            }
            Event::Shared { retention, .. } => self.setting.retention = *retention,
            Event::TrialAbandoned { .. } => self.trial = None,
            Event::MajorChange { .. } | Event::Expanded { .. } | Event::MadeRoom { .. } => {
                self.setting.active = self.allowed.clone();
            }
            Event::AllowedChanged { to, .. } => {
                self.trial = None;
                self.allowed = to.clone();
                self.setting.active = to.clone();
            }
            Event::Confirmed { .. } | Event::Objected { .. } | Event::WouldTry { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use gleaner_policy::{PolicyConfig, Purpose, Retention, TrialReason, Verdict};

    use gleaner_proto::journal::Names;

    use super::*;

    fn started() -> Run {
        Run::start(Record::Start {
            version: VERSION,
            unix_ms: 0,
            workload: "make".to_owned(),
            vcpus: CpuSet::first(2),
            config: Box::new(PolicyConfig::default()),
            limits: Vec::new(),
        })
        .unwrap()
    }

    fn decision(ms: u64, event: Event) -> Record {
        Record::Decision { at: Duration::from_millis(ms), event, names: Names::default() }
    }

    #[test]
    fn follows_trials_expanding_and_the_end() {
        let untouched = Setting::untouched(&CpuSet::first(2));
        let smaller = Setting {
            active: CpuSet::first(1),
            retention: Retention { method: Method::Haltpoll, limit: Duration::from_micros(50) },
        };
        let mut run = started();
        assert_eq!(run.setting, untouched);
        run.update(decision(
            10,
            Event::TrialStarted {
                baseline: untouched.clone(),
                candidate: smaller.clone(),
                purpose: Purpose::Adopt,
                why: TrialReason::TrustExpired,
            },
        ));
        assert_eq!(run.trial, Some((smaller.clone(), untouched.clone())));
        run.update(decision(
            20,
            Event::TrialEnded {
                candidate: smaller.clone(),
                purpose: Purpose::Adopt,
                verdict: Verdict::Undecided(None),
                kept: smaller.clone(),
                again_at: Duration::from_secs(1),
            },
        ));
        assert_eq!((&run.setting, &run.trial), (&smaller, &None));
        run.update(decision(30, Event::Expanded { runnable: 3, active: CpuSet::first(1), source: None }));
        assert_eq!(run.setting, Setting { active: CpuSet::first(2), ..smaller });
        run.update(Record::End {
            at: Duration::from_millis(40),
            summary: gleaner_proto::journal::Summary::default(),
        });
        assert!(run.ended && run.setting == untouched);
        assert_eq!(run.at, Duration::from_millis(40));
        let decisions = run.decisions();
        assert_eq!(decisions.len(), 3);
        assert!(
            decisions[0].to_string().starts_with("at 0.030 s: every vCPU active again"),
            "{}",
            decisions[0]
        );
    }

    #[test]
    fn keeps_a_bounded_number_of_decisions() {
        let mut run = started();
        for ms in 0..MAX_DECISIONS as u64 + 50 {
            run.update(Record::Note { at: Duration::from_millis(ms), text: format!("note {ms}") });
        }
        let decisions = run.decisions();
        assert_eq!(decisions.len(), MAX_DECISIONS);
        assert!(decisions[0].to_string().ends_with("note 249"), "{}", decisions[0]);
    }

    #[test]
    fn another_version_starts_no_run() {
        assert!(Run::start(Record::Note { at: Duration::ZERO, text: String::new() }).is_none());
    }
}
