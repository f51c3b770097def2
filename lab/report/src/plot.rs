//! The plots: plain data that can be drawn at any width.

mod bars;
mod composition;
mod curves;
mod histogram;
mod legend;
mod scatter;
mod stack;
mod strip;
mod timeline;

pub use bars::{Bar, BarGroup, Bars, Interval};
pub use composition::{Composition, CompositionBar};
pub use curves::{Curve, Curves};
pub use gleaner_proto::diagnosis::Bin;
pub use histogram::Histogram;
pub use scatter::{Point, Scatter};
pub use stack::{Stack, StackLane, StackPart};
pub use strip::{Strip, StripLane};
pub use timeline::{Lane, Span, Timeline};

use std::fmt::Debug;

use crate::drawing::Drawing;

/// A plot.
pub trait Plot: Debug {
    /// Draws it `width` px wide. 280 px are enough for all; labels that do not fit are shortened or omitted.
    fn draw(&self, width: f64) -> Drawing;
}

/// Margin around every drawing, in px. A file adds its own.
const MARGIN: f64 = 1.0;
