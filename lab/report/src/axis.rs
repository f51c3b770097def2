//! Axes: grid lines, round ticks, and as many tick labels as fit without overlap.

use maud::{Markup, html};

use crate::drawing::{Area, line, text};
use crate::number::{Format, Unit};
use crate::place::thin;
use crate::scale::{Kind, Scale};
use crate::text::{Anchor, Style, shorten, widest, width};

/// One axis of a plot.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    /// The quantity, e.g. `halts per second`.
    pub label: String,
    /// Unit of the values.
    pub unit: Unit,
    /// Linear, logarithmic or nines.
    pub kind: Kind,
}

/// Space below the drawing area for tick labels and axis label, in px.
pub const AXIS_HEIGHT: f64 = 40.0;

/// Minimum gap between two tick labels, in px.
const GAP: f64 = 8.0;

/// How far a label may be shifted away from its tick, in px.
const MAX_LABEL_SHIFT: f64 = 8.0;

/// Distance between an axis and its tick labels, in px.
const OFFSET: f64 = 6.0;

struct Ticks {
    values: Vec<f64>,
    labels: Vec<String>,
    /// The unit that all labels share; empty if each label carries its own.
    unit: &'static str,
}

impl Axis {
    /// An axis with this label, unit and scale.
    pub fn new(label: impl Into<String>, unit: Unit, kind: Kind) -> Self {
        Self { label: label.into(), unit, kind }
    }

    fn ticks(&self, scale: &Scale, most: usize) -> Ticks {
        let values = scale.ticks(most);
        let steps: Vec<f64> = values.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let step = steps.first().copied().unwrap_or(1.0);
        let even = steps.iter().all(|other| (other - step).abs() < step * 1e-6);
        if even && self.kind != Kind::Nines {
            let largest = values.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
            let format = Format::new(self.unit, largest, step);
            let labels = values.iter().map(|value| format.number(*value)).collect();
            return Ticks { values, labels, unit: format.unit() };
        }
        let label = |value: &f64| {
            // The last digit that differs from 0 (or from 9, for nines).
            let size = if self.kind == Kind::Nines { 1.0 - value } else { *value };
            let step = 10f64.powf((size.abs().log10() + 1e-9).floor());
            // 1.5 is not a multiple of its power of ten and needs one more digit.
            let exact = (size / step - (size / step).round()).abs() < 1e-6;
            Format::new(self.unit, *value, if exact { step } else { step / 10.0 }).full(*value)
        };
        let labels = values.iter().map(label).collect();
        Ticks { values, labels, unit: "" }
    }

    fn title(&self, ticks: &Ticks) -> String {
        if ticks.unit.is_empty() { self.label.clone() } else { format!("{} ({})", self.label, ticks.unit) }
    }

    /// Draws grid lines, tick labels and axis label below `area`, in [`AXIS_HEIGHT`] px; the drawing is `total`
    /// wide.
    pub fn below(&self, scale: &Scale, area: Area, total: f64) -> Markup {
        let ticks = self.ticks(scale, most_ticks(area.right - area.left, 70.0));
        // 2 px extra: the lowest label of a vertical axis extends below the area's edge.
        let y = area.bottom + OFFSET + 2.0 + Style::Small.size();
        // Move a label at the edge inwards, unless that would make it look like another tick's.
        let inside = |middle: f64, label: &str| {
            let half = width(label, Style::Small) / 2.0;
            let moved = middle.max(half).min(total - half);
            ((moved - middle).abs() <= MAX_LABEL_SHIFT).then_some((moved, half))
        };
        let labels: Vec<(&str, f64, f64)> = ticks
            .values
            .iter()
            .zip(&ticks.labels)
            .filter_map(|(value, label)| {
                inside(scale.at(*value), label).map(|(x, half)| (label.as_str(), x, half))
            })
            .collect();
        let spans: Vec<(f64, f64)> = labels.iter().map(|(_, x, half)| (x - half, x + half)).collect();
        let title = shorten(&self.title(&ticks), total, Style::Small);
        let half = width(&title, Style::Small) / 2.0;
        let middle = f64::midpoint(area.left, area.right).max(half).min(total - half);
        html! {
            @for value in &ticks.values {
                (line((scale.at(*value), area.top), (scale.at(*value), area.bottom), "grid"))
            }
            @for ((label, x, _), stays) in labels.iter().zip(thin(&spans, None, GAP)) {
                @if stays { (text(label, *x, y, Anchor::Middle, Style::Small)) }
            }
            (line((area.left, area.bottom), (area.right, area.bottom), "rule"))
            (text(&title, middle, y + 16.0, Anchor::Middle, Style::Small))
        }
    }

