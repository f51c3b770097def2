//! QEMU as a process that ends with this one, however this one ends.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;

use crate::error::{Error, Result};
use crate::tool;

/// A file in memory with this content, for QEMU to inherit.
pub(crate) fn memory_file(name: &str, content: &[u8]) -> Result<OwnedFd> {
    let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC).map_err(Error::system("make a file in memory"))?;
    let mut file = File::from(fd);
    file.write_all(content).map_err(Error::system("fill a file in memory"))?;
    Ok(file.into())
}

/// An empty file in memory of this size, for QEMU to inherit. It takes memory as it is written.
pub(crate) fn empty_memory_file(name: &str, mib: u32) -> Result<OwnedFd> {
    let fd = memfd_create(name, MFdFlags::MFD_CLOEXEC).map_err(Error::system("make a file in memory"))?;
    let file = File::from(fd);
    file.set_len(u64::from(mib) << 20).map_err(Error::system("size a file in memory"))?;
    Ok(file.into())
}

/// A running QEMU. Dropping it kills it and waits for it.
#[derive(Debug)]
pub(crate) struct Process {
    child: Mutex<Child>,
}

impl Process {
    /// Starts a command that inherits these descriptors under their present numbers.
    pub(crate) fn start(mut command: Command, inherited: &[RawFd]) -> Result<Self> {
        let parent = nix::unistd::getpid();
        let inherited = inherited.to_vec();
        // A group of its own: Ctrl-C is ours to handle. If we die, the kernel kills QEMU.
        command.process_group(0).stderr(Stdio::piped());
        // SAFETY: between fork and exec, only async-signal-safe system calls are made, and nothing is allocated; the
        // parent keeps the descriptors open across the fork.
        unsafe {
            command.pre_exec(move || {
                set_pdeathsig(Signal::SIGKILL)?;
                if nix::unistd::getppid() != parent {
                    // The parent died before the death signal was set.
                    return Err(std::io::ErrorKind::BrokenPipe.into());
                }
                for &fd in &inherited {
                    fcntl(BorrowedFd::borrow_raw(fd), FcntlArg::F_SETFD(FdFlag::empty()))?;
                }
                Ok(())
            });
        }
        Ok(Self { child: Mutex::new(spawn(command)?) })
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn id(&self) -> u32 {
        self.child().id()
    }

    /// The exit status, if it exits within this time.
    pub(crate) fn wait(&self, timeout: Duration) -> Result<Option<ExitStatus>> {
        let end = Instant::now() + timeout;
        loop {
            let ended = self.child().try_wait().map_err(Error::system("wait for QEMU"))?;
            if ended.is_some() || Instant::now() >= end {
                return Ok(ended);
            }
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until it exits.
    pub(crate) fn wait_forever(&self) -> Result<ExitStatus> {
        self.child().wait().map_err(Error::system("wait for QEMU"))
    }

    /// Kills it and waits for it.
    pub(crate) fn kill(&self) {
        let mut child = self.child();
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Its stderr. Call it only after it has exited.
    pub(crate) fn stderr_text(&self) -> String {
        let mut said = String::new();
        if let Some(mut stderr) = self.child().stderr.take() {
            let _ = stderr.read_to_string(&mut said);
        }
        said.trim().to_owned()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a command from a thread that never ends: the death signal is sent when the *thread* that started a process
/// ends (prctl(2)), and ours could be a test's.
fn spawn(command: Command) -> Result<Child> {
    type Order = (Command, mpsc::Sender<Result<Child>>);
    static STARTER: OnceLock<Mutex<mpsc::Sender<Order>>> = OnceLock::new();
    let starter = STARTER.get_or_init(|| {
        let (orders, order) = mpsc::channel::<Order>();
        thread::spawn(move || {
            for (mut command, reply) in order {
                let started = command.spawn().map_err(|error| tool::cannot_start(&command, error));
                let _ = reply.send(started);
            }
        });
        Mutex::new(orders)
    });
    let gone =
        |what: &str| Error::Protocol { who: "the starter of processes".to_owned(), what: what.to_owned() };
    let (reply, child) = mpsc::channel();
    let orders = starter.lock().unwrap_or_else(PoisonError::into_inner);
    orders.send((command, reply)).map_err(|_| gone("it has ended"))?;
    drop(orders);
    child.recv().map_err(|_| gone("it did not answer"))?
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use super::*;

    fn sleeper() -> Command {
        let mut command = Command::new("sleep");
        command.arg("1000");
        command
    }

    fn is_alive(pid: u32) -> bool {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.cast_signed()), None).is_ok()
    }

    #[test]
    fn a_dropped_process_is_gone() {
        let process = Process::start(sleeper(), &[]).unwrap();
        let pid = process.id();
        assert!(is_alive(pid) && process.wait(Duration::ZERO).unwrap().is_none());
        drop(process);
        assert!(!is_alive(pid));
    }

    #[test]
    fn it_outlives_the_thread_that_asked_for_it() {
        let process = thread::spawn(|| Process::start(sleeper(), &[]).unwrap()).join().unwrap();
        // The end of the thread would have sent the death signal.
        assert!(process.wait(Duration::from_millis(200)).unwrap().is_none());
    }

    #[test]
    fn inherited_files_keep_their_numbers() {
        let file = memory_file("test", b"content").unwrap();
        let mut command = Command::new("sh");
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        command.args(["-c", &format!("grep -q content {path} || {{ echo not there >&2; exit 1; }}")]);
        let process = Process::start(command, &[file.as_raw_fd()]).unwrap();
        let status = process.wait(Duration::from_secs(20)).unwrap().unwrap();
        assert!(status.success(), "{}", process.stderr_text());
    }
}
