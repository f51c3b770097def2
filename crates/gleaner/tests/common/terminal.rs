//! Runs Gleaner on its own pseudo-terminal: what it shows, and what it leaves behind.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

use super::process::GLEANER;

/// Timeout: far longer than anything takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Gleaner on a pseudo-terminal. Dropping it kills Gleaner.
pub(crate) struct Terminal {
    child: Child,
    ours: File,
    theirs: File,
    before: Termios,
    parser: vt100::Parser,
}

impl Terminal {
    /// Starts Gleaner on a terminal of `rows` and `columns`.
    pub(crate) fn start(args: &[&str], environment: &[(&str, &str)], (rows, columns): (u16, u16)) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(&size, None).unwrap();
        let (ours, theirs) = (File::from(pty.master), File::from(pty.slave));
        let before = tcgetattr(&theirs).unwrap();
        let end = || Stdio::from(theirs.try_clone().unwrap());
        // Like a shell's child, it leads a session of its own on this terminal, and receives the terminal's signals.
        let mut command = Command::new("setsid");
        command.args(["--ctty", GLEANER]).args(args);
        command.env_remove("NO_COLOR").env("TERM", "xterm-256color").envs(environment.iter().copied());
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().unwrap();
        Self { child, ours, theirs, before, parser: vt100::Parser::new(rows, columns, 0) }
    }

    pub(crate) fn screen(&self) -> &vt100::Screen {
        self.parser.screen()
    }

    /// Waits until the screen satisfies `condition`.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, condition: impl Fn(&vt100::Screen) -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !condition(self.screen()) {
            assert!(Instant::now() < end, "waited in vain until {what}:\n{}", self.screen().contents());
            self.take();
        }
    }

    /// Waits until this text is on the screen.
    #[track_caller]
    pub(crate) fn until_shows(&mut self, text: &str) {
        self.until(&format!("it shows `{text}`"), |screen| screen.contents().contains(text));
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.ours.write_all(keys.as_bytes()).unwrap();
    }

    /// Resizes the window.
    pub(crate) fn resize(&mut self, rows: u16, columns: u16) {
        let (r, c) = (rows.to_string(), columns.to_string());
        let input = Stdio::from(self.theirs.try_clone().unwrap());
        let status = Command::new("stty").args(["rows", &r, "cols", &c]).stdin(input).status().unwrap();
        assert!(status.success());
        self.parser.screen_mut().set_size(rows, columns);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Waits for the program to end, and checks that the terminal is as before.
    #[track_caller]
    pub(crate) fn ends_and_restores(&mut self) -> ExitStatus {
        let end = Instant::now() + TIMEOUT;
        let status = loop {
            self.take();
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "it does not end:\n{}", self.screen().contents());
        };
        // The last output.
        while self.take() {}
        assert!(!self.screen().alternate_screen(), "the other screen is still there");
        assert!(!self.screen().hide_cursor(), "the cursor is hidden");
        assert_eq!(tcgetattr(&self.theirs).unwrap(), self.before, "the terminal's modes are others");
        status
    }

    /// Reads output that arrives within a moment; false if there is none.
    fn take(&mut self) -> bool {
        let mut fds = [PollFd::new(self.ours.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::from(20_u8)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 4096];
        let length = self.ours.read(&mut bytes).unwrap();
        self.parser.process(&bytes[..length]);
        length > 0
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It could have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
