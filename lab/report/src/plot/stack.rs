//! Composition over time: stacked parts of a whole, one lane per subject.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::legend::{self, SWATCH_GAP, SWATCH_WIDTH};
use super::{MARGIN, Plot};
use crate::axis::{AXIS_HEIGHT, Axis};
use crate::drawing::{Area, Drawing, Px, line, path, text};
use crate::number::Unit;
use crate::scale::{Kind, Scale};
use crate::text::{Anchor, Style, clean, shorten, widest};
use crate::theme::series_class;

/// A part of the whole, the same in all lanes.
#[derive(Debug, Clone, PartialEq)]
pub struct StackPart {
    /// Label in the legend.
    pub label: String,
    /// Series index: decides the colour.
    pub series: usize,
    /// Drawn pale, for the part that stands for idleness.
    pub pale: bool,
}

/// A lane.
#[derive(Debug, Clone, PartialEq)]
pub struct StackLane {
    /// Label of the lane.
    pub label: String,
    /// The share (0..=1) of each part, bottom to top, for each bucket.
    pub shares: Vec<Vec<f64>>,
    /// The value (0..=1) of the line over the parts, for each bucket; empty for none.
    pub over: Vec<f64>,
}

/// Lanes below each other on a common time axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    /// Short title.
    pub title: String,
    /// Text alternative for screen readers.
    pub about: String,
    /// Label of the time axis, e.g. `time since the start`.
    pub time: String,
    /// Bucket boundaries in s, ascending, one more than there are buckets.
    pub edges_s: Vec<f64>,
    /// Bottom to top.
    pub parts: Vec<StackPart>,
    /// Legend label of the line over the parts; empty for no line.
    pub over: String,
    /// Top to bottom.
    pub lanes: Vec<StackLane>,
}

/// Height of a lane, in px.
const LANE_HEIGHT: f64 = 64.0;
/// Space between lanes, in px.
const LANE_GAP: f64 = 12.0;
/// Series index of the line over the parts.
const LINE_SERIES: usize = 4;

/// An entry of the legend.
enum Key<'a> {
    Part(&'a StackPart),
    Over(&'a str),
}

impl Key<'_> {
    fn label(&self) -> &str {
        match self {
            Self::Part(part) => &part.label,
            Self::Over(label) => label,
        }
    }

    fn sample(&self, left: f64, middle: f64) -> Markup {
        match self {
            Self::Part(part) => html! {
                g class=(class(part)) {
                    rect x=(Px(left)) y=(Px(middle - 6.0)) width=(Px(SWATCH_WIDTH)) height="12" class="bar" {}
                }
            },
            Self::Over(_) => html! {
                g class=(series_class(LINE_SERIES)) { (line((left, middle), (left + SWATCH_WIDTH, middle), "edge")) }
            },
        }
    }
}

pub(super) fn class(part: &StackPart) -> String {
    format!("{}{}", series_class(part.series), if part.pale { " unsure" } else { "" })
}

/// The value as a share that can be drawn.
pub(super) fn share(value: Option<&f64>) -> f64 {
    value.copied().filter(|value| Kind::Linear.shows(*value)).unwrap_or(0.0).clamp(0.0, 1.0)
}

impl Stack {
    fn keys(&self) -> Vec<Key<'_>> {
        let over = (!self.over.is_empty()).then_some(Key::Over(&self.over));
        self.parts.iter().map(Key::Part).chain(over).collect()
    }

    /// Start and end of each bucket.
    fn buckets(&self) -> Vec<(f64, f64)> {
        let ends = self.edges_s.windows(2).map(|pair| (pair[0], pair[1]));
        ends.take_while(|(from, to)| from < to && Kind::Linear.shows(*from) && Kind::Linear.shows(*to))
            .collect()
    }

    /// The outline of one part: along its upper edge, and back along its lower edge.
    fn outline(&self, lane: &StackLane, part: usize, x: &Scale, y: &Scale) -> String {
        let height = |bucket: usize, parts: usize| {
            let shares = lane.shares.get(bucket);
            let sum: f64 = (0..parts).map(|index| share(shares.and_then(|all| all.get(index)))).sum();
            y.at(sum.min(1.0))
        };
        let buckets = self.buckets();
        let mut d = String::new();
        let spans = buckets.iter().map(|(from, to)| (x.at(*from), x.at(*to)));
        for (index, (from, to)) in spans.clone().enumerate() {
            let top = Px(height(index, part + 1));
            // Writing to a string cannot fail.
            let _ = if index == 0 {
                write!(d, "M{} {top}H{}", Px(from), Px(to))
            } else {
                write!(d, "V{top}H{}", Px(to))
            };
        }
        for (index, (from, _)) in spans.enumerate().collect::<Vec<_>>().into_iter().rev() {
            let _ = write!(d, "V{}H{}", Px(height(index, part)), Px(from));
        }
        if !d.is_empty() {
            d.push('Z');
        }
        d
    }

    fn lane(&self, lane: &StackLane, x: &Scale, y: &Scale) -> Markup {
        let over: Vec<(f64, f64)> = self
            .buckets()
            .iter()
            .zip(&lane.over)
            .flat_map(|((from, to), value)| [*from, *to].map(|at| (x.at(at), y.at(share(Some(value))))))
            .collect();
        html! {
            g {
                title { (clean(&lane.label)) }
                @for (index, part) in self.parts.iter().enumerate() {
                    g class=(class(part)) { path d=(self.outline(lane, index, x, y)) class="bar" {} }
                }
                @if !self.over.is_empty() && !over.is_empty() {
                    g class=(series_class(LINE_SERIES)) { path d=(path(&over, true)) class="edge" {} }
                }
            }
        }
    }
}

