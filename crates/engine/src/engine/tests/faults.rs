//! A machine on which any one call fails, once or persistently: the run must release its setting, say why, and
//! go on to its end.

use gleaner_policy::{
    CpuId, CpuSet, Method, Mode, Observation, PolicyConfig, VcpuInterval, Watch, WorkloadInterval,
};

use super::super::*;

/// When the workload ends.
const END: Duration = Duration::from_millis(400);

/// The call that failed.
#[derive(Debug, thiserror::Error)]
#[error("{what} failed")]
struct Fault {
    what: &'static str,
}

/// Which calls fail: only number `from`, or all from it on.
#[derive(Debug, Clone, Copy)]
struct Faults {
    from: usize,
    lasting: bool,
}

/// A server that answers three times as fast while its two vCPUs are kept awake.
#[derive(Debug)]
struct Server {
    now: Duration,
    last: Duration,
    in_force: Setting,
    faults: Faults,
    calls: usize,
    /// The first call that failed.
    failed: Option<&'static str>,
    /// Whether the latest attempt to apply a setting failed.
    apply_failed: bool,
    warned: Vec<String>,
}

impl Server {
    fn new(faults: Faults) -> Self {
        Self {
            now: Duration::ZERO,
            last: Duration::ZERO,
            in_force: Setting::untouched(&CpuSet::first(2)),
            faults,
            calls: 0,
            failed: None,
            apply_failed: false,
            warned: Vec::new(),
        }
    }

    fn call(&mut self, what: &'static str) -> Result<(), Fault> {
        self.calls += 1;
        let Faults { from, lasting } = self.faults;
        let fails = self.calls == from || (lasting && self.calls > from);
        if fails {
            self.failed.get_or_insert(what);
        }
        if fails { Err(Fault { what }) } else { Ok(()) }
    }
}

impl Machine for Server {
    type Error = Fault;

    fn now(&self) -> Duration {
        self.now
    }

    fn allowed(&self) -> CpuSet {
        CpuSet::first(2)
    }

    fn warn(&mut self, sentence: &str) {
        self.warned.push(sentence.to_owned());
    }

    fn observe(&mut self) -> Result<Observation, Fault> {
        self.call("observing")?;
        let period = self.now.saturating_sub(self.last);
        self.last = self.now;
        let awake = self.in_force.retention.is_on();
        let per_s = |rate: f64| {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small count")]
            let count = (rate * period.as_secs_f64()) as u64;
            count
        };
        let vcpu = |cpu| VcpuInterval {
            cpu: CpuId(cpu),
            halts: if awake { 0 } else { per_s(10_000.0) },
            halt_time: if awake { Duration::ZERO } else { period / 2 },
            polls: if awake { per_s(30_000.0) } else { 0 },
            poll_time: if awake { period / 4 } else { Duration::ZERO },
            steal: Duration::ZERO,
        };
        let gain = if awake { 3.0 } else { 1.0 };
        Ok(Observation {
            at: self.now,
            period,
            vcpus: vec![vcpu(0), vcpu(1)],
            workload: WorkloadInterval {
                cpu_time: period,
                user_time: period / 2,
                switches: per_s(20_000.0 * gain),
                moved_bytes: Some(per_s(2e7 * gain)),
                threads: 2,
                ..WorkloadInterval::default()
            },
            runnable: 1,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost: Duration::ZERO,
        })
    }

    fn reset_poll_limits(&mut self) -> Result<(), Fault> {
        self.call("resetting poll limits")
    }

    fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, Fault> {
        let applied = self.call("applying");
        self.apply_failed = applied.is_err();
        applied?;
        assert!(self.failed.is_none() || !setting.retention.is_on(), "only untouched after a fault");
        self.in_force = setting.clone();
        Ok(Vec::new())
    }
}

impl Wait for Server {
    fn wait(&mut self, next: Duration, _: Option<Watch>) -> Result<Wake, Fault> {
        self.call("waiting")?;
        self.now += next;
        Ok(if self.now < END { Wake::Observe } else { Wake::Ended })
    }
}

fn run_on(faults: Faults) -> (Server, Summary) {
    let mut machine = Server::new(faults);
    let config = PolicyConfig { mode: Mode::Adaptive, method: Method::Haltpoll, ..PolicyConfig::default() };
    let mut policy = Policy::new(config, machine.allowed()).unwrap();
    let summary = run(&mut machine, &mut policy, &mut Journal::disabled());
    (machine, summary)
}

#[test]
fn whatever_call_fails_the_setting_is_released_and_the_reason_is_said() {
    let (sound, summary) = run_on(Faults { from: usize::MAX, lasting: false });
    assert!(summary.proven > 0 && summary.not_in_force.is_none(), "{summary:?}");
    assert_eq!(sound.in_force, Setting::untouched(&sound.allowed()));
    let mut met = std::collections::BTreeSet::new();
    for from in 1..=sound.calls {
        for lasting in [false, true] {
            let (machine, summary) = run_on(Faults { from, lasting });
            let context = format!("call {from} of {}, lasting: {lasting}: {summary:?}", sound.calls);
            let what = machine.failed.unwrap();
            met.insert(what);
            let untouched = machine.in_force == Setting::untouched(&machine.allowed());
            assert!(untouched || machine.apply_failed, "{context}");
            // The last observation and release come when nothing is controlled any more.
            if machine.now < END || (!lasting && !machine.warned.is_empty()) {
                let sentence = summary.not_in_force.as_ref().unwrap_or_else(|| panic!("{context}"));
                assert!(sentence.starts_with(&format!("{what} failed; ")), "{context}");
                assert_eq!(machine.warned, std::slice::from_ref(sentence), "{context}");
            }
            assert!(lasting || machine.now >= END, "the workload is stood by to its end: {context}");
            // If the very last release fails, the leases restore the setting.
            assert!(lasting || untouched || from == sound.calls, "{context}");
        }
    }
    assert!(["waiting", "observing", "applying"].iter().all(|what| met.contains(what)), "{met:?}");
}
