//! What the vCPUs did: their time bucket by bucket, run-queue delays, idle periods.

use maud::{Markup, html};

use super::{Diagnosis, Lane, Lengths, Spent, Timeline, Vcpu};
use crate::lengths::{cells, heads as length_heads, histogram, reach};
use crate::number::{Unit, show};
use crate::page::Figure;
use crate::plot::{Stack, StackLane, StackPart};
use crate::table::{expandable, share};

/// Most vCPUs that get a lane or histograms of their own.
const MAX_SHOWN: usize = 8;

/// One part of a vCPU's time.
struct Part {
    label: &'static str,
    series: usize,
    pale: bool,
    of: fn(&Spent) -> f64,
}

const HALTED: Part = Part { label: "idle, halted", series: 0, pale: true, of: |spent| spent.halted };

/// The parts, bottom to top.
const PARTS: [Part; 4] = [
    Part { label: "running the diagnosed program", series: 1, pale: false, of: |spent| spent.workload },
    Part { label: "anything else", series: 2, pale: false, of: |spent| spent.others },
    Part { label: "idle, polling", series: 3, pale: false, of: |spent| spent.polling },
    HALTED,
];

/// What the vCPUs' time was spent on; nothing if unknown.
pub(super) fn timeline(diagnosis: &Diagnosis) -> Vec<Figure> {
    let timeline = &diagnosis.timeline;
    if timeline.edges_s.len() < 2 || timeline.lanes.is_empty() {
        return Vec::new();
    }
    let mut lanes: Vec<&Lane> = timeline.lanes.iter().collect();
    // The busiest ones, by CPU number.
    lanes.sort_by(|a, b| mean(timeline, a, HALTED.of).total_cmp(&mean(timeline, b, HALTED.of)));
    lanes.truncate(MAX_SHOWN);
    lanes.sort_by_key(|lane| lane.vcpu);
    let stolen = lanes.iter().any(|lane| lane.buckets.iter().any(|spent| spent.steal > 0.0));
    let left_out = match timeline.lanes.len() - lanes.len() {
        0 => String::new(),
        n => format!(" The {n} least busy vCPUs are only in the table."),
    };
    let steal = if stolen { "" } else { " The host took nothing (no steal)." };
    let stack = Stack {
        title: "What each vCPU spent its time on".to_owned(),
        about: "Stacked areas over time for each vCPU; the table below has the means.".to_owned(),
        time: "time since the start".to_owned(),
        edges_s: timeline.edges_s.clone(),
        parts: PARTS
            .iter()
            .map(|part| StackPart { label: part.label.to_owned(), series: part.series, pale: part.pale })
            .collect(),
        over: if stolen { "steal, within the others".to_owned() } else { String::new() },
        lanes: lanes
            .iter()
            .map(|lane| StackLane {
                label: format!("vCPU {}", lane.vcpu),
                shares: lane
                    .buckets
                    .iter()
                    .map(|spent| PARTS.iter().map(|part| (part.of)(spent)).collect())
                    .collect(),
                over: lane.buckets.iter().map(|spent| spent.steal).collect(),
            })
            .collect(),
    };
    vec![Figure {
        name: "timeline".to_owned(),
        title: stack.title.clone(),
        caption: format!(
            "From the bottom: {}. Anything else: other programs, interrupts, the way into and out of idle. \
             {}{steal}{left_out}",
            PARTS.map(|part| part.label).join("; "),
            diagnosis.timeline_note
        ),
        half: false,
        plot: Box::new(stack),
    }]
}

/// The mean of a part over the whole time, weighted by bucket length.
fn mean(timeline: &Timeline, lane: &Lane, of: fn(&Spent) -> f64) -> f64 {
    let lengths = timeline.edges_s.windows(2).map(|pair| pair[1] - pair[0]);
    let (sum, length) = lengths
        .zip(&lane.buckets)
        .fold((0.0, 0.0), |(sum, all), (length, spent)| (sum + length * of(spent), all + length));
    if length > 0.0 { sum / length } else { 0.0 }
}

/// The timeline's means as a table.
pub(super) fn spent(diagnosis: &Diagnosis) -> Markup {
    let timeline = &diagnosis.timeline;
    let heads = html! {
        th scope="col" { "vCPU" }
        @for part in PARTS { th scope="col" class="n" { (part.label) } }
        th scope="col" class="n" { "steal" }
    };
    let row = |lane: &Lane| {
        html! {
            tr {
                th scope="row" { (lane.vcpu) }
                @for part in PARTS { td class="n" { (share(mean(timeline, lane, part.of))) } }
                td class="n" { (share(mean(timeline, lane, |spent| spent.steal))) }
            }
        }
    };
    expandable("Means of the vCPUs' time", "account of the vCPUs' time", &heads, &timeline.lanes, row)
}

/// What is measured per vCPU: heading, name in file names, what is counted, and the accessor.
type Kind = (&'static str, &'static str, &'static str, fn(&Vcpu) -> &Lengths);
const KINDS: [Kind; 3] = [
    ("run-queue delay", "delay", "waits", |vcpu| &vcpu.delays),
    ("idle periods, halted", "halt", "idle periods", |vcpu| &vcpu.halts),
    ("idle periods, polled", "poll", "idle periods", |vcpu| &vcpu.polls),
];

/// Histograms of run-queue delays and idle periods per vCPU; those of one kind share an axis.
pub(super) fn histograms(diagnosis: &Diagnosis) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (what, name, counted, of) in KINDS {
        let within = reach(diagnosis.vcpus.iter().map(of));
        for vcpu in diagnosis.vcpus.iter().take(MAX_SHOWN) {
            let lengths = of(vcpu);
            let median = lengths.typical.map_or(0.0, |typical| typical.median_s);
            let title = format!("vCPU {}: {what}, median {}", vcpu.number, show(Unit::Seconds, median));
            let name = format!("{name}-{}", vcpu.number);
            figures.extend(histogram(name, &title, what, counted, lengths, within));
        }
    }
    figures
}

/// The same as numbers, for all vCPUs.
pub(super) fn lengths(diagnosis: &Diagnosis) -> Markup {
    let rows: Vec<(u32, &str, &Lengths)> = diagnosis
        .vcpus
        .iter()
        .flat_map(|vcpu| KINDS.map(|(what, _, _, of)| (vcpu.number, what, of(vcpu))))
        .collect();
    let heads = html! {
        th scope="col" { "vCPU" }
        th scope="col" { "what" }
        (length_heads())
    };
    let row = |(vcpu, what, lengths): &(u32, &str, &Lengths)| {
        html! { tr { th scope="row" { (vcpu) } td { (what) } (cells(lengths)) } }
    };
    html! {
        p {
            "Run-queue delay: from being woken on a vCPU that was awake, or taken off it, until the thread ran there. Idle \
             periods are those of the vCPU, whatever runs on it."
        }
        (expandable("Run-queue delay and idle periods by vCPU", "vCPU", &heads, &rows, row))
    }
}
