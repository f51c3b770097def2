//! What the daemon counts.

use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gleaner_policy::{Event, Method, Observation, Purpose, Setting, Verdict};
use prometheus_client::encoding::text;
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::coverage::Coverage;
use crate::labels::{
    self, Lever, OfBuild, OfEvent, OfKind, OfLatency, OfLever, OfMethod, OfReason, OfResult, OfTrial,
    OfWorkload, Pause,
};
use crate::latency::Latency;
use crate::workloads::{Label, Workloads};

type Count = Counter<u64, AtomicU64>;
type Amount = Counter<f64, AtomicU64>;
type Number = Gauge<u64, AtomicU64>;
type Level = Gauge<f64, AtomicU64>;

/// A metric as it is defined, whether it has samples or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// Its name in queries; that of a histogram without `_bucket`, `_sum` and `_count`.
    pub name: String,
    /// `counter`, `gauge`, `histogram` or `info`.
    pub kind: &'static str,
    /// What it is, without a full stop.
    pub help: &'static str,
}

/// The daemon's metrics. They are named by their fields' definitions in [`Metrics::new`], and nowhere else.
///
/// At most a given number of workloads have a label of their own; the rest share the label `other`. The series of
/// a workload start at zero when it is first seen, and end a quarter of an hour after it has left.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    definitions: Vec<Definition>,

    wakeup_latency: Family<OfLatency, Latency>,
    active_vcpus: Family<OfWorkload, Number>,
    decisions: Family<OfEvent, Count>,
    trials: Family<OfTrial, Count>,
    setting_changes: Family<OfWorkload, Count>,

    watched: Number,
    engaged: Number,
    vcpus: Number,
    halts: Amount,
    polling: Amount,
    polling_allowed: Level,
    wake_cost: Family<OfMethod, Level>,
    ipis: Family<OfKind, Count>,
    paused: Family<OfReason, Number>,

    leases: Number,
    undo_failures: Count,
    step_backs: Family<OfLever, Count>,
    reloads: Family<OfResult, Count>,
    cpu: Amount,
    resident: Number,

    workloads: Workloads,
    coverage: Coverage,
    /// What the present trial is of, if there is one: the machine has one at a time.
    trial: &'static str,
    /// Interrupts since boot at the latest report.
    interrupts: Option<[u64; 2]>,
}

/// Registers metrics and keeps a list of them.
#[derive(Default)]
struct Definitions {
    registry: Registry,
    list: Vec<Definition>,
}

impl Definitions {
    /// Defines a metric with the default value; its unit is the end of its name.
    fn add<M: Metric + Default + Clone>(&mut self, name: &'static str, help: &'static str) -> M {
        let metric = M::default();
        self.register(name, help, metric.clone());
        metric
    }

    fn register(&mut self, name: &'static str, help: &'static str, metric: impl Metric) {
        let (kind, suffix) = match metric.metric_type() {
            MetricType::Counter => ("counter", "_total"),
            MetricType::Info => ("info", "_info"),
            MetricType::Histogram => ("histogram", ""),
            _ => ("gauge", ""),
        };
        self.list.push(Definition { name: format!("{name}{suffix}"), kind, help });
        let units =
            [("_seconds", Unit::Seconds), ("_bytes", Unit::Bytes), ("_ratio", Unit::Other("ratio".into()))];
        for (end, unit) in units {
            if let Some(stem) = name.strip_suffix(end) {
                return self.registry.register_with_unit(stem, help, unit, metric);
            }
        }
        self.registry.register(name, help, metric);
    }
}

