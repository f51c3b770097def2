//! What the account says of refused settings, and of polling that Gleaner did not cause.

use std::collections::VecDeque;

use gleaner_policy::{
    CpuId, CpuSet, Method, Mode, Observation, PolicyConfig, Retention, VcpuInterval, Watch,
};

use super::super::*;

const STEP: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
#[error("not permitted to change the limit; run as root")]
struct Refused;

/// Two vCPUs that poll for a tenth of the time, with our limit or without.
struct Fake {
    now: Duration,
    refuses: bool,
    waits_for_workload: bool,
    settled: VecDeque<bool>,
    samples: usize,
    warned: Vec<String>,
}

impl Fake {
    fn new(samples: usize) -> Self {
        let settled = VecDeque::new();
        Self {
            now: Duration::ZERO,
            refuses: false,
            waits_for_workload: true,
            settled,
            samples,
            warned: Vec::new(),
        }
    }
}

impl Machine for Fake {
    type Error = Refused;

    fn now(&self) -> Duration {
        self.now
    }

    fn allowed(&self) -> CpuSet {
        CpuSet::first(2)
    }

    fn waits_for_workload(&self) -> bool {
        self.waits_for_workload
    }

    fn warn(&mut self, sentence: &str) {
        self.warned.push(sentence.to_owned());
    }

    fn observe(&mut self) -> Result<Observation, Refused> {
        let vcpu = |cpu| VcpuInterval {
            cpu: CpuId(cpu),
            halts: 0,
            halt_time: Duration::ZERO,
            polls: 1,
            poll_time: STEP / 10,
            steal: Duration::ZERO,
        };
        Ok(Observation {
            at: self.now,
            period: STEP,
            vcpus: vec![vcpu(0), vcpu(1)],
            workload: gleaner_policy::WorkloadInterval::default(),
            runnable: 0,
            overload: None,
            throttled: 0.0,
            settled: self.settled.pop_front().unwrap_or(true),
            cost: Duration::ZERO,
        })
    }

    fn reset_poll_limits(&mut self) -> Result<(), Refused> {
        Ok(())
    }

    fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, Refused> {
        if self.refuses && setting.retention.is_on() { Err(Refused) } else { Ok(Vec::new()) }
    }
}

impl Wait for Fake {
    fn wait(&mut self, _next: Duration, _watch: Option<Watch>) -> Result<Wake, Refused> {
        self.now += STEP;
        self.samples = self.samples.saturating_sub(1);
        Ok(if self.samples == 0 { Wake::Ended } else { Wake::Observe })
    }
}

fn fixed(retention: Retention) -> Policy {
    let setting = Setting { active: CpuSet::first(2), retention };
    let config = PolicyConfig { mode: Mode::Fixed(setting), ..PolicyConfig::default() };
    Policy::new(config, CpuSet::first(2)).unwrap()
}

const POLL: Retention = Retention { method: Method::Haltpoll, limit: Duration::from_micros(200) };

#[test]
fn the_administrators_own_polling_does_not_count_as_retained() {
    let mut machine = Fake::new(10);
    // The first two intervals still poll by our old limit.
    machine.settled = [false, false].into();
    let summary = run(&mut machine, &mut fixed(Retention::NONE), &mut Journal::disabled());
    assert_eq!((summary.retained, summary.polled_otherwise), (STEP / 5 * 2, STEP / 5 * 8));
    let summary = run(&mut Fake::new(10), &mut fixed(POLL), &mut Journal::disabled());
    assert_eq!((summary.retained, summary.polled_otherwise), (STEP / 5 * 10, Duration::ZERO));
}

#[test]
fn a_setting_that_is_refused_is_reported_at_once_and_in_the_account() {
    for waits_for_workload in [true, false] {
        let mut machine = Fake { refuses: true, waits_for_workload, ..Fake::new(10) };
        let mut policy = fixed(POLL);
        let summary = run(&mut machine, &mut policy, &mut Journal::disabled());
        let sentence = summary.not_in_force.unwrap();
        assert!(sentence.starts_with("not permitted to change the limit; run as root; "), "{sentence}");
        assert_eq!(machine.warned, [sentence]);
        assert_eq!(summary.fixed.as_ref(), policy.fixed());
        // A command's caller still waits for it through Gleaner; a workload that Gleaner attached to has no
        // such caller.
        assert_eq!(summary.elapsed.is_zero(), !waits_for_workload);
        assert!(summary.settings.iter().all(|s| !s.setting.retention.is_on()));
    }
}
