//! What several wholes are made of: a bar for each, of parts side by side.

use maud::html;

use super::legend::{self, SWATCH_GAP, SWATCH_WIDTH};
use super::stack::{class, share};
use super::{MARGIN, Plot, StackPart};
use crate::axis::{AXIS_HEIGHT, Axis};
use crate::drawing::{Area, Drawing, Px, line, text};
use crate::number::{Unit, show};
use crate::scale::{Kind, Scale};
use crate::text::{Anchor, Style, clean, shorten, widest};

/// One whole.
#[derive(Debug, Clone, PartialEq)]
pub struct CompositionBar {
    /// Label of the bar.
    pub label: String,
    /// The share (0..=1) of each part, left to right. They need not add up to 1.
    pub shares: Vec<f64>,
}

/// Bars below each other on an axis of shares that starts at 0.
#[derive(Debug, Clone, PartialEq)]
pub struct Composition {
    /// Short title.
    pub title: String,
    /// Text alternative for screen readers.
    pub about: String,
    /// Label of the axis: what the shares are of.
    pub axis: String,
    /// Left to right.
    pub parts: Vec<StackPart>,
    /// Top to bottom.
    pub bars: Vec<CompositionBar>,
}

/// Height of a bar's lane, in px.
const LANE_HEIGHT: f64 = 26.0;
const BAR_HEIGHT: f64 = 16.0;
/// A part narrower than this, in px, is not drawn.
const NARROWEST: f64 = 0.1;

impl Composition {
    /// Left and right end of each part of a bar, as shares.
    fn ends<'a>(&'a self, bar: &'a CompositionBar) -> impl Iterator<Item = (&'a StackPart, f64, f64)> {
        let mut sum = 0.0;
        self.parts.iter().enumerate().map(move |(index, part)| {
            let from = sum;
            sum += share(bar.shares.get(index));
            (part, from, sum)
        })
    }
}

impl Plot for Composition {
    fn draw(&self, total: f64) -> Drawing {
        let legend = legend::rows(&self.parts, |part| &part.label, total);
        let labels = widest(self.bars.iter().map(|bar| bar.label.as_str()), Style::Body).min(total * 0.3);
        let top = MARGIN + legend::height(&legend) + 10.0;
        let area = Area {
            left: MARGIN + labels + 12.0,
            top,
            right: total - MARGIN - 12.0,
            bottom: top + LANE_HEIGHT * self.bars.len() as f64,
        };
        let sums = self.bars.iter().filter_map(|bar| self.ends(bar).last()).map(|(_, _, sum)| sum);
        let scale = Scale::over(Kind::Linear, sums.chain([0.0]), 0.0, area.left, area.right);
        let axis = Axis::new(self.axis.clone(), Unit::Share, Kind::Linear);
        let body = html! {
            @for (entry, middle) in legend::entries(&legend) {
                g class=(class(entry.item)) {
                    rect x=(Px(entry.x)) y=(Px(middle - 6.0)) width=(Px(SWATCH_WIDTH)) height="12" class="bar" {}
                }
                (text(&entry.label, entry.x + SWATCH_WIDTH + SWATCH_GAP, middle + 4.0, Anchor::Start, Style::Body))
            }
            (axis.below(&scale, area, total))
            @for (index, bar) in self.bars.iter().enumerate() {
                @let middle = area.top + LANE_HEIGHT * (index as f64 + 0.5);
                @let label = shorten(&bar.label, labels, Style::Body);
                (text(&label, area.left - 12.0, middle + 4.0, Anchor::End, Style::Body))
                @for (part, from, to) in self.ends(bar) {
                    @let (left, right) = (scale.at(from), scale.at(to));
                    @if right - left >= NARROWEST {
                        g class=(class(part)) {
                            title {
                                (clean(&format!("{}: {}, {}", bar.label, part.label, show(Unit::Share, to - from))))
                            }
                            // A line of background between two parts.
                            rect x=(Px(left)) y=(Px(middle - BAR_HEIGHT / 2.0)) height=(Px(BAR_HEIGHT))
                                width=(Px((right - left - 1.0).max(0.5))) class="bar" {}
                        }
                    }
                }
            }
            (line((area.left, area.top), (area.left, area.bottom), "reference"))
        };
        Drawing::new(&self.title, &self.about, (total, area.bottom + AXIS_HEIGHT), body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_side_by_side_and_strange_ones_take_no_room() {
        let part = |label: &str| StackPart { label: label.to_owned(), series: 1, pale: false };
        let composition = Composition {
            title: String::new(),
            about: String::new(),
            axis: String::new(),
            parts: ["a", "b", "c", "d"].map(part).to_vec(),
            bars: Vec::new(),
        };
        let bar = CompositionBar { label: String::new(), shares: vec![0.25, f64::NAN, 0.5] };
        let ends: Vec<(f64, f64)> = composition.ends(&bar).map(|(_, from, to)| (from, to)).collect();
        assert_eq!(ends, [(0.0, 0.25), (0.25, 0.25), (0.25, 0.75), (0.75, 0.75)]);
    }
}
