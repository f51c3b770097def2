//! `sched start`.

use std::env;
use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gleaner_host::discover::discover;
use gleaner_host::sched::KernelScheduler;
use gleaner_kernel::Root;
use gleaner_print::{outln, say, sibling};
use gleaner_scx_control::DIRECTORY;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, setsid};

use super::{connect, vms};

const PROGRAM: &str = "scx_gleaner";
/// The kernel checks the programs meanwhile: seconds, on a busy host.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How long it may schedule without answering.
const SILENCE: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_millis(50);
/// Of the program where somebody watches it; here nobody can press Ctrl-C.
const GREETING: &str = "until Ctrl-C";

pub(super) fn run(options: &[OsString]) -> anyhow::Result<ExitCode> {
    if !crate::cli::is_root() {
        bail!("only root can change how this host is scheduled: run it as root");
    }
    if let Some(client) = connect()? {
        let (pid, name) = (client.pid()?, crate::NAME);
        bail!(
            "{PROGRAM} schedules this host already (process {pid}): `{name} sched set` changes it, `{name} sched stop` ends it"
        );
    }
    let root = Root::system();
    let options = vms::resolved(options, &discover(&root))?;
    let log = Path::new(DIRECTORY).join("scx.log");
    let mut child = spawn(&find()?, &options, &log)?;
    wait(&root, &mut child, &log)
}

/// Beside this program, else in PATH.
fn find() -> anyhow::Result<PathBuf> {
    if let Ok(path) = sibling(PROGRAM) {
        return Ok(path);
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|dir| dir.join(PROGRAM)).find(|path| path.is_file());
    found.with_context(|| {
        format!("{PROGRAM} is not installed, neither beside {} nor in PATH: reinstall the package gleaner-host, or `make install`", crate::NAME)
    })
}

/// In a session of its own, so that it outlives this command and its terminal. What it says is in `log`.
fn spawn(program: &Path, options: &[OsString], log: &Path) -> anyhow::Result<Child> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(DIRECTORY)
        .with_context(|| format!("cannot make the directory {DIRECTORY}"))?;
    let said = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(program);
    command.args(options).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    // SAFETY: between fork and exec the closure only calls setsid(2), which is async-signal-safe.
    unsafe { command.pre_exec(|| Ok(setsid().map(drop)?)) };
    command.spawn().with_context(|| format!("cannot run {}", program.display()))
}

/// Until it schedules and answers, or has ended.
fn wait(root: &Root, child: &mut Child, log: &Path) -> anyhow::Result<ExitCode> {
    let pid = child.id();
    let started = Instant::now();
    let mut enabled = None;
    while started.elapsed() < TIMEOUT {
        if let Some(status) = child.try_wait().context("cannot wait for it")? {
            pass_on(log);
            say!("{}: {PROGRAM} does not schedule this host: it ended with {status}", crate::NAME);
            return Ok(if status.code() == Some(2) { ExitCode::from(2) } else { ExitCode::FAILURE });
        }
        if KernelScheduler::read(root).is_gleaner() {
            let since = *enabled.get_or_insert_with(Instant::now);
            let answers = match connect()? {
                Some(client) => client.pid()? == pid.cast_signed(),
                None => false,
            };
            if answers || since.elapsed() > SILENCE {
                pass_on(log);
                let log = log.display();
                outln!("{PROGRAM} schedules this host (process {pid}); what it says is in {log}")?;
                return Ok(ExitCode::SUCCESS);
            }
        }
        sleep(INTERVAL);
    }
    // The kernel's scheduler takes over, if it ever gave way.
    let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM);
    pass_on(log);
    bail!("{PROGRAM} does not schedule this host after {} s: it was asked to end", TIMEOUT.as_secs())
}

/// Repeats what it has said so far.
fn pass_on(log: &Path) {
    let said = fs::read(log).unwrap_or_default();
    for line in String::from_utf8_lossy(&said).lines().filter(|line| !line.contains(GREETING)) {
        say!("{line}");
    }
}
