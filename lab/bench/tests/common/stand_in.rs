//! A script that stands in for a program.

use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Creates an executable file that runs the command after `--` and decides nothing. Its journal is a copy of the
/// file of the same name with the ending `.journal`.
///
/// A child process writes it: a program started concurrently by another test inherits this process's open
/// files, and a file that is open for writing cannot be executed (`ETXTBSY`).
pub(crate) fn plain_gleaner(file: &Path) -> io::Result<()> {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(file)
        .stdin(Stdio::piped())
        .spawn()?;
    let text = b"#!/bin/sh\n\
        while [ \"$1\" != -- ]; do [ \"$1\" = --journal ] && cp \"$0.journal\" \"$2\"; shift; done\n\
        shift\n\
        exec \"$@\"\n";
    // Closed at the end of the statement, which ends the child.
    writer.stdin.take().map_or(Ok(()), |mut input| input.write_all(text))?;
    if writer.wait()?.success() { Ok(()) } else { Err(io::Error::other("a stand-in could not be written")) }
}
