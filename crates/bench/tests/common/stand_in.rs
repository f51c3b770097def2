//! A script in the place of a program.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes an executable file that runs the command after `--` and decides nothing.
///
/// A child writes it: a program that another test starts meanwhile inherits what this process has open, and while
/// anybody can write to a file it cannot be run (`ETXTBSY`).
pub(crate) fn plain_gleaner(file: &Path) -> io::Result<()> {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(file)
        .stdin(Stdio::piped())
        .spawn()?;
    let text = b"#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nshift\nexec \"$@\"\n";
    // Closed at the end of the statement, which ends the child.
    writer.stdin.take().map_or(Ok(()), |mut input| input.write_all(text))?;
    if writer.wait()?.success() { Ok(()) } else { Err(io::Error::other("a stand-in could not be written")) }
}