impl Plot for Stack {
    fn draw(&self, total: f64) -> Drawing {
        let keys = self.keys();
        let legend = legend::rows(&keys, Key::label, total);
        let labels = widest(self.lanes.iter().map(|lane| lane.label.as_str()), Style::Body).min(total * 0.3);
        let top = MARGIN + legend::height(&legend) + 10.0;
        let bottom = top + (LANE_HEIGHT + LANE_GAP) * self.lanes.len() as f64;
        let percent = "100 %";
        let left = MARGIN + labels + widest([percent], Style::Small) + 18.0;
        let area = Area { left, top, right: total - MARGIN - 8.0, bottom };
        let time = Axis::new(self.time.clone(), Unit::Seconds, Kind::Linear);
        let ends = self.buckets().last().map_or(1.0, |last| last.1);
        let x = Scale::over(Kind::Linear, [0.0, ends], 0.0, area.left, area.right);
        let body = html! {
            @for (entry, middle) in legend::entries(&legend) {
                (entry.item.sample(entry.x, middle))
                (text(&entry.label, entry.x + SWATCH_WIDTH + SWATCH_GAP, middle + 4.0, Anchor::Start, Style::Body))
            }
            (time.below(&x, area, total))
            @for (index, lane) in self.lanes.iter().enumerate() {
                @let upper = top + (LANE_HEIGHT + LANE_GAP) * index as f64;
                @let lower = upper + LANE_HEIGHT;
                @let y = Scale::over(Kind::Linear, [0.0, 1.0], 0.0, lower, upper);
                @let label = shorten(&lane.label, labels, Style::Body);
                (text(&label, MARGIN, f64::midpoint(upper, lower) + 4.0, Anchor::Start, Style::Body))
                (text(percent, area.left - 6.0, upper + 9.0, Anchor::End, Style::Small))
                (text("0", area.left - 6.0, lower, Anchor::End, Style::Small))
                (self.lane(lane, &x, &y))
                (line((area.left, lower), (area.right, lower), "rule"))
            }
        };
        Drawing::new(&self.title, &self.about, (total, area.bottom + AXIS_HEIGHT), body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_on_top_of_each_other_bucket_by_bucket() {
        let lane = |shares: &[[f64; 2]]| StackLane {
            label: String::new(),
            shares: shares.iter().map(|pair| pair.to_vec()).collect(),
            over: Vec::new(),
        };
        let stack = Stack {
            title: String::new(),
            about: String::new(),
            time: String::new(),
            edges_s: vec![0.0, 1.0, 2.0],
            parts: Vec::new(),
            over: String::new(),
            lanes: Vec::new(),
        };
        let x = Scale::over(Kind::Linear, [0.0, 2.0], 0.0, 0.0, 20.0);
        let y = Scale::over(Kind::Linear, [0.0, 1.0], 0.0, 100.0, 0.0);
        let lane = lane(&[[0.2, 0.3], [0.5, 0.5]]);
        assert_eq!(stack.outline(&lane, 0, &x, &y), "M0 80H10V50H20V100H10V100H0Z");
        assert_eq!(stack.outline(&lane, 1, &x, &y), "M0 50H10V0H20V50H10V80H0Z");
        // An unknown part has no height, and the sum is capped at 1.
        assert_eq!(stack.outline(&lane, 2, &x, &y), "M0 50H10V0H20V0H10V50H0Z");
    }
}
