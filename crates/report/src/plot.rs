//! The plots: each a description in plain values that can be drawn at any width.

mod bars;
mod curves;
mod graph;
mod histogram;
mod legend;
mod scatter;
mod stack;
mod strip;
mod timeline;

pub use bars::{Bar, BarGroup, Bars, Interval};
pub use curves::{Curve, Curves};
pub use graph::{Graph, Link, Node};
pub use histogram::{Bin, Histogram};
pub use scatter::{Point, Scatter};
pub use stack::{Stack, StackLane, StackPart};
pub use strip::{Strip, StripLane};
pub use timeline::{Lane, Span, Timeline};

use std::fmt::Debug;

use crate::drawing::Drawing;

/// Something that can be drawn.
pub trait Plot: Debug {
    /// Draws it `width` px wide. From 280 px on everything has room; labels that have none are shortened or left out.
    fn draw(&self, width: f64) -> Drawing;
}

/// Free room at the edges of a drawing, in px. A file adds its own.
const MARGIN: f64 = 1.0;
