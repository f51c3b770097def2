//! Raw values as dots, which show their spread and whether they drifted.

use maud::html;

use super::{Interval, MARGIN, Plot};
use crate::axis::{AXIS_HEIGHT, Axis};
use crate::drawing::{Area, Drawing, Px, line, mark, text};
use crate::number::show;
use crate::scale::Scale;
use crate::text::{Anchor, Style, clean, shorten, widest};
use crate::theme::series_class;

/// The values of one series.
#[derive(Debug, Clone, PartialEq)]
pub struct StripLane {
    /// Label of the lane.
    pub label: String,
    /// Series index: decides colour and marks.
    pub series: usize,
    /// The values in the order of measurement, drawn from the top of the lane to its bottom.
    pub values: Vec<f64>,
    /// Median with its interval.
    pub middle: Option<Interval>,
}

/// Lanes of dots on one axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Strip {
    /// Short title.
    pub title: String,
    /// Text alternative for screen readers.
    pub about: String,
    /// The measured quantity.
    pub axis: Axis,
    /// Top to bottom.
    pub lanes: Vec<StripLane>,
}

/// Height of a lane, in px.
const LANE_HEIGHT: f64 = 30.0;
/// Height of the part of a lane in which the dots lie, in px.
const DOT_HEIGHT: f64 = 18.0;

impl Plot for Strip {
    fn draw(&self, total: f64) -> Drawing {
        let labels = widest(self.lanes.iter().map(|lane| lane.label.as_str()), Style::Body).min(total * 0.36);
        let area = Area {
            left: MARGIN + labels + 12.0,
            top: MARGIN,
            right: total - MARGIN - 8.0,
            bottom: MARGIN + LANE_HEIGHT * self.lanes.len() as f64,
        };
        let ends = |lane: &StripLane| lane.middle.map_or(Vec::new(), |i| vec![i.value, i.low, i.high]);
        let values = self.lanes.iter().flat_map(|lane| lane.values.iter().copied().chain(ends(lane)));
        let scale = Scale::over(self.axis.kind, values, 0.05, area.left, area.right);
        let body = html! {
            (self.axis.below(&scale, area, total))
            @for (index, lane) in self.lanes.iter().enumerate() {
                @let middle = area.top + LANE_HEIGHT * (index as f64 + 0.5);
                (text(&shorten(&lane.label, labels, Style::Body), area.left - 12.0, middle + 4.0, Anchor::End, Style::Body))
                g class=(series_class(lane.series)) {
                    @if let Some(Interval { low, high, .. }) = lane.middle {
                        rect x=(Px(scale.at(low))) y=(Px(middle - DOT_HEIGHT / 2.0 - 3.0)) height=(Px(DOT_HEIGHT + 6.0))
                            width=(Px((scale.at(high) - scale.at(low)).max(1.0))) class="range" {}
                    }
                    @let n = lane.values.len() as f64;
                    @for (order, value) in lane.values.iter().enumerate().filter(|(_, v)| self.axis.kind.shows(**v)) {
                        g {
                            title { (clean(&format!("{}, {}: {}", lane.label, order + 1, show(self.axis.unit, *value)))) }
                            (mark(lane.series, scale.at(*value), middle + DOT_HEIGHT * ((order as f64 + 0.5) / n - 0.5), 2.6))
                        }
                    }
                }
                @if let Some(Interval { value, .. }) = lane.middle {
                    @let x = scale.at(value);
                    (line((x, middle - DOT_HEIGHT / 2.0 - 4.0), (x, middle + DOT_HEIGHT / 2.0 + 4.0), "median"))
                }
            }
        };
        Drawing::new(&self.title, &self.about, (total, area.bottom + AXIS_HEIGHT), body)
    }
}
