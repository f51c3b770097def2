//! Programs in the source tree's `lab/bench/programs`: kinds of waiting that the servers do not have, in
//! languages whose run-times wait in their own ways. Each prints its rate once per second until stopped.

use std::fs;

use gleaner_kernel::Root;
use gleaner_kernel::topology::Topology;

use super::context::CellContext;
use super::error::{Result, ServersError};
use super::launch::Launch;
use super::sample::Measured;
use super::window::{Window, number_after};

/// One of these programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// Two Python processes that pass a message back and forth over pipes.
    PythonPipe,
    /// Pairs of Python threads that pass an item back and forth through queues.
    PythonThreads,
    /// Pairs of Java threads that exchange items through a `SynchronousQueue`.
    JavaQueue,
    /// A Go web server and its clients in one process.
    GoHttp,
}

/// Debian's, which the rows are for; `PATH` might find the user's own first.
pub(super) const PYTHON: &str = "/usr/bin/python3";

impl Program {
    /// File name and content of the source.
    fn source(self) -> (&'static str, &'static str) {
        match self {
            Self::PythonPipe => ("pipe.py", include_str!("../../programs/pipe.py")),
            Self::PythonThreads => ("threads.py", include_str!("../../programs/threads.py")),
            Self::JavaQueue => ("Handoff.java", include_str!("../../programs/Handoff.java")),
            Self::GoHttp => ("http.go", include_str!("../../programs/http.go")),
        }
    }

    /// The program that must be installed, and its Debian package.
    pub(super) fn needs(self) -> (&'static str, &'static str) {
        match self {
            Self::PythonPipe | Self::PythonThreads => (PYTHON, "python3"),
            Self::JavaQueue => ("java", "default-jre-headless"),
            Self::GoHttp => ("go", "golang-go"),
        }
    }

    /// Writes and compiles the source, unless that has been done.
    pub(super) fn prepare(self, place: &CellContext) -> Result<()> {
        let (name, text) = self.source();
        let (file, done) = (place.path(name), place.path(&format!("{name}.prepared")));
        if done.exists() {
            return Ok(());
        }
        fs::write(&file, text).map_err(ServersError::file("write", &file))?;
        match self {
            Self::PythonPipe | Self::PythonThreads => {}
            Self::JavaQueue => {
                // Debian's run-time includes the compiler, but not its command.
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
        fs::write(&done, "").map_err(ServersError::file("write", &done))
    }

    pub(super) fn measure(self, place: &CellContext, pairs: u32, window: Window) -> Result<Measured> {
        // Java and Go size themselves by the vCPUs that they may use at their start. A fixed set of vCPUs would measure
        // another program than the one that finds itself on fewer while it runs.
        let vcpus = Topology::read(&Root::system())?.online.len();
        let launch = match self {
            Self::PythonPipe | Self::PythonThreads => Launch::new(PYTHON).arg(place.path(self.source().0)),
            Self::JavaQueue => Launch::new("java")
                .args([format!("-XX:ActiveProcessorCount={vcpus}"), "-cp".to_owned()])
                .arg(place.path(""))
                .arg("Handoff"),
            Self::GoHttp => Launch::new("env").arg(format!("GOMAXPROCS={vcpus}")).arg(place.path("http")),
        };
        // One of them forks, so both processes are stopped as a group.
        let launch = launch.arg(pairs.to_string()).group();
        let sample = window.of_lines(&launch, |line| number_after(line, "rate: "))?;
        Ok(Measured { sample, commands: vec![launch.line()] })
    }
}
