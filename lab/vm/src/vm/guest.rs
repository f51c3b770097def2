//! A running machine: runs steps in it, moves files, pins its vCPUs, turns it off.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use gleaner_print::say;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::vm::channel::{Channel, Reply};
use crate::vm::console::{self, Console};
use crate::vm::process::Process;
use crate::vm::qmp::Monitor;
use crate::vm::spec::VmSpec;
use crate::vm::step::{Output, Step};
use crate::wire::{Answer, Request};

/// A running machine. Dropping it kills it; during a panic its console is kept.
#[derive(Debug)]
pub struct Guest {
    spec: VmSpec,
    process: Process,
    console: Console,
    channel: Channel,
    monitor: Option<Mutex<Monitor>>,
    failures: PathBuf,
    boot_time: Duration,
    release: String,
}

/// Timeout of an answer, beyond the step's own.
const ANSWER_GRACE: Duration = Duration::from_secs(30);
/// Timeout for moving a file, and for turning the machine off.
const FILE_TIMEOUT: Duration = Duration::from_secs(60);
/// Timeout for QEMU to exit after its guest.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

impl Guest {
    pub(super) fn new(
        spec: VmSpec,
        process: Process,
        console: Console,
        channel: Channel,
        failures: &Path,
    ) -> Self {
        let failures = failures.to_owned();
        let (boot_time, release) = (Duration::ZERO, String::new());
        Self { spec, process, console, channel, monitor: None, failures, boot_time, release }
    }

    /// Waits for the agent's greeting.
    pub(super) fn wait_for_agent(
        mut self,
        greeting: &mpsc::Receiver<Reply>,
        started: Instant,
        timeout: Duration,
        monitor: UnixStream,
    ) -> Result<Self> {
        let Answer::Hello { release } = self.reply(greeting, "boot", timeout)?.0 else {
            return Err(self.unexpected_answer("boot"));
        };
        self.release = release;
        self.boot_time = started.elapsed();
        self.monitor = Some(Mutex::new(Monitor::open(monitor)?));
        self.pin(&self.spec.pins)?;
        Ok(self)
    }

    /// Its description.
    pub fn spec(&self) -> &VmSpec {
        &self.spec
    }

    /// Time from QEMU's start to the agent's greeting.
    pub fn boot_time(&self) -> Duration {
        self.boot_time
    }

    /// Its kernel release, as from `uname -r`.
    pub fn release(&self) -> &str {
        &self.release
    }

    /// QEMU's PID on the host.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Its console so far.
    pub fn console(&self) -> String {
        self.console.text()
    }

    /// Pins each vCPU's thread to a set of host CPUs. Does nothing if there are no sets.
    pub fn pin(&self, pins: &[Vec<usize>]) -> Result<()> {
        if pins.is_empty() {
            return Ok(());
        }
        for (thread, cpus) in self.vcpu_threads()?.into_iter().zip(pins) {
            let mut set = CpuSet::new();
            for &cpu in cpus {
                set.set(cpu).map_err(Error::system(format!("pin to CPU {cpu}")))?;
            }
            sched_setaffinity(Pid::from_raw(thread), &set)
                .map_err(Error::system(format!("pin a vCPU of VM `{}` to CPUs {cpus:?}", self.spec.name)))?;
        }
        Ok(())
    }

    /// Host TIDs of the vCPUs, in their order.
    pub fn vcpu_threads(&self) -> Result<Vec<i32>> {
        let Some(monitor) = &self.monitor else { return Ok(Vec::new()) };
        let mut monitor = monitor.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(monitor.vcpu_threads()?.into_iter().map(|vcpu| vcpu.thread).collect())
    }

    /// Runs a step to its end, whether or not it succeeds.
    pub fn run(&self, step: impl Into<Step>) -> Result<Output> {
        self.start(step)?.wait()
    }

    /// Runs a step that must succeed. Returns its standard output.
    pub fn succeed(&self, step: impl Into<Step>) -> Result<String> {
        self.complete(step).map(|output| output.text())
    }

    /// Runs a step that must succeed. Returns all its output.
    pub fn complete(&self, step: impl Into<Step>) -> Result<Output> {
        let step = step.into();
        let line = step.line();
        let output = self.run(step)?;
        if output.success() {
            return Ok(output);
        }
        Err(Error::Step {
            vm: self.spec.name.clone(),
            step: line,
            exit: output.exit.to_string(),
            output: console::end(&(output.text() + &output.errors())),
        })
    }

