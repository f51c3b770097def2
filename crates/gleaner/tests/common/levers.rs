//! What Gleaner may change on this machine, and the turn of one test to let it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use gleaner_kernel::Root;
use gleaner_kernel::cgroup::CgroupSetup;
use gleaner_kernel::lever::haltpoll;
use nix::fcntl::{Flock, FlockArg};

use super::process::gleaner;
use super::skipped;

/// The haltpoll governor's limit, in nanoseconds.
pub(crate) const LIMIT: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
/// The lease file of root's Gleaner.
pub(crate) const LEASES: &str = "/run/gleaner/leases";
const LOCK: &str = "/run/gleaner/lock";

/// Everything that Gleaner may leave behind on a machine, at one moment, byte by byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Levers {
    /// The haltpoll governor's parameters and each CPU's latency request.
    pub(crate) knobs: BTreeMap<PathBuf, String>,
    /// The groups that Gleaner made, in every hierarchy.
    pub(crate) groups: BTreeSet<PathBuf>,
}

impl Levers {
    pub(crate) fn read() -> Self {
        let cpus = entries(Path::new("/sys/devices/system/cpu"));
        let requests = cpus.into_iter().map(|cpu| cpu.join("power/pm_qos_resume_latency_us"));
        let knobs = entries(Path::new(haltpoll::PARAMETERS)).into_iter().chain(requests);
        Self {
            knobs: knobs.filter_map(|path| Some((path.clone(), fs::read_to_string(&path).ok()?))).collect(),
            groups: groups().into_iter().filter(|group| is_gleaners(group)).collect(),
        }
    }
}

/// What is in a directory; nothing where there is none.
fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Every control group of the hierarchies that Gleaner uses, each before those beneath it.
pub(crate) fn groups() -> Vec<PathBuf> {
    let setup = CgroupSetup::detect(&Root::system()).unwrap();
    let v1 = ["cpuset", "cpuacct"].into_iter().filter_map(|controller| setup.v1.get(controller));
    let mut found: Vec<PathBuf> = v1.chain(&setup.v2).map(|hierarchy| hierarchy.mount.clone()).collect();
    let mut next = 0;
    while let Some(group) = found.get(next) {
        let below = entries(group).into_iter().filter(|path| path.is_dir());
        found.extend(below.collect::<Vec<_>>());
        next += 1;
    }
    found
}

fn is_gleaners(group: &Path) -> bool {
    group.file_name().is_some_and(|name| name.to_string_lossy().starts_with("gleaner-"))
}

/// The right to let Gleaner change this machine. A test that panics leaves it as it was, too.
pub(crate) struct Machine {
    pub(crate) before: Levers,
    _turn: Flock<File>,
}

impl Machine {
    /// Waits for this test's turn. `None`, and a loud word, where the test cannot run: it needs root.
    pub(crate) fn take() -> Option<Self> {
        if !nix::unistd::geteuid().is_root() {
            skipped("needs root");
            return None;
        }
        let turn = File::create(std::env::temp_dir().join("gleaner-tests.lock")).unwrap();
        let turn = Flock::lock(turn, FlockArg::LockExclusive).unwrap();
        if let Ok(lock) = File::open(LOCK) {
            // Somebody else's Gleaner comes to its end first.
            drop(Flock::lock(lock, FlockArg::LockExclusive).unwrap());
        }
        if Path::new(LEASES).exists() {
            gleaner(&["restore"]);
        }
        Some(Self { before: Levers::read(), _turn: turn })
    }

    /// As [`Machine::take`], where the haltpoll governor's limit is a lever.
    pub(crate) fn take_with_haltpoll() -> Option<Self> {
        let machine = Self::take()?;
        match haltpoll::available(&Root::system()) {
            Ok(()) => Some(machine),
            Err(reason) => {
                skipped(&reason.to_string());
                None
            }
        }
    }

    /// Nothing is changed, and nothing is left to put back.
    #[track_caller]
    pub(crate) fn assert_untouched(&self) {
        assert_eq!(Levers::read(), self.before);
        assert!(!Path::new(LEASES).exists(), "{LEASES} is left: {:?}", fs::read_to_string(LEASES));
    }

    /// The haltpoll limit as it was.
    pub(crate) fn limit_before(&self) -> &str {
        &self.before.knobs[Path::new(LIMIT)]
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if !Path::new(LEASES).exists() && Levers::read() == self.before {
            return;
        }
        eprintln!("the machine is not as it was: putting it back");
        gleaner(&["restore"]);
        for (path, now) in Levers::read().knobs {
            let Some(before) = self.before.knobs.get(&path).filter(|before| **before != now) else {
                continue;
            };
            if let Err(error) = fs::write(&path, before.trim()) {
                eprintln!("NOT RESTORED: {} to {before}: {error}", path.display());
            }
        }
    }
}

/// Whether the haltpoll limit is `ns` now.
pub(crate) fn limit_is(ns: &str) -> bool {
    fs::read_to_string(LIMIT).is_ok_and(|text| text.trim() == ns)
}
