//! Finds the workloads of this machine and what each of them consumes.

mod pace;
mod tracked;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gleaner_kernel::cgroup::CgroupSetup;
use gleaner_kernel::{KernelError, Root};
use nix::time::{ClockId, clock_gettime};

use crate::hierarchy::{Account, Hierarchy};
use crate::label::Label;
use crate::names::Names;
use crate::process::Processes;
use crate::surroundings::sees_all_processes;
use crate::walk::{Found, Walk};
use crate::{Candidate, Key, Kind, Subject};
use pace::Pace;
use tracked::{Look, Tracked, uptime};

/// The candidates of this machine, followed from survey to survey.
///
/// A survey reads one short file per group, one per process that is in no workload's group, and one per thread of
/// those candidates whose CPU time could matter. It keeps no files open.
#[derive(Debug)]
pub struct Survey {
    root: Root,
    hierarchy: Option<Hierarchy>,
    /// When the hierarchy was chosen.
    chosen_at: Option<Duration>,
    walk: Walk,
    processes: Processes,
    tracked: BTreeMap<Key, Tracked>,
    /// What a rule excludes; asked about once.
    excluded: BTreeMap<Key, Candidate>,
    names: Names,
    pace: Pace,
    started: Instant,
}

impl Survey {
    /// For so long a choice of the hierarchy holds...
    const CHOICE: Duration = Duration::from_secs(60);
    /// ...unless no hierarchy holds processes yet.
    const NO_CHOICE: Duration = Duration::from_secs(1);

    /// A survey of nothing yet.
    ///
    /// # Errors
    /// `/proc` is not readable.
    pub fn new(root: &Root) -> Result<Self, KernelError> {
        let own = std::fs::read_link(root.path("/proc/self"));
        let own = own.map_err(|source| KernelError::read(root.path("/proc/self"), source))?;
        let own_pid = own.to_str().and_then(|pid| pid.parse().ok()).unwrap_or_else(std::process::id);
        Ok(Self {
            root: root.clone(),
            hierarchy: None,
            chosen_at: None,
            walk: Walk::new(),
            processes: Processes::new(root, own_pid, sees_all_processes(root)),
            tracked: BTreeMap::new(),
            excluded: BTreeMap::new(),
            names: Names::default(),
            pace: Pace::new(),
            started: Instant::now(),
        })
    }

