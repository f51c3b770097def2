//! Reports: from a result file to plots (SVG) and one self-contained page (HTML).

pub mod axis;
pub mod drawing;
pub mod number;
pub mod place;
pub mod plot;
pub mod scale;
pub mod text;
pub mod theme;
