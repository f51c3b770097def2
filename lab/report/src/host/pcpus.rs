//! What the pCPUs did over time.

use gleaner_host_record::{Interval, Pcpu, Report};
use maud::{Markup, html};

use super::{seconds, share_of};
use crate::number::{Unit, show};
use crate::page::Figure;
use crate::plot::{Stack, StackLane, StackPart};
use crate::table::{expandable, share};

/// Most pCPUs that get a lane.
const MOST_LANES: usize = 16;

/// Who can have a pCPU: name, series, whether it is drawn pale, and its time.
type User = (&'static str, usize, bool, fn(&Pcpu) -> u64);
const USERS: [User; 3] = [
    ("vCPUs", 1, false, |pcpu| pcpu.vcpu_ns),
    ("other threads", 2, false, |pcpu| pcpu.other_ns),
    ("idle", 0, true, |pcpu| pcpu.idle_ns),
];

/// The pCPUs that were online, with their numbers.
fn online(record: &Report) -> Vec<(usize, &Pcpu)> {
    let known = |pcpu: &Pcpu| USERS.iter().any(|(.., of)| of(pcpu) > 0);
    record.pcpus.iter().enumerate().filter(|(_, pcpu)| known(pcpu)).collect()
}

/// A lane per pCPU; nothing if the record has no timeline.
pub(super) fn timeline(record: &Report) -> Vec<Figure> {
    let mut lanes = online(record);
    if record.timeline.is_empty() || lanes.is_empty() {
        return Vec::new();
    }
    let all = lanes.len();
    // The busiest ones, by number.
    lanes.sort_by_key(|(_, pcpu)| std::cmp::Reverse(pcpu.vcpu_ns.saturating_add(pcpu.other_ns)));
    lanes.truncate(MOST_LANES);
    lanes.sort_by_key(|(number, _)| *number);
    let left_out = match all - lanes.len() {
        0 => String::new(),
        n => format!(" The {n} least busy pCPUs are only in the table."),
    };
    let ends = record.timeline.iter().map(|interval| interval.end_ns as f64 / 1e9);
    let stack = Stack {
        title: "Who had each pCPU".to_owned(),
        about: "Stacked areas over time for each pCPU; the table below has the means.".to_owned(),
        time: "time since the start".to_owned(),
        edges_s: std::iter::once(0.0).chain(ends).collect(),
        parts: USERS
            .iter()
            .map(|(label, series, pale, _)| StackPart {
                label: (*label).to_owned(),
                series: *series,
                pale: *pale,
            })
            .collect(),
        over: String::new(),
        lanes: lanes.iter().map(|(number, _)| lane(&record.timeline, *number)).collect(),
    };
    let length = seconds(record) / record.timeline.len() as f64;
    vec![Figure {
        name: "pcpus".to_owned(),
        title: stack.title.clone(),
        caption: format!(
            "From the bottom: threads of vCPUs; all other threads; idle. One sample every {}.{left_out}",
            show(Unit::Seconds, length)
        ),
        half: false,
        plot: Box::new(stack),
    }]
}

fn lane(timeline: &[Interval], number: usize) -> StackLane {
    let mut start = 0;
    let shares = timeline.iter().map(|interval| {
        let pcpu = interval.pcpus.get(number).copied().unwrap_or_default();
        // A counter can be read just before a switch, so the parts can be longer than the interval by a little.
        let parts = USERS.iter().fold(0, |sum: u64, (.., of)| sum.saturating_add(of(&pcpu)));
        let whole = interval.end_ns.saturating_sub(start).max(parts);
        start = interval.end_ns;
        USERS.iter().map(|(.., of)| share_of(of(&pcpu), whole)).collect()
    });
    StackLane { label: format!("pCPU {number}"), shares: shares.collect(), over: Vec::new() }
}

/// The shares over the whole time.
pub(super) fn means(record: &Report) -> Markup {
    let heads = html! {
        th scope="col" { "pCPU" }
        @for (label, ..) in USERS { th scope="col" class="n" { (label) } }
    };
    let row = |(number, pcpu): &(usize, &Pcpu)| {
        html! {
            tr {
                th scope="row" { (number) }
                @for (.., of) in USERS { td class="n" { (share(share_of(of(pcpu), record.span_ns))) } }
            }
        }
    };
    expandable("Who had the pCPUs", "account of the pCPUs' time", &heads, &online(record), row)
}
