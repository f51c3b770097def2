//! The settings that Gleaner can change on this machine, and the turn of one test at a time to let it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use crate::{is_root, without_lever};

/// Poll limit of the haltpoll governor, in nanoseconds.
pub const LIMIT: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
/// The lease file of root's Gleaner; there is none unless it runs or was killed.
pub const LEASES: &str = "/run/gleaner/leases";
const LOCK: &str = "/run/gleaner/lock";
const HALTPOLL: &str = "/sys/module/haltpoll/parameters";
/// What the tests of all crates that change this machine lock, in the directory for temporary files.
const TURNS: &str = "gleaner-tests.lock";

/// Everything that Gleaner could leave behind on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Levers {
    /// Parameters of the haltpoll governor, and each CPU's latency request.
    pub knobs: BTreeMap<PathBuf, String>,
    /// Control groups made by Gleaner, in every hierarchy.
    pub groups: BTreeSet<PathBuf>,
}

impl Levers {
    /// As they are now.
    pub fn read() -> Self {
        let cpus = entries(Path::new("/sys/devices/system/cpu"));
        let requests = cpus.into_iter().map(|cpu| cpu.join("power/pm_qos_resume_latency_us"));
        let knobs = entries(Path::new(HALTPOLL)).into_iter().chain(requests);
        Self {
            knobs: knobs.filter_map(|path| Some((path.clone(), fs::read_to_string(&path).ok()?))).collect(),
            groups: groups().into_iter().filter(|group| is_gleaners(group)).collect(),
        }
    }
}

/// Paths in a directory; none if it does not exist.
fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Every control group in the hierarchies that Gleaner uses, parents first.
pub fn groups() -> Vec<PathBuf> {
    let mut found = hierarchies(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default());
    let mut next = 0;
    while let Some(group) = found.get(next) {
        let below = entries(group).into_iter().filter(|path| path.is_dir());
        found.extend(below.collect::<Vec<_>>());
        next += 1;
    }
    found
}

/// Where version 2 is mounted, and the hierarchies of version 1 with CPU sets or accounts of CPU time, by the text of
/// `/proc/self/mountinfo`.
pub(crate) fn hierarchies(mounts: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for line in mounts.lines() {
        let Some((mount, file_system)) = line.split_once(" - ") else { continue };
        let used = match file_system.split(' ').collect::<Vec<_>>()[..] {
            ["cgroup2", ..] => true,
            ["cgroup", _, options] => options.split(',').any(|o| matches!(o, "cpuset" | "cpuacct")),
            _ => false,
        };
        let place = mount.split(' ').nth(4).map(PathBuf::from);
        found.extend(place.filter(|place| used && !found.contains(place)));
    }
    found
}

fn is_gleaners(group: &Path) -> bool {
    group.file_name().is_some_and(|name| name.to_string_lossy().starts_with("gleaner-"))
}

/// The right to let Gleaner change this machine. Dropping it restores the machine, even after a panic.
#[derive(Debug)]
pub struct Machine {
    /// How the machine was before the test.
    pub before: Levers,
    /// Puts back what a killed Gleaner left.
    restore: fn(),
    _turn: Flock<File>,
}

impl Machine {
    /// Waits for this test's turn. `None`, with a message, unless run by root. `restore` puts back what a killed
    /// Gleaner left; it is called if there is something.
    ///
    /// # Panics
    /// The lock cannot be used.
    #[track_caller]
    pub fn take(restore: fn()) -> Option<Self> {
        if !is_root() {
            return None;
        }
        let turn = File::create(std::env::temp_dir().join(TURNS))
            .and_then(|file| Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| errno.into()));
        let turn = turn.unwrap_or_else(|error| panic!("cannot lock {TURNS}: {error}"));
        if let Ok(lock) = File::open(LOCK) {
            // Wait for any other Gleaner to end.
            drop(Flock::lock(lock, FlockArg::LockExclusive));
        }
        if Path::new(LEASES).exists() {
            restore();
        }
        Some(Self { before: Levers::read(), restore, _turn: turn })
    }

    /// The machine, where a lever that the test needs is `available`. If not, the test cannot run ([`without_lever`]).
    #[track_caller]
    pub fn filter_available(self, available: Result<(), impl Display>) -> Option<Self> {
        available.map_err(without_lever).is_ok().then_some(self)
    }

    /// Asserts that nothing is changed, and that nothing is left to restore.
    ///
    /// # Panics
    /// Something is.
    #[track_caller]
    pub fn assert_untouched(&self) {
        assert_eq!(Levers::read(), self.before);
        assert!(!Path::new(LEASES).exists(), "{LEASES} is left: {:?}", fs::read_to_string(LEASES));
    }

    /// The haltpoll limit before the test.
    ///
    /// # Panics
    /// There is none.
    pub fn limit_before(&self) -> &str {
        &self.before.knobs[Path::new(LIMIT)]
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if !Path::new(LEASES).exists() && Levers::read() == self.before {
            return;
        }
        crate::say("NOTE", &"the machine is not as it was: putting it back");
        (self.restore)();
        for (path, now) in Levers::read().knobs {
            let Some(before) = self.before.knobs.get(&path).filter(|before| **before != now) else {
                continue;
            };
            if let Err(error) = fs::write(&path, before.trim()) {
                crate::say("NOT RESTORED", &format_args!("{} to {before}: {error}", path.display()));
            }
        }
    }
}

/// Whether the haltpoll limit is this number of nanoseconds.
pub fn limit_is(ns: &str) -> bool {
    fs::read_to_string(LIMIT).is_ok_and(|text| text.trim() == ns)
}
