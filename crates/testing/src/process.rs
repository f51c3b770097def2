//! Processes with bounded waits, which end with their test.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{SigHandler, Signal, kill, killpg, signal};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

/// Timeout: far longer than anything takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(2);

/// Output as text, whatever it holds.
pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until `condition` holds; panics with `what` if it never does.
#[track_caller]
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    until_or(what, String::new, condition);
}

/// Like [`until`]; `details` are added to the panic message.
#[track_caller]
pub fn until_or(what: &str, details: impl Fn() -> String, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}\n{}", details());
        thread::sleep(INTERVAL);
    }
}

/// Waits until process `pid` has executed the program `name`.
#[track_caller]
pub fn until_runs(pid: &str, name: &str) {
    let comm = format!("/proc/{pid}/comm");
    until(&format!("process {pid} is {name}"), || {
        fs::read_to_string(&comm).is_ok_and(|comm| comm.trim_end() == name)
    });
}

/// Every process, and where it waits in the kernel.
fn processes() -> String {
    let listed = Command::new("ps").args(["-eo", "pid,ppid,pgid,stat,wchan:32,args"]).output();
    listed.map_or_else(|error| format!("ps: {error}"), |listed| text(&listed.stdout))
}

/// A process in its own process group. Dropping it kills the whole group.
#[derive(Debug)]
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Starts `command` with its standard input, output and error piped.
    pub fn start(command: &mut Command) -> Self {
        Self::start_with(command, Stdio::piped())
    }

    /// As [`Running::start`], with this standard input.
    pub fn start_with(command: &mut Command, input: impl Into<Stdio>) -> Self {
        // Descendants of a killed process become children of this one, which can then wait for them.
        set_child_subreaper(true).unwrap();
        let pipes = command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A shell ignores these signals in background jobs, and children inherit that.
        // SAFETY: sigaction(2) is async-signal-safe, and the default action has no handler that could run.
        unsafe {
            pipes.pre_exec(|| {
                for ignored in [Signal::SIGINT, Signal::SIGQUIT] {
                    signal(ignored, SigHandler::SigDfl)?;
                }
                Ok(())
            });
        }
        let mut child = pipes.process_group(0).spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, stdin, stdout: BufReader::new(stdout) }
    }

    /// Its PID, which is that of its group.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process alone.
    pub fn signal(&self, signal: Signal) {
        kill(self.group(), signal).unwrap();
    }

    /// The next line of output, without its line end; empty at the end of the output.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Writes `line` to the standard input.
    pub fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The standard input; dropping it closes it.
    pub fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().unwrap()
    }

    /// The standard error, for somebody else to read: [`Running::finish`] returns none of it then.
    pub fn take_stderr(&mut self) -> impl std::io::Read + Send + 'static {
        self.child.stderr.take().unwrap()
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the process to end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until_or("the process ends", processes, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Closes the standard input, and waits for the process and everything it started.
    #[track_caller]
    pub fn finish(mut self) -> Output {
        drop(self.stdin.take());
        // Read both outputs at once: a full pipe would block the process.
        let errors = self.child.stderr.take().map(|mut stderr| {
            thread::spawn(move || {
                let mut bytes = Vec::new();
                stderr.read_to_end(&mut bytes).map(|_| bytes)
            })
        });
        let mut stdout = Vec::new();
        self.stdout.read_to_end(&mut stdout).unwrap();
        let stderr = errors.map_or_else(Vec::new, |errors| errors.join().unwrap().unwrap());
        Output { status: self.wait(), stdout, stderr }
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if the group is empty.
        let _ = killpg(self.group(), Signal::SIGKILL);
        let _ = self.child.wait();
        let orphans = Pid::from_raw(-self.group().as_raw());
        while waitpid(orphans, None).is_ok() {}
    }
}