impl Metrics {
    /// The metrics of a daemon of `version` that was `started` then, with labels for `most_workloads`.
    pub fn new(version: &str, started: SystemTime, most_workloads: usize) -> Self {
        let mut d = Definitions::default();
        let build = Info::new(OfBuild { version: version.to_owned() });
        d.register("gleaner_build", "The daemon's version", build);
        let start: Level = d.add("process_start_time_seconds", "When the daemon started, since 1970 in UTC");
        start.set(started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64());
        let mut metrics = Self {
            wakeup_latency: d.add(
                "gleaner_wakeup_latency_seconds",
                "Time from a wake-up of one of the workload's threads until it runs, traced or estimated",
            ),
            active_vcpus: d.add("gleaner_active_vcpus", "vCPUs on which the workload is allowed to run now"),
            decisions: d.add("gleaner_decisions", "Decisions about the workload"),
            trials: d.add("gleaner_trials", "Trials that ended, by what was tried and the verdict"),
            setting_changes: d.add(
                "gleaner_setting_changes",
                "Changes of the setting that the workload has outside of trials",
            ),
            watched: d.add("gleaner_watched_workloads", "Workloads that could be engaged"),
            engaged: d.add("gleaner_engaged_workloads", "Workloads that are measured and helped"),
            vcpus: d.add("gleaner_vcpus", "Online vCPUs of the machine"),
            halts: d.add("gleaner_halts", "Idle periods that ended in a halt, on vCPUs of engaged workloads"),
            polling: d.add(
                "gleaner_polling_seconds",
                "Time in which idle vCPUs polled for engaged workloads, summed over vCPUs",
            ),
            polling_allowed: d.add(
                "gleaner_polling_allowed_ratio",
                "The largest share of all vCPUs' time that is allowed to be polled",
            ),
            wake_cost: d.add(
                "gleaner_wake_cost_seconds",
                "What waking a thread on an idle vCPU costs on this machine, by retention method",
            ),
            ipis: d.add("gleaner_ipis", "Inter-processor interrupts of the machine since the daemon started"),
            paused: d.add("gleaner_paused", "Whether polling is forbidden, by reason"),
            leases: d
                .add("gleaner_leases", "Changes of the machine that are in force, each with its old value"),
            undo_failures: d
                .add("gleaner_lease_undo_failures", "Changes of the machine that could not be undone"),
            step_backs: d.add("gleaner_step_backs", "Levers left to somebody else who changed them"),
            reloads: d.add("gleaner_config_reloads", "Reloads of the configuration"),
            cpu: d.add("process_cpu_seconds", "CPU time of the daemon"),
            resident: d.add("process_resident_memory_bytes", "Resident memory of the daemon"),
            registry: d.registry,
            definitions: d.list,
            workloads: Workloads::new(most_workloads),
            coverage: Coverage::default(),
            trial: labels::KINDS[0],
            interrupts: None,
        };
        metrics.start();
        metrics
    }

    /// Every series that does not depend on the machine exists from the start, so that its first increase is seen.
    fn start(&mut self) {
        for kind in labels::INTERRUPTS {
            drop(self.ipis.get_or_create(&OfKind { kind }));
        }
        for lever in Lever::ALL.map(Lever::name) {
            drop(self.step_backs.get_or_create(&OfLever { lever }));
        }
        for result in labels::RELOADS {
            drop(self.reloads.get_or_create(&OfResult { result }));
        }
        self.paused(&[]);
    }

    /// Every metric.
    pub fn definitions(&self) -> &[Definition] {
        &self.definitions
    }

    /// The workload was observed under the setting that was `in_force`.
    pub fn observe(&mut self, workload: &str, in_force: &Setting, observation: &Observation) {
        let (workload, own) = self.label(workload);
        if own {
            // Those of several workloads cannot be added up.
            let of = OfWorkload { workload: workload.clone() };
            self.active_vcpus.get_or_create(&of).set(in_force.active.len() as u64);
        }
        if let Some(waiting) = &observation.workload.waiting {
            let of = OfLatency { workload, source: labels::source(waiting.source) };
            self.wakeup_latency.get_or_create(&of).add(waiting);
        }
        for vcpu in &observation.vcpus {
            let share = self.coverage.add(vcpu.cpu, observation.at, observation.period);
            self.halts.inc_by(vcpu.halts as f64 * share);
            self.polling.inc_by(vcpu.poll_time.as_secs_f64() * share);
        }
    }

    /// The policy has decided something about the workload.
    pub fn event(&mut self, workload: &str, event: &Event) {
        let (workload, _) = self.label(workload);
        let of = OfEvent { workload: workload.clone(), event: labels::event_name(event) };
        self.decisions.get_or_create(&of).inc();
        match event {
            Event::TrialStarted { baseline, candidate, .. } => self.trial = labels::kind(baseline, candidate),
            Event::TrialEnded { verdict, .. } => {
                let verdict = labels::verdict_name(verdict);
                let of = OfTrial { workload: workload.clone(), kind: self.trial, verdict };
                self.trials.get_or_create(&of).inc();
            }
            _ => {}
        }
        if changes_setting(event) {
            self.setting_changes.get_or_create(&OfWorkload { workload }).inc();
        }
    }

    /// The workload is no longer engaged, at `now` since the daemon started.
    pub fn left(&mut self, workload: &str, now: Duration) {
        self.workloads.left(workload, now);
        self.active_vcpus.remove(&OfWorkload { workload: workload.into() });
    }

    /// How many workloads there are: `watched`, and `engaged` ones among them.
    pub fn workloads(&self, watched: usize, engaged: usize) {
        self.watched.set(watched as u64);
        self.engaged.set(engaged as u64);
    }

    /// The machine has `vcpus` online, and `polling_share` (0..=1) of their time is allowed to be polled.
    pub fn machine(&self, vcpus: usize, polling_share: f64) {
        self.vcpus.set(vcpus as u64);
        self.polling_allowed.set(polling_share);
    }

