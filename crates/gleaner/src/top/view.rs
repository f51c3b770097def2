//! Everything shown, as numbers and sentences, computed from two readings and a journal.

use std::time::Duration;

use gleaner_kernel::idle::{IdleCounters, IdleSource};
use gleaner_policy::{CpuId, CpuSet, Method, Setting};
use gleaner_trace::Histogram;
use serde::Serialize;

use super::reading::Reading;
use super::run::Run;
use crate::status;
use gleaner_explain::Sentence;

/// Version of the JSON form.
const VERSION: u32 = 1;

/// Everything on one screen. Rates are over the interval between two samples, shares are 0..=1, and unknown values are
/// absent.
#[derive(Debug, Clone, Serialize)]
pub(super) struct View {
    version: u32,
    /// Length of the interval in seconds; 0 before the second sample.
    pub(super) interval_s: f64,
    /// Poll limit of idle vCPUs in us, if the haltpoll governor is in charge.
    pub(super) haltpoll_us: Option<f64>,
    /// Whether the numbers of halts are an upper bound, derived from context switches.
    pub(super) idle_estimated: bool,
    /// What the daemon does, if one runs.
    pub(super) daemon: Option<gleaner_control::Status>,
    /// Why there is no workload, or not all of it.
    pub(super) journal: Option<String>,
    /// The workload that a Gleaner without daemon controls, or controlled last: at most one.
    pub(super) workloads: Vec<Workload>,
    /// Each online vCPU.
    pub(super) vcpus: Vec<Vcpu>,
    /// Their sums; shares are means.
    pub(super) all: Vcpu,
    pub(super) wakes: Wakes,
    /// Decisions and their reasons, newest first.
    pub(super) decisions: Vec<Sentence>,
    /// What else is unknown here, and why.
    pub(super) missing: Vec<String>,
}

/// State of the Gleaner that controls, or controlled, the workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Status {
    /// It is at work.
    Running,
    /// It ended and restored everything.
    Ended,
    /// The journal has no end, and no Gleaner controls the machine.
    Killed,
}

/// One workload and its setting.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Workload {
    /// The command, or what was attached to.
    pub(super) name: String,
    pub(super) status: Status,
    pub(super) gleaner_pid: Option<u32>,
    /// Time of the journal's latest record, in seconds.
    pub(super) seconds: f64,
    /// The vCPUs that it runs on.
    pub(super) active: CpuSet,
    /// The allowed vCPUs that it does not run on.
    pub(super) inactive: CpuSet,
    /// The retention method in effect.
    pub(super) method: Method,
    /// The poll limit in us; absent without retention, and for methods without a limit.
    pub(super) limit_us: Option<f64>,
    /// The retention method used when retention pays.
    pub(super) chosen_method: Method,
    /// The setting, as text.
    pub(super) setting: String,
    /// The current trial.
    pub(super) trial: Option<Trial>,
    /// Its latest activity.
    pub(super) doing: Option<Activity>,
}

/// A candidate and its baseline.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Trial {
    pub(super) candidate: String,
    pub(super) baseline: String,
}

/// The workload's activity in the latest interval of its journal.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Activity {
    /// CPU time per second: 1.0 is one vCPU.
    pub(super) load: f64,
    pub(super) threads: u32,
    pub(super) switches_per_s: f64,
    /// Run-queue delay of all threads, in seconds per second.
    pub(super) run_delay: f64,
}

/// One vCPU, or the total.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Vcpu {
    /// Absent in the total.
    pub(super) cpu: Option<CpuId>,
    /// Whether a workload is allowed to run on this vCPU now; absent if none was, or nothing runs.
    pub(super) active: Option<bool>,
    pub(super) busy: Option<f64>,
    pub(super) steal: Option<f64>,
    pub(super) polling: Option<f64>,
    /// Idle periods.
    pub(super) idle_per_s: Option<f64>,
    /// Idle periods that ended in a halt.
    pub(super) halts_per_s: Option<f64>,
    /// Reschedule and function call interrupts received.
    pub(super) ipis_per_s: Option<f64>,
    /// Timer interrupts received.
    pub(super) timer_per_s: Option<f64>,
}

/// Wake-up latencies, or why there are none.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub(super) enum Wakes {
    Traced {
        /// Whose wake-ups are traced.
        scope: String,
        kinds: Vec<Latency>,
        /// Cost of tracing, as a share of the CPU time in use.
        tracing_cost: f64,
        /// Threads are traced for one in this many parts of the time; 1: always.
        one_in: u32,
    },
    NotAvailable {
        why: String,
    },
}

/// Latencies of one kind of wake-up.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Latency {
    pub(super) kind: &'static str,
    pub(super) per_s: Option<f64>,
    /// Percentiles in us; absent if there were no wake-ups.
    pub(super) p50_us: Option<f64>,
    pub(super) p90_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
}

