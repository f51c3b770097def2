//! A daemon's life in short, by which every metric gets a value.

#![allow(dead_code, reason = "every test binary uses its own part of this")]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use gleaner_metrics::{Lever, Metrics, Pause};
use gleaner_policy::{
    CpuId, CpuSet, Event, Evidence, Method, Observation, Purpose, ReleaseReason, Retention, Setting, Signal,
    TrialReason, VcpuInterval, Verdict, Waiting, WaitingSource, WorkloadInterval,
};

pub(crate) const VERSION: &str = "0.1.0 (0123456789ab)";
const PERIOD: Duration = Duration::from_millis(100);

pub(crate) struct Script {
    pub(crate) metrics: Metrics,
    pub(crate) now: Duration,
}

impl Script {
    pub(crate) fn new(most_workloads: usize) -> Self {
        let metrics = Metrics::new(VERSION, SystemTime::now(), most_workloads);
        Self { metrics, now: Duration::ZERO }
    }

    /// 0.1 s in which everything happens.
    pub(crate) fn step(&mut self) {
        self.now += PERIOD;
        let m = &mut self.metrics;
        for (workload, source) in
            [("redis-server.service", WaitingSource::Traced), ("mariadb.service", WaitingSource::Estimated)]
        {
            m.observe(workload, &retained(), &observation(self.now, Some(source)));
            m.event(workload, &started(&untouched(), &retained()));
            m.event(workload, &ended(&retained(), &retained(), proven()));
            m.event(workload, &started(&retained(), &smaller()));
            m.event(workload, &ended(&smaller(), &retained(), Verdict::Undecided(None)));
            m.event(workload, &Event::Released { why: ReleaseReason::Long });
        }
        m.workloads(12, 2);
        m.machine(2, 0.5);
        m.wake_cost(Method::Halt, Duration::from_micros(40));
        m.wake_cost(Method::Haltpoll, Duration::from_micros(4));
        let since_boot = 1_000 + self.now.as_secs() * 10 + u64::from(self.now.subsec_millis()) / 100;
        m.interrupts(since_boot * 300, since_boot * 100);
        m.paused(&[Pause::QuietHours]);
        m.leases(3);
        m.undo_failed();
        m.stepped_back(Lever::Retention);
        m.reloaded(true);
        m.reloaded(false);
        m.process(self.now / 100, 9 << 20);
    }

    pub(crate) fn encode(&mut self) -> String {
        self.metrics.encode(self.now)
    }
}

pub(crate) fn untouched() -> Setting {
    Setting::untouched(&CpuSet::first(2))
}

pub(crate) fn retained() -> Setting {
    let limit = Duration::from_micros(200);
    Setting { retention: Retention { method: Method::Haltpoll, limit }, ..untouched() }
}

pub(crate) fn smaller() -> Setting {
    Setting { active: CpuSet::first(1), ..retained() }
}

pub(crate) fn proven() -> Verdict {
    Verdict::Proven(Evidence { signal: Signal::Moved, ratio: 1.8, low: 1.5, high: 2.1, pairs: 4 })
}

pub(crate) fn started(baseline: &Setting, candidate: &Setting) -> Event {
    let (baseline, candidate) = (baseline.clone(), candidate.clone());
    Event::TrialStarted { baseline, candidate, purpose: Purpose::Adopt, why: TrialReason::TrustExpired }
}

pub(crate) fn ended(candidate: &Setting, kept: &Setting, verdict: Verdict) -> Event {
    let (candidate, kept) = (candidate.clone(), kept.clone());
    Event::TrialEnded { candidate, purpose: Purpose::Adopt, verdict, kept, again_at: Duration::from_secs(1) }
}

/// 0.1 s until `at`: on each of two vCPUs 500 halts and 20 ms of polling.
pub(crate) fn observation(at: Duration, source: Option<WaitingSource>) -> Observation {
    let vcpu = |cpu| VcpuInterval {
        cpu: CpuId(cpu),
        halts: 500,
        halt_time: Duration::from_millis(20),
        polls: 1000,
        poll_time: Duration::from_millis(20),
        steal: Duration::ZERO,
    };
    let waiting = source.map(|source| Waiting {
        wake_ups: 1000,
        total: Duration::from_millis(6),
        tail: Duration::from_micros(40),
        source,
    });
    Observation {
        at,
        period: PERIOD,
        vcpus: vec![vcpu(0), vcpu(1)],
        workload: WorkloadInterval { waiting, ..WorkloadInterval::default() },
        runnable: 1,
        overload: None,
        throttled: 0.0,
        settled: true,
        cost: Duration::ZERO,
    }
}

/// The samples of an exposition, by name with labels; those of a histogram by `_bucket`, `_sum` and `_count`.
pub(crate) fn samples(exposition: &str) -> BTreeMap<&str, &str> {
    exposition
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .collect()
}

/// What the dashboard asks for, of all machines and workloads.
pub(crate) fn queries() -> Vec<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/grafana/gleaner.json");
    let dashboard: serde_json::Value =
        std::fs::read(path).map(|json| serde_json::from_slice(&json).unwrap_or_default()).unwrap_or_default();
    let panels = dashboard["panels"].as_array().into_iter().flatten();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    targets
        .filter_map(|target| target["expr"].as_str())
        .map(|query| {
            query.replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$workload", ".*")
        })
        .collect()
}
