//! Asks systemd through `systemctl`, and waits for the answer for a bounded time.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};

use crate::Root;

/// How long to wait for an answer that takes systemd no work.
pub(super) const SHORTLY: Duration = Duration::from_secs(5);
/// How long to wait while systemd reads all its unit files. Less than the watchdog of `gleanerd` grants it.
pub(super) const RELOAD: Duration = Duration::from_secs(15);
/// The time between two looks at whether it has ended.
const INTERVAL: Duration = Duration::from_millis(1);
/// The most output read, in bytes; what is asked for has a few hundred.
const OUTPUT_LIMIT: u64 = 64 << 10;

/// Why systemd did not answer, as a clause with the remedy.
pub(super) type Refusal = String;

/// The output of `systemctl` with these arguments.
///
/// # Errors
/// There is none, it fails, or it does not end within `limit`; then it is killed, and what it asked for may still happen.
pub(super) fn ask(root: &Root, args: &[&str], limit: Duration) -> Result<String, Refusal> {
    let Some(program) = program(root) else {
        return Err("there is no systemctl to ask systemd with; install it".to_owned());
    };
    let mut command = Command::new(program);
    command.args(["--no-pager", "--no-ask-password"]).args(args).env("LC_ALL", "C");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // SAFETY: between fork and exec the closure only calls sigprocmask(2) and prctl(2), which are async-signal-safe. A
    // child inherits the signals that its parent blocks. After SIGKILL of its parent it is to change nothing any more,
    // or it could do so after `gleaner restore`.
    unsafe {
        command.pre_exec(|| {
            SigSet::empty().thread_set_mask()?;
            Ok(nix::sys::prctl::set_pdeathsig(Some(Signal::SIGKILL))?)
        })
    };
    let mut child = command.spawn().map_err(|error| format!("systemctl cannot be started: {error}"))?;
    let end = Instant::now() + limit;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < end => thread::sleep(INTERVAL),
            Ok(None) => {
                // Neither can fail for a child that has not been waited for.
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!(
                    "no answer within {limit:?}; `systemctl list-jobs` shows what systemd does"
                ));
            }
            Err(error) => return Err(format!("systemctl cannot be waited for: {error}")),
        }
    };
    let (out, complaint) = output(&mut child);
    if status.success() {
        return Ok(out);
    }
    let complaint = complaint.trim().lines().next().unwrap_or_default();
    Err(if complaint.is_empty() { format!("systemctl: {status}") } else { complaint.to_owned() })
}

fn program(root: &Root) -> Option<PathBuf> {
    ["/usr/bin/systemctl", "/bin/systemctl"]
        .map(|path| root.path(path))
        .into_iter()
        .find(|path| path.exists())
}

/// What the child has written; it has ended, and a pipe holds all of it.
fn output(child: &mut Child) -> (String, String) {
    let (mut out, mut complaint) = (Vec::new(), Vec::new());
    if let Some(pipe) = child.stdout.take() {
        // What cannot be read is missing, which the reader of the text notices.
        let _ = pipe.take(OUTPUT_LIMIT).read_to_end(&mut out);
    }
    if let Some(pipe) = child.stderr.take() {
        let _ = pipe.take(OUTPUT_LIMIT).read_to_end(&mut complaint);
    }
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&out), text(&complaint))
}
