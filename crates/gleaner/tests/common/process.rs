//! Processes with bounded waits, which end with their test.

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

pub(crate) const GLEANER: &str = env!("CARGO_BIN_EXE_gleaner");

/// Timeout: far longer than anything takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(2);

pub(crate) fn gleaner(args: &[&str]) -> Output {
    Command::new(GLEANER).args(args).output().unwrap()
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(GLEANER);
    command.args(args);
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Waits until `condition` holds; panics with `what` if it never does.
#[track_caller]
pub(crate) fn until(what: &str, condition: impl FnMut() -> bool) {
    until_or(what, String::new, condition);
}

/// Like [`until`]; `details` are added to the panic message.
#[track_caller]
fn until_or(what: &str, details: impl Fn() -> String, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "waited in vain until {what}\n{}", details());
        thread::sleep(INTERVAL);
    }
}

/// Waits until process `pid` has executed the program `name`.
#[track_caller]
pub(crate) fn until_runs(pid: &str, name: &str) {
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
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Starts `command` with its standard input, output and error piped.
    pub(crate) fn start(command: &mut Command) -> Self {
        // Descendants of a killed Gleaner become children of this process, which can then wait for them.
        set_child_subreaper(true).unwrap();
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
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

    /// Starts `gleaner workload` with these arguments, and waits until its threads are at work: from then on a signal
    /// ends it as it should.
    pub(crate) fn start_workload(args: &[&str]) -> Self {
        let running = Self::start(command(&["workload"]).args(args));
        let tasks = format!("/proc/{}/task", running.pid());
        until("its threads are there", || fs::read_dir(&tasks).is_ok_and(|tasks| tasks.count() > 1));
        running
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(self.group(), signal).unwrap();
    }

    /// The next line of output, without its line end; empty at the end of the output.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Writes `line` to the standard input.
    pub(crate) fn send(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// The standard input; dropping it closes it.
    pub(crate) fn take_stdin(&mut self) -> ChildStdin {
        self.stdin.take().unwrap()
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the process to end.
    #[track_caller]
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        until_or("the process ends", processes, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Closes the standard input, and waits for the process and everything it started.
    #[track_caller]
    pub(crate) fn finish(mut self) -> Output {
        drop(self.stdin.take());
        // Read both outputs at once: a full pipe would block the process.
        let mut stderr = self.child.stderr.take().unwrap();
        let errors = thread::spawn(move || {
            let mut bytes = Vec::new();
            stderr.read_to_end(&mut bytes).map(|_| bytes)
        });
        let mut stdout = Vec::new();
        self.stdout.read_to_end(&mut stdout).unwrap();
        Output { status: self.wait(), stdout, stderr: errors.join().unwrap().unwrap() }
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
