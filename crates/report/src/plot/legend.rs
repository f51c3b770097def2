//! Legends: samples with their names, in as many lines as they need.

use super::MARGIN;
use crate::text::{Style, shorten, width};

/// Height of a line of the legend.
pub(super) const ROW: f64 = 18.0;
/// Length of the sample before a name.
pub(super) const SAMPLE: f64 = 26.0;
/// Room between a sample and its name.
pub(super) const GAP: f64 = 6.0;

/// An entry with its position and its name, shortened where it is wider than the drawing.
pub(super) struct Entry<'a, T> {
    pub(super) x: f64,
    pub(super) item: &'a T,
    pub(super) label: String,
}

/// The legend's lines. Entries never reach beyond a drawing `total` px wide.
pub(super) fn rows<T>(items: &[T], name: impl Fn(&T) -> &str, total: f64) -> Vec<Vec<Entry<'_, T>>> {
    let mut rows = vec![Vec::new()];
    let mut x = MARGIN;
    for item in items {
        let label = shorten(name(item), total - 2.0 * MARGIN - SAMPLE - GAP, Style::Body);
        let needed = SAMPLE + GAP + width(&label, Style::Body);
        if x > MARGIN && x + needed > total - MARGIN {
            rows.push(Vec::new());
            x = MARGIN;
        }
        if let Some(row) = rows.last_mut() {
            row.push(Entry { x, item, label });
        }
        x += needed + 18.0;
    }
    rows
}

/// How high these lines are together.
pub(super) fn height<T>(rows: &[Vec<Entry<'_, T>>]) -> f64 {
    ROW * rows.len() as f64
}

/// Each entry with the height of its middle, for a legend that begins at the upper edge of the drawing.
pub(super) fn entries<'e, 'a, T>(
    rows: &'e [Vec<Entry<'a, T>>],
) -> impl Iterator<Item = (&'e Entry<'a, T>, f64)> {
    rows.iter().enumerate().flat_map(|(row, entries)| {
        let middle = MARGIN + ROW * (row as f64 + 0.5);
        entries.iter().map(move |entry| (entry, middle))
    })
}
