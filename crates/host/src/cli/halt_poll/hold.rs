//! `halt-poll set`: holds a limit while a command runs, for some time, or until a signal.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};
use gleaner_engine::live::{self, Signals};
use gleaner_host::halt_poll::{CHECK_INTERVAL, Change, HoldError, Holding, Parameters, left_behind};
use gleaner_kernel::Root;
use gleaner_print::say;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::{TimeSpec, TimeValLike as _};

use super::SetArgs;

pub(super) fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let found = Parameters::read(&root)?;
    // Blocked before anything is changed, so that no signal can end this process halfway.
    let (mut holding, mut signals) = open(&root)?;
    let change = Change {
        halt_poll_ns: Some(args.limit),
        grow: args.grow,
        grow_start: args.grow_start,
        shrink: args.shrink,
    };
    let held = holding.set(&change).map_err(anyhow::Error::from).and_then(|()| {
        if holding.is_empty() {
            say!("{}: halt_poll_ns is {} already: nothing is changed", crate::NAME, found.halt_poll_ns);
        }
        for caveat in Parameters::read(&root)?.caveats() {
            say!("{}: {caveat}", crate::NAME);
        }
        Ok(())
    });
    if let Err(error) = held {
        close(holding);
        return Err(error);
    }
    if !args.command.is_empty() {
        return command(&root, holding, &signals, &args.command);
    }
    let held = until_the_end(&holding, &mut signals, args.time);
    let left = close(holding);
    held?;
    Ok(if left.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Blocks signals and becomes the holder.
pub(super) fn open(root: &Root) -> anyhow::Result<(Holding, Signals)> {
    let state = super::state()?;
    let signals = Signals::block()?;
    let (holding, left) = Holding::open(&state, root.clone())?;
    for outcome in left {
        say!("{}: restored what a killed one left: {}", crate::NAME, outcome.detail);
    }
    Ok((holding, signals))
}

/// Puts everything back. What could not be, which is said, too.
pub(super) fn close(holding: Holding) -> Vec<String> {
    let left = left_behind(&holding.close());
    for sentence in &left {
        say!("{}: could not be put back: {sentence}", crate::NAME);
    }
    left
}

/// Holds until the time is over or a signal arrives.
fn until_the_end(holding: &Holding, signals: &mut Signals, time: Option<Duration>) -> anyhow::Result<()> {
    let end = time.map(|time| Instant::now() + time);
    loop {
        let next = Instant::now() + CHECK_INTERVAL;
        if !wait(signals, end.map_or(next, |end| end.min(next)))? {
            return Ok(());
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return Ok(());
        }
        holding.check().map_err(|error| stepped_back(error.into()))?;
    }
}

/// Says that somebody else's change is the end.
pub(super) fn stepped_back(error: anyhow::Error) -> anyhow::Error {
    if error.downcast_ref().is_some_and(HoldError::is_theirs) {
        anyhow!("{error}; this ends here")
    } else {
        error
    }
}

/// Waits until then. False if a signal asked for the end before.
pub(super) fn wait(signals: &mut Signals, until: Instant) -> anyhow::Result<bool> {
    loop {
        while let Some(number) = signals.take()? {
            // This process goes on after it was stopped.
            if number != libc::SIGCONT {
                return Ok(false);
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(true);
        }
        let timeout = TimeSpec::nanoseconds(i64::try_from(left.as_nanos()).unwrap_or(i64::MAX));
        let mut fds = [PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno).context("cannot wait"),
        }
    }
}

/// Holds while the command runs, and passes its exit status on.
fn command(root: &Root, holding: Holding, signals: &Signals, words: &[OsString]) -> anyhow::Result<ExitCode> {
    let mut child = match live::spawn(root, None, signals, words) {
        Ok(child) => child,
        Err(error) => {
            close(holding);
            say!("{}: {error}", crate::NAME);
            return Ok(ExitCode::from(error.exit_code()));
        }
    };
    let (ended, end) = channel::<()>();
    let (status, restored) = std::thread::scope(|scope| {
        let keeper = scope.spawn(move || keep(holding, &end));
        let status = live::wait_for_exit(&mut child);
        drop(ended);
        // It does not panic.
        (status, keeper.join().unwrap_or(false))
    });
    let status = status.context("cannot wait for the command")?;
    // The command's own failure says more.
    Ok(if status.success() && !restored { ExitCode::FAILURE } else { exit_code(status) })
}

/// Holds until the other end of the channel is closed, or somebody else changes what is held. Whether all is put back that
/// is still ours.
fn keep(holding: Holding, end: &Receiver<()>) -> bool {
    while end.recv_timeout(CHECK_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        if let Err(error) = holding.check() {
            say!("{}: {error}; the command runs on without it", crate::NAME);
            break;
        }
    }
    close(holding).is_empty()
}

/// The command's own status; 128+N if signal N ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|number| 128 + number)).unwrap_or(1);
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1))
}
