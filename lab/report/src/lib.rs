//! Reports: turns a result or a diagnosis into plots (SVG) and one self-contained page (HTML).
//!
//! Everything here is pure: data in, text out. [`plot`] draws generic plots at a given width; [`bench`]
//! applies them to a result file, [`diagnosis`] to what a program loses, [`host`] to what the VMs of a host
//! lose, [`reproduction`] to simulated papers. A plot looks the same on a page and in its own file, respects the reader's light or dark scheme,
//! and needs neither network nor fonts.

pub mod axis;
pub mod bench;
pub mod diagnosis;
pub mod drawing;
mod facts;
pub mod host;
mod lengths;
pub mod number;
pub mod page;
pub mod place;
pub mod plot;
pub mod reproduction;
pub mod scale;
mod table;
pub mod text;
pub mod theme;
