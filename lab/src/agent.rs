//! The agent: what the harness speaks to in a guest. It runs programs and moves files, each request in a thread.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use gleaner_print::say;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::wire::{self, Answer, Exit, Request};

/// What is kept of a program's output, and of its errors.
const MOST_OUTPUT: u64 = 64 << 20;
const PORTS: &str = "/sys/class/virtio-ports";

/// Serves the harness over its port until the machine is turned off.
pub fn serve() -> Result<()> {
    let path = port()?;
    let port = OpenOptions::new().read(true).write(true).open(&path).map_err(Error::file("open", &path))?;
    Agent::new(port).serve().map_err(Error::file("speak over", path))
}

/// The device of the port with our name. There is no udev in the small image that would link it.
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

/// What the threads share.
#[derive(Clone)]
struct Agent {
    /// Read by one thread, written by whoever holds `turn`.
    port: Arc<File>,
    turn: Arc<Mutex<()>>,
    /// The process group of each running step.
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
            Request::Run { argv, env, timeout_ms } => {
                self.run(id, &argv, env, Duration::from_millis(timeout_ms), body)
            }
            Request::Signal { step, signal } => done(self.signal(step, signal), "cannot send the signal"),
            Request::Read { path } => done(fs::read(&path), &format!("cannot read {path}")),
            Request::Write { path, mode } => done(
                write(Path::new(&path), mode, &body).map(|()| Vec::new()),
                &format!("cannot write {path}"),
            ),
            Request::PowerOff => {
                // A reboot ends QEMU, and every machine can; twice: at once, there is nothing worth keeping.
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
        timeout: Duration,
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
        let ended = finish(child, group, timeout, input);
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

/// Feeds a program, collects what it prints and waits for its end, or ends it with all its children.
fn finish(
    mut child: Child,
    group: Pid,
    timeout: Duration,
    input: Vec<u8>,
) -> io::Result<(Exit, Vec<u8>, Vec<u8>)> {
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input is no fault.
        thread::spawn(move || stdin.write_all(&input).ok());
    }
    let out = child.stdout.take().map(collect);
    let err = child.stderr.take().map(collect);
    let (ended, end) = mpsc::channel();
    thread::spawn(move || ended.send(child.wait()));
    let exit = if let Ok(status) = end.recv_timeout(timeout) {
        how(status?)
    } else {
        // It may have ended just now.
        let _ = killpg(group, Signal::SIGKILL);
        end.recv().map_err(io::Error::other)??;
        Exit::TimedOut
    };
    // A daemon that it left behind may hold the pipes; what the program itself printed is in them by now.
    Ok((exit, take(out), take(err)))
}

fn how(status: ExitStatus) -> Exit {
    status.code().map_or_else(|| Exit::Signal(status.signal().unwrap_or_default()), Exit::Code)
}

type Collected = (Arc<Mutex<Vec<u8>>>, mpsc::Receiver<()>);

/// Reads a pipe to its end in a thread of its own; beyond the limit it is read and thrown away.
fn collect(mut pipe: impl Read + Send + 'static) -> Collected {
    let kept = Arc::new(Mutex::new(Vec::new()));
    let (done, end) = mpsc::channel();
    let into = Arc::clone(&kept);
    thread::spawn(move || {
        let mut block = vec![0; 64 << 10];
        while let Ok(read @ 1..) = pipe.read(&mut block) {
            let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
            let room = usize::try_from(MOST_OUTPUT).unwrap_or(usize::MAX) - kept.len();
            kept.extend(&block[..read.min(room)]);
        }
        done.send(()).ok();
    });
    (kept, end)
}

/// What was collected, after the pipe's end or a moment.
fn take(collected: Option<Collected>) -> Vec<u8> {
    let Some((kept, end)) = collected else { return Vec::new() };
    let _ = end.recv_timeout(Duration::from_millis(500));
    std::mem::take(&mut kept.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Writes in place (a knob in /sys keeps its mode); a new file gets the mode.
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

    fn run(argv: &[&str], timeout: Duration, input: &[u8]) -> (Answer, Vec<u8>) {
        let agent = Agent::new(File::open("/dev/null").unwrap());
        let argv: Vec<String> = argv.iter().map(|&word| word.to_owned()).collect();
        agent.run(1, &argv, vec![("X".to_owned(), "env".to_owned())], timeout, input.to_vec())
    }

    const PATIENCE: Duration = Duration::from_secs(20);

    #[test]
    fn a_step_gives_back_output_errors_and_status() {
        let (answer, body) = run(&["sh", "-c", "cat; echo $X >&2; exit 7"], PATIENCE, b"in");
        assert_eq!(answer, Answer::Ran { exit: Exit::Code(7), stdout: 2, truncated: false });
        assert_eq!(body, b"inenv\n");
    }

    #[test]
    fn a_step_that_takes_too_long_is_killed_with_its_children() {
        let (answer, body) = run(&["sh", "-c", "echo begun; sleep 1000 & wait"], Duration::from_secs(1), b"");
        assert_eq!(answer, Answer::Ran { exit: Exit::TimedOut, stdout: 6, truncated: false });
        assert_eq!(body, b"begun\n");
    }

    #[test]
    fn a_signal_is_told_and_a_missing_program_too() {
        let (answer, _) = run(&["sh", "-c", "kill -9 $$"], PATIENCE, b"");
        assert!(matches!(answer, Answer::Ran { exit: Exit::Signal(9), .. }));
        let (answer, _) = run(&["/no/such"], PATIENCE, b"");
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
