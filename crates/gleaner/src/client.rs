//! The daemon, if one runs: how the commands find it, and `run` and `attach` with its help.

use std::env;
use std::path::{self, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, bail};
use gleaner_control::{AttachReply, AttachRequest, Client, ClientError, Replies, SOCKET};
use gleaner_engine::live::{self, Counter, ProcessFd, Signals};
use gleaner_kernel::Root;
use gleaner_policy::{Objective, Strategy};
use gleaner_print::say;
use gleaner_proto::journal::Summary;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, geteuid};

use crate::options::{AttachArgs, ControlArgs, RunArgs};
use crate::{attach, group, run};

/// Names another socket than the usual one, and none if it is empty.
const VARIABLE: &str = "GLEANER_CONTROL";

/// How long the daemon has for the account of a command that has ended.
const ACCOUNT_TIME: Duration = Duration::from_secs(3);

fn socket() -> Option<PathBuf> {
    match env::var_os(VARIABLE) {
        None => Some(SOCKET.into()),
        Some(path) => (!path.is_empty()).then(|| path.into()),
    }
}

/// Connects to the daemon.
///
/// # Errors
/// None runs, or this user is not allowed to ask it.
pub(crate) fn connect() -> anyhow::Result<Client> {
    let path = socket().with_context(|| format!("no daemon is asked, since {VARIABLE} is empty"))?;
    Ok(Client::connect(&path)?)
}

