//! The page and its drawings as text: nothing escapes, nothing is fetched, nothing overlaps.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use gleaner_report::bench::{figures, html};

#[test]
fn show_me() {
    let dir = std::path::Path::new("/tmp/r");
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(dir.join("out.html"), html(&common::result()).unwrap()).unwrap();
    for figure in figures(&common::result()) {
        std::fs::write(dir.join(format!("{}.svg", figure.name)), figure.file()).unwrap();
    }
}
