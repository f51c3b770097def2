//! Control groups: which versions are here, and a group whose vCPUs can be chosen for a workload.

mod find;
mod setup;

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::lever::{GroupState, Target, Value, Write};
use crate::{KernelError, Root};

pub use find::{NamedGroup, Tried};
pub use setup::{CgroupSetup, Hierarchy, Version};

/// Why no group can be had. The engine then falls back to plain affinity.
#[derive(Debug, thiserror::Error)]
pub enum GroupUnavailable {
    /// No cgroup hierarchy with the cpuset controller is mounted, of either version.
    #[error("the cpuset controller is in no mounted cgroup hierarchy")]
    NoCpusetController,
    /// The controller is there, but no group near the caller can hand it to a new group.
    #[error("no group between {} and the root can hand the cpuset controller to a new group", own.display())]
    NoPlace {
        /// The caller's own group.
        own: PathBuf,
    },
    /// The caller may not create groups there.
    #[error("no right to change {}; run as root, or have the group delegated (systemd: Delegate=yes)", path.display())]
    NoRights {
        /// The group's directory, or the file in it, that cannot be written.
        path: PathBuf,
    },
    /// The named group does not exist.
    #[error("there is no control group `{}`: tried {tried}", name.display())]
    NotFound {
        /// Its name.
        name: PathBuf,
        /// Where it was looked for.
        tried: Tried,
    },
    /// The name means one group as a path of the file system and another one as a path within the hierarchies.
    #[error("`{}` is {} or {}: name the one that is meant by its directory", name.display(), file.display(), group.display())]
    Ambiguous {
        /// The name.
        name: PathBuf,
        /// What it means from the working directory.
        file: PathBuf,
        /// What it means within a hierarchy.
        group: PathBuf,
    },
    /// The named group has no CPU set of its own.
    #[error("control group {} has no cpuset.cpus; enable the cpuset controller in its parent", path.display())]
    NoCpuset {
        /// The group.
        path: PathBuf,
    },
    /// The root group holds every process and cannot be restricted.
    #[error("{} is the root group, which holds the whole machine; name a group beneath it", path.display())]
    IsRoot {
        /// The root group.
        path: PathBuf,
    },
    /// A file of the kernel could not be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// A control group of a workload whose vCPUs can be chosen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadGroup {
    version: Version,
    cpuset: PathBuf,
    accounting: Option<PathBuf>,
    writes: Vec<Write>,
}

impl WorkloadGroup {
    /// Plans a new group `gleaner-<id>` for a child of the caller, as near to the caller as possible: what the
    /// caller is limited to should also limit the child.
    ///
    /// # Errors
    /// The reason why there can be none.
    pub fn new(root: &Root, setup: &CgroupSetup, id: u32) -> Result<Self, GroupUnavailable> {
        let name = format!("gleaner-{id}");
        match setup.cpuset_version() {
            Some(Version::V1) => Self::new_v1(root, setup, &name),
            Some(Version::V2) => Self::new_v2(root, setup, &name),
            None => Err(GroupUnavailable::NoCpusetController),
        }
    }

    /// Version 1: beneath the caller's own group in each hierarchy; processes and child groups may live together.
    fn new_v1(root: &Root, setup: &CgroupSetup, name: &str) -> Result<Self, GroupUnavailable> {
        let home = |controller: &str| setup.v1.get(controller).map(|hierarchy| &hierarchy.own);
        let cpuset = home("cpuset").ok_or(GroupUnavailable::NoCpusetController)?;
        let accounting = home("cpuacct");
        let mut writes = Vec::new();
        for home in accounting.into_iter().chain([cpuset]) {
            let target = Target::Group { path: home.join(name), home: home.clone() };
            writable(root, home)?;
            // `cpuset` and `cpuacct` may share a hierarchy, and then a group.
            if !writes.iter().any(|write: &Write| write.target == target) {
                writes.push(Write { target, value: Value::Group(GroupState::Present) });
            }
        }
        let accounting = accounting.map(|home| home.join(name));
        Ok(Self { version: Version::V1, cpuset: cpuset.join(name), accounting, writes })
    }

