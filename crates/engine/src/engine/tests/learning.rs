//! A scripted machine on which one program gains by retention: what a run tries, proves and passes on to the
//! next run.

use gleaner_policy::{
    CpuId, CpuSet, KnownLoad, Method, Mode, Observation, PolicyConfig, VcpuInterval, Watch, WorkloadInterval,
};
use gleaner_proto::memory::{LoadMemory, MachineIdentity, ProgramMemory};

use super::super::*;
use crate::MemoryDir;

/// Hand-offs of the two threads per second, halting and retained.
const HAND_OFFS: [f64; 2] = [40e3, 150e3];
const LOADS: [f64; 2] = [0.8, 1.2];

/// Two vCPUs, and two threads that hand each other work.
struct PingPong {
    now: Duration,
    observed: Duration,
    end: Duration,
    setting: Setting,
}

#[derive(Debug, thiserror::Error)]
#[error("nothing fails here")]
struct Never;

impl PingPong {
    fn new(seconds: u64) -> Self {
        let setting = Setting::untouched(&CpuSet::first(2));
        let (now, observed) = (Duration::ZERO, Duration::ZERO);
        Self { now, observed, end: Duration::from_secs(seconds), setting }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small counts")]
fn count(per_second: f64, period: Duration) -> u64 {
    (per_second * period.as_secs_f64()) as u64
}

impl Machine for PingPong {
    type Error = Never;

    fn now(&self) -> Duration {
        self.now
    }

    fn allowed(&self) -> CpuSet {
        CpuSet::first(2)
    }

    fn observe(&mut self) -> Result<Observation, Never> {
        let period = self.now.saturating_sub(std::mem::replace(&mut self.observed, self.now));
        let retained = usize::from(self.setting.retention.is_on());
        let idle = period.mul_f64(1.0 - LOADS[retained] / 2.0);
        let periods = count(HAND_OFFS[retained] / 2.0, period);
        let halting = VcpuInterval {
            cpu: CpuId(0),
            halts: periods,
            halt_time: idle,
            polls: 0,
            poll_time: Duration::ZERO,
            steal: Duration::ZERO,
        };
        let polling =
            VcpuInterval { halts: 0, halt_time: Duration::ZERO, polls: periods, poll_time: idle, ..halting };
        let vcpu = |cpu| VcpuInterval { cpu: CpuId(cpu), ..[halting, polling][retained] };
        let workload = WorkloadInterval {
            cpu_time: period.mul_f64(LOADS[retained]),
            user_time: period.mul_f64(LOADS[retained] / 4.0),
            switches: count(HAND_OFFS[retained], period),
            moved_bytes: Some(count(HAND_OFFS[retained], period)),
            threads: 2,
            ..WorkloadInterval::default()
        };
        Ok(Observation {
            at: self.now,
            period,
            vcpus: vec![vcpu(0), vcpu(1)],
            workload,
            runnable: 1,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost: Duration::from_micros(50),
        })
    }

    fn reset_poll_limits(&mut self) -> Result<(), Never> {
        Ok(())
    }

    fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, Never> {
        self.setting = setting.clone();
        Ok(Vec::new())
    }
}

impl Wait for PingPong {
    fn wait(&mut self, next: Duration, _: Option<Watch>) -> Result<Wake, Never> {
        self.now += next;
        Ok(if self.now < self.end { Wake::Observe } else { Wake::Ended })
    }
}

fn config(mode: Mode, known: Vec<KnownLoad>) -> PolicyConfig {
    let method = Method::Haltpoll;
    PolicyConfig { mode, method, consolidate: false, known, ..PolicyConfig::default() }
}

fn run_for(seconds: u64, config: PolicyConfig) -> (Policy, Summary) {
    let mut policy = Policy::new(config, CpuSet::first(2)).unwrap();
    let summary = run(&mut PingPong::new(seconds), &mut policy, &mut Journal::disabled());
    (policy, summary)
}

#[test]
fn what_a_run_proves_is_kept_and_in_force_from_the_first_sample_of_the_next_run() {
    let (policy, summary) = run_for(5, config(Mode::Adaptive, Vec::new()));
    assert!(summary.proven > 0 && summary.evidence.is_some(), "{summary:?}");
    let learned = policy.learned();
    assert!(learned.iter().any(|learned| learned.known.retention.is_some()), "{learned:?}");

    let dir = tempfile::tempdir().unwrap();
    let place = MemoryDir::at(dir.path().join("memory"));
    let machine = MachineIdentity {
        id: String::new(),
        kernel: String::new(),
        vcpus: 2,
        method: Method::Haltpoll,
        poll_price: PolicyConfig::default().poll_price,
    };
    let new = ProgramMemory::new("/ping-pong".to_owned(), machine);
    let loads = learned.iter().map(|learned| LoadMemory {
        known: learned.known,
        proven_unix_ms: Some(1),
        refuted_unix_ms: None,
    });
    place.save(&ProgramMemory { runs: 1, loads: loads.collect(), ..new.clone() }).unwrap();
    let kept = place.load(&new).unwrap().unwrap();
    let known: Vec<_> = kept.loads.iter().map(|load| load.known).collect();

    let (_, summary) = run_for(5, config(Mode::Adaptive, known));
    // Settings are listed by first use: untouched until the first observation, and no new trial of it.
    let [untouched, retained] = &summary.settings[..] else { panic!("{summary:?}") };
    assert!(retained.setting.retention.is_on() && untouched.time < Duration::from_secs(1), "{summary:?}");
}

#[test]
fn a_dry_run_says_what_it_would_try_and_changes_nothing() {
    let (policy, summary) = run_for(5, config(Mode::DryRun, Vec::new()));
    let [would] = &summary.would_try[..] else { panic!("{summary:?}") };
    assert!(would.setting.retention.is_on(), "{summary:?}");
    assert_eq!((summary.proven, summary.refuted, policy.learned().len()), (0, 0, 0), "{summary:?}");
    let [untouched] = &summary.settings[..] else { panic!("{summary:?}") };
    assert_eq!(untouched.setting, Setting::untouched(&CpuSet::first(2)));
}
