//! Reports: from a result file to plots (SVG) and one self-contained page (HTML).

pub mod number;
pub mod place;
pub mod scale;
pub mod text;
