//! Starts programs as the right user, with a wrapper, and with their output captured for error messages.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use nix::unistd::{Uid, User, chown};

use super::error::{Result, ServersError};
use super::log::tail;
use super::running::{Identity, Running};
use crate::runner::interrupted;
use crate::shell::quoted;

/// A program to start.
pub(crate) struct Launch {
    program: PathBuf,
    args: Vec<OsString>,
    user: Option<&'static str>,
    wrapper: Vec<OsString>,
    pid_file: Option<PathBuf>,
    stop: Signal,
    group: bool,
}

impl Launch {
    /// `program` is a name (searched by [`find_program`]) or a path.
    pub(crate) fn new(program: &str) -> Self {
        let program = find_program(program).unwrap_or_else(|| program.into());
        Self {
            program,
            args: Vec::new(),
            user: None,
            wrapper: Vec::new(),
            pid_file: None,
            stop: Signal::SIGTERM,
            group: false,
        }
    }

    pub(crate) fn args<I: IntoIterator<Item = S>, S: AsRef<OsStr>>(mut self, args: I) -> Self {
        self.args.extend(args.into_iter().map(|a| a.as_ref().to_owned()));
        self
    }

    pub(crate) fn arg(self, arg: impl AsRef<OsStr>) -> Self {
        self.args([arg])
    }

    /// Runs it as this user if we are root; some servers refuse to run as root, and others should not.
    pub(crate) fn user(mut self, user: &'static str) -> Self {
        self.user = Uid::effective().is_root().then_some(user);
        self
    }

    /// Prefixes the command line with these words, e.g. `gleaner run --`.
    pub(crate) fn wrapped(mut self, wrapper: &[OsString]) -> Self {
        wrapper.clone_into(&mut self.wrapper);
        self
    }

    /// Stops it by the pid in this file: with a wrapper, the child's pid is not the server's.
    pub(crate) fn pid_file(mut self, file: &Path) -> Self {
        self.pid_file = Some(file.to_owned());
        self
    }

    /// Makes it the leader of a new process group. Signals go to the whole group; Ctrl-C on the terminal does
    /// not, so the parent process can end the group cleanly.
    pub(crate) fn group(mut self) -> Self {
        self.group = true;
        self
    }

    /// The signal that ends it cleanly; SIGTERM by default.
    pub(crate) fn stopped_by(mut self, signal: Signal) -> Self {
        self.stop = signal;
        self
    }

    /// The words of its command line.
    pub(crate) fn words(&self) -> Vec<OsString> {
        let mut words = self.wrapper.clone();
        if let Some(user) = self.user {
            // setpriv execs the program, so the pid stays the same. Changing the user clears the death signal
            // that we set, so setpriv sets it again.
            let ids = [format!("--reuid={user}"), format!("--regid={user}")];
            words.extend(["setpriv", "--init-groups", "--pdeathsig=TERM"].map(OsString::from));
            words.extend(ids.map(OsString::from));
            words.push("--".into());
        }
        words.push(self.program.clone().into());
        words.extend(self.args.iter().cloned());
        words
    }

    /// The command line, for the report.
    pub(crate) fn line(&self) -> String {
        let words = self.words();
        words.iter().map(|word| quoted(&word.to_string_lossy())).collect::<Vec<_>>().join(" ")
    }

