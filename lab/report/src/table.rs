//! Tables that can be expanded.

use maud::{Markup, html};

use crate::page::scrolling;

/// Lines shown at first; the rest can be expanded.
const MAX_SHOWN: usize = 12;

/// A table that can be expanded beyond its first lines; a sentence if it would be empty.
pub(crate) fn expandable<T>(
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
pub(crate) fn share(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}
