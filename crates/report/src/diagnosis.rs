//! The report of `gleaner diagnose`: what a program loses to virtualisation, and what was seen of it.

mod figures;
mod summary;
mod tables;
mod vcpus;
mod wakes;

use gleaner_proto::result::Environment;
use maud::{Markup, html};
use serde::Serialize;

use crate::facts::facts;
use crate::page::{Data, Figure, figures as shown, page};
use crate::plot::Bin;

/// What was found. Rates are per second of the observation; shares are those (0..=1) of one vCPU's time.
#[derive(Debug, Clone, PartialEq)]
pub struct Diagnosis {
    /// What was looked at: a command, a process, a group, the machine.
    pub target: String,
    /// For how long.
    pub seconds: f64,
    /// Where.
    pub environment: Environment,
    /// Whether the first cause costs enough to act on.
    pub matters: bool,
    /// The causes, costliest first.
    pub causes: Vec<Cause>,
    /// From the waker's call until the wakee ran, by what the wakee's vCPU did.
    pub wakes: Vec<Lengths>,
    /// How long threads were blocked, by what they waited in.
    pub waits: Vec<Lengths>,
    /// Who woke whom, most wake-ups first.
    pub edges: Vec<Wake>,
    /// The threads by name, most CPU time first.
    pub threads: Vec<Thread>,
    /// The vCPUs.
    pub vcpus: Vec<Vcpu>,
    /// Where the vCPUs' time went, bucket by bucket.
    pub timeline: Timeline,
    /// How that was measured, and how fine it is: sentences.
    pub timeline_note: String,
    /// What the estimates are made from, what looking cost, and what is missing: sentences.
    pub notes: Vec<String>,
}

/// One cause.
#[derive(Debug, Clone, PartialEq)]
pub struct Cause {
    /// Its name.
    pub name: String,
    /// Where the papers treat it.
    pub category: String,
    /// The time that it costs in each second, in s.
    pub lost_s: f64,
    /// How often it was met in each second.
    pub per_second: f64,
    /// What that counts; empty where nothing is counted.
    pub unit: String,
    /// How the time was estimated.
    pub estimate: String,
    /// The threads and wake-ups behind it.
    pub behind: Vec<String>,
    /// What to do.
    pub advice: Vec<String>,
}

/// Lengths of time.
#[derive(Debug, Clone, PartialEq)]
pub struct Lengths {
    /// What they are of.
    pub label: String,
    /// How many in each second.
    pub per_second: f64,
    /// Median, mean and 99th percentile in s; `None` where there are none.
    pub typical: Option<Typical>,
    /// How many of which length, in s.
    pub bins: Vec<Bin>,
}

/// What lengths of time are like, in s.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Typical {
    /// Half of them are shorter.
    pub median_s: f64,
    /// Their mean.
    pub mean_s: f64,
    /// 99 % of them are shorter.
    pub p99_s: f64,
}

/// Wake-ups from one name of threads to another.
#[derive(Debug, Clone, PartialEq)]
pub struct Wake {
    /// Who wakes.
    pub waker: String,
    /// Who is woken.
    pub wakee: String,
    /// How often in each second.
    pub per_second: f64,
    /// How long it takes until the wakee runs: the mean, in s.
    pub mean_s: f64,
    /// How many of them (0..=1) met a vCPU that had halted.
    pub halted: f64,
    /// How many of them (0..=1) met one that polled.
    pub polling: f64,
}

/// The threads of one name.
#[derive(Debug, Clone, PartialEq)]
pub struct Thread {
    /// The name.
    pub name: String,
    /// Their CPU time as a share of one vCPU's; more than 1 where they use several.
    pub cpu: f64,
    /// How much of that was spinning at user level (0..=1).
    pub spinning: f64,
    /// How often they are woken in each second.
    pub woken_per_second: f64,
    /// How long that takes until they run: the mean, in s; `None` where they are not woken.
    pub woken_s: Option<f64>,
    /// How long they compute between two waits: the mean, in s.
    pub computes_s: Option<f64>,
}

