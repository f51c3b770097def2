//! Legends: a swatch per name, on as many lines as necessary.

use super::MARGIN;
use crate::text::{Style, shorten, width};

/// Height of a line of the legend, in px.
pub(super) const ROW_HEIGHT: f64 = 18.0;
/// Width of the swatch before a name, in px.
pub(super) const SWATCH_WIDTH: f64 = 26.0;
/// Gap between swatch and name, in px.
pub(super) const SWATCH_GAP: f64 = 6.0;

/// An entry with its position and its name, which is shortened to the width of the drawing.
pub(super) struct Entry<'a, T> {
    pub(super) x: f64,
    pub(super) item: &'a T,
    pub(super) label: String,
}

/// Lays the entries out in lines; none extends beyond a drawing `total` px wide.
pub(super) fn rows<T>(items: &[T], name: impl Fn(&T) -> &str, total: f64) -> Vec<Vec<Entry<'_, T>>> {
    let mut rows = vec![Vec::new()];
    let mut x = MARGIN;
    for item in items {
        let label = shorten(name(item), total - 2.0 * MARGIN - SWATCH_WIDTH - SWATCH_GAP, Style::Body);
        let needed = SWATCH_WIDTH + SWATCH_GAP + width(&label, Style::Body);
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

/// Total height of these lines.
pub(super) fn height<T>(rows: &[Vec<Entry<'_, T>>]) -> f64 {
    ROW_HEIGHT * rows.len() as f64
}

/// Each entry with its vertical centre, for a legend at the upper edge of the drawing.
pub(super) fn entries<'e, 'a, T>(
    rows: &'e [Vec<Entry<'a, T>>],
) -> impl Iterator<Item = (&'e Entry<'a, T>, f64)> {
    rows.iter().enumerate().flat_map(|(row, entries)| {
        let middle = MARGIN + ROW_HEIGHT * (row as f64 + 0.5);
        entries.iter().map(move |entry| (entry, middle))
    })
}
