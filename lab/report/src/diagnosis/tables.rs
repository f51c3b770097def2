//! A diagnosis in numbers: a table beside each plot.

use maud::{Markup, html};

use super::summary::lost;
use super::{Cause, Diagnosis};
use crate::number::{Unit, show};
use crate::table::{expandable, share};

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