    fn command(&self) -> Command {
        let words = self.words();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null());
        if self.group {
            command.process_group(0);
        }
        // SAFETY: prctl(2) is async-signal-safe and touches no memory.
        unsafe {
            command.pre_exec(|| Ok(nix::sys::prctl::set_pdeathsig(Signal::SIGTERM)?));
        }
        command
    }

    /// Starts it with all output going to `log`.
    pub(crate) fn start(&self, log: &Path) -> Result<Running> {
        if let Some(file) = self.pid_file.as_ref().filter(|f| f.exists()) {
            // Left by a killed server; another process could have its pid by now.
            fs::remove_file(file).map_err(ServersError::file("remove", file))?;
        }
        let file = File::create(log).map_err(ServersError::file("create", log))?;
        let second = file.try_clone().map_err(ServersError::file("duplicate", log))?;
        let mut command = self.command();
        command.stdout(file).stderr(second);
        self.spawn(command, Some(log.to_owned()))
    }

    /// Starts it with all output going to a pipe.
    pub(crate) fn start_piped(&self) -> Result<(Running, io::PipeReader)> {
        let (reader, writer) = io::pipe().map_err(ServersError::system("make a pipe"))?;
        let second = writer.try_clone().map_err(ServersError::system("duplicate a pipe"))?;
        let mut command = self.command();
        command.stdout(writer).stderr(second);
        Ok((self.spawn(command, None)?, reader))
    }

    /// Runs it to its end; returns its standard output if it succeeds.
    pub(crate) fn output(&self) -> Result<String> {
        let program = name(&self.program);
        let output =
            self.command().output().map_err(ServersError::system(format!("start {}", self.line())))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if interrupted() {
            return Err(ServersError::Interrupted);
        }
        if output.status.success() {
            return Ok(text(&output.stdout));
        }
        let log = tail(&text(&[output.stdout, output.stderr].concat()));
        Err(ServersError::Ended { program, status: output.status.to_string(), log })
    }

    fn spawn(&self, mut command: Command, log: Option<PathBuf>) -> Result<Running> {
        let program = name(&self.program);
        let child = command.spawn().map_err(ServersError::system(format!("start {}", self.line())))?;
        let (pid_file, stop, group) = (self.pid_file.clone(), self.stop, self.group);
        Running::new(child, Identity { program, log, pid_file, stop, group })
    }
}

/// Searches `program` in `PATH`, in directories of servers, and in `PostgreSQL`'s versions (newest first).
pub(crate) fn find_program(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut versions: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    let version = |dir: &PathBuf| dir.parent().and_then(|d| d.file_name()?.to_str()?.parse::<u32>().ok());
    versions.sort_by_key(|dir| std::cmp::Reverse(version(dir)));
    let servers = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(PathBuf::from);
    versions
        .into_iter()
        .chain(std::env::split_paths(&path))
        .chain(servers)
        .map(|dir| dir.join(program))
        .find(|file| file.is_file())
}

/// Creates `dir` if necessary, owned by `user` if we are root.
pub(crate) fn make_dir(dir: &Path, user: Option<&str>) -> Result<()> {
    fs::create_dir_all(dir).map_err(ServersError::file("create", dir))?;
    let Some(name) = user.filter(|_| Uid::effective().is_root()) else { return Ok(()) };
    let found = User::from_name(name).map_err(ServersError::system(format!("look up the user {name}")))?;
    let Some(user) = found else {
        return Err(ServersError::Unknown {
            what: "user",
            name: name.to_owned(),
            known: String::from("see passwd(5)"),
        });
    };
    chown(dir, Some(user.uid), Some(user.gid)).map_err(|errno| ServersError::file("chown", dir)(errno.into()))
}

/// A free loopback port. If another process takes it first, the server reports that and ends.
pub(super) fn free_address() -> Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(ServersError::system("find a free port"))
}

fn name(program: &Path) -> String {
    program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn command_lines_can_be_pasted_into_a_shell() {
        let launch = Launch::new("sh").args(["--save", "", "it's", "a=/b"]).wrapped(&["env".into()]);
        let line = launch.line();
        assert!(line.starts_with("env /") && line.ends_with("/sh --save '' 'it'\\''s' a=/b"), "{line}");
    }

    #[test]
    fn a_program_that_ends_before_it_is_ready_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let launch = Launch::new("sh").args(["-c", "echo address in use >&2; exit 1"]);
        let mut running = launch.start(&dir.path().join("log")).unwrap();
        let error = running.wait_ready(|| false).unwrap_err().to_string();
        assert!(error.contains("exit status: 1") && error.contains("address in use"), "{error}");
    }

    #[test]
    fn dropping_a_group_ends_all_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("sleep 600 & echo $! > {}; wait", pid.display());
        let mut running =
            Launch::new("sh").args(["-c", &script]).group().start(&dir.path().join("log")).unwrap();
        let child = || fs::read_to_string(&pid).ok()?.strip_suffix('\n')?.parse::<u32>().ok();
        running.wait_ready(|| child().is_some()).unwrap();
        let stat = PathBuf::from(format!("/proc/{}/stat", child().unwrap()));
        drop(running);
        // init has to reap the orphan; until then it is a zombie.
        let ended = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        let deadline = Instant::now() + Duration::from_secs(10);
        while !ended() {
            assert!(Instant::now() < deadline, "still there");
            std::thread::yield_now();
        }
    }
}
