//! The settings that Gleaner can change on this machine, in one test at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use gleaner_kernel::Root;
use gleaner_kernel::cgroup::CgroupSetup;
use gleaner_kernel::lever::haltpoll;
use gleaner_testing::{is_root, skipped};
use nix::fcntl::{Flock, FlockArg};

use super::process::gleaner;

/// Poll limit of the haltpoll governor, in nanoseconds.
pub(crate) const LIMIT: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
pub(crate) const LEASES: &str = "/run/gleaner/leases";
const LOCK: &str = "/run/gleaner/lock";

/// Everything that Gleaner could leave behind on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Levers {
    /// Parameters of the haltpoll governor, and each CPU's latency request.
    pub(crate) knobs: BTreeMap<PathBuf, String>,
    /// Control groups made by Gleaner, in every hierarchy.
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

/// Paths in a directory; none if it does not exist.
fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Every control group in the hierarchies that Gleaner uses, parents first.
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

/// The right to let Gleaner change this machine. Dropping it restores the machine, even after a panic.
pub(crate) struct Machine {
    pub(crate) before: Levers,
    _turn: Flock<File>,
}

impl Machine {
    /// Waits for this test's turn. `None`, with a message, unless run by root.
    pub(crate) fn take() -> Option<Self> {
        if !is_root() {
            return None;
        }
        let turn = File::create(std::env::temp_dir().join("gleaner-tests.lock")).unwrap();
        let turn = Flock::lock(turn, FlockArg::LockExclusive).unwrap();
        if let Ok(lock) = File::open(LOCK) {
            // Wait for any other Gleaner to end.
            drop(Flock::lock(lock, FlockArg::LockExclusive).unwrap());
        }
        if Path::new(LEASES).exists() {
            gleaner(&["restore"]);
        }
        Some(Self { before: Levers::read(), _turn: turn })
    }

    /// As [`Machine::take`]; `None`, with a message, if the haltpoll governor's limit cannot be set.
    pub(crate) fn take_with_haltpoll() -> Option<Self> {
        let machine = Self::take()?;
        match haltpoll::available(&Root::system()) {
            Ok(()) => Some(machine),
            Err(reason) => {
                skipped(reason);
                None
            }
        }
    }

    /// Asserts that nothing is changed, and that nothing is left to restore.
    #[track_caller]
    pub(crate) fn assert_untouched(&self) {
        assert_eq!(Levers::read(), self.before);
        assert!(!Path::new(LEASES).exists(), "{LEASES} is left: {:?}", fs::read_to_string(LEASES));
    }

    /// The haltpoll limit before the test.
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

pub(crate) fn limit_is(ns: &str) -> bool {
    fs::read_to_string(LIMIT).is_ok_and(|text| text.trim() == ns)
}
