//! The report of `gleaner diagnose`: what a program loses to virtualisation, and the evidence.

use serde::{Deserialize, Serialize};

use crate::histogram::Histogram;

/// What `gleaner diagnose` hands to `gleaner-bench diagnosis-page`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// What the page shows.
    pub diagnosis: Diagnosis,
    /// Everything that was counted, as JSON: part of the page.
    pub counted: String,
}

/// A finished diagnosis. Rates are per second of observation; shares (0..=1) are of one vCPU's time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Diagnosis {
    /// What was observed: a command, a process, a cgroup, the machine.
    pub target: String,
    /// Length of the observation.
    pub seconds: f64,
    /// Whether the first cause costs enough to act on.
    pub matters: bool,
    /// Causes, costliest first.
    pub causes: Vec<Cause>,
    /// Wake-up latencies, from the waker's call until the wakee runs, by the state of the wakee's vCPU.
    pub wakes: Vec<Lengths>,
    /// How long threads were blocked, by what they waited for.
    pub waits: Vec<Lengths>,
    /// Which threads woke which, most wake-ups first.
    pub edges: Vec<Wake>,
    /// Threads by name, most CPU time first.
    pub threads: Vec<Thread>,
    /// Statistics of each vCPU.
    pub vcpus: Vec<Vcpu>,
    /// What each vCPU's time was spent on, bucket by bucket.
    pub timeline: Timeline,
    /// How the timeline was measured, and its resolution; sentences.
    pub timeline_note: String,
    /// How the estimates were made, what the observation cost, and what is missing; sentences.
    pub notes: Vec<String>,
}

/// One cause of lost time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cause {
    /// Short name, used as heading.
    pub name: String,
    /// The category under which the papers discuss it.
    pub category: String,
    /// Time lost per second of observation, in s.
    pub lost_s: f64,
    /// Occurrences per second.
    pub per_second: f64,
    /// What an occurrence is; empty if nothing is counted.
    pub unit: String,
    /// How the lost time was estimated.
    pub estimate: String,
    /// The threads and wake-ups responsible.
    pub behind: Vec<String>,
    /// What to do about it.
    pub advice: Vec<String>,
}

/// A distribution of durations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lengths {
    /// What the durations are of.
    pub label: String,
    /// How many per second.
    pub per_second: f64,
    /// Median, mean and 99th percentile in s; `None` if there are no durations.
    pub typical: Option<DurationSummary>,
    /// Histogram of the durations, in s.
    pub bins: Vec<Bin>,
}

impl Lengths {
    /// Those of a histogram that was filled for so many seconds.
    pub fn of(label: &str, histogram: &Histogram, seconds: f64) -> Self {
        let typical = histogram.median().zip(histogram.quantile(0.99)).map(|(median, p99)| DurationSummary {
            median_s: median.as_secs_f64(),
            mean_s: histogram.mean().as_secs_f64(),
            p99_s: p99.as_secs_f64(),
        });
        Self {
            label: label.to_owned(),
            per_second: histogram.count as f64 / seconds,
            typical,
            bins: histogram
                .bins()
                .map(|(from, to, n)| Bin { from: from.as_secs_f64(), to: to.as_secs_f64(), count: n as f64 })
                .collect(),
        }
    }
}

/// Summary of a distribution of durations, in s.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct DurationSummary {
    /// Median.
    pub median_s: f64,
    /// Arithmetic mean.
    pub mean_s: f64,
    /// 99th percentile.
    pub p99_s: f64,
}

/// Wake-ups from threads of one name to threads of another.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wake {
    /// Name of the waking threads.
    pub waker: String,
    /// Name of the woken threads.
    pub wakee: String,
    /// Wake-ups per second.
    pub per_second: f64,
    /// Mean wake-up latency, in s.
    pub mean_s: f64,
    /// Share (0..=1) whose target vCPU had halted.
    pub halted: f64,
    /// Share (0..=1) whose target vCPU was polling.
    pub polling: f64,
}

/// All threads of one name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// The threads' `comm`.
    pub name: String,
    /// CPU time as a share of one vCPU's; above 1 if they use several.
    pub cpu: f64,
    /// Share (0..=1) of that time spent spinning in user mode.
    pub spinning: f64,
    /// How often they are woken per second.
    pub woken_per_second: f64,
    /// Mean wake-up latency, in s; `None` if they are never woken.
    pub woken_s: Option<f64>,
    /// Mean computation between two waits, in s.
    pub computes_s: Option<f64>,
}

/// Statistics of one vCPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Vcpu {
    /// CPU number in the guest.
    pub number: u32,
    /// Scheduling delays: from becoming runnable on this vCPU to running.
    pub delays: Lengths,
    /// Idle periods in which it halted.
    pub halts: Lengths,
    /// Idle periods, or parts of them, in which it polled.
    pub polls: Lengths,
}

/// What the vCPUs' time was spent on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Bucket boundaries in s since the start, one more than there are buckets.
    pub edges_s: Vec<f64>,
    /// One lane per vCPU.
    pub lanes: Vec<Lane>,
}

impl Timeline {
    /// Length of the longest bucket, in s.
    pub fn resolution_s(&self) -> f64 {
        self.edges_s.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
    }
}

/// One vCPU's lane of the timeline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lane {
    /// CPU number of the vCPU.
    pub vcpu: u32,
    /// Time use in each bucket.
    pub buckets: Vec<Spent>,
}

/// What one bucket of a vCPU's time was spent on, as shares (0..=1) of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    /// Running the observed threads.
    pub workload: f64,
    /// Running anything else, including interrupts.
    pub others: f64,
    /// Idle, polling.
    pub polling: f64,
    /// Idle, halted.
    pub halted: f64,
    /// Stolen by the host. Overlaps with the other four, which include it.
    pub steal: f64,
}

/// How many values lay in `from..to`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Lower end.
    pub from: f64,
    /// Upper end.
    pub to: f64,
    /// How many values.
    pub count: f64,
}
