//! The agent in a guest: runs programs and moves files for the harness, each request in its own thread.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_print::say;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::vm::Step;
use crate::wire::{self, Answer, Exit, Request};

/// Longest output and longest stderr that are kept; the rest is discarded.
const MOST_OUTPUT: u64 = 64 << 20;
const PORTS: &str = "/sys/class/virtio-ports";

/// Serves the harness over its port until the machine is turned off.
pub fn serve() -> Result<()> {
    let path = port()?;
    let port = OpenOptions::new().read(true).write(true).open(&path).map_err(Error::file("open", &path))?;
    Agent::new(port).serve().map_err(Error::file("speak over", path))
}

/// The device of the harness's port. The tiny image has no udev to link it by name.
fn port() -> Result<PathBuf> {
    for entry in fs::read_dir(PORTS).map_err(Error::file("read", PORTS))?.flatten() {
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        if name.trim() == wire::PORT {
            return Ok(Path::new("/dev").join(entry.file_name()));
        }
    }
    let none = format!("there is no port `{}` under {PORTS}", wire::PORT);
    Err(Error::Guest { vm: "this".to_owned(), error: none })
}

/// State shared by the threads.
#[derive(Clone)]
struct Agent {
    /// Read by one thread, written by the holder of `turn`.
    port: Arc<File>,
    turn: Arc<Mutex<()>>,
    /// Process group of each running step.
    running: Arc<Mutex<BTreeMap<u64, Pid>>>,
}

impl Agent {
    fn new(port: File) -> Self {
        Self { port: Arc::new(port), turn: Arc::default(), running: Arc::default() }
    }

    fn serve(&self) -> io::Result<()> {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().to_owned();
        self.answer(0, &Answer::Hello { release }, &[])?;
        loop {
            let (request, body) = wire::receive::<Request>(&mut &*self.port)?;
            let agent = self.clone();
            thread::spawn(move || {
                let (answer, out) = agent.handle(request.id, request.message, body);
                if let Err(error) = agent.answer(request.id, &answer, &out) {
                    say!("gleaner-lab agent: cannot answer: {error}");
                }
            });
        }
    }

    fn answer(&self, id: u64, answer: &Answer, body: &[u8]) -> io::Result<()> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        wire::send(&mut &*self.port, id, answer, body)
    }

    fn handle(&self, id: u64, request: Request, body: Vec<u8>) -> (Answer, Vec<u8>) {
        let done = |result: io::Result<Vec<u8>>, what: &str| match result {
            Ok(bytes) => (Answer::Done, bytes),
            Err(error) => (Answer::Failed { error: format!("{what}: {error}") }, Vec::new()),
        };
        match request {
            Request::Run { argv, env, timeout_ms, counts_from } => {
                let limit = Limit { time: Duration::from_millis(timeout_ms), counts_from };
                self.run(id, &argv, env, &limit, body)
            }
            Request::Signal { step, signal } => done(self.signal(step, signal), "cannot send the signal"),
            Request::Read { path } => done(fs::read(&path), &format!("cannot read {path}")),
            Request::Write { path, mode } => done(
                write(Path::new(&path), mode, &body).map(|()| Vec::new()),
                &format!("cannot write {path}"),
            ),
            Request::PowerOff => {
                // QEMU exits on a reboot, which every machine supports. Twice `-f`: at once, since nothing is worth
                // keeping.
                let off = Command::new("reboot").args(["-f", "-f"]).status();
                done(off.map(|_| Vec::new()), "cannot turn the machine off")
            }
        }
    }

    fn signal(&self, step: u64, signal: i32) -> io::Result<Vec<u8>> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let group = running.get(&step).ok_or_else(|| io::Error::other("the step does not run"))?;
        killpg(*group, Signal::try_from(signal)?)?;
        Ok(Vec::new())
    }

    fn run(
        &self,
        id: u64,
        argv: &[String],
        env: Vec<(String, String)>,
        limit: &Limit,
        input: Vec<u8>,
    ) -> (Answer, Vec<u8>) {
        let failed = |error: String| (Answer::Failed { error }, Vec::new());
        let Some((program, rest)) = argv.split_first() else {
            return failed("an empty command".to_owned());
        };
        let mut command = Command::new(program);
        command.args(rest).envs(env).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return failed(format!("cannot start `{program}`: {error}")),
        };
        let group = Pid::from_raw(child.id().cast_signed());
        let running = || self.running.lock().unwrap_or_else(PoisonError::into_inner);
        running().insert(id, group);
        let ended = finish(child, group, limit, input);
        running().remove(&id);
        match ended {
            Ok((exit, out, err)) => {
                let truncated = out.len() as u64 == MOST_OUTPUT || err.len() as u64 == MOST_OUTPUT;
                let stdout = out.len() as u64;
                (Answer::Ran { exit, stdout, truncated }, [out, err].concat())
            }
            Err(error) => failed(format!("cannot wait for `{program}`: {error}")),
        }
    }
}

