//! A diagnosis in numbers: a table beside each plot.

use maud::{Markup, html};

use super::summary::lost;
use super::{Cause, Diagnosis, Lengths};
use crate::number::{Unit, show};
use crate::page::scrolling;

/// Lines shown at first; the rest can be expanded.
const MAX_SHOWN: usize = 12;

/// All details of one cause.
pub(super) fn cause(number: usize, cause: &Cause) -> Markup {
    html! {
        h3 { (number) ". " (cause.name) ": about " (lost(cause)) }
        dl {
            @if !cause.unit.is_empty() {
                dt { "Counted" } dd { (show(Unit::Plain, cause.per_second)) " " (cause.unit) " a second" }
            }
            dt { "Category" } dd { (cause.category) }
            dt { "Estimate" } dd { (cause.estimate) }
            @if !cause.behind.is_empty() {
                dt { "Behind it" } dd { @for line in &cause.behind { (line) br; } }
            }
            dt { "What to do" } dd { @for advice in &cause.advice { (advice) br; } }
        }
    }
}

/// Wake-ups, most frequent first, with a bar for the share of each pair in all of them.
pub(super) fn edges(diagnosis: &Diagnosis) -> Markup {
    let total = diagnosis.edges.iter().map(|edge| edge.per_second).sum::<f64>();
    let row = |edge: &super::Wake| {
        let bar = 100.0 * edge.per_second / total.max(f64::MIN_POSITIVE);
        html! {
            tr {
                th scope="row" { (edge.waker) }
                td { (edge.wakee) }
                td class="n share" style=(format!("--share:{bar:.1}%")) { (show(Unit::Plain, edge.per_second)) }
                td class="n" { (show(Unit::Seconds, edge.mean_s)) }
                td class="n" { (share(edge.halted)) }
                td class="n" { (share(edge.polling)) }
            }
        }
    };
    let heads = html! {
        th scope="col" { "waker" }
        th scope="col" { "wakee" }
        th scope="col" class="n" { "a second" }
        th scope="col" class="n" { "until run, mean" }
        th scope="col" class="n" { "vCPU had halted" }
        th scope="col" class="n" { "vCPU polled" }
    };
    expandable("Wake-ups by waker and wakee", "wake-up", &heads, &diagnosis.edges, row)
}

/// Statistics of durations, one line per kind.
pub(super) fn lengths(label: &str, what: &str, all: &[Lengths]) -> Markup {
    let heads = html! {
        th scope="col" { (what) }
        (length_heads())
    };
    let row = |lengths: &Lengths| html! { tr { th scope="row" { (lengths.label) } (length_cells(lengths)) } };
    expandable(label, what, &heads, all, row)
}

/// Headings for [`length_cells`].
pub(super) fn length_heads() -> Markup {
    html! {
        th scope="col" class="n" { "a second" }
        th scope="col" class="n" { "median" }
        th scope="col" class="n" { "mean" }
        th scope="col" class="n" { "p99" }
    }
}

/// Rate, median, mean and 99th percentile.
pub(super) fn length_cells(lengths: &Lengths) -> Markup {
    let times = lengths.typical.map(|t| [t.median_s, t.mean_s, t.p99_s]);
    html! {
        td class="n" { (show(Unit::Plain, lengths.per_second)) }
        @for index in 0..3 {
            td class="n" { (times.map_or_else(|| "–".to_owned(), |times| show(Unit::Seconds, times[index]))) }
        }
    }
}

/// The threads by name.
pub(super) fn threads(diagnosis: &Diagnosis) -> Markup {
    let time = |time: Option<f64>| time.map_or_else(|| "–".to_owned(), |time| show(Unit::Seconds, time));
    let row = |thread: &super::Thread| {
        html! {
            tr {
                th scope="row" { (thread.name) }
                td class="n" { (share(thread.cpu)) }
                td class="n" { (share(thread.spinning)) }
                td class="n" { (time(thread.computes_s)) }
                td class="n" { (show(Unit::Plain, thread.woken_per_second)) }
                td class="n" { (time(thread.woken_s)) }
            }
        }
    };
    let heads = html! {
        th scope="col" { "name" }
        th scope="col" class="n" { "share of a vCPU" }
        th scope="col" class="n" { "of that spinning" }
        th scope="col" class="n" { "computes between waits" }
        th scope="col" class="n" { "woken a second" }
        th scope="col" class="n" { "until run, mean" }
    };
    expandable("Threads by name", "name", &heads, &diagnosis.threads, row)
}

/// A table that can be expanded beyond its first lines; a sentence if it would be empty.
pub(super) fn expandable<T>(
    label: &str,
    what: &str,
    heads: &Markup,
    items: &[T],
    row: impl Fn(&T) -> Markup,
) -> Markup {
    let table = |items: &[T]| {
        html! { table { thead { tr { (heads) } } tbody { @for item in items { (row(item)) } } } }
    };
    let (first, more) = items.split_at(items.len().min(MAX_SHOWN));
    html! {
        @if first.is_empty() { p { "There was no " (what) "." } } @else { (scrolling(label, &table(first))) }
        @if !more.is_empty() {
            details { summary { (more.len()) " more" } (scrolling(&format!("{label}, further ones"), &table(more))) }
        }
    }
}

/// A share as a percentage.
pub(super) fn share(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