    /// Width in px that the labels of [`Axis::beside`] need to the left of the area.
    pub fn room_beside(&self, scale: &Scale, height: f64) -> f64 {
        let ticks = self.ticks(scale, most_ticks(height, 40.0));
        widest(ticks.labels.iter().map(String::as_str), Style::Small) + OFFSET
    }

    /// Draws grid lines and tick labels left of `area`, and the axis label above it between `from` and `to`.
    pub fn beside(&self, scale: &Scale, area: Area, (from, to): (f64, f64)) -> Markup {
        let ticks = self.ticks(scale, most_ticks(area.bottom - area.top, 40.0));
        let title = shorten(&self.title(&ticks), to - from, Style::Small);
        let half = Style::Small.size() / 2.0;
        let spans: Vec<(f64, f64)> =
            ticks.values.iter().map(|value| (scale.at(*value) - half, scale.at(*value) + half)).collect();
        html! {
            @for ((value, label), stays) in ticks.values.iter().zip(&ticks.labels).zip(thin(&spans, None, 3.0)) {
                @let y = scale.at(*value);
                (line((area.left, y), (area.right, y), "grid"))
                @if stays { (text(label, area.left - OFFSET, y + 4.0, Anchor::End, Style::Small)) }
            }
            (text(&title, from, area.top - 12.0, Anchor::Start, Style::Small))
        }
    }
}

/// How many ticks fit into `px` at one per `apart` px. Five yield round values on every scale.
fn most_ticks(px: f64, apart: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 5 and 12")]
    let most = (px / apart).clamp(5.0, 12.0) as usize;
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, low: f64, high: f64) -> (Vec<String>, String) {
        let ticks = axis.ticks(&Scale::over(axis.kind, [low, high], 0.0, 0.0, 400.0), 6);
        let title = axis.title(&ticks);
        (ticks.labels, title)
    }

    #[test]
    fn ticks_are_labelled_without_needless_digits() {
        let ratio = Axis::new("speed", Unit::Ratio, Kind::Log);
        assert_eq!(labels(&ratio, 0.5, 12.0).0, ["0.5×", "1×", "2×", "5×", "10×"]);
        assert_eq!(labels(&ratio, 0.65, 3.2).0, ["0.7×", "1×", "1.5×", "2×", "3×"]);
        assert_eq!(labels(&ratio, 0.9, 1.1).0, ["0.90×", "0.95×", "1.00×", "1.05×", "1.10×"]);
        let time = Axis::new("time", Unit::Seconds, Kind::Linear);
        let (ticks, title) = labels(&time, 0.0, 0.004);
        assert_eq!((ticks[1].as_str(), title.as_str()), ("1", "time (ms)"));
        let wide = Axis::new("latency", Unit::Seconds, Kind::Log);
        assert_eq!(labels(&wide, 1e-6, 1e-2).0, ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms"]);
        let shares = Axis::new("share", Unit::Share, Kind::Nines);
        assert_eq!(labels(&shares, 0.0, 0.999).0, ["0 %", "50 %", "90 %", "99 %", "99.9 %"]);
    }
}
