//! Lines: distributions, and anything over something.

use maud::{Markup, html};

use super::{MARGIN, Plot};
use crate::axis::{Axis, BELOW};
use crate::drawing::{Area, Drawing, line, mark, path, text};
use crate::scale::Scale;
use crate::text::{Anchor, Style, clean, shorten, width};
use crate::theme::series_class;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// What it stands for.
    pub label: String,
    /// Its series: decides its colour, dashes and marks.
    pub series: usize,
    /// Its points, in their order.
    pub points: Vec<(f64, f64)>,
    /// Whether the points are measured values between which nothing is known: they get marks. Else a line of steps.
    pub marks: bool,
}

/// Lines on two axes.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// What it is, in few words.
    pub title: String,
    /// What it shows, for those who cannot see it.
    pub about: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The lines.
    pub curves: Vec<Curve>,
}

/// Height of a line of the legend.
const ROW: f64 = 18.0;
/// Length of a sample of a line in the legend.
const SAMPLE: f64 = 26.0;

impl Curve {
    /// The distribution of `values`: the share of them that is at most x.
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

    /// The legend's lines: entries with their x position. Entries never reach beyond `total`.
    fn legend(&self, total: f64) -> Vec<Vec<(f64, &Curve, String)>> {
        let mut rows = vec![Vec::new()];
        let mut x = MARGIN;
        for curve in &self.curves {
            let label = shorten(&curve.label, total - 2.0 * MARGIN - SAMPLE - 6.0, Style::Body);
            let needed = SAMPLE + 6.0 + width(&label, Style::Body);
            if x > MARGIN && x + needed > total - MARGIN {
                rows.push(Vec::new());
                x = MARGIN;
            }
            if let Some(row) = rows.last_mut() {
                row.push((x, curve, label));
            }
            x += needed + 18.0;
        }
        rows
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
        let legend = self.legend(total);
        let top = MARGIN + ROW * legend.len() as f64 + 26.0;
        let bottom = top + (total * 0.42).clamp(180.0, 320.0);
        let points = || self.curves.iter().flat_map(|curve| self.shown(curve));
        let y = Scale::over(self.y.kind, points().map(|p| p.1), 0.0, bottom, top);
        let left = MARGIN + self.y.room_beside(&y, bottom - top);
        let area = Area { left, top, right: total - MARGIN - 4.0, bottom };
        let x = Scale::over(self.x.kind, points().map(|p| p.0), 0.03, area.left, area.right);
        let body = html! {
            @for (row, entries) in legend.iter().enumerate() {
                @let middle = MARGIN + ROW * (row as f64 + 0.5);
                @for (left, curve, label) in entries {
                    g class=(series_class(curve.series)) {
                        (line((*left, middle), (left + SAMPLE, middle), "line"))
                        @if curve.marks { (mark(curve.series, left + SAMPLE / 2.0, middle, 3.5)) }
                        (text(label, left + SAMPLE + 6.0, middle + 4.0, Anchor::Start, Style::Body))
                    }
                }
            }
            (self.x.below(&x, area, total))
            (self.y.beside(&y, area, (MARGIN, area.right)))
            @for curve in &self.curves { (self.curve(curve, &x, &y)) }
        };
        Drawing {
            title: self.title.clone(),
            about: self.about.clone(),
            width: total,
            height: bottom + BELOW,
            body,
        }
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
