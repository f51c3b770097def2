//! Histograms.

use gleaner_proto::diagnosis::Bin;
use maud::html;

use super::{MARGIN, Plot};
use crate::axis::{AXIS_HEIGHT, Axis};
use crate::drawing::{Area, Drawing, Px};
use crate::number::{Unit, show};
use crate::scale::{Kind, Scale};
use crate::text::clean;
use crate::theme::series_class;

/// Bins side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// Short title.
    pub title: String,
    /// Text alternative for screen readers.
    pub about: String,
    /// The binned quantity.
    pub axis: Axis,
    /// What the counts are of, e.g. `idle periods`.
    pub counted: String,
    /// The bins in ascending order. If they are equally wide on the axis, equal counts have equal areas.
    pub bins: Vec<Bin>,
    /// A range that the axis always covers, so that histograms can be compared.
    pub within: Option<(f64, f64)>,
}

impl Plot for Histogram {
    fn draw(&self, total: f64) -> Drawing {
        let top = MARGIN + 28.0;
        let bottom = top + (total * 0.3).clamp(120.0, 240.0);
        let shown = |bin: &&Bin| {
            self.axis.kind.shows(bin.from) && self.axis.kind.shows(bin.to) && Kind::Linear.shows(bin.count)
        };
        let bins: Vec<&Bin> = self.bins.iter().filter(shown).collect();
        let up = Axis::new(self.counted.clone(), Unit::Plain, Kind::Linear);
        let y = Scale::over(Kind::Linear, bins.iter().map(|bin| bin.count).chain([0.0]), 0.02, bottom, top);
        let left = MARGIN + up.room_beside(&y, bottom - top);
        let area = Area { left, top, right: total - MARGIN - 8.0, bottom };
        let ends = bins.iter().flat_map(|bin| [bin.from, bin.to]);
        let ends = ends.chain(self.within.into_iter().flat_map(|(from, to)| [from, to]));
        let x = Scale::over(self.axis.kind, ends, 0.0, area.left, area.right);
        let body = html! {
            (up.beside(&y, area, (MARGIN, area.right)))
            (self.axis.below(&x, area, total))
            g class=(series_class(1)) {
                @for bin in &bins {
                    @let (from, to, y) = (x.at(bin.from), x.at(bin.to), y.at(bin.count));
                    g {
                        title {
                            (clean(&format!(
                                "{} to {}: {} {}",
                                show(self.axis.unit, bin.from), show(self.axis.unit, bin.to),
                                show(Unit::Plain, bin.count), self.counted
                            )))
                        }
                        rect x=(Px(from)) y=(Px(y)) width=(Px((to - from - 1.0).max(0.5))) height=(Px(bottom - y))
                            class="bar" {}
                    }
                }
            }
        };
        Drawing::new(&self.title, &self.about, (total, bottom + AXIS_HEIGHT), body)
    }
}