struct Limit {
    time: Duration,
    /// The file whose creation starts the time limit; `None`: it starts at once.
    counts_from: Option<String>,
}

impl Limit {
    /// Waits for the start of the time limit, and as long again for `end`; `None` on a timeout.
    fn wait<T>(&self, end: &mpsc::Receiver<T>) -> Option<T> {
        if let Some(file) = &self.counts_from {
            let began = Instant::now();
            while !Path::new(file).exists() && began.elapsed() < Step::TIMEOUT {
                if let Ok(ended) = end.recv_timeout(Duration::from_millis(10)) {
                    return Some(ended);
                }
            }
        }
        end.recv_timeout(self.time).ok()
    }
}

/// Feeds a program, collects its output and waits for its end. On a timeout, kills its whole process group.
fn finish(
    mut child: Child,
    group: Pid,
    limit: &Limit,
    input: Vec<u8>,
) -> io::Result<(Exit, Vec<u8>, Vec<u8>)> {
    if let Some(mut stdin) = child.stdin.take() {
        // A program need not read its input.
        thread::spawn(move || stdin.write_all(&input).ok());
    }
    let out = child.stdout.take().map(|pipe| Output::collect(pipe.into())).transpose()?;
    let err = child.stderr.take().map(|pipe| Output::collect(pipe.into())).transpose()?;
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(child.wait()));
    let exit = if let Some(status) = limit.wait(&end) {
        how(status?)
    } else {
        // It could have ended just now.
        let _ = killpg(group, Signal::SIGKILL);
        end.recv().map_err(io::Error::other)??;
        Exit::TimedOut
    };
    // A daemon that it left behind can keep the pipes open; the program's own output is complete by now.
    let take = |output: Option<Output>| output.map_or_else(|| Ok(Vec::new()), |output| output.take());
    Ok((exit, take(out)?, take(err)?))
}

fn how(status: ExitStatus) -> Exit {
    status.code().map_or_else(|| Exit::Signal(status.signal().unwrap_or_default()), Exit::Code)
}

/// Output of a program, collected from a pipe.
#[derive(Clone)]
struct Output {
    pipe: Arc<File>,
    /// Held while reading, until what was read is kept.
    kept: Arc<Mutex<Vec<u8>>>,
}

impl Output {
    /// Starts a thread that reads the pipe to its end, and discards what exceeds the limit.
    fn collect(pipe: OwnedFd) -> io::Result<Self> {
        // Two threads read it, and the slower one must not block.
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let output = Self { pipe: Arc::new(pipe.into()), kept: Arc::default() };
        let reader = output.clone();
        thread::spawn(move || {
            let mut block = vec![0; 64 << 10];
            while reader.wait() && reader.read(&mut reader.kept(), &mut block) {}
        });
        Ok(output)
    }

