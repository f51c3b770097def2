//! Which processes and threads belong to a workload.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::tasks::ProcessStat;
use crate::file::KernelFile;
use crate::{KernelError, Root};

/// What makes up a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    /// Everything in this cgroup and those below it. The directory can be of any v1 controller, or of v2.
    Cgroup(PathBuf),
    /// This process and its descendants. A descendant stays a member when its parent ends, but is missed if its
    /// parent ended before a sample saw it.
    Tree(u32),
    /// Like [`Members::Tree`], without the descendants that run another executable than this process, and without
    /// theirs: a server with its workers, but not what a shell started.
    Family(u32),
    /// All of these.
    Several(Vec<Members>),
}

/// The members at one time; each list is ascending and without duplicates.
#[derive(Debug, Default, Clone)]
pub struct MemberList {
    /// PIDs.
    pub processes: Vec<u32>,
    /// TIDs, those of the processes' first threads included.
    pub threads: Vec<u32>,
}

impl MemberList {
    /// The members of the control group `dir` and of those below it, at this time.
    ///
    /// # Errors
    /// The group does not exist, or a file is malformed.
    pub fn of_group(root: &Root, dir: &Path) -> Result<Self, KernelError> {
        let mut listing = Self::default();
        list_cgroup(root, dir, &mut listing)?;
        listing.sort();
        Ok(listing)
    }

    fn sort(&mut self) {
        for list in [&mut self.processes, &mut self.threads] {
            list.sort_unstable();
            list.dedup();
        }
    }
}

/// Decides whether a tree must be listed again. It only grows by new tasks, and each takes the next PID: as
/// long as none was allocated, an old list still contains every member.
#[derive(Debug, Default)]
struct ForkWatch {
    /// The last PID allocated, and when that was first seen.
    last: Option<(u32, Instant)>,
    /// When the last listing started.
    listed: Option<Instant>,
}

impl ForkWatch {
    /// A task gets its PID before it appears in `/proc`: only a list made this long after counts as final.
    const SETTLE: Duration = Duration::from_millis(50);
    /// The maximum age of a list, since a forking vCPU might have been stolen for longer than that.
    const REFRESH: Duration = Duration::from_secs(1);

    /// Whether the last list still contains all members. `None`: the last PID is not known.
    fn is_current(&mut self, last_pid: Option<u32>, now: Instant) -> bool {
        let Some(pid) = last_pid else { return false };
        let since = match self.last {
            Some((last, since)) if last == pid => since,
            _ => self.last.insert((pid, now)).1,
        };
        self.listed.is_some_and(|listed| {
            listed.saturating_duration_since(since) >= Self::SETTLE
                && now.saturating_duration_since(listed) < Self::REFRESH
        })
    }
}

/// Lists the members repeatedly.
#[derive(Debug)]
pub(super) struct MemberLister {
    root: Root,
    members: Members,
    /// The processes of a tree with their start times, which expose a reused PID.
    tree: BTreeMap<u32, u64>,
    /// The head of a family, and the executable that its members run.
    family: Option<(u32, PathBuf)>,
    /// Those of [`Members::Several`].
    parts: Vec<MemberLister>,
    loadavg: Option<KernelFile>,
    forks: ForkWatch,
    listing: MemberList,
}

impl MemberLister {
    /// With more threads than this, scan the parents of all processes in the system instead of every thread's
    /// `children` file: most systems have a few hundred processes.
    const MANY_THREADS: usize = 256;

    pub(super) fn new(root: &Root, members: Members) -> Result<Self, KernelError> {
        let (mut tree, mut parts) = (BTreeMap::new(), Vec::new());
        match &members {
            Members::Several(all) => {
                for part in all {
                    parts.push(Self::new(root, part.clone())?);
                }
            }
            Members::Cgroup(dir) => drop(root.read(dir.join("cgroup.procs"))?),
            Members::Tree(pid) | Members::Family(pid) => {
                tree.insert(*pid, ProcessStat::read(root, *pid)?.start_ticks);
            }
        }
        let family = match members {
            Members::Family(head) => executable(root, head).map(|shared| (head, shared)),
            Members::Cgroup(_) | Members::Tree(_) | Members::Several(_) => None,
        };
        let loadavg = KernelFile::open(root, "/proc/loadavg").ok();
        Ok(Self {
            root: root.clone(),
            members,
            tree,
            family,
            parts,
            loadavg,
            forks: ForkWatch::default(),
            listing: MemberList::default(),
        })
    }

