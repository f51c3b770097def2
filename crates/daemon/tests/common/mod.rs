//! gleanerd as a process of its own, with its files in a directory of the test. Its leases and its lock are the
//! machine's: one test at a time has it.

#![allow(dead_code, reason = "every test binary uses its own part of this")]

pub(crate) mod random;
pub(crate) mod user;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use gleaner_control::{Client, State, Status, Workload};
use gleaner_engine::MemoryDir;
use gleaner_kernel::Root;
use gleaner_kernel::lever::haltpoll;
use gleaner_policy::Method;
use gleaner_testing::process::{Running, text, until_or};
use gleaner_testing::{has_two_vcpus, levers};
use nix::sys::signal::Signal;

pub(crate) const GLEANERD: &str = env!("CARGO_BIN_EXE_gleanerd");
/// The last line of its start.
pub(crate) const READY: &str = "where it pays";

/// The right to let gleanerd change this machine. Dropping it restores the machine, even after a panic.
pub(crate) struct Machine(levers::Machine);

impl Machine {
    /// Waits for this test's turn. `None`, with a message, where the test cannot run.
    #[track_caller]
    pub(crate) fn take() -> Option<Self> {
        levers::Machine::take(|| drop(restore())).map(Self)
    }

    /// As [`Machine::take`], where waking costs something and the haltpoll governor can save it.
    #[track_caller]
    pub(crate) fn take_with_haltpoll() -> Option<Self> {
        let machine = Self::take().filter(|_| has_two_vcpus())?;
        machine.0.filter_available(haltpoll::available(&Root::system())).map(Self)
    }
}

impl Deref for Machine {
    type Target = levers::Machine;

    fn deref(&self) -> &levers::Machine {
        &self.0
    }
}

/// What `ExecStopPost` of the unit runs.
pub(crate) fn restore() -> Output {
    Command::new(GLEANERD).arg("--restore").output().unwrap()
}

/// The directory with a daemon's configuration, memory and socket.
pub(crate) struct Home {
    dir: tempfile::TempDir,
}

impl Home {
    /// With this configuration.
    pub(crate) fn new(config: &str) -> Self {
        let home = Self { dir: tempfile::tempdir().unwrap() };
        // Whoever has the right to use the socket must reach it.
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(home.path().join("config")).unwrap();
        home.configure(config);
        home
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("control.sock")
    }

    /// The configuration's only file.
    pub(crate) fn config(&self) -> PathBuf {
        self.path().join("config/gleaner.toml")
    }

    /// The programs that the memory has something about.
    pub(crate) fn programs_in_memory(&self) -> Vec<String> {
        let (known, notes) = MemoryDir::at(self.path().join("memory")).list().unwrap();
        assert!(notes.is_empty(), "{notes:?}");
        known.into_iter().map(|program| program.program).collect()
    }

    pub(crate) fn configure(&self, text: &str) {
        fs::write(self.config(), text).unwrap();
    }

    /// gleanerd with these files. `shell` is run first, where it is not empty.
    pub(crate) fn command(&self, shell: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{shell}\nexec \"$0\" \"$@\""), GLEANERD]);
        command.arg("--config").arg(self.config().parent().unwrap());
        self.environment(&mut command);
        command
    }

    /// Without `--config`: that of the system.
    pub(crate) fn environment(&self, command: &mut Command) {
        command.arg("--socket").arg(self.socket()).env("GLEANER_MEMORY", self.path().join("memory"));
    }

    /// Starts gleanerd, and waits until it is ready.
    #[track_caller]
    pub(crate) fn start(&self) -> Gleanerd {
        let daemon = Gleanerd::start(&mut self.command(""), self.socket());
        daemon.until_logged(READY);
        daemon
    }
}

/// A running gleanerd. Dropping it kills it.
pub(crate) struct Gleanerd {
    process: Running,
    socket: PathBuf,
    log: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Gleanerd {
    pub(crate) fn start(command: &mut Command, socket: PathBuf) -> Self {
        Self::start_with(command, Stdio::piped(), socket)
    }

    /// With this standard input.
    pub(crate) fn start_with(command: &mut Command, input: impl Into<Stdio>, socket: PathBuf) -> Self {
        let mut process = Running::start_with(command, input);
        let stderr = process.take_stderr();
        let log: Arc<Mutex<String>> = Arc::default();
        let written = Arc::clone(&log);
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut log = written.lock().unwrap();
                log.push_str(&line);
                log.push('\n');
            }
        });
        Self { process, socket, log, reader: Some(reader) }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    pub(crate) fn logged(&self, part: &str) -> usize {
        self.log().matches(part).count()
    }

    #[track_caller]
    pub(crate) fn until_logged(&self, part: &str) {
        self.until(&format!("it logs `{part}`"), |daemon| daemon.logged(part) > 0);
    }

    /// Waits for something that this daemon is to do.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        until_or(what, || self.log(), || condition(self));
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.socket).unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        self.client().status().unwrap()
    }

    /// An engaged workload.
    pub(crate) fn engaged(&self, name: &str) -> Option<Workload> {
        let workloads = self.status().workloads.into_iter();
        workloads.filter(|w| w.state == State::Engaged).find(|w| w.name == name)
    }

    /// Waits until something is in force for a workload, and proven.
    #[track_caller]
    pub(crate) fn until_helped(&self, name: &str) -> Workload {
        let mut helped = None;
        until_or(
            &format!("{name} is helped"),
            || format!("{:#?}\n{}", self.status(), self.log()),
            || {
                let status = self.status();
                let retains = status.machine.retention.method != Method::Halt;
                let is_in_force = |w: &Workload| retains || w.active != w.allowed;
                let engaged = status.workloads.into_iter().filter(|w| w.state == State::Engaged);
                let mut found = engaged.filter(|w| w.name == name && w.evidence.is_some() && is_in_force(w));
                helped = found.next();
                helped.is_some()
            },
        );
        helped.unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.process.has_ended()
    }

    /// Waits for its end. Its status, and all that it has logged.
    #[track_caller]
    pub(crate) fn wait(mut self) -> (ExitStatus, String) {
        let status = self.process.wait();
        self.reader.take().unwrap().join().unwrap();
        (status, self.log())
    }

    /// Ends it in order; it must succeed.
    #[track_caller]
    pub(crate) fn stop(self) -> String {
        self.signal(Signal::SIGTERM);
        let (status, log) = self.wait();
        assert!(status.success(), "{status}: {log}");
        log
    }

    /// Kills it, and puts back what it has left as the unit does.
    #[track_caller]
    pub(crate) fn kill(self) -> String {
        self.signal(Signal::SIGKILL);
        let (_, log) = self.wait();
        let output = restore();
        assert!(output.status.success(), "{}\n{log}", text(&output.stderr));
        text(&output.stderr)
    }
}
