//! Programs of the source tree's `bench/programs`: kinds of waiting that no server of the other rows has, in languages
//! whose run-times wait in their own ways. Each prints its rate once per second until it is ended.

use std::fs;

use super::cell::{Measured, Place};
use super::launch::Launch;
use super::window::number_after;
use super::{Error, Result, Window};

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// Two Python processes and a message that goes to and fro over pipes.
    PythonPipe,
    /// Pairs of Python threads and an item that goes to and fro through queues.
    PythonThreads,
    /// Pairs of Java threads at a `SynchronousQueue`.
    JavaQueue,
    /// A Go web server and its clients in one process.
    GoHttp,
}

/// Debian's, for which the rows are; a user's own may come first in `PATH`.
pub(super) const PYTHON: &str = "/usr/bin/python3";

impl Program {
    /// The file's name and content.
    fn source(self) -> (&'static str, &'static str) {
        match self {
            Self::PythonPipe => ("pipe.py", include_str!("../../../../bench/programs/pipe.py")),
            Self::PythonThreads => ("threads.py", include_str!("../../../../bench/programs/threads.py")),
            Self::JavaQueue => ("Handoff.java", include_str!("../../../../bench/programs/Handoff.java")),
            Self::GoHttp => ("http.go", include_str!("../../../../bench/programs/http.go")),
        }
    }

    /// The program that must be installed, and Debian's package.
    pub(super) fn needs(self) -> (&'static str, &'static str) {
        match self {
            Self::PythonPipe | Self::PythonThreads => (PYTHON, "python3"),
            Self::JavaQueue => ("java", "default-jre-headless"),
            Self::GoHttp => ("go", "golang-go"),
        }
    }

    /// Writes the source and compiles it, unless that was done before.
    pub(super) fn prepare(self, place: &Place) -> Result<()> {
        let (name, text) = self.source();
        let (file, done) = (place.path(name), place.path(&format!("{name}.prepared")));
        if done.exists() {
            return Ok(());
        }
        fs::write(&file, text).map_err(Error::file("write", &file))?;
        match self {
            Self::PythonPipe | Self::PythonThreads => {}
            Self::JavaQueue => {
                // Debian's run-time has the compiler, but not the command for it.
                Launch::new("java")
                    .args(["-m", "jdk.compiler/com.sun.tools.javac.Main", "-d"])
                    .arg(place.path(""))
                    .arg(&file)
                    .output()?;
            }
            Self::GoHttp => {
                Launch::new("go").args(["build", "-o"]).arg(place.path("http")).arg(&file).output()?;
            }
        }
        fs::write(&done, "").map_err(Error::file("write", &done))
    }

    pub(super) fn measure(self, place: &Place, pairs: u32, window: Window) -> Result<Measured> {
        let launch = match self {
            Self::PythonPipe | Self::PythonThreads => Launch::new(PYTHON).arg(place.path(self.source().0)),
            Self::JavaQueue => Launch::new("java").arg("-cp").arg(place.path("")).arg("Handoff"),
            Self::GoHttp => Launch::new(&place.path("http").to_string_lossy()),
        };
        // One of them forks: both are ended, and at once.
        let launch = launch.arg(pairs.to_string()).group();
        let sample = window.of_lines(&launch, |line| number_after(line, "rate: "))?;
        Ok(Measured { sample, commands: vec![launch.line()] })
    }
}