    pub(super) fn members(&self) -> &Members {
        &self.members
    }

    /// Whether the members' cgroups still exist; true for a tree.
    pub(super) fn exists(&self) -> bool {
        match &self.members {
            Members::Cgroup(dir) => self.root.exists(dir),
            Members::Tree(_) | Members::Family(_) => true,
            Members::Several(_) => self.parts.iter().all(Self::exists),
        }
    }

    /// The present members. Those of a tree might have ended since the list was made.
    pub(super) fn list(&mut self) -> Result<&MemberList, KernelError> {
        match &self.members {
            Members::Cgroup(dir) => self.listing = MemberList::of_group(&self.root, dir)?,
            Members::Several(_) => {
                self.listing = MemberList::default();
                for part in &mut self.parts {
                    let members = part.list()?;
                    self.listing.processes.extend(&members.processes);
                    self.listing.threads.extend(&members.threads);
                }
                self.listing.sort();
            }
            Members::Tree(_) | Members::Family(_) => {
                let (last_pid, now) = (self.read_last_pid(), Instant::now());
                if !self.forks.is_current(last_pid, now) {
                    self.list_tree()?;
                    self.listing.sort();
                    self.forks.listed = Some(now);
                }
            }
        }
        Ok(&self.listing)
    }

    /// Field 5 of `/proc/loadavg`.
    fn read_last_pid(&self) -> Option<u32> {
        let mut buffer = [0; 128];
        let text = self.loadavg.as_ref()?.read_short(&mut buffer).ok()?;
        text.split_ascii_whitespace().nth(4)?.parse().ok()
    }