/// One vCPU.
#[derive(Debug, Clone, PartialEq)]
pub struct Vcpu {
    /// Its number.
    pub number: u32,
    /// From being runnable there to running.
    pub delays: Lengths,
    /// Idle periods in which it halted.
    pub halts: Lengths,
    /// Idle periods, or parts of them, in which it polled.
    pub polls: Lengths,
}

/// Where the vCPUs' time went.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Timeline {
    /// Where buckets begin and, the last one, end: since the start, in s, one more than buckets.
    pub edges_s: Vec<f64>,
    /// The vCPUs.
    pub lanes: Vec<Lane>,
}

impl Timeline {
    /// The longest bucket, in s: how fine it is.
    pub fn resolution_s(&self) -> f64 {
        self.edges_s.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max)
    }
}

/// One vCPU's time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lane {
    /// The number of the vCPU.
    pub vcpu: u32,
    /// What each bucket was spent on.
    pub buckets: Vec<Spent>,
}

/// What one bucket of a vCPU's time was spent on: shares (0..=1) of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Spent {
    /// Running what was looked at.
    pub workload: f64,
    /// Running anything else, interrupts included.
    pub others: f64,
    /// Idle, polling.
    pub polling: f64,
    /// Idle, halted.
    pub halted: f64,
    /// The host ran something else meanwhile: it lies within the other four.
    pub steal: f64,
}

/// The figures of the page, each of which can become a file.
pub fn figures(diagnosis: &Diagnosis) -> Vec<Figure> {
    let wakes = figures::wakes(diagnosis);
    let graph = wakes::figure(diagnosis);
    figures::causes(diagnosis)
        .into_iter()
        .chain(graph)
        .chain(wakes)
        .chain(vcpus::timeline(diagnosis))
        .chain(vcpus::histograms(diagnosis))
        .collect()
}

/// The diagnosis as one self-contained page. `json`: everything that was counted, which becomes part of the page.
pub fn html(diagnosis: &Diagnosis, json: &str) -> String {
    let content = html! {
        (head(diagnosis))
        section {
            h2 { "Causes" }
            p {
                "Times are estimates: a guest cannot see what its hypervisor does. Causes may overlap in time, and several \
                 threads can lose time at once, so the times are no parts of a whole."
            }
            (shown(&figures::causes(diagnosis)))
            @for (index, cause) in diagnosis.causes.iter().enumerate() { (tables::cause(index + 1, cause)) }
        }
        section {
            h2 { "Who wakes whom" }
            (shown(&wakes::figure(diagnosis)))
            (tables::edges(diagnosis))
        }
        section {
            h2 { "From wake-up until run" }
            (shown(&figures::wakes(diagnosis)))
            (tables::lengths("Wake-ups by what the wakee's vCPU did", "wake-up", &diagnosis.wakes))
            h3 { "How long threads were blocked" }
            (tables::lengths("Waits by what threads waited in", "wait", &diagnosis.waits))
        }
        section {
            h2 { "Where the vCPUs' time went" }
            (shown(&vcpus::timeline(diagnosis)))
            (vcpus::spent(diagnosis))
        }
        section {
            h2 { "Waiting for a vCPU, and idle vCPUs" }
            (shown(&vcpus::histograms(diagnosis)))
            (vcpus::lengths(diagnosis))
        }
        section { h2 { "Threads" } (tables::threads(diagnosis)) }
        section {
            h2 { "How it was measured" }
            ul { @for note in &diagnosis.notes { li { (note) } } }
        }
        section { h2 { "Machine" } (facts(&diagnosis.environment, &[])) }
    };
    let data = Data {
        json,
        file_name: "diagnosis.json",
        about: "Everything that was counted is part of this page.",
    };
    page(&format!("Diagnosis: {}", diagnosis.target), &content, &data)
}

fn head(diagnosis: &Diagnosis) -> Markup {
    let env = &diagnosis.environment;
    html! {
        header {
            h1 { (diagnosis.target) }
            p class="by" { "Diagnosis by Gleaner: " (summary::looked(diagnosis)) }
            p class="by" { (crate::facts::line(env)) }
            p class="lead" { (summary::verdict(diagnosis)) }
        }
    }
}