/// What is known about the Gleaner at work.
#[derive(Debug, Clone, Copy)]
pub(super) struct GleanerState<'a> {
    /// What the daemon does, if one runs; the others do not count then.
    pub(super) daemon: Option<&'a gleaner_control::Status>,
    /// The run in the journal.
    pub(super) run: Option<&'a Run>,
    /// PID of the Gleaner that controls the machine.
    pub(super) holder: Option<u32>,
    /// Why the journal cannot be read, or the daemon not be asked.
    pub(super) problem: Option<&'a str>,
}

impl View {
    /// What happened between two readings; `scope` says whose wake-ups were traced.
    pub(super) fn new(before: &Reading, now: &Reading, work: GleanerState<'_>, scope: &str) -> Self {
        let period = now.at.saturating_sub(before.at);
        let run = work.run.filter(|_| work.daemon.is_none());
        let workload = run.map(|run| workload(run, work.holder));
        let vcpus = vcpus(before, now, period, &Places::new(work.daemon, workload.as_ref()));
        Self {
            version: VERSION,
            interval_s: period.as_secs_f64(),
            haltpoll_us: now.haltpoll.map(us),
            idle_estimated: now.idle.iter().flatten().any(|c| c.source == IdleSource::Estimate),
            daemon: work.daemon.cloned(),
            journal: journal(work),
            workloads: workload.into_iter().collect(),
            all: sum(&vcpus),
            vcpus,
            wakes: wakes(before, now, scope),
            decisions: match work.daemon {
                Some(status) => status::decisions(status).map(Sentence::plain).collect(),
                None => run.map(Run::decisions).unwrap_or_default(),
            },
            missing: missing(now),
        }
    }
}

fn journal(work: GleanerState<'_>) -> Option<String> {
    if work.daemon.is_some() {
        return None;
    }
    if let Some(problem) = work.problem {
        return Some(problem.to_owned());
    }
    match (work.holder, work.run) {
        (Some(pid), None) => Some(format!(
            "gleaner (pid {pid}) is at work, but its journal is not here: name it with --journal"
        )),
        (Some(pid), Some(run)) if run.ended => Some(format!(
            "gleaner (pid {pid}) starts, or writes its journal elsewhere: name it with --journal"
        )),
        (None, None) => Some("no Gleaner is at work: `gleaner run -- COMMAND` starts one".to_owned()),
        (_, Some(_)) => None,
    }
}

fn workload(run: &Run, holder: Option<u32>) -> Workload {
    let status = match (run.ended, holder) {
        (true, _) => Status::Ended,
        (false, Some(_)) => Status::Running,
        (false, None) => Status::Killed,
    };
    let Setting { active, retention } = &run.setting;
    let limited = !matches!(retention.method, Method::Halt | Method::QosPoll);
    Workload {
        name: run.workload.clone(),
        status,
        gleaner_pid: holder.filter(|_| status == Status::Running),
        seconds: run.at.as_secs_f64(),
        inactive: run.allowed.difference(active),
        active: active.clone(),
        method: retention.method,
        limit_us: limited.then(|| us(retention.limit)),
        chosen_method: run.method,
        setting: run.setting.to_string(),
        trial: run.trial.as_ref().map(|(candidate, baseline)| Trial {
            candidate: candidate.to_string(),
            baseline: baseline.to_string(),
        }),
        doing: run.observed.as_ref().map(|o| Activity {
            load: o.load(),
            threads: o.workload.threads,
            switches_per_s: rate(o.workload.switches, o.period).unwrap_or_default(),
            run_delay: share(o.workload.run_delay, o.period).unwrap_or_default(),
        }),
    }
}

/// Where workloads are allowed to run.
#[derive(Debug, Default)]
struct Places {
    active: CpuSet,
    allowed: CpuSet,
}

impl Places {
    fn new(daemon: Option<&gleaner_control::Status>, workload: Option<&Workload>) -> Self {
        let mut places = Self::default();
        for engaged in daemon.into_iter().flat_map(|status| &status.workloads) {
            if let (Some(active), Some(allowed)) = (&engaged.active, &engaged.allowed) {
                places.add(active, allowed);
            }
        }
        if let Some(running) = workload.filter(|w| w.status == Status::Running) {
            places.add(&running.active, &running.inactive);
        }
        places
    }

    fn add(&mut self, active: &CpuSet, allowed: &CpuSet) {
        self.active = self.active.iter().chain(active.iter()).collect();
        self.allowed = self.allowed.iter().chain(allowed.iter()).collect();
    }

    /// Whether a workload runs on `cpu`; `None` if none is allowed to.
    fn is_active(&self, cpu: CpuId) -> Option<bool> {
        if self.active.contains(cpu) { Some(true) } else { self.allowed.contains(cpu).then_some(false) }
    }
}

