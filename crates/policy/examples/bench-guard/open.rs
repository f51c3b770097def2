//! Servers whose wake-ups retention speeds up. Open loops: requests arrive as a Poisson process, so that no
//! setting changes how many are answered. Closed loops that faster wake-ups harm: each answer triggers the next
//! request, and fewer come.

use std::fmt::Write as _;
use std::time::Duration;

use gleaner_policy::{
    CpuSet, Decision, Event, Method, Observation, Policy, PolicyConfig, Waiting, WaitingSource,
    WorkloadInterval,
};

use super::{SECOND, count, on_two_vcpus};

/// Bytes moved per request, its answer included.
const BYTES: u64 = 600;
/// Wake-to-run latency with halting and with polling vCPUs.
const LATENCY_US: [f64; 2] = [40.0, 5.0];
/// CPU time per request.
const WORK_US: f64 = 12.0;
/// Spread (log ratio) of latencies between blocks.
const JITTER: f64 = 0.15;
/// Spread (log ratio) of a closed loop's answers between blocks.
const CLOSED: f64 = 0.05;

#[derive(Debug, Clone, Copy)]
enum Load {
    /// Requests per second that arrive by themselves.
    Open(f64),
    /// Answers per second without retention, and the share of them that is left with it.
    Closed(f64, f64),
}

/// A server; retention shortens its waiting.
struct Server {
    load: Load,
    policy: Policy,
    decision: Decision,
    now: Duration,
    random: u64,
    /// Whether it was retained at the end of the last trial, and how often that changed after the first two
    /// seconds.
    kept: bool,
    changes: u32,
    /// Total time retained.
    retained: Duration,
}

impl Server {
    fn new(load: Load, seed: u64) -> Result<Self, String> {
        let config = PolicyConfig { method: Method::Haltpoll, consolidate: false, ..PolicyConfig::default() };
        let policy = Policy::new(config, CpuSet::first(2)).map_err(|e| e.to_string())?;
        let next = Duration::from_millis(10);
        let decision = Decision { setting: policy.setting(), next, ..Decision::default() };
        let random = (seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let (now, retained) = (Duration::ZERO, Duration::ZERO);
        Ok(Self { load, policy, decision, now, random, kept: false, changes: 0, retained })
    }

    /// Approximately normal, mean 0 and deviation 1: a sum of twelve uniform numbers (xorshift64).
    fn normal(&mut self) -> f64 {
        let mut sum = -6.0;
        for _ in 0..12 {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            sum += (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        }
        sum
    }

    fn observe(&mut self, period: Duration) -> Observation {
        let (seconds, retained) = (period.as_secs_f64(), self.decision.setting.retention.is_on());
        let requests = match self.load {
            Load::Open(per_s) => per_s * seconds + (per_s * seconds).sqrt() * self.normal(),
            Load::Closed(per_s, left) => {
                let effect = if retained { left } else { 1.0 };
                per_s * seconds * effect * (CLOSED / 2.0_f64.sqrt() * self.normal()).exp()
            }
        };
        let requests = count(requests.max(0.0));
        let us = |x: f64| Duration::from_secs_f64(x / 1e6);
        let latency = LATENCY_US[usize::from(retained)] * (JITTER * self.normal()).exp();
        let waiting = Waiting {
            wake_ups: requests,
            total: us(latency * requests as f64),
            tail: us(3.0 * latency),
            source: WaitingSource::Estimated,
        };
        let workload = WorkloadInterval {
            cpu_time: us(WORK_US * requests as f64),
            user_time: us(WORK_US / 3.0 * requests as f64),
            switches: requests,
            moved_bytes: Some(requests * BYTES),
            threads: 5,
            waiting: Some(waiting),
            ..WorkloadInterval::default()
        };
        let idle = period.saturating_sub(workload.cpu_time / 2);
        on_two_vcpus(self.now, period, retained, (requests / 2, idle), workload)
    }

    /// Steps the policy until `end`; returns the share of the time spent retained.
    fn run(&mut self, end: Duration) -> f64 {
        let (start, before) = (self.now, self.retained);
        while self.now < end {
            let period = self.decision.next;
            self.now += period;
            if self.decision.setting.retention.is_on() {
                self.retained += period;
            }
            let o = self.observe(period);
            self.decision = self.policy.step(&o);
            for event in &self.decision.events {
                let keeps = match event {
                    Event::TrialEnded { kept, .. } => kept.retention.is_on(),
                    Event::Released { .. } => false,
                    Event::Resumed { setting, .. } => setting.retention.is_on(),
                    _ => continue,
                };
                self.changes += u32::from(keeps != self.kept && self.now > 2 * SECOND);
                self.kept = keeps;
            }
        }
        self.retained.saturating_sub(before).as_secs_f64() / self.now.saturating_sub(start).as_secs_f64()
    }
}

/// A table of how long such servers are retained, and how often that changes.
pub(crate) fn table(runs: u32) -> Result<String, String> {
    let mut out = String::from(
        "| server | retained from 2 to 12 s | from 52 to 62 s | changes of mind from 2 to 62 s |\n\
         |---|--:|--:|--:|\n",
    );
    let open = [2_000.0, 5_000.0, 20_000.0].map(Load::Open);
    let closed = [0.97, 0.95, 0.9, 0.7].map(|left| Load::Closed(20_000.0, left));
    for load in open.into_iter().chain(closed) {
        let (mut early, mut late, mut changes) = (0.0, 0.0, 0.0);
        for seed in 0..runs {
            let mut server = Server::new(load, seed.into())?;
            server.run(2 * SECOND);
            early += server.run(12 * SECOND);
            server.run(52 * SECOND);
            late += server.run(62 * SECOND);
            changes += f64::from(server.changes);
        }
        let n = f64::from(runs);
        let (early, late) = (100.0 * early / n, 100.0 * late / n);
        let name = match load {
            Load::Open(per_s) => format!("open loop, {per_s:.0} requests/s"),
            Load::Closed(_, left) => format!("closed loop, retention leaves {left:.2} of the answers"),
        };
        let _ = writeln!(out, "| {name} | {early:.0} % | {late:.0} % | {:.1} |", changes / n);
    }
    Ok(out)
}
