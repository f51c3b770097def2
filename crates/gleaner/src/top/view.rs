//! What is shown, as numbers and sentences: made from two readings and a journal, without looking or drawing.

use std::time::Duration;

use gleaner_kernel::idle::{IdleCounters, IdleSource};
use gleaner_policy::{CpuId, CpuSet, Method, Setting};
use gleaner_trace::Histogram;
use serde::Serialize;

use super::reading::Reading;
use super::run::Run;
use crate::why::Sentence;

/// The version of the JSON form.
const VERSION: u32 = 1;

/// Everything that one screen shows. Rates are those of the interval between two looks; shares are 0..=1; what cannot
/// be known is absent.
#[derive(Debug, Clone, Serialize)]
pub(super) struct View {
    version: u32,
    /// The length of the interval, in seconds; 0 before there are two looks.
    pub(super) interval_s: f64,
    /// For how long idle vCPUs poll now, in us, where the haltpoll governor is in charge.
    pub(super) haltpoll_us: Option<f64>,
    /// Whether the numbers of halts are an upper bound that is derived from context switches.
    pub(super) idle_estimated: bool,
    /// Why there is no workload, or not all of it.
    pub(super) journal: Option<String>,
    /// What Gleaner controls, or controlled last: one at most.
    pub(super) workloads: Vec<Workload>,
    /// Each online vCPU.
    pub(super) vcpus: Vec<Vcpu>,
    /// Their sums; shares are means.
    pub(super) all: Vcpu,
    /// Wake-up latencies.
    pub(super) wakes: Wakes,
    /// What was decided and why, latest first.
    pub(super) decisions: Vec<Sentence>,
    /// What else cannot be told here, and why.
    pub(super) missing: Vec<String>,
}

/// What is known of who controls the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Status {
    /// Its Gleaner is at work.
    Running,
    /// It ended and put everything back.
    Ended,
    /// Its journal has no end, and nobody controls the machine.
    Killed,
}

/// One workload and what is in force for it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Workload {
    /// The command, or what was attached to.
    pub(super) name: String,
    pub(super) status: Status,
    /// The Gleaner that controls it.
    pub(super) gleaner_pid: Option<u32>,
    /// How far its journal tells, in seconds.
    pub(super) seconds: f64,
    /// The vCPUs that it runs on.
    pub(super) active: CpuSet,
    /// The vCPUs that it may use and is kept from.
    pub(super) deactivated: CpuSet,
    /// How idle vCPUs are retained.
    pub(super) method: Method,
    /// For how long at most, in us; absent without retention, and where the method has no limit.
    pub(super) limit_us: Option<f64>,
    /// How they are retained where that pays.
    pub(super) chosen_method: Method,
    /// The setting in words.
    pub(super) setting: String,
    /// The trial that is going on.
    pub(super) trial: Option<Trial>,
    /// What it does.
    pub(super) doing: Option<Doing>,
}

/// A hypothesis and what it is held against.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Trial {
    pub(super) candidate: String,
    pub(super) baseline: String,
}

/// What a workload did in the latest interval of its journal.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Doing {
    /// CPU time per second: 1.0 is one vCPU.
    pub(super) load: f64,
    pub(super) threads: u32,
    pub(super) switches_per_s: f64,
    /// Threads' time on run queues per second.
    pub(super) run_delay: f64,
}

/// One vCPU, or all.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Vcpu {
    /// Which one; none for all.
    pub(super) cpu: Option<CpuId>,
    /// Whether the running workload may use it; absent where that is nobody's business.
    pub(super) active: Option<bool>,
    pub(super) busy: Option<f64>,
    /// Time that the host gave to others.
    pub(super) steal: Option<f64>,
    /// Time spent polling.
    pub(super) polling: Option<f64>,
    /// Idle periods.
    pub(super) idle_per_s: Option<f64>,
    /// Of these, those that ended in a halt.
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
        /// Whose wake-ups.
        scope: String,
        kinds: Vec<Latency>,
        /// What tracing costs, as a share of the CPU time in use.
        tracing_cost: f64,
        /// Threads are followed for one such part of the time; 1: always.
        one_in: u32,
    },
    NotAvailable {
        why: String,
    },
}

/// The latencies of one kind of wake-up.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Latency {
    pub(super) kind: &'static str,
    pub(super) per_s: Option<f64>,
    /// Percentiles in us; absent where there were none.
    pub(super) p50_us: Option<f64>,
    pub(super) p90_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
}

/// What is known of Gleaner's own work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work<'a> {
    /// The journal's run.
    pub(super) run: Option<&'a Run>,
    /// Who controls the machine now.
    pub(super) holder: Option<u32>,
    /// What is wrong with the journal.
    pub(super) problem: Option<&'a str>,
}

impl View {
    /// What is to be seen between two readings; `scope` says whose wake-ups were traced.
    pub(super) fn new(before: &Reading, now: &Reading, work: Work<'_>, scope: &str) -> Self {
        let period = now.at.saturating_sub(before.at);
        let workload = work.run.map(|run| workload(run, work.holder));
        let vcpus = vcpus(before, now, period, workload.as_ref());
        Self {
            version: VERSION,
            interval_s: period.as_secs_f64(),
            haltpoll_us: now.haltpoll.map(us),
            idle_estimated: now.idle.iter().flatten().any(|c| c.source == IdleSource::Estimate),
            journal: journal(work),
            workloads: workload.into_iter().collect(),
            all: sum(&vcpus),
            vcpus,
            wakes: wakes(before, now, scope),
            decisions: work.run.map(Run::decisions).unwrap_or_default(),
            missing: missing(now),
        }
    }
}

fn journal(work: Work<'_>) -> Option<String> {
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
        deactivated: run.allowed.difference(active),
        active: active.clone(),
        method: retention.method,
        limit_us: limited.then(|| us(retention.limit)),
        chosen_method: run.method,
        setting: run.setting.to_string(),
        trial: run.trial.as_ref().map(|(candidate, baseline)| Trial {
            candidate: candidate.to_string(),
            baseline: baseline.to_string(),
        }),
        doing: run.observed.as_ref().map(|o| Doing {
            load: o.load(),
            threads: o.workload.threads,
            switches_per_s: rate(o.workload.switches, o.period).unwrap_or_default(),
            run_delay: share(o.workload.run_delay, o.period).unwrap_or_default(),
        }),
    }
}

fn vcpus(before: &Reading, now: &Reading, period: Duration, workload: Option<&Workload>) -> Vec<Vcpu> {
    let running = workload.filter(|w| w.status == Status::Running);
    let mut online = CpuSet::new();
    for cpu in now.idle.iter().flatten().map(|c| c.cpu) {
        online.insert(cpu);
    }
    for (cpu, _) in now.stat.iter().flat_map(|stat| &stat.cpus) {
        online.insert(*cpu);
    }
    let place = |cpu| {
        let w = running?;
        if w.active.contains(cpu) { Some(true) } else { w.deactivated.contains(cpu).then_some(false) }
    };
    let of = |cpu| Vcpu { cpu: Some(cpu), active: place(cpu), ..vcpu(cpu, before, now, period) };
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
        // The kernel counts in ticks, so the whole is what it counted and not the interval.
        share(part(&now).saturating_sub(part(&then)), now.total().saturating_sub(then.total()))
    };
    Vcpu {
        busy: of_times(gleaner_kernel::stat::CpuTimes::busy),
        steal: of_times(|times| times.steal),
        polling: polled.and_then(|time| share(time, period)),
        // A poll that times out goes on as a halt: one period, counted twice.
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
    // What was seen stands for this time, which is the period or nearly so.
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
