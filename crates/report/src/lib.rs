//! Reports: from a result or a diagnosis to plots (SVG) and one self-contained page (HTML).
//!
//! Everything here is pure: a description in, text out. [`plot`] has the plots, which know nothing of what they show
//! and are drawn for a given width; [`bench`] describes a result file with them, [`diagnosis`] what a program loses,
//! [`reproduction`] the papers' numbers as simulated. A plot looks the same on a page and in a file of its own, follows the reader's light or dark scheme, and
//! needs neither network nor fonts.

pub mod axis;
pub mod bench;
pub mod diagnosis;
pub mod drawing;
mod facts;
pub mod number;
pub mod page;
pub mod place;
pub mod plot;
pub mod reproduction;
pub mod scale;
pub mod text;
pub mod theme;
