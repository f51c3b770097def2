//! Labelled points with a regression line.

use maud::{Markup, html};

use super::{MARGIN, Plot};
use crate::axis::{AXIS_HEIGHT, Axis};
use crate::drawing::{Area, Drawing, line, mark, text};
use crate::number::show;
use crate::place::{LabelPosition, LabelledPoint, labels};
use crate::scale::{Kind, Scale};
use crate::text::{Anchor, Rect, Style, clean, shorten, width};
use crate::theme::series_class;

/// A labelled point.
#[derive(Debug, Clone, PartialEq)]
pub struct Point {
    /// Label beside the point.
    pub label: String,
    /// Horizontal value.
    pub x: f64,
    /// Vertical value.
    pub y: f64,
}

/// Points on two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Scatter {
    /// Short title.
    pub title: String,
    /// Text alternative for screen readers.
    pub about: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// The points, in any order.
    pub points: Vec<Point>,
    /// Note in the upper right corner, e.g. the correlation.
    pub note: String,
    /// Whether to draw a least-squares line. Only meaningful on linear axes.
    pub fit: bool,
}

/// Radius of a point, in px.
const RADIUS: f64 = 4.0;
/// Space above the plotting area for the label of the vertical axis, in px.
const LABEL_SPACE: f64 = 28.0;

impl Scatter {
    fn shown(&self) -> Vec<&Point> {
        let shown = |point: &&Point| self.x.kind.shows(point.x) && self.y.kind.shows(point.y);
        self.points.iter().filter(shown).collect()
    }

    /// The ends of the least-squares line within the points' range.
    fn fitted(&self) -> Option<[(f64, f64); 2]> {
        if !self.fit || self.x.kind != Kind::Linear || self.y.kind != Kind::Linear {
            return None;
        }
        let points: Vec<(f64, f64)> = self.shown().iter().map(|p| (p.x, p.y)).collect();
        // Two points are not a trend.
        let [first, _, _, ..] = points[..] else { return None };
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / points.len() as f64;
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let sum = |of: fn(f64, f64) -> f64| points.iter().map(|p| of(p.0 - x, p.1 - y)).sum::<f64>();
        let slope = sum(|dx, dy| dx * dy) / sum(|dx, _| dx * dx);
        let ends = [f64::min, f64::max].map(|end| points.iter().map(|p| p.0).fold(first.0, end));
        slope.is_finite().then(|| ends.map(|at| (at, y + slope * (at - x))))
    }

    fn point(&self, point: &Point, at: (f64, f64), label: &str, placed: Option<LabelPosition>) -> Markup {
        let note = format!("{}: {}, {}", point.label, show(self.x.unit, point.x), show(self.y.unit, point.y));
        html! {
            g {
                title { (clean(&note)) }
                @if let Some(LabelPosition { label: place, far }) = placed {
                    @if far {
                        @let end = (at.0.clamp(place.x, place.x + place.w), at.1.clamp(place.y, place.y + place.h));
                        (line(at, end, "leader"))
                    }
                    // The baseline is a quarter of the font size above the lower edge of the box.
                    (text(label, place.x, place.y + place.h - 3.0, Anchor::Start, Style::Body))
                }
                (mark(0, at.0, at.1, RADIUS))
            }
        }
    }
}

impl Plot for Scatter {
    fn draw(&self, total: f64) -> Drawing {
        let height = (total * 0.56).clamp(260.0, 460.0);
        let (top, bottom) = (LABEL_SPACE + MARGIN, height - AXIS_HEIGHT);
        let points = self.shown();
        let fitted = self.fitted();
        let fit_y = fitted.iter().flatten().map(|end| end.1);
        let y = Scale::over(self.y.kind, points.iter().map(|p| p.y).chain(fit_y), 0.08, bottom, top);
        let left = MARGIN + self.y.room_beside(&y, bottom - top);
        let area = Area { left, top, right: total - MARGIN, bottom };
        let x = Scale::over(self.x.kind, points.iter().map(|p| p.x), 0.08, area.left, area.right);

        let places: Vec<(f64, f64)> = points.iter().map(|p| (x.at(p.x), y.at(p.y))).collect();
        let texts: Vec<String> = points.iter().map(|p| shorten(&p.label, total / 3.0, Style::Body)).collect();
        let labelled: Vec<LabelledPoint> = places
            .iter()
            .zip(&texts)
            .map(|(at, text)| LabelledPoint {
                at: *at,
                radius: RADIUS,
                size: (width(text, Style::Body) + 2.0, Style::Body.size() * 1.2),
            })
            .collect();
        let bounds = Rect { x: area.left, y: top, w: area.right - area.left, h: bottom - top };
        let boxes = labels(&labelled, bounds);

        // The note shares a line with the vertical axis' label, where it covers nothing.
        let room = total - 2.0 * MARGIN;
        let note = shorten(&self.note, room * 0.6, Style::Strong);
        let note_left = area.right - width(&note, Style::Strong) - 12.0;
        let body = html! {
            (self.x.below(&x, area, total))
            (self.y.beside(&y, area, (MARGIN, note_left)))
            (text(&note, area.right, top - 12.0, Anchor::End, Style::Strong))
            @if let Some([from, to]) = fitted {
                (line((x.at(from.0), y.at(from.1)), (x.at(to.0), y.at(to.1)), "fit"))
            }
            g class=(series_class(1)) {
                @for (((point, at), label), place) in points.iter().zip(&places).zip(&texts).zip(boxes) {
                    (self.point(point, *at, label, place))
                }
            }
        };
        Drawing::new(&self.title, &self.about, (total, height), body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::Unit;

    #[test]
    fn the_line_is_that_of_least_squares() {
        let fitted = |points: &[(f64, f64)]| {
            let axis = Axis::new("", Unit::Plain, Kind::Linear);
            let point = |&(x, y): &(f64, f64)| Point { label: String::new(), x, y };
            let (title, about, note) = Default::default();
            let points = points.iter().map(point).collect();
            Scatter { title, about, x: axis.clone(), y: axis, points, note, fit: true }.fitted()
        };
        // By hand: the means are 1, the sum of products is 1 and that of squares 2, so the slope is 1/2.
        let [from, to] = fitted(&[(0.0, 0.0), (1.0, 2.0), (2.0, 1.0)]).unwrap();
        assert!((from.1 - 0.5).abs() < 1e-12 && (to.1 - 1.5).abs() < 1e-12, "{from:?} {to:?}");
        assert_eq!(fitted(&[(0.0, 1.0), (1.0, 2.0)]), None);
        assert_eq!(fitted(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None, "upright");
    }
}