    fn kept(&self) -> MutexGuard<'_, Vec<u8>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for something to read or the end; false on an error.
    fn wait(&self) -> bool {
        let mut fds = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLIN)];
        matches!(poll(&mut fds, PollTimeout::NONE), Ok(_) | Err(Errno::EINTR))
    }

    /// Reads up to the size of `block`. False at the end, or if there is nothing to read now.
    fn read(&self, kept: &mut Vec<u8>, block: &mut [u8]) -> bool {
        match (&*self.pipe).read(block) {
            Ok(0) => false,
            Ok(read) => {
                let room = usize::try_from(MOST_OUTPUT).unwrap_or(usize::MAX) - kept.len();
                kept.extend(&block[..read.min(room)]);
                true
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// Everything printed so far.
    fn take(&self) -> io::Result<Vec<u8>> {
        let mut kept = self.kept();
        let mut unread: libc::c_int = 0;
        // SAFETY: FIONREAD writes one int through a valid pointer.
        Errno::result(unsafe { libc::ioctl(self.pipe.as_raw_fd(), libc::FIONREAD, &raw mut unread) })?;
        let mut left = vec![0; usize::try_from(unread).unwrap_or_default()];
        if !left.is_empty() {
            self.read(&mut kept, &mut left);
        }
        Ok(std::mem::take(&mut kept))
    }
}

/// Writes in place, so that a knob in /sys keeps its mode; a new file gets `mode`.
fn write(path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
    let is_new = !path.exists();
    if let Some(parent) = path.parent().filter(|_| is_new) {
        fs::create_dir_all(parent)?;
    }
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path)?;
    file.write_all(content)?;
    if is_new { fs::set_permissions(path, fs::Permissions::from_mode(mode)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(argv: &[&str], input: &[u8]) -> (Answer, Vec<u8>) {
        run_within(argv, &Limit { time: Duration::from_secs(60), counts_from: None }, input)
    }

    fn run_within(argv: &[&str], limit: &Limit, input: &[u8]) -> (Answer, Vec<u8>) {
        let agent = Agent::new(File::open("/dev/null").unwrap());
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        agent.run(1, &argv, vec![("X".to_owned(), "env".to_owned())], limit, input.to_vec())
    }

    #[test]
    fn a_step_gives_back_output_errors_and_status() {
        let (answer, body) = run(&["sh", "-c", "cat; echo $X >&2; exit 7"], b"in");
        assert_eq!(answer, Answer::Ran { exit: Exit::Code(7), stdout: 2, truncated: false });
        assert_eq!(body, b"inenv\n");
    }

    #[test]
    fn a_step_that_takes_too_long_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("begun").display().to_string();
        let script = format!("echo begun; : > {file}; sleep 1000 & wait");
        let limit = Limit { time: Duration::from_millis(100), counts_from: Some(file) };
        let (answer, body) = run_within(&["sh", "-c", &script], &limit, b"");
        assert_eq!(answer, Answer::Ran { exit: Exit::TimedOut, stdout: 6, truncated: false });
        assert_eq!(body, b"begun\n");
    }

    #[test]
    fn what_was_printed_is_there_while_a_daemon_holds_the_pipes() {
        let script = "sleep 1000 & echo $!; head -c 60000 /dev/zero; echo why >&2; exit 7";
        let (answer, body) = run(&["sh", "-c", script], b"");
        let pid: String =
            body.iter().map(|&byte| char::from(byte)).take_while(char::is_ascii_digit).collect();
        nix::sys::signal::kill(Pid::from_raw(pid.parse().unwrap()), Signal::SIGKILL).unwrap();
        let stdout = (pid.len() + 1 + 60_000) as u64;
        assert_eq!(answer, Answer::Ran { exit: Exit::Code(7), stdout, truncated: false });
        assert!(body.ends_with(b"\0why\n"), "{:?}", &body[60_000..]);
    }

    #[test]
    fn a_signal_is_reported_and_a_missing_program_too() {
        let (answer, _) = run(&["sh", "-c", "kill -9 $$"], b"");
        assert!(matches!(answer, Answer::Ran { exit: Exit::Signal(9), .. }));
        let (answer, _) = run(&["/no/such"], b"");
        let Answer::Failed { error } = answer else { panic!("{answer:?}") };
        assert!(error.starts_with("cannot start `/no/such`"), "{error}");
    }

    #[test]
    fn files_are_written_with_their_directories() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b");
        write(&path, 0o750, b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o750);
        write(&path, 0o600, b"y").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"y");
    }
}