/// Connects to the daemon if one runs.
///
/// # Errors
/// This user is not allowed to ask it.
pub(crate) fn find() -> Result<Option<Client>, ClientError> {
    let Some(path) = socket() else { return Ok(None) };
    match Client::connect(&path) {
        Ok(client) => Ok(Some(client)),
        Err(ClientError::NotRunning { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Connects to the daemon that controls the machine for root. What other users do, it cannot do for them.
pub(crate) fn find_as_root() -> Option<Client> {
    // What goes wrong here shows again: such a daemon holds the lock.
    if geteuid().is_root() { find().ok().flatten() } else { None }
}

/// Runs a command that the daemon attaches to. Returns the command's own status.
///
/// # Errors
/// Nothing was started.
pub(crate) fn run(daemon: Client, args: &RunArgs) -> anyhow::Result<ExitCode> {
    let mut request = request(&args.control)?;
    let program = args.command.first().map(path::Path::new).and_then(path::Path::file_name);
    request.name = program.map(|name| name.to_string_lossy().into_owned());
    let signals = Signals::block()?;
    let mut child = live::spawn(&Root::system(), None, &signals, &args.command)?;
    request.pid = Some(child.id());
    // The thread below must not consume it in place of this one. Cannot fail: the signal is valid.
    let _ = SigSet::from(Signal::SIGCHLD).thread_block();
    let (sender, account) = mpsc::channel();
    let runs = ProcessFd::open(Pid::from_raw(child.id().cast_signed()));
    match daemon.attach(&request) {
        Ok(replies) => {
            thread::spawn(move || {
                // If nobody waits any more, the command has ended long ago.
                let _ = sender.send(follow(replies, || !runs.is_ok_and(|process| process.ended())));
            });
        }
        Err(error) => say!("gleaner: the command runs on without Gleaner: {error}"),
    }
    let status = live::wait_for_exit(&mut child);
    if let Ok(Some((summary, limits))) = account.recv_timeout(ACCOUNT_TIME) {
        run::print_summary(&summary, args, &limits);
    }
    Ok(run::exit_status(status))
}

/// Waits for the end of what the daemon is attached to. Returns its account and what was not available, unless the
/// daemon gave up on it, which is reported at once if the command still `runs`: one that ends at once is gone before the
/// daemon finds it.
fn follow(replies: Replies<AttachReply>, runs: impl FnOnce() -> bool) -> Option<(Summary, Vec<String>)> {
    let mut limits = Vec::new();
    for reply in replies {
        match reply {
            Ok(AttachReply { summary: Some(summary), .. }) => return Some((summary, limits)),
            Ok(reply) => limits = reply.limits,
            Err(error) => {
                if runs() {
                    say!("gleaner: the command runs on without Gleaner: {error}");
                }
                return None;
            }
        }
    }
    None
}

/// Has the daemon help a running program, until that ends or Ctrl-C.
pub(crate) fn attach(daemon: Client, args: &AttachArgs) -> anyhow::Result<ExitCode> {
    let pid = args.target.pid.map(i32::unsigned_abs);
    let cgroup = args.target.cgroup.as_deref().map(group_name).transpose()?;
    let request =
        AttachRequest { name: short_name(pid, cgroup.as_deref()), pid, cgroup, ..request(&args.control)? };
    // Before the thread below, which waits for them.
    let end: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP].into_iter().collect();
    end.thread_block().context("cannot block signals")?;
    let mut replies = daemon.attach(&request)?;
    let hang_up = replies.hang_up()?;
    thread::spawn(move || {
        while end.wait().is_ok() {
            hang_up.now();
        }
    });
    let mut limits = Vec::new();
    let last = loop {
        let reply = replies.next().context("gleanerd sent no summary")??;
        if let Some(summary) = reply.summary {
            break (reply.workload, summary);
        }
        limits = reply.limits;
        if !args.control.quiet {
            say!("gleaner: gleanerd helps `{}`; Ctrl-C ends that", reply.workload);
        }
    };
    if !args.control.quiet {
        for limit in &limits {
            say!("gleaner: {limit}");
        }
    }
    attach::report(args, &last.0, &last.1)
}

/// What `gleaner status` is to call it: the process's name, or the last part of the group's path.
fn short_name(pid: Option<u32>, group: Option<&str>) -> Option<String> {
    let of_process = |pid| Root::system().read(format!("/proc/{pid}/comm")).ok();
    let of_group = |group| Some(path::Path::new(group).file_name()?.to_string_lossy().into_owned());
    pid.and_then(of_process).or_else(|| group.and_then(of_group))
}

fn group_name(name: &path::Path) -> anyhow::Result<String> {
    let directory = group::directory(name)?;
    Ok(directory.to_str().with_context(|| format!("{} is not UTF-8", directory.display()))?.to_owned())
}

/// What these options ask the daemon for.
///
/// # Errors
/// The daemon decides that by itself.
fn request(args: &ControlArgs) -> anyhow::Result<AttachRequest> {
    let own = [
        ("--fixed", args.fixed.is_some()),
        ("--dry-run", args.dry_run),
        ("--strategy", args.strategy() == Strategy::Paper),
        ("--method", args.method.is_some()),
        ("--journal", args.journal.is_some()),
        ("--no-bpf", args.no_bpf),
        ("--trace-waiting", args.trace_waiting),
    ];
    if let Some((option, _)) = own.into_iter().find(|(_, used)| *used) {
        bail!("gleanerd controls this machine, and {option} needs it stopped: `systemctl stop gleanerd`");
    }
    let progress = args.progress.as_ref().map(|counter| match counter {
        // The daemon has another working directory.
        Counter::File(file) => path::absolute(file).map_or_else(|_| counter.clone(), Counter::File),
        Counter::Command(_) => counter.clone(),
    });
    Ok(AttachRequest {
        objective: (args.objective != Objective::default()).then(|| args.objective.to_string()),
        consolidate: args.no_consolidate.then_some(false),
        retain: args.no_retain.then_some(false),
        progress: progress.map(|counter| counter.to_string()),
        memory: args.no_memory.then_some(false),
        ..AttachRequest::default()
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn asked(options: &[&str]) -> anyhow::Result<AttachRequest> {
        let line = ["gleaner", "attach", "--pid", "7"].iter().chain(options);
        let Command::Attach(args) = Cli::parse_from(line).command else { panic!() };
        request(&args.control)
    }

    #[test]
    fn only_what_the_user_asked_for_is_asked_of_the_daemon() {
        assert_eq!(asked(&[]).unwrap(), AttachRequest::default());
        let all = asked(&[
            "--no-consolidate",
            "--no-retain",
            "--no-memory",
            "--objective",
            "latency",
            "--progress",
            "file:x",
        ]);
        let here = std::env::current_dir().unwrap();
        let wanted = AttachRequest {
            objective: Some("latency".to_owned()),
            consolidate: Some(false),
            retain: Some(false),
            progress: Some(format!("file:{}", here.join("x").display())),
            memory: Some(false),
            ..AttachRequest::default()
        };
        assert_eq!(all.unwrap(), wanted);
    }

    #[test]
    fn what_the_daemon_decides_by_itself_needs_it_stopped() {
        for options in [&["--fixed", "halt"][..], &["--dry-run"], &["--no-bpf"], &["--method", "halt"]] {
            let error = asked(options).unwrap_err().to_string();
            assert!(error.contains(options[0]) && error.contains("systemctl stop gleanerd"), "{error}");
        }
    }
}
