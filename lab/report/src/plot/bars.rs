//! Horizontal bars with intervals, in groups.

use maud::{Markup, html};

use super::{MARGIN, Plot};
use crate::axis::{AXIS_HEIGHT, Axis};
use crate::drawing::{Area, Drawing, Px, line, text};
use crate::number::{bare, show};
use crate::scale::Scale;
use crate::text::{Anchor, Style, clean, shorten, widest, width};
use crate::theme::series_class;

/// A value with its interval, in the axis' unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// Point estimate.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// Label on the axis.
    pub label: String,
    /// Series index: decides the colour.
    pub series: usize,
    /// Value and interval, or `None` if there is no value.
    pub interval: Option<Interval>,
    /// Whether the difference from the reference is inconclusive; such bars are pale.
    pub unsure: bool,
    /// Full description, shown as a tooltip.
    pub note: String,
}

/// Bars under a common heading.
#[derive(Debug, Clone, PartialEq)]
pub struct BarGroup {
    /// Heading; empty for none.
    pub label: String,
    /// The bars, top to bottom.
    pub bars: Vec<Bar>,
}

/// Groups of bars on one axis, all starting at the reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// Short title.
    pub title: String,
    /// Text alternative for screen readers.
    pub about: String,
    /// The quantity on the horizontal axis.
    pub axis: Axis,
    /// Value at which bars start, e.g. 1 for ratios.
    pub reference: f64,
    /// Label of the reference, e.g. `default`.
    pub reference_label: String,
    /// The groups, top to bottom.
    pub groups: Vec<BarGroup>,
}

/// Height of a bar's lane, in px.
const LANE_HEIGHT: f64 = 18.0;
const BAR_HEIGHT: f64 = 11.0;
const HEADING_HEIGHT: f64 = 24.0;
/// Space between groups, in px.
const GROUP_GAP: f64 = 6.0;
/// Space above the bars for the reference's label, in px.
const LABEL_SPACE: f64 = 24.0;
/// Width in px from which the interval is written after the value.
const WIDE_LAYOUT: f64 = 560.0;

/// One line of the plot.
enum Item<'a> {
    Heading(&'a str),
    Bar(&'a Bar),
}

impl Bars {
    fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.groups.iter().flat_map(|group| &group.bars)
    }

    fn value_text(&self, bar: &Bar, roomy: bool) -> String {
        let value = |value| show(self.axis.unit, value);
        match bar.interval {
            None => "–".to_owned(),
            Some(i) if roomy && i.low < i.high => {
                format!(
                    "{} [{}, {}]",
                    value(i.value),
                    bare(self.axis.unit, i.low),
                    bare(self.axis.unit, i.high)
                )
            }
            Some(i) => value(i.value),
        }
    }

    /// The lines with the lower edge of each, and the lower edge of the last one.
    fn layout(&self) -> (Vec<(f64, Item<'_>)>, f64) {
        let mut items = Vec::new();
        let mut y = LABEL_SPACE;
        for group in &self.groups {
            if !group.label.is_empty() {
                y += HEADING_HEIGHT;
                items.push((y, Item::Heading(&group.label)));
            }
            for bar in &group.bars {
                y += LANE_HEIGHT;
                items.push((y, Item::Bar(bar)));
            }
            y += GROUP_GAP;
        }
        (items, y)
    }

    fn bar(&self, bar: &Bar, scale: &Scale, middle: f64) -> Markup {
        let from = scale.at(self.reference);
        let class = format!("{}{}", series_class(bar.series), if bar.unsure { " unsure" } else { "" });
        html! {
            @if let Some(Interval { value, low, high }) = bar.interval.filter(|i| self.axis.kind.shows(i.value)) {
                @let (to, low, high) = (scale.at(value), scale.at(low), scale.at(high));
                g class=(class) {
                    title { (clean(&bar.note)) }
                    rect x=(Px(from.min(to))) y=(Px(middle - BAR_HEIGHT / 2.0)) width=(Px((to - from).abs().max(1.0)))
                        height=(Px(BAR_HEIGHT)) class="bar" {}
                    // A value known exactly has no whisker.
                    @if low < high {
                        path d=(format!(
                            "M{0} {2}V{3}M{0} {4}H{1}M{1} {2}V{3}",
                            Px(low), Px(high), Px(middle - 3.5), Px(middle + 3.5), Px(middle)
                        )) class="whisker" {}
                    }
                }
            }
        }
    }
}

impl Plot for Bars {
    fn draw(&self, total: f64) -> Drawing {
        let roomy = total >= WIDE_LAYOUT;
        let labels = widest(self.bars().map(|bar| bar.label.as_str()), Style::Body).min(total * 0.34);
        let texts: Vec<String> = self.bars().map(|bar| self.value_text(bar, roomy)).collect();
        let numbers = widest(texts.iter().map(String::as_str), Style::Small).min(total * 0.4);
        let (items, bottom) = self.layout();
        let area = Area {
            left: MARGIN + labels + 10.0,
            top: LABEL_SPACE,
            right: total - MARGIN - numbers - 10.0,
            bottom,
        };
        let ends = self.bars().filter_map(|bar| bar.interval).flat_map(|i| [i.value, i.low, i.high]);
        let scale = Scale::over(self.axis.kind, ends.chain([self.reference]), 0.03, area.left, area.right);

        let room = total - 2.0 * MARGIN;
        let reference = scale.at(self.reference);
        let reference_label = shorten(&self.reference_label, room, Style::Small);
        let half = width(&reference_label, Style::Small) / 2.0;
        let reference_x = reference.max(MARGIN + half).min(total - MARGIN - half);
        let body = html! {
            (self.axis.below(&scale, area, total))
            (line((reference, area.top - 4.0), (reference, area.bottom), "reference"))
            (text(&reference_label, reference_x, area.top - 9.0, Anchor::Middle, Style::Small))
            @for (y, item) in &items {
                @match item {
                    Item::Heading(label) => {
                        (text(&shorten(label, room, Style::Strong), MARGIN, y - 7.0, Anchor::Start, Style::Strong))
                    }
                    Item::Bar(bar) => {
                        @let label = shorten(&bar.label, labels, Style::Body);
                        @let value = shorten(&self.value_text(bar, roomy), numbers, Style::Small);
                        (self.bar(bar, &scale, y - LANE_HEIGHT / 2.0))
                        (text(&label, area.left - 10.0, y - 5.0, Anchor::End, Style::Body))
                        (text(&value, total - MARGIN, y - 5.0, Anchor::End, Style::Small))
                    }
                }
            }
        };
        Drawing::new(&self.title, &self.about, (total, area.bottom + AXIS_HEIGHT), body)
    }
}
