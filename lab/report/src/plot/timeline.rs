//! What was in force when: lanes on a common time axis.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::{MARGIN, Plot};
use crate::axis::{AXIS_HEIGHT, Axis};
use crate::drawing::{Area, Drawing, Px, line, path, text};
use crate::number::{Unit, show};
use crate::scale::{Kind, Scale};
use crate::text::{Anchor, Style, clean, shorten, widest};
use crate::theme::series_class;

/// A time span, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// Start.
    pub from_s: f64,
    /// End.
    pub to_s: f64,
}

/// A lane.
#[derive(Debug, Clone, PartialEq)]
pub enum Lane {
    /// A quantity that keeps the value of each point until the next.
    Steps {
        /// Label of the lane.
        label: String,
        /// Series index: decides the colour.
        series: usize,
        /// Unit of the values.
        unit: Unit,
        /// Time in seconds and value, in ascending order of time.
        points: Vec<(f64, f64)>,
    },
    /// A condition that holds or not.
    Spans {
        /// Label of the lane.
        label: String,
        /// Series index: decides the colour.
        series: usize,
        /// When it holds, in ascending order.
        spans: Vec<Span>,
    },
}

/// Lanes below each other.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// Short title.
    pub title: String,
    /// Text alternative for screen readers.
    pub about: String,
    /// Label of the time axis, e.g. `time since the start`.
    pub time: String,
    /// End of the time axis, in seconds.
    pub end_s: f64,
    /// Top to bottom.
    pub lanes: Vec<Lane>,
}

/// Height of a `Steps` lane, in px.
const STEPS_HEIGHT: f64 = 44.0;
/// Height of a `Spans` lane, in px.
const SPANS_HEIGHT: f64 = 20.0;
/// Space between lanes, in px.
const LANE_GAP: f64 = 8.0;

impl Lane {
    fn label(&self) -> &str {
        match self {
            Self::Steps { label, .. } | Self::Spans { label, .. } => label,
        }
    }

    const fn series(&self) -> usize {
        match self {
            Self::Steps { series, .. } | Self::Spans { series, .. } => *series,
        }
    }

    const fn height(&self) -> f64 {
        match self {
            Self::Steps { .. } => STEPS_HEIGHT,
            Self::Spans { .. } => SPANS_HEIGHT,
        }
    }

    /// The largest value of a `Steps` lane.
    fn peak(&self) -> Option<(Unit, f64)> {
        let Self::Steps { unit, points, .. } = self else { return None };
        let values = points.iter().map(|p| p.1).filter(|value| Kind::Linear.shows(*value));
        Some((*unit, values.fold(0.0, f64::max)))
    }

    /// Text above the right end of the lane.
    fn peak_text(&self) -> String {
        self.peak().map_or_else(String::new, |(unit, peak)| show_short(unit, peak))
    }
}

/// Whole numbers, such as counts of vCPUs, get no decimals.
fn show_short(unit: Unit, value: f64) -> String {
    if unit == Unit::Plain && value.fract() == 0.0 && value < 1e4 {
        value.to_string()
    } else {
        show(unit, value)
    }
}

fn steps(points: &[(f64, f64)], end_s: f64, peak: f64, x: &Scale, top: f64, bottom: f64) -> Markup {
    let y = Scale::over(Kind::Linear, [0.0, peak], 0.0, bottom, top);
    let shown = points.iter().filter(|p| Kind::Linear.shows(p.0) && Kind::Linear.shows(p.1));
    let mut places: Vec<(f64, f64)> = shown.map(|p| (x.at(p.0), y.at(p.1.max(0.0)))).collect();
    if let Some(last) = places.last().copied() {
        places.push((x.at(end_s), last.1));
    }
    let outline = path(&places, true);
    html! {
        @if let Some(first) = places.first() {
            path d=(format!("{outline}V{0}H{1}Z", Px(bottom), Px(first.0))) class="area" {}
            path d=(outline) class="edge" {}
        }
    }
}

/// One path for all spans; those that touch on screen are merged.
fn spans(spans: &[Span], x: &Scale, top: f64, bottom: f64) -> Markup {
    let mut merged: Vec<(f64, f64)> = Vec::new();
    for span in spans.iter().filter(|span| Kind::Linear.shows(span.from_s) && Kind::Linear.shows(span.to_s)) {
        let (from, to) = (x.at(span.from_s), x.at(span.to_s));
        // Spans too short to see are drawn half a pixel wide.
        let to = to.max(from + 0.5);
        match merged.last_mut() {
            Some(last) if from - last.1 < 0.3 => last.1 = last.1.max(to),
            _ => merged.push((from, to)),
        }
    }
    let mut d = String::new();
    for (from, to) in merged {
        // Writing to a string cannot fail.
        let _ = write!(d, "M{0} {2}H{1}V{3}H{0}Z", Px(from), Px(to), Px(top), Px(bottom));
    }
    html! { @if !d.is_empty() { path d=(d) class="bar" {} } }
}

impl Plot for Timeline {
    fn draw(&self, total: f64) -> Drawing {
        let labels = widest(self.lanes.iter().map(Lane::label), Style::Body).min(total * 0.36);
        let peaks: Vec<String> = self.lanes.iter().map(Lane::peak_text).collect();
        let numbers = widest(peaks.iter().map(String::as_str), Style::Small).min(total * 0.2);
        let mut bottom = MARGIN;
        let edges: Vec<(f64, f64)> = self
            .lanes
            .iter()
            .map(|lane| {
                let top = bottom;
                bottom += lane.height() + LANE_GAP;
                (top, top + lane.height())
            })
            .collect();
        let area =
            Area { left: MARGIN + labels + 10.0, top: MARGIN, right: total - MARGIN - numbers - 6.0, bottom };
        let time = Axis::new(self.time.clone(), Unit::Seconds, Kind::Linear);
        let x = Scale::over(Kind::Linear, [0.0, self.end_s], 0.0, area.left, area.right);
        let body = html! {
            (time.below(&x, area, total))
            @for ((lane, peak), (top, low)) in self.lanes.iter().zip(&peaks).zip(edges) {
                @let label = shorten(lane.label(), labels, Style::Body);
                (text(&label, area.left - 10.0, f64::midpoint(top, low) + 4.0, Anchor::End, Style::Body))
                (line((area.left, low), (area.right, low), "grid"))
                g class=(series_class(lane.series())) {
                    title { (clean(lane.label())) }
                    @match lane {
                        Lane::Steps { points, .. } => {
                            @let highest = lane.peak().map_or(0.0, |peak| peak.1);
                            (steps(points, self.end_s, highest, &x, top + 4.0, low))
                            @let peak = shorten(peak, numbers, Style::Small);
                            (text(&peak, area.right + 6.0, top + 11.0, Anchor::Start, Style::Small))
                        }
                        Lane::Spans { spans: held, .. } => (spans(held, &x, top + 3.0, low - 1.0)),
                    }
                }
            }
        };
        Drawing::new(&self.title, &self.about, (total, area.bottom + AXIS_HEIGHT), body)
    }
}
