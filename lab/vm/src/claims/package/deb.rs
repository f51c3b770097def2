//! The package under test with an older version.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::error::{Error, Result};
use crate::tool;

/// Precedes the version that it is added to (deb-version(7)).
const OLDER: &str = "~previous";
/// Its configuration file, and a line that the older version has in it.
const CONFIGURATION: &str = "etc/gleaner/gleaner.toml";
pub(super) const OLD_LINE: &str = "# This line is in the older version alone.";

/// Makes of a package one with an older version, which dpkg upgrades from, and another configuration file.
pub(super) fn older(deb: &Path) -> Result<Vec<u8>> {
    let dir = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
    let (tree, older) = (dir.path().join("tree"), dir.path().join("older.deb"));
    tool::run(Command::new("dpkg-deb").arg("--raw-extract").args([deb, &tree]))?;
    edit(&tree.join("DEBIAN/control"), |text| {
        let versioned = |line: &str| {
            let suffix = if line.starts_with("Version: ") { OLDER } else { "" };
            format!("{line}{suffix}\n")
        };
        text.lines().map(versioned).collect()
    })?;
    edit(&tree.join(CONFIGURATION), |text| format!("{text}{OLD_LINE}\n"))?;
    tool::run(
        Command::new("dpkg-deb")
            .args(["--root-owner-group", "-Zgzip", "-z1", "--build"])
            .args([&tree, &older]),
    )?;
    fs::read(&older).map_err(Error::file("read", older))
}

fn edit(path: &Path, change: impl FnOnce(&str) -> String) -> Result<()> {
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    fs::write(path, change(&text)).map_err(Error::file("write", path))
}
