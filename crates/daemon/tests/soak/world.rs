//! The machine of the soak: services, a daemon, its clients, and what an administrator has written.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use gleaner_control::{Client, ClientError, Status};
use gleaner_testing::group::{Service, Slice};
use gleaner_testing::left_out;
use gleaner_testing::levers::{LIMIT, Levers, limit_is};
use gleaner_testing::placement::field;
use gleaner_testing::process::until;
use gleaner_testing::server::{Load, Server};
use nix::sys::signal::Signal;

use crate::clients::Clients;
use crate::common::random::Random;
use crate::common::user::GROUP;
use crate::common::{Gleanerd, Home, Machine, READY};

/// The daemon's state directory: a small file system of the test's own.
pub(crate) const STATE: &str = "/run/gleaner";
const STATE_KIB: u32 = 4096;
/// Lets a clock be stepped for one process.
const FAKETIME: &str = "faketime/libfaketime.so.1";
/// Microseconds from an answer to the next request.
const PAUSES_US: [u64; 6] = [0, 50, 200, 1000, 20_000, 500_000];

/// A service and its client.
pub(crate) struct Workload {
    pub(crate) service: Service,
    /// The vCPUs that its group has if nobody changes them.
    pub(crate) cpus: String,
    start: fn(&Path, &str, Option<&Service>) -> Server,
    name: &'static str,
    running: Option<(Server, Load)>,
}

/// How much there was.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) faults: u32,
    pub(crate) engaged: usize,
    pub(crate) written: u32,
    proven: usize,
    stepped_back: usize,
    lives: u32,
    kills: u32,
    groups: u64,
    restarts: u32,
}

/// What a daemon that does nothing holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AtRest {
    /// Bytes.
    pub(crate) resident: u64,
    pub(crate) files: usize,
}

pub(crate) struct World {
    pub(crate) random: Random,
    pub(crate) tally: Tally,
    pub(crate) workloads: Vec<Workload>,
    /// The haltpoll limit that an administrator wrote last.
    pub(crate) limit: String,
    /// Whether the daemon has noticed that, and must not write before `gleaner resume`.
    pub(crate) limit_is_held_by_them: bool,
    before: Levers,
    daemon: Option<Gleanerd>,
    clients: Clients,
    home: Home,
    slice: Slice,
}

impl World {
    pub(crate) fn new(machine: &Machine) -> Option<Self> {
        let slice = Slice::new()?;
        own_state();
        let home = Home::new("");
        let start = |name, start: fn(&Path, &str, Option<&Service>) -> Server| {
            let service = slice.service(name);
            let cpus = service.cpus();
            Workload { service, cpus, start, name, running: None }
        };
        let workloads = vec![
            start("redis", Server::redis),
            start("memcached", Server::memcached),
            start("other", Server::redis),
        ];
        let mut world = Self {
            random: Random::new(0x50a6_0123_4567_89ab),
            tally: Tally::default(),
            workloads,
            limit: machine.limit_before().trim().to_owned(),
            limit_is_held_by_them: false,
            before: machine.before.clone(),
            daemon: None,
            clients: Clients::start(home.socket()),
            home,
            slice,
        };
        fs::write(world.clock(), "+0").unwrap();
        for _ in 0..world.workloads.len() {
            world.restart_a_server();
        }
        Some(world)
    }

    /// The file that says how far the daemon's clock is off.
    pub(crate) fn clock(&self) -> PathBuf {
        self.home.path().join("clock")
    }

    pub(crate) fn configure(&self, text: &str) {
        let (pattern, group) = (self.slice.pattern(), GROUP.0);
        let rule = format!("include = [{{ group = \"{pattern}\" }}]");
        self.home.configure(&format!("{rule}\n{text}\n[control]\ngroup = \"{group}\"\n"));
    }

    pub(crate) fn start(&mut self) {
        self.configure("");
        let mut command = self.home.command("");
        command.env("GLEANER_MEMORY", Path::new(STATE).join("memory"));
        if let Some(library) = faketime() {
            command.env("LD_PRELOAD", library).env("FAKETIME_TIMESTAMP_FILE", self.clock());
            command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("FAKETIME_CACHE_DURATION", "1");
        } else if self.tally.lives == 0 {
            left_out("steps of the clock: needs libfaketime");
        }
        let daemon = Gleanerd::start(&mut command, self.home.socket());
        daemon.until_logged(READY);
        self.daemon = Some(daemon);
        self.limit_is_held_by_them = false;
        self.tally.lives += 1;
    }

    pub(crate) fn daemon(&self) -> &Gleanerd {
        self.daemon.as_ref().unwrap()
    }

    /// Asks until there is room among the clients.
    #[track_caller]
    pub(crate) fn with_client<T>(&self, ask: impl Fn(&mut Client) -> Result<T, ClientError>) -> T {
        let mut answer = None;
        until("it answers", || {
            let asked = Client::connect(&self.home.socket()).and_then(|mut client| ask(&mut client));
            answer = asked.ok();
            answer.is_some()
        });
        answer.unwrap()
    }

