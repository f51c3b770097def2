//! A record as a page. The program that draws it is the laboratory's: this one runs as root, and draws nothing.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use gleaner_print::{say, sibling};
use gleaner_proto::result::check_place;

/// The program that draws pages.
const PROGRAM: &str = "gleaner-bench";

/// Where a page goes, and what draws it.
pub(crate) struct Page<'a> {
    file: &'a Path,
    program: PathBuf,
}

impl<'a> Page<'a> {
    /// Checks that `file` can be written, and that there is a program that draws.
    pub(crate) fn prepare(file: &'a Path) -> anyhow::Result<Self> {
        check_place(file)?;
        Ok(Self { file, program: sibling(PROGRAM)? })
    }

    /// Writes the page of a record, given as JSON.
    pub(crate) fn write(&self, json: &str) -> anyhow::Result<()> {
        let Self { file, program } = self;
        let mut drawing = Command::new(program)
            .arg("host-page")
            .arg(file)
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", program.display()))?;
        // One that has failed reads no further; its own message says why.
        let written = drawing.stdin.take().map(|mut input| input.write_all(json.as_bytes()));
        let output = drawing.wait_with_output()?;
        if !output.status.success() {
            bail!("the page was not drawn: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        written.unwrap_or(Ok(()))?;
        say!("{}: wrote {}", crate::NAME, file.display());
        Ok(())
    }
}
