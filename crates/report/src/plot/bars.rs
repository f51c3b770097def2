//! Horizontal bars with intervals, in groups.

use maud::{Markup, html};

use super::{MARGIN, Plot};
use crate::axis::{Axis, BELOW};
use crate::drawing::{Area, Drawing, Px, line, text};
use crate::number::{bare, show};
use crate::scale::Scale;
use crate::text::{Anchor, Style, clean, shorten, widest, width};
use crate::theme::series_class;

/// A value with its interval, in the axis' unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The value.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// One bar.
#[derive(Debug, Clone, PartialEq)]
pub struct Bar {
    /// What it stands for.
    pub label: String,
    /// Its series: decides its colour.
    pub series: usize,
    /// Its length, or `None` where there is no value.
    pub interval: Option<Interval>,
    /// Whether the difference from the reference is not established; such bars are pale.
    pub unsure: bool,
    /// The whole truth about it, shown where the pointer rests.
    pub note: String,
}

/// Bars that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct BarGroup {
    /// What they have in common; empty for no heading.
    pub label: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// Groups of bars on one axis. Each begins at the reference.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What it is, in few words.
    pub title: String,
    /// What it shows, for those who cannot see it.
    pub about: String,
    /// What the bars measure.
    pub axis: Axis,
    /// Where bars begin, e.g. 1 for ratios.
    pub reference: f64,
    /// What the reference is, e.g. `default`.
    pub reference_label: String,
    /// The bars.
    pub groups: Vec<BarGroup>,
}

/// Height of a bar's lane.
const LANE: f64 = 18.0;
/// Thickness of a bar.
const THICK: f64 = 11.0;
/// Height of a heading.
const HEADING: f64 = 24.0;
/// Room between groups.
const BETWEEN: f64 = 6.0;
/// Room above the bars for the reference's label.
const ABOVE: f64 = 24.0;
/// From this width on the interval is written behind the value.
const ROOMY: f64 = 560.0;

/// What stands on a line of the plot.
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

    /// What stands where, with the lower edge of each, and the lower edge of all.
    fn layout(&self) -> (Vec<(f64, Item<'_>)>, f64) {
        let mut items = Vec::new();
        let mut y = ABOVE;
        for group in &self.groups {
            if !group.label.is_empty() {
                y += HEADING;
                items.push((y, Item::Heading(&group.label)));
            }
            for bar in &group.bars {
                y += LANE;
                items.push((y, Item::Bar(bar)));
            }
            y += BETWEEN;
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
                    rect x=(Px(from.min(to))) y=(Px(middle - THICK / 2.0)) width=(Px((to - from).abs().max(1.0)))
                        height=(Px(THICK)) class="bar" {}
                    // A value that is known as it is has no whisker.
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
        let roomy = total >= ROOMY;
        let labels = widest(self.bars().map(|bar| bar.label.as_str()), Style::Body).min(total * 0.34);
        let texts: Vec<String> = self.bars().map(|bar| self.value_text(bar, roomy)).collect();
        let numbers = widest(texts.iter().map(String::as_str), Style::Small).min(total * 0.4);
        let (items, bottom) = self.layout();
        let area =
            Area { left: MARGIN + labels + 10.0, top: ABOVE, right: total - MARGIN - numbers - 10.0, bottom };
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
                        (self.bar(bar, &scale, y - LANE / 2.0))
                        (text(&label, area.left - 10.0, y - 5.0, Anchor::End, Style::Body))
                        (text(&value, total - MARGIN, y - 5.0, Anchor::End, Style::Small))
                    }
                }
            }
        };
        Drawing::new(&self.title, &self.about, (total, area.bottom + BELOW), body)
    }
}