    /// A wake-up under `method` costs this much here.
    pub fn wake_cost(&self, method: Method, cost: Duration) {
        self.wake_cost.get_or_create(&OfMethod { method: method.name() }).set(cost.as_secs_f64());
    }

    /// The machine has had this many interrupts since it booted: those that make a vCPU schedule, and those that
    /// make it call a function (`RES` and `CAL` in `/proc/interrupts`, summed over vCPUs).
    pub fn interrupts(&mut self, reschedule: u64, function_call: u64) {
        let now = [reschedule, function_call];
        let before = self.interrupts.replace(now).unwrap_or(now);
        for ((kind, now), before) in labels::INTERRUPTS.into_iter().zip(now).zip(before) {
            // Less than before: a vCPU went offline and took its counts with it.
            self.ipis.get_or_create(&OfKind { kind }).inc_by(now.saturating_sub(before));
        }
    }

    /// Polling is forbidden for these `reasons`, or not at all.
    pub fn paused(&self, reasons: &[Pause]) {
        for pause in Pause::ALL {
            let of = OfReason { reason: pause.name() };
            self.paused.get_or_create(&of).set(reasons.contains(&pause).into());
        }
    }

    /// This many leases are held.
    pub fn leases(&self, held: usize) {
        self.leases.set(held as u64);
    }

    /// A lease could not be undone.
    pub fn undo_failed(&self) {
        self.undo_failures.inc();
    }

    /// Somebody else has changed what the `lever` sets, and it is theirs from now on.
    pub fn stepped_back(&self, lever: Lever) {
        self.step_backs.get_or_create(&OfLever { lever: lever.name() }).inc();
    }

    /// The configuration was read again. It is in force if `succeeded`, else the one before.
    pub fn reloaded(&self, succeeded: bool) {
        let result = labels::RELOADS[usize::from(!succeeded)];
        self.reloads.get_or_create(&OfResult { result }).inc();
    }

    /// The daemon itself has used `cpu` time since it started, and `resident_bytes` of memory are resident.
    pub fn process(&self, cpu: Duration, resident_bytes: u64) {
        self.cpu.inc_by((cpu.as_secs_f64() - self.cpu.get()).max(0.0));
        self.resident.set(resident_bytes);
    }

    /// All metrics in the OpenMetrics text format, at `now` since the daemon started.
    pub fn encode(&mut self, now: Duration) -> String {
        for workload in self.workloads.expire(now) {
            self.remove(&workload);
        }
        let mut exposition = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut exposition, &self.registry);
        exposition
    }

    /// The label of a workload that is here, and whether it is its own.
    fn label(&mut self, name: &str) -> (Label, bool) {
        let (workload, own) = self.workloads.label(name);
        let of = OfWorkload { workload: workload.clone() };
        if self.setting_changes.get(&of).is_none() {
            drop(self.setting_changes.get_or_create(&of));
            for of in of_decisions(&workload) {
                drop(self.decisions.get_or_create(&of));
            }
            for of in of_trials(&workload) {
                drop(self.trials.get_or_create(&of));
            }
        }
        (workload, own)
    }

    fn remove(&self, workload: &Label) {
        self.setting_changes.remove(&OfWorkload { workload: workload.clone() });
        for of in of_decisions(workload) {
            self.decisions.remove(&of);
        }
        for of in of_trials(workload) {
            self.trials.remove(&of);
        }
        for source in labels::SOURCES {
            self.wakeup_latency.remove(&OfLatency { workload: workload.clone(), source });
        }
    }
}

fn of_decisions(workload: &Label) -> impl Iterator<Item = OfEvent> {
    labels::EVENTS.iter().map(|event| OfEvent { workload: workload.clone(), event })
}

fn of_trials(workload: &Label) -> impl Iterator<Item = OfTrial> {
    labels::KINDS.into_iter().flat_map(|kind| {
        labels::VERDICTS.map(|verdict| OfTrial { workload: workload.clone(), kind, verdict })
    })
}

/// Whether the workload has another setting after this decision than before, trials apart. A limit that follows the
/// idle lengths is no other setting.
fn changes_setting(event: &Event) -> bool {
    match event {
        Event::TrialEnded { purpose: Purpose::Adopt, verdict, .. } => matches!(verdict, Verdict::Proven(_)),
        Event::TrialEnded { purpose: Purpose::Reprove, candidate, kept, .. } => candidate != kept,
        Event::Resumed { .. }
        | Event::Released { .. }
        | Event::MajorChange { .. }
        | Event::Expanded { .. }
        | Event::Shared { .. }
        | Event::MadeRoom { .. } => true,
        _ => false,
    }
}
