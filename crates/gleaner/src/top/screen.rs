//! The live screen: terminal modes, keys, signals and timing.

use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::draw::{Palette, draw};
use super::keys::{Controls, KeyAction};
use super::watch::Watch;

/// Show the first numbers soon.
const FIRST_INTERVAL: Duration = Duration::from_millis(250);

/// Why the wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WakeReason {
    Time,
    Keys,
    /// The window was resized.
    Size,
    /// A signal asks to end, with this exit status.
    End(u8),
}

/// Shows `watch` every `interval` until the user quits. Restores the terminal, even after a panic, SIGINT, SIGTERM,
/// SIGHUP and SIGQUIT.
pub(super) fn show(watch: &mut Watch, interval: Duration, palette: Palette) -> anyhow::Result<ExitCode> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        bail!("the screen needs a terminal for its input and output; use --once without one");
    }
    let signals = Signals::block()?;
    let _restore = Restore;
    let mut terminal = ratatui::try_init().context("cannot prepare the terminal")?;
    live(&mut terminal, watch, interval, palette, &signals)
}

/// Restores the terminal when dropped.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

fn live(
    terminal: &mut DefaultTerminal,
    watch: &mut Watch,
    interval: Duration,
    palette: Palette,
    signals: &Signals,
) -> anyhow::Result<ExitCode> {
    let mut controls = Controls::default();
    let mut view = watch.sample();
    let mut due = Instant::now() + FIRST_INTERVAL.min(interval);
    loop {
        terminal
            .draw(|frame| draw(&view, Some(&controls), palette, frame.area(), frame.buffer_mut()))
            .context("cannot draw on the terminal")?;
        let mut refresh = false;
        match signals.wait(due)? {
            WakeReason::Time => {
                due = Instant::now() + interval;
                // Read the counters even if paused, so that the next view covers one interval.
                let seen = watch.sample();
                if !controls.paused {
                    view = seen;
                }
            }
            WakeReason::Keys => {
                while event::poll(Duration::ZERO).context("cannot read the keys")? {
                    let Event::Key(key) = event::read().context("cannot read the keys")? else { continue };
                    match controls.key(key, view.decisions.len()) {
                        KeyAction::Nothing => {}
                        KeyAction::Refresh => refresh = true,
                        KeyAction::Quit => return Ok(ExitCode::SUCCESS),
                    }
                }
            }
            WakeReason::Size => {}
            WakeReason::End(status) => return Ok(ExitCode::from(status)),
        }
        if refresh {
            due = Instant::now() + interval;
            view = watch.sample();
        }
    }
}

/// The signals that end or resize the screen, as a descriptor.
struct Signals(SignalFd);

impl Signals {
    fn block() -> anyhow::Result<Self> {
        use Signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
        let set: SigSet = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH].into_iter().collect();
        set.thread_block().context("cannot block signals")?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .context("cannot open a signal descriptor")?;
        Ok(Self(fd))
    }

    /// Waits until `due`, a key or a signal.
    fn wait(&self, due: Instant) -> anyhow::Result<WakeReason> {
        let stdin = io::stdin();
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(WakeReason::Time);
            }
            // Rounded up to whole milliseconds, so that it does not busy-wait at the end.
            let time = left + Duration::from_millis(1);
            let mut fds = [
                PollFd::new(self.0.as_fd(), PollFlags::POLLIN),
                PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)) {
                Ok(0) | Err(Errno::EINTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(errno).context("cannot wait for keys"),
            }
            if let Some(signal) = self.0.read_signal().context("cannot read a signal")? {
                let number = u8::try_from(signal.ssi_signo).unwrap_or_default();
                let size = signal.ssi_signo == Signal::SIGWINCH as u32;
                return Ok(if size { WakeReason::Size } else { WakeReason::End(128 + number) });
            }
            let keys = fds[1].revents().unwrap_or(PollFlags::empty());
            if keys.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) {
                // The terminal is gone.
                return Ok(WakeReason::End(128 + Signal::SIGHUP as u8));
            }
            if keys.contains(PollFlags::POLLIN) {
                return Ok(WakeReason::Keys);
            }
        }
    }
}