fn vcpus(before: &Reading, now: &Reading, period: Duration, places: &Places) -> Vec<Vcpu> {
    let mut online = CpuSet::new();
    for cpu in now.idle.iter().flatten().map(|c| c.cpu) {
        online.insert(cpu);
    }
    for (cpu, _) in now.stat.iter().flat_map(|stat| &stat.cpus) {
        online.insert(*cpu);
    }
    let of = |cpu| Vcpu { cpu: Some(cpu), active: places.is_active(cpu), ..vcpu(cpu, before, now, period) };
    online.iter().map(of).collect()
}

fn vcpu(cpu: CpuId, before: &Reading, now: &Reading, period: Duration) -> Vcpu {
    let idle = |r: &Reading| r.idle.iter().flatten().find(|c| c.cpu == cpu).copied();
    let idle: Option<(IdleCounters, IdleCounters)> = idle(before).zip(idle(now));
    let halts = idle.map(|(then, now)| now.halts.saturating_sub(then.halts));
    let polls = idle.map(|(then, now)| now.polls.saturating_sub(then.polls));
    let polled = idle.map(|(then, now)| now.poll_time.saturating_sub(then.poll_time));
    let irqs =
        |r: &Reading| r.interrupts.iter().flatten().find(|(other, _)| *other == cpu).map(|(_, irqs)| *irqs);
    let irqs = irqs(before).zip(irqs(now));
    let ipis =
        irqs.map(|(then, now)| (now.reschedule + now.call).saturating_sub(then.reschedule + then.call));
    let timer = irqs.map(|(then, now)| now.timer.saturating_sub(then.timer));
    let cpu_times = |r: &Reading| {
        r.stat.iter().flat_map(|stat| &stat.cpus).find(|(other, _)| *other == cpu).map(|(_, times)| *times)
    };
    let cpu_times = cpu_times(before).zip(cpu_times(now));
    let of_times = |part: fn(&gleaner_kernel::stat::CpuTimes) -> Duration| {
        let (then, now) = cpu_times?;
        // The kernel counts in ticks, so the whole is what it counted rather than the interval.
        share(part(&now).saturating_sub(part(&then)), now.total().saturating_sub(then.total()))
    };
    Vcpu {
        busy: of_times(gleaner_kernel::stat::CpuTimes::busy),
        steal: of_times(|times| times.steal),
        polling: polled.and_then(|time| share(time, period)),
        // A poll that times out turns into a halt: one period, counted twice.
        idle_per_s: halts.zip(polls).and_then(|(halts, polls)| rate(halts.max(polls), period)),
        halts_per_s: halts.and_then(|n| rate(n, period)),
        ipis_per_s: ipis.and_then(|n| rate(n, period)),
        timer_per_s: timer.and_then(|n| rate(n, period)),
        ..Vcpu::default()
    }
}

/// All vCPUs in one row.
fn sum(vcpus: &[Vcpu]) -> Vcpu {
    let total = |of: fn(&Vcpu) -> Option<f64>| vcpus.iter().map(of).sum::<Option<f64>>();
    let mean = |of| total(of).map(|sum| sum / vcpus.len().max(1) as f64);
    Vcpu {
        cpu: None,
        active: None,
        busy: mean(|v| v.busy),
        steal: mean(|v| v.steal),
        polling: mean(|v| v.polling),
        idle_per_s: total(|v| v.idle_per_s),
        halts_per_s: total(|v| v.halts_per_s),
        ipis_per_s: total(|v| v.ipis_per_s),
        timer_per_s: total(|v| v.timer_per_s),
    }
}

fn wakes(before: &Reading, now: &Reading, scope: &str) -> Wakes {
    let (then, now) = match (&before.trace, &now.trace) {
        (Ok(then), Ok(now)) => (then, now),
        (_, Err(why)) | (Err(why), _) => return Wakes::NotAvailable { why: why.clone() },
    };
    // The time that the counts stand for: about the period.
    let covered = now.covered.saturating_sub(then.covered);
    let kinds = now.until_run().into_iter().zip(then.until_run());
    let latency = |((kind, now), (_, then)): ((&'static str, &Histogram), (&'static str, &Histogram))| {
        let new = now.since(then);
        let quantile = |q| new.quantile(q).map(us);
        Latency {
            kind,
            per_s: rate(new.count, covered),
            p50_us: quantile(0.5),
            p90_us: quantile(0.9),
            p99_us: quantile(0.99),
        }
    };
    Wakes::Traced {
        scope: scope.to_owned(),
        kinds: kinds.map(latency).collect(),
        tracing_cost: now.cost.share,
        one_in: now.one_in,
    }
}

fn missing(now: &Reading) -> Vec<String> {
    let untraced = now.trace.iter().flat_map(|snapshot| &snapshot.missing).map(ToString::to_string);
    now.missing.iter().cloned().chain(untraced).collect()
}

fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn rate(count: u64, period: Duration) -> Option<f64> {
    (!period.is_zero()).then(|| count as f64 / period.as_secs_f64())
}

fn share(part: Duration, whole: Duration) -> Option<f64> {
    (!whole.is_zero()).then(|| part.as_secs_f64() / whole.as_secs_f64())
}
