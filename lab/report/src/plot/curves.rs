//! Lines: distributions, or any quantity over another.

use maud::{Markup, html};

use super::legend::{self, SWATCH_GAP, SWATCH_WIDTH};
use super::{MARGIN, Plot};
use crate::axis::{AXIS_HEIGHT, Axis};
use crate::drawing::{Area, Drawing, line, mark, path, text};
use crate::scale::Scale;
use crate::text::{Anchor, Style, clean};
use crate::theme::series_class;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Label in the legend.
    pub label: String,
    /// Series index: decides colour, dashes and marks.
    pub series: usize,
    /// The points (x, y), in drawing order.
    pub points: Vec<(f64, f64)>,
    /// Whether to mark the points, because nothing is known between them; otherwise draws steps.
    pub marks: bool,
}

/// Lines on two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// Short title.
    pub title: String,
    /// Text alternative for screen readers.
    pub about: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The lines, in legend order.
    pub curves: Vec<Curve>,
}

impl Curve {
    /// The cumulative distribution of `values`: the share of them at or below x.
    pub fn cumulative(label: impl Into<String>, series: usize, values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let n = sorted.len() as f64;
        let start = sorted.first().map(|first| (*first, 0.0));
        let steps = sorted.iter().enumerate().map(|(index, value)| (*value, (index + 1) as f64 / n));
        Self { label: label.into(), series, points: start.into_iter().chain(steps).collect(), marks: false }
    }
}

impl Curves {
    fn shown(&self, curve: &Curve) -> Vec<(f64, f64)> {
        let shown = |(x, y): &(f64, f64)| self.x.kind.shows(*x) && self.y.kind.shows(*y);
        curve.points.iter().copied().filter(shown).collect()
    }

    fn curve(&self, curve: &Curve, x: &Scale, y: &Scale) -> Markup {
        let points: Vec<(f64, f64)> = self.shown(curve).iter().map(|p| (x.at(p.0), y.at(p.1))).collect();
        html! {
            g class=(series_class(curve.series)) {
                title { (clean(&curve.label)) }
                path d=(path(&points, !curve.marks)) class="line" {}
                @if curve.marks {
                    @for point in &points { (mark(curve.series, point.0, point.1, 3.5)) }
                }
            }
        }
    }
}

impl Plot for Curves {
    fn draw(&self, total: f64) -> Drawing {
        let legend = legend::rows(&self.curves, |curve| &curve.label, total);
        let top = MARGIN + legend::height(&legend) + 26.0;
        let bottom = top + (total * 0.42).clamp(180.0, 320.0);
        let points = || self.curves.iter().flat_map(|curve| self.shown(curve));
        let y = Scale::over(self.y.kind, points().map(|p| p.1), 0.0, bottom, top);
        let left = MARGIN + self.y.room_beside(&y, bottom - top);
        let area = Area { left, top, right: total - MARGIN - 4.0, bottom };
        let x = Scale::over(self.x.kind, points().map(|p| p.0), 0.03, area.left, area.right);
        let body = html! {
            @for (entry, middle) in legend::entries(&legend) {
                @let (left, curve) = (entry.x, entry.item);
                g class=(series_class(curve.series)) {
                    (line((left, middle), (left + SWATCH_WIDTH, middle), "line"))
                    @if curve.marks { (mark(curve.series, left + SWATCH_WIDTH / 2.0, middle, 3.5)) }
                    (text(&entry.label, left + SWATCH_WIDTH + SWATCH_GAP, middle + 4.0, Anchor::Start, Style::Body))
                }
            }
            (self.x.below(&x, area, total))
            (self.y.beside(&y, area, (MARGIN, area.right)))
            @for curve in &self.curves { (self.curve(curve, &x, &y)) }
        };
        Drawing::new(&self.title, &self.about, (total, bottom + AXIS_HEIGHT), body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_rises_from_zero_to_one() {
        let curve = Curve::cumulative("x", 0, &[3.0, 1.0]);
        assert_eq!(curve.points, [(1.0, 0.0), (1.0, 0.5), (3.0, 1.0)]);
        assert!(Curve::cumulative("x", 0, &[]).points.is_empty());
    }
}