    pub(crate) fn status(&self) -> Status {
        self.with_client(Client::status)
    }

    pub(crate) fn churn(&mut self, groups: u32) {
        for _ in 0..groups {
            self.slice.churn(&format!("job{}", self.tally.groups));
            self.tally.groups += 1;
        }
    }

    pub(crate) fn change_loads(&mut self) {
        let pause = self.random.one_of(&PAUSES_US);
        let index = self.random.one_of(&[0, 1, 2]);
        if let Some((_, load)) = &self.workloads[index].running {
            load.pause(Duration::from_micros(pause));
        }
    }

    /// Kills one server and starts it anew, in the group that it had.
    pub(crate) fn restart_a_server(&mut self) {
        let index = self.tally.restarts as usize % self.workloads.len();
        self.tally.restarts += 1;
        let dir = self.home.path().to_owned();
        let workload = &mut self.workloads[index];
        workload.running = None;
        let server = (workload.start)(&dir, workload.name, Some(&workload.service));
        let load = server.load(Duration::from_micros(100));
        workload.running = Some((server, load));
    }

    /// What holds at any time: the daemon answers, and nothing of an administrator's is overwritten.
    #[track_caller]
    pub(crate) fn check(&mut self) {
        let status = self.status();
        assert_eq!(status.pid, self.daemon().pid(), "{}", self.daemon().log());
        if self.limit_is_held_by_them {
            assert!(limit_is(&self.limit), "their limit is gone: {}", self.daemon().log());
        }
    }

    /// Everything as it was, but for what an administrator has written.
    #[track_caller]
    pub(crate) fn assert_at_rest(&self) {
        let mut expected = self.before.clone();
        expected.knobs.insert(LIMIT.into(), format!("{}\n", self.limit));
        let log = || self.daemon.as_ref().map(Gleanerd::log).unwrap_or_default();
        assert_eq!(Levers::read(), expected, "{}", log());
        for workload in &self.workloads {
            assert_eq!(workload.service.cpus(), workload.cpus, "{}: {}", workload.name, log());
        }
    }

    /// Pauses the daemon without clients, and measures it.
    pub(crate) fn at_rest(&mut self) -> AtRest {
        self.clients.hold(true);
        self.with_client(|client| client.pause(None));
        let pid = self.daemon().pid();
        let count = || fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let sockets = || {
            let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
            links
                .filter(|link| {
                    fs::read_link(link.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
                })
                .count()
        };
        // Only the one that it listens on.
        until("its clients are gone", || sockets() <= 1);
        let resident = field(pid, "VmRSS").unwrap().trim_end_matches(" kB").trim().parse::<u64>().unwrap();
        let at_rest = AtRest { resident: resident * 1024, files: count() };
        self.with_client(Client::resume);
        self.limit_is_held_by_them = false;
        self.clients.hold(false);
        at_rest
    }

    /// An orderly end.
    pub(crate) fn end(&mut self) {
        let log = self.daemon.take().unwrap().stop();
        self.count(&log);
    }

    /// SIGKILL, and what the unit does then.
    pub(crate) fn kill(&mut self) {
        let daemon = self.daemon.take().unwrap();
        let log = daemon.log();
        daemon.kill();
        self.tally.kills += 1;
        self.count(&log);
    }

    fn count(&mut self, log: &str) {
        assert!(!log.contains("panicked"), "{log}");
        self.tally.engaged += log.matches(": engaged").count();
        self.tally.proven += log.matches("proven").count();
        self.tally.stepped_back += log.matches("until `gleaner resume`").count();
        self.assert_at_rest();
        assert!(!Path::new(STATE).join("leases").exists(), "leases are left: {log}");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} daemons, {} of them killed; {} faults, {} groups that came and went, {} servers killed, {} values \
             written by an administrator; {} engagements, {} times stepped back",
            self.lives,
            self.kills,
            self.faults,
            self.groups,
            self.restarts,
            self.written,
            self.engaged,
            self.stepped_back
        )
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A daemon that a failed test leaves must not go on while the machine is restored.
        if let Some(daemon) = self.daemon.take() {
            daemon.signal(Signal::SIGKILL);
        }
    }
}

/// Mounts a small file system on the state directory, for this thread and the processes that it starts.
fn own_state() {
    // SAFETY: takes a number; only this thread's own view of the file systems changes.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS) }, 0);
    let script = format!(
        "mount --make-rprivate / && cp {STATE}/calibration.json /tmp/soak-calibration.json 2>/dev/null; \
         mount -t tmpfs -o mode=755,size={STATE_KIB}k none {STATE} && \
         {{ cp /tmp/soak-calibration.json {STATE}/calibration.json 2>/dev/null; rm -f /tmp/soak-calibration.json; }}"
    );
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
}

fn faketime() -> Option<PathBuf> {
    let dirs = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path().join(FAKETIME));
    dirs.into_iter().find(|path| path.exists())
}