    /// Starts a step without waiting for it: several can run at a time.
    pub fn start(&self, step: impl Into<Step>) -> Result<Job<'_>> {
        let step = step.into();
        let timeout = step.timeout;
        let first = step.counts_from.as_ref().map_or(Duration::ZERO, |_| Step::TIMEOUT);
        let line = step.line();
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let request =
            Request::Run { argv: step.argv, env: step.env, timeout_ms, counts_from: step.counts_from };
        let (id, answer) = self.channel.ask(&request, &step.input);
        Ok(Job { guest: self, id, answer, line, deadline: Instant::now() + first + timeout + ANSWER_GRACE })
    }

    /// Reads a file.
    pub fn read(&self, path: &str) -> Result<Vec<u8>> {
        self.short(&Request::Read { path: path.to_owned() }, &[], "read a file")
    }

    /// Reads a text file, and trims it.
    pub fn read_text(&self, path: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.read(path)?).trim().to_owned())
    }

    /// Writes a file or a knob. A new file gets this mode, and missing directories are created.
    pub fn write(&self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.short(&Request::Write { path: path.to_owned(), mode }, content, "write a file").map(drop)
    }

    fn short(&self, request: &Request, body: &[u8], what: &str) -> Result<Vec<u8>> {
        let (_, answer) = self.channel.ask(request, body);
        match self.reply(&answer, what, FILE_TIMEOUT)? {
            (Answer::Done, body) => Ok(body),
            (Answer::Failed { error }, _) => Err(Error::Guest { vm: self.spec.name.clone(), error }),
            _ => Err(self.unexpected_answer(what)),
        }
    }

    /// Turns the machine off and waits for QEMU to exit.
    pub fn power_off(self) -> Result<()> {
        let (_, answer) = self.channel.ask(&Request::PowerOff, &[]);
        // An answer means that it could not be turned off.
        if let Ok((Answer::Failed { error }, _)) = answer.recv_timeout(FILE_TIMEOUT) {
            return Err(Error::Guest { vm: self.spec.name.clone(), error });
        }
        if self.process.wait(EXIT_TIMEOUT)?.is_none() {
            return Err(self.hung_error("turn off", FILE_TIMEOUT));
        }
        Ok(())
    }

    /// Keeps the console in a file for later inspection. Returns the file's path.
    pub fn keep_console(&self) -> Result<PathBuf> {
        let path = self.failures.join(format!("{}-console.log", self.spec.name));
        fs::write(&path, self.console.text()).map_err(Error::file("write", &path))?;
        Ok(path)
    }

    fn reply(&self, answer: &mpsc::Receiver<Reply>, what: &str, timeout: Duration) -> Result<Reply> {
        answer.recv_timeout(timeout).map_err(|error| match error {
            mpsc::RecvTimeoutError::Timeout => self.hung_error(what, timeout),
            mpsc::RecvTimeoutError::Disconnected => self.ended(),
        })
    }

    fn unexpected_answer(&self, what: &str) -> Error {
        let who = format!("the agent in VM `{}`", self.spec.name);
        Error::Protocol { who, what: format!("no answer to `{what}`") }
    }

    /// Kills the machine, and reports the end of its console.
    fn hung_error(&self, what: &str, after: Duration) -> Error {
        self.process.kill();
        self.console.wait();
        let vm = self.spec.name.clone();
        Error::Hung { vm, what: what.to_owned(), after, console: self.last_lines() }
    }

    /// After QEMU has hung up: the guest's kernel panicked, or QEMU exited for its own reasons.
    fn ended(&self) -> Error {
        let status = self.process.wait(EXIT_TIMEOUT).ok().flatten();
        self.process.kill();
        self.console.wait();
        let text = self.console.text();
        let console = self.last_lines();
        let vm = self.spec.name.clone();
        if let Some(console) = console::panic(&text) {
            return Error::Panic { vm, console };
        }
        let status = status.map_or("it hung up".to_owned(), |status| status.to_string());
        Error::Ended { vm, how: format!("{status} {}", self.process.stderr_text()), console }
    }

    /// The end of the console; all of it is kept in a file.
    fn last_lines(&self) -> String {
        let kept = self.keep_console();
        let place =
            kept.map_or_else(|error| error.to_string(), |path| format!("(all of it: {})", path.display()));
        format!("{}\n{place}", console::end(&self.console.text()))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(path) = self.keep_console()
        {
            say!("lab: the console of VM `{}` is kept in {}", self.spec.name, path.display());
        }
    }
}

/// A running step.
#[derive(Debug)]
#[must_use = "a step that nobody waits for might have failed"]
pub struct Job<'a> {
    guest: &'a Guest,
    id: u64,
    answer: mpsc::Receiver<Reply>,
    line: String,
    deadline: Instant,
}

impl Job<'_> {
    /// Sends a signal to the step's processes.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let request = Request::Signal { step: self.id, signal: signal as i32 };
        self.guest.short(&request, &[], "signal a step").map(drop)
    }

    /// Waits for the step to end.
    pub fn wait(self) -> Result<Output> {
        let timeout = self.deadline.saturating_duration_since(Instant::now());
        match self.guest.reply(&self.answer, &self.line, timeout)? {
            (Answer::Ran { exit, stdout, truncated }, mut body) => {
                let at = usize::try_from(stdout).unwrap_or(usize::MAX).min(body.len());
                let stderr = body.split_off(at);
                Ok(Output { exit, stdout: body, stderr, truncated })
            }
            (Answer::Failed { error }, _) => Err(Error::Guest { vm: self.guest.spec.name.clone(), error }),
            _ => Err(self.guest.unexpected_answer(&self.line)),
        }
    }
}
