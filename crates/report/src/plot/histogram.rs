//! How often values of which size occurred.

use maud::html;

use super::{MARGIN, Plot};
use crate::axis::{Axis, BELOW};
use crate::drawing::{Area, Drawing, Px};
use crate::number::{Unit, show};
use crate::scale::{Kind, Scale};
use crate::text::clean;
use crate::theme::series_class;

/// How many values lay in `from..to`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bin {
    /// Lower end.
    pub from: f64,
    /// Upper end.
    pub to: f64,
    /// How many values.
    pub count: f64,
}

/// Bins side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct Histogram {
    /// What it is, in few words.
    pub title: String,
    /// What it shows, for those who cannot see it.
    pub about: String,
    /// What was counted.
    pub axis: Axis,
    /// What a count is of, e.g. `idle periods`.
    pub counted: String,
    /// The bins, in rising order. Bins of equal width on the axis make equal areas of equal counts.
    pub bins: Vec<Bin>,
    /// Values that the axis reaches to in any case, so that several histograms can be compared.
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
        Drawing::new(&self.title, &self.about, (total, bottom + BELOW), body)
    }
}