    /// Takes a survey: afterwards [`Survey::candidates`] has what there is. `allows` is asked whether a workload is to
    /// be looked into, once for each: for a group before anything in it is opened, and again when its executable is
    /// known. What vanishes meanwhile is no error.
    ///
    /// # Errors
    /// `/proc` is not readable.
    pub fn take(&mut self, allows: &mut dyn FnMut(&Subject<'_>) -> bool) -> Result<(), KernelError> {
        let now = self.started.elapsed();
        self.take_at(now, allows)
    }

    fn take_at(
        &mut self,
        now: Duration,
        allows: &mut dyn FnMut(&Subject<'_>) -> bool,
    ) -> Result<(), KernelError> {
        let cpu_time = thread_cpu_time();
        self.choose_hierarchy(now);
        let found = match &self.hierarchy {
            Some(hierarchy) => self.walk.take(&self.root, hierarchy, now),
            None => Found::default(),
        };
        let mut seen = BTreeSet::new();
        for (path, label) in found.workloads {
            self.see_group(&path, &label, now, allows, &mut seen);
        }
        self.see_processes(&found.shared, now, allows, &mut seen)?;
        self.excluded.retain(|key, _| seen.contains(key));
        keep(&mut self.tracked, &mut self.names, |key, _| seen.contains(key));
        self.pace.spend(now, thread_cpu_time().saturating_sub(cpu_time));
        Ok(())
    }

    /// The candidate with this key was worth engaging: if its group vanishes and comes back, that is looked into at once.
    pub fn expect(&mut self, key: &Key) {
        if let Key::Group(path) = key {
            self.walk.expect(path);
        }
    }

    /// The rules changed: `allows` is asked about everything again.
    pub fn rules_changed(&mut self) {
        self.excluded.clear();
        self.tracked.values_mut().for_each(|tracked| tracked.asked = false);
    }

    /// The candidates of the last survey, ordered by key.
    pub fn candidates(&self) -> impl Iterator<Item = &Candidate> {
        self.tracked.values().map(|tracked| &tracked.candidate)
    }

    /// What the rules exclude, under the names that it could have; it is not measured.
    pub fn excluded(&self) -> impl Iterator<Item = &Candidate> {
        self.excluded.values()
    }

    /// The candidate with this key, if it is still there.
    pub fn get(&self, key: &Key) -> Option<&Candidate> {
        self.tracked.get(key).map(|tracked| &tracked.candidate)
    }

    /// The directory of the candidate's group in the hierarchy that is walked; `None` for a process.
    pub fn group_dir(&self, candidate: &Candidate) -> Option<PathBuf> {
        match &candidate.key {
            Key::Group(path) => Some(self.dir(path)),
            Key::Process { .. } => None,
        }
    }

    fn dir(&self, path: &Path) -> PathBuf {
        self.hierarchy.as_ref().map_or_else(|| path.to_owned(), |hierarchy| hierarchy.dir(path))
    }

    /// The mount point of the hierarchy that is walked: the one that holds the processes of this machine. `None` where
    /// none holds them in groups.
    pub fn hierarchy(&self) -> Option<&Path> {
        self.hierarchy.as_ref().map(|hierarchy| hierarchy.mount.as_path())
    }

    /// CPU time that the last survey took.
    pub fn cost(&self) -> Duration {
        self.pace.cost()
    }

    /// How long to wait from the last survey to the next: 0.1 s, and longer where surveys would take more than 1/200
    /// of the time.
    pub fn wait(&self) -> Duration {
        self.pace.wait()
    }

    fn choose_hierarchy(&mut self, now: Duration) {
        let holds = if self.hierarchy.is_some() { Self::CHOICE } else { Self::NO_CHOICE };
        if self.chosen_at.is_some_and(|at| now.saturating_sub(at) < holds) {
            return;
        }
        self.chosen_at = Some(now);
        // Without its files (a container without them) there are just no groups.
        let setup = CgroupSetup::detect(&self.root).unwrap_or_default();
        let choice = Hierarchy::find(&self.root, &setup);
        if choice != self.hierarchy {
            self.walk = Walk::new();
            self.hierarchy = choice;
        }
    }

    fn see_group(
        &mut self,
        path: &Path,
        label: &Label,
        now: Duration,
        allows: &mut dyn FnMut(&Subject<'_>) -> bool,
        seen: &mut BTreeSet<Key>,
    ) {
        let Some(hierarchy) = &self.hierarchy else { return };
        let key = Key::Group(path.to_owned());
        if self.excluded.contains_key(&key) {
            seen.insert(key);
            return;
        }
        let names = &mut self.names;
        let tracked = self.tracked.entry(key.clone()).or_insert_with(|| {
            let name = names.take(&label.name);
            Tracked::new(key.clone(), name, label.kind, label.unit.clone(), path.to_owned())
        });
        if !tracked.asked && !allows(&tracked.candidate.subject()) {
            self.exclude(key, seen);
            return;
        }
        tracked.asked = true;
        let used = match hierarchy.account(&self.root, path) {
            Account::Used(total) => Some(tracked.since(total)),
            Account::None => None,
            Account::Gone => {
                self.walk.is_gone(path);
                return;
            }
        };
        let look = Look { root: &self.root, now, allows };
        match tracked.measure_group(used, &hierarchy.dir(path), look) {
            Ok(true) => drop(seen.insert(key)),
            Ok(false) => self.exclude(key, seen),
            // It vanished, or its files cannot be read: then it cannot be judged either.
            Err(_) => self.walk.is_gone(path),
        }
    }

    fn see_processes(
        &mut self,
        shared: &[PathBuf],
        now: Duration,
        allows: &mut dyn FnMut(&Subject<'_>) -> bool,
        seen: &mut BTreeSet<Key>,
    ) -> Result<(), KernelError> {
        let mut groups = BTreeMap::new();
        if let Some(hierarchy) = &self.hierarchy {
            for path in shared {
                groups.extend(
                    hierarchy.processes(&self.root, path).into_iter().map(|pid| (pid, path.as_path())),
                );
            }
        } else {
            let names = self.root.list("/proc")?;
            groups.extend(names.iter().filter_map(|name| Some((name.parse().ok()?, Path::new("/")))));
        }
        let pids: Vec<u32> = groups.keys().copied().collect();
        self.processes.update(&pids, now, uptime(&self.root)?);
        self.drop_ended_processes();
        for (head, members) in self.processes.families() {
            let Some(process) = self.processes.get(head) else { continue };
            let key = Key::Process { pid: head, start_ticks: process.start_ticks };
            if self.excluded.contains_key(&key) {
                seen.insert(key);
                continue;
            }
            let group = groups.get(&head).copied().unwrap_or(Path::new("/"));
            let names = &mut self.names;
            let tracked = self.tracked.entry(key.clone()).or_insert_with(|| {
                let name = names.take(&process.command);
                Tracked::new(key.clone(), name, Kind::Process, None, group.to_owned())
            });
            tracked.candidate.main = Some(process.main(head));
            let used = members.iter().filter_map(|pid| Some(self.processes.get(*pid)?.used())).sum();
            let look = Look { root: &self.root, now, allows };
            if tracked.measure_family(used, &members, process.is_young, look) {
                seen.insert(key);
            } else {
                self.exclude(key, seen);
            }
        }
        Ok(())
    }

    /// So that another one can have the name at once. A process that executes something else is another workload.
    fn drop_ended_processes(&mut self) {
        let processes = &self.processes;
        keep(&mut self.tracked, &mut self.names, |key, tracked| match key {
            Key::Process { pid, start_ticks } => processes.get(*pid).is_some_and(|process| {
                let command = tracked.candidate.main.as_ref().map(|main| &main.command);
                process.start_ticks == *start_ticks && command == Some(&process.command)
            }),
            Key::Group(_) => true,
        });
    }

    fn exclude(&mut self, key: Key, seen: &mut BTreeSet<Key>) {
        if let Some(tracked) = self.tracked.remove(&key) {
            self.names.free(&tracked.name);
            self.excluded.insert(key.clone(), tracked.candidate);
        }
        seen.insert(key);
    }
}

fn keep(tracked: &mut BTreeMap<Key, Tracked>, names: &mut Names, stays: impl Fn(&Key, &Tracked) -> bool) {
    tracked.retain(|key, tracked| {
        let stays = stays(key, tracked);
        if !stays {
            names.free(&tracked.name);
        }
        stays
    });
}

fn thread_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
