//! A step in a guest, and its result.

use std::time::Duration;

use crate::wire::Exit;

/// A program to run in a guest.
#[derive(Debug, Clone)]
pub struct Step {
    pub(crate) argv: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) input: Vec<u8>,
    pub(crate) timeout: Duration,
    pub(crate) counts_from: Option<String>,
}

impl Step {
    /// The default timeout of a step.
    pub const TIMEOUT: Duration = Duration::from_secs(60);

    /// A program with its arguments, found in the guest's PATH, which starts with the binaries under test.
    pub fn new(argv: &[&str]) -> Self {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        Self { argv, env: Vec::new(), input: Vec::new(), timeout: Self::TIMEOUT, counts_from: None }
    }

    /// A shell script.
    pub fn shell(script: &str) -> Self {
        Self::new(&["sh", "-c", script])
    }

    /// Sets another timeout.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets a timeout that counts from the moment at which the step creates this file; [`Step::TIMEOUT`] limits the
    /// time until then.
    #[must_use]
    pub fn timeout_from(mut self, file: &str, timeout: Duration) -> Self {
        self.counts_from = Some(file.to_owned());
        self.timeout(timeout)
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets its input, which is otherwise empty.
    #[must_use]
    pub fn input(mut self, input: &[u8]) -> Self {
        self.input = input.to_vec();
        self
    }

    pub(crate) fn line(&self) -> String {
        self.argv.join(" ")
    }
}

impl From<&[&str]> for Step {
    fn from(argv: &[&str]) -> Self {
        Self::new(argv)
    }
}

impl<const N: usize> From<[&str; N]> for Step {
    fn from(argv: [&str; N]) -> Self {
        Self::new(&argv)
    }
}

/// Output of a step, and how it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub exit: Exit,
    /// Standard output.
    pub stdout: Vec<u8>,
    /// Standard error.
    pub stderr: Vec<u8>,
    /// Whether output beyond 64 MiB was discarded.
    pub truncated: bool,
}

impl Output {
    /// Standard output, as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error, as text.
    pub fn errors(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// Whether it exited with status 0.
    pub fn success(&self) -> bool {
        self.exit == Exit::Code(0)
    }
}