    /// Version 2: a group with processes cannot hand controllers to its children (the root excepted), and the
    /// caller's own group has at least one, the caller. Hence the new group becomes a child of the nearest ancestor
    /// that has no processes: in practice a sibling of the caller's group, in the same slice.
    fn new_v2(root: &Root, setup: &CgroupSetup, name: &str) -> Result<Self, GroupUnavailable> {
        let Some(v2) = &setup.v2 else { return Err(GroupUnavailable::NoCpusetController) };
        let no_place = || GroupUnavailable::NoPlace { own: v2.own.clone() };
        let ancestors: Vec<&Path> = v2.own.ancestors().take_while(|dir| dir.starts_with(&v2.mount)).collect();
        let mut place = None;
        for (level, dir) in ancestors.iter().enumerate() {
            if can_hand_down(root, dir)? {
                place = Some(level);
                break;
            }
        }
        let place = place.ok_or_else(no_place)?;
        // The controller comes from the nearest group that has it, through every group in between.
        let mut source = None;
        for (level, dir) in ancestors.iter().enumerate().skip(place) {
            if !can_hand_down(root, dir)? {
                return Err(no_place());
            }
            if has_word(root, &dir.join("cgroup.controllers"), "cpuset")? {
                source = Some(level);
                break;
            }
        }
        let source = source.ok_or_else(no_place)?;
        let parent = ancestors[place];
        writable(root, parent)?;
        // Moving the child needs this right on the common ancestor of its old and its new group.
        writable(root, &parent.join("cgroup.procs"))?;
        let group = parent.join(name);
        let target = Target::Group { path: group.clone(), home: v2.own.clone() };
        let mut writes = vec![Write { target, value: Value::Group(GroupState::Present) }];
        for dir in ancestors[place..=source].iter().rev() {
            let control = dir.join("cgroup.subtree_control");
            if !has_word(root, &control, "cpuset")? {
                writable(root, &control)?;
                writes.push(Write {
                    target: Target::Controller(dir.to_path_buf(), "cpuset".to_owned()),
                    value: Value::Group(GroupState::Present),
                });
            }
        }
        Ok(Self { version: Version::V2, accounting: Some(group.clone()), cpuset: group, writes })
    }

    /// The group that `name` names, see [`CgroupSetup::find`]. Of a group in another hierarchy the one of the same path
    /// in the cpuset hierarchy is meant.
    ///
    /// # Errors
    /// Those of [`CgroupSetup::find`]; [`GroupUnavailable::NoCpuset`], [`GroupUnavailable::IsRoot`] and
    /// [`GroupUnavailable::NoRights`], each with the directory.
    pub fn existing(root: &Root, setup: &CgroupSetup, name: &Path) -> Result<Self, GroupUnavailable> {
        Self::of(root, setup, name, &setup.find(root, name)?)
    }

    #[cfg(test)]
    fn existing_from(
        root: &Root,
        setup: &CgroupSetup,
        here: &Path,
        name: &Path,
    ) -> Result<Self, GroupUnavailable> {
        Self::of(root, setup, name, &setup.find_from(root, here, name)?)
    }

    fn of(
        root: &Root,
        setup: &CgroupSetup,
        name: &Path,
        found: &NamedGroup,
    ) -> Result<Self, GroupUnavailable> {
        let version = setup.cpuset_version().ok_or(GroupUnavailable::NoCpusetController)?;
        let relative = &found.relative;
        let hierarchy = match version {
            Version::V1 => setup.v1.get("cpuset"),
            Version::V2 => setup.v2.as_ref(),
        };
        let mount = &hierarchy.ok_or(GroupUnavailable::NoCpusetController)?.mount;
        if found.is_root() {
            return Err(GroupUnavailable::IsRoot { path: found.dir() });
        }
        let cpuset = mount.join(relative);
        if !root.path(&cpuset).is_dir() {
            return Err(GroupUnavailable::NotFound { name: name.to_owned(), tried: Tried(vec![cpuset]) });
        }
        if !root.exists(cpuset.join("cpuset.cpus")) {
            return Err(GroupUnavailable::NoCpuset { path: cpuset });
        }
        writable(root, &cpuset.join("cpuset.cpus"))?;
        let accounting = match version {
            Version::V1 => setup.v1.get("cpuacct").map(|cpuacct| cpuacct.mount.join(relative)),
            Version::V2 => Some(cpuset.clone()),
        };
        let accounting = accounting.filter(|dir| root.exists(dir));
        Ok(Self { version, cpuset, accounting, writes: Vec::new() })
    }

    /// The version of the hierarchy that holds the CPU set.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The directory with `cpuset.cpus`.
    pub fn cpuset_dir(&self) -> &Path {
        &self.cpuset
    }

    /// The directory with the group's CPU time: `cpuacct.usage` and friends on version 1, `cpu.stat` on version 2.
    pub fn accounting_dir(&self) -> Option<&Path> {
        self.accounting.as_deref()
    }

    /// What to write to make the group, in this order. Empty for a group that exists.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The files into which a child writes its own process number before `exec`, to join the group.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        let mut dirs = vec![&self.cpuset];
        dirs.extend(self.accounting.iter().filter(|dir| **dir != self.cpuset));
        dirs.iter().map(|dir| dir.join("cgroup.procs")).collect()
    }
}

/// Whether the v2 group may hand controllers to its children: it is the root, or it has no processes and is not part
/// of a threaded subtree.
fn can_hand_down(root: &Root, group: &Path) -> Result<bool, KernelError> {
    // The root of the machine (not of a namespace) is the one group without this file.
    let Some(kind) = root.read_opt(group.join("cgroup.type"))? else { return Ok(true) };
    Ok(kind == "domain" && root.read(group.join("cgroup.procs"))?.is_empty())
}

fn has_word(root: &Root, file: &Path, word: &str) -> Result<bool, KernelError> {
    Ok(root.read_opt(file)?.is_some_and(|text| text.split_whitespace().any(|found| found == word)))
}

fn writable(root: &Root, path: &Path) -> Result<(), GroupUnavailable> {
    access(&root.path(path), AccessFlags::W_OK)
        .map_err(|_| GroupUnavailable::NoRights { path: path.to_owned() })
}

#[cfg(test)]
mod tests;