    fn list_tree(&mut self) -> Result<(), KernelError> {
        let (root, family) = (&self.root, &self.family);
        self.tree.retain(|pid, start| {
            let stat = ProcessStat::read(root, *pid);
            stat.is_ok_and(|s| s.start_ticks == *start) && is_of(root, *pid, family.as_ref())
        });
        if self.listing.threads.len() > Self::MANY_THREADS || !self.add_children()? {
            self.add_by_parent()?;
        }
        self.listing = MemberList::default();
        for pid in self.tree.keys() {
            match list_tasks(&self.root, *pid) {
                Ok(threads) => {
                    self.listing.processes.push(*pid);
                    self.listing.threads.extend(threads);
                }
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Adds children from `/proc/PID/task/TID/children`; false if the kernel lacks it (`CONFIG_PROC_CHILDREN`).
    fn add_children(&mut self) -> Result<bool, KernelError> {
        let mut queue: Vec<u32> = self.tree.keys().copied().collect();
        let Some(first) = queue.first() else { return Ok(true) };
        let children = |pid, tid| format!("/proc/{pid}/task/{tid}/children");
        if !self.root.exists(children(*first, *first)) && self.root.exists(format!("/proc/{first}")) {
            return Ok(false);
        }
        while let Some(pid) = queue.pop() {
            let threads = match list_tasks(&self.root, pid) {
                Err(error) if error.is_gone() => continue,
                threads => threads?,
            };
            for tid in threads {
                let path = children(pid, tid);
                let text = match self.root.read(&path) {
                    Err(error) if error.is_gone() => continue,
                    text => text?,
                };
                for child in numbers(&self.root, Path::new(&path), &text)? {
                    if self.add(child) {
                        queue.push(child);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Adds processes by the parent of every process.
    fn add_by_parent(&mut self) -> Result<(), KernelError> {
        let pids = self.root.list("/proc")?.into_iter().filter_map(|name| name.parse::<u32>().ok());
        let mut parents: Vec<(u32, u32)> =
            pids.filter_map(|pid| Some((pid, ProcessStat::read(&self.root, pid).ok()?.parent))).collect();
        parents.sort_unstable();
        // A child usually has a higher PID than its parent, so one pass finds nearly all, and a second one
        // confirms it.
        loop {
            let before = self.tree.len();
            for (pid, parent) in &parents {
                if self.tree.contains_key(parent) {
                    self.add(*pid);
                }
            }
            if self.tree.len() == before {
                return Ok(());
            }
        }
    }

    /// True if the process exists and was not a member.
    fn add(&mut self, pid: u32) -> bool {
        if self.tree.contains_key(&pid) || !is_of(&self.root, pid, self.family.as_ref()) {
            return false;
        }
        ProcessStat::read(&self.root, pid).map(|stat| self.tree.insert(pid, stat.start_ticks)).is_ok()
    }
}

/// Whether the process is the head of the family or runs the same executable, as it does until it executes another
/// one; true without a family, and where that cannot be read.
fn is_of(root: &Root, pid: u32, family: Option<&(u32, PathBuf)>) -> bool {
    let Some((head, shared)) = family else { return true };
    pid == *head || executable(root, pid).is_none_or(|own| own == *shared)
}

fn executable(root: &Root, pid: u32) -> Option<PathBuf> {
    std::fs::read_link(root.path(format!("/proc/{pid}/exe"))).ok()
}

fn list_tasks(root: &Root, pid: u32) -> Result<Vec<u32>, KernelError> {
    Ok(root.list(format!("/proc/{pid}/task"))?.iter().filter_map(|tid| tid.parse().ok()).collect())
}

fn list_cgroup(root: &Root, dir: &Path, listing: &mut MemberList) -> Result<(), KernelError> {
    let procs = dir.join("cgroup.procs");
    match root.read(&procs) {
        Ok(text) => listing.processes.extend(numbers(root, &procs, &text)?),
        // A threaded cgroup (v2) lists its processes only at the root of its domain.
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => {}
        Err(error) => return Err(error),
    }
    let threads = ["cgroup.threads", "tasks"].map(|name| dir.join(name));
    for path in threads {
        match root.read(&path) {
            Ok(text) => {
                listing.threads.extend(numbers(root, &path, &text)?);
                break;
            }
            Err(error) if error.errno() == Some(libc::ENOENT) => {}
            Err(error) => return Err(error),
        }
    }
    for below in groups_below(root, dir)? {
        match list_cgroup(root, &below, listing) {
            Err(error) if error.is_gone() => {}
            result => result?,
        }
    }
    Ok(())
}

/// The child groups of `dir`. Uses the type in the directory entry: a stat of each of the twenty files would
/// cost more than the rest of a small workload's sample.
fn groups_below(root: &Root, dir: &Path) -> Result<Vec<PathBuf>, KernelError> {
    let path = root.path(dir);
    let failed = |source| KernelError::read(&path, source);
    let mut below = Vec::new();
    for entry in std::fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below.push(dir.join(entry.file_name()));
        }
    }
    Ok(below)
}

fn numbers(root: &Root, path: &Path, text: &str) -> Result<Vec<u32>, KernelError> {
    text.split_ascii_whitespace()
        .map(|n| n.parse().map_err(|_| KernelError::parse(root.path(path), "process or thread numbers", n)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_final_only_when_made_well_after_the_last_fork() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut watch = ForkWatch::default();
        assert!(!watch.is_current(Some(7), at(0)), "never listed");
        watch.listed = Some(at(0));
        assert!(!watch.is_current(Some(7), at(49)), "7 might not have been visible yet");
        watch.listed = Some(at(50));
        assert!(watch.is_current(Some(7), at(51)) && watch.is_current(Some(7), at(1049)));
        assert!(!watch.is_current(Some(7), at(1050)), "too old to be believed");
        assert!(!watch.is_current(Some(8), at(60)), "a fork");
        assert!(!watch.is_current(Some(8), at(61)), "and the list is older than it");
        assert!(!watch.is_current(None, at(62)), "unknown");
    }
}
