//! Control groups: which versions are mounted, and a group that sets a workload's vCPUs.

mod find;
mod setup;

use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};

use crate::lever::{GroupState, Target, Value, Write};
use crate::{KernelError, Root};

pub use find::{NamedGroup, SearchedDirs};
pub use setup::{CgroupSetup, Hierarchy, Version};

/// Why no group is available. The engine then falls back to plain affinity.
#[derive(Debug, thiserror::Error)]
pub enum GroupUnavailable {
    /// Neither version has a mounted hierarchy with the cpuset controller.
    #[error("the cpuset controller is in no mounted cgroup hierarchy")]
    NoCpusetController,
    /// The controller exists, but no group near the caller can delegate it to a new group.
    #[error("no group between {} and the root can hand the cpuset controller to a new group", own.display())]
    NoPlace {
        /// The caller's own group.
        own: PathBuf,
    },
    /// The caller is not permitted to create groups there.
    #[error("no right to change {}; run as root, or have the group delegated (systemd: Delegate=yes)", path.display())]
    NoRights {
        /// The directory, or a file in it, that cannot be written.
        path: PathBuf,
    },
    /// The named group does not exist.
    #[error("there is no control group `{}`: tried {tried}", name.display())]
    NotFound {
        /// The name as given.
        name: PathBuf,
        /// The directories that were tried.
        tried: SearchedDirs,
    },
    /// The name matches one group as a file system path and another as a path within the hierarchies.
    #[error("`{}` is {} or {}: name the one that is meant by its directory", name.display(), file.display(), group.display())]
    Ambiguous {
        /// The name as given.
        name: PathBuf,
        /// The match from the working directory.
        file: PathBuf,
        /// The match within a hierarchy.
        group: PathBuf,
    },
    /// The named group has no CPU set of its own.
    #[error("control group {} has no cpuset.cpus; enable the cpuset controller in its parent", path.display())]
    NoCpuset {
        /// Directory of the group.
        path: PathBuf,
    },
    /// The root group holds every process and cannot be restricted.
    #[error("{} is the root group, which holds the whole machine; name a group beneath it", path.display())]
    IsRoot {
        /// Directory of the root group.
        path: PathBuf,
    },
    /// A kernel file could not be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// A control group that sets the vCPUs of a workload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadGroup {
    version: Version,
    cpuset: PathBuf,
    accounting: Option<PathBuf>,
    writes: Vec<Write>,
}

impl WorkloadGroup {
    /// Plans a new group `gleaner-<id>` for a child of the caller, as close to the caller as possible, so that
    /// limits on the caller also apply to the child.
    ///
    /// # Errors
    /// Why no group is possible.
    pub fn new(root: &Root, setup: &CgroupSetup, id: u32) -> Result<Self, GroupUnavailable> {
        let name = format!("gleaner-{id}");
        match setup.cpuset_version() {
            Some(Version::V1) => Self::new_v1(root, setup, &name),
            Some(Version::V2) => Self::new_v2(root, setup, &name),
            None => Err(GroupUnavailable::NoCpusetController),
        }
    }

    /// Version 1: below the caller's own group in each hierarchy, where processes and child groups can coexist.
    fn new_v1(root: &Root, setup: &CgroupSetup, name: &str) -> Result<Self, GroupUnavailable> {
        let home = |controller: &str| setup.v1.get(controller).map(|hierarchy| &hierarchy.own);
        let cpuset = home("cpuset").ok_or(GroupUnavailable::NoCpusetController)?;
        let accounting = home("cpuacct");
        let mut writes = Vec::new();
        for home in accounting.into_iter().chain([cpuset]) {
            let target = Target::Group { path: home.join(name), home: home.clone() };
            writable(root, home)?;
            // `cpuset` and `cpuacct` can share a hierarchy, and then a group.
            if !writes.iter().any(|write: &Write| write.target == target) {
                writes.push(Write { target, value: Value::Group(GroupState::Present) });
            }
        }
        let accounting = accounting.map(|home| home.join(name));
        Ok(Self { version: Version::V1, cpuset: cpuset.join(name), accounting, writes })
    }

    /// Version 2: except for the root, a group with processes cannot delegate controllers to its children, and
    /// the caller's own group contains the caller. So the new group becomes a child of the nearest ancestor
    /// without processes: in practice a sibling of the caller's group, in the same slice.
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
        // The nearest group that has the controller delegates it through every group in between.
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
        // Moving the child requires this right on the common ancestor of its old and new group.
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

    /// The existing group `name`, see [`CgroupSetup::find`]. For a group of another hierarchy, the one of the
    /// same path in the cpuset hierarchy.
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
            return Err(GroupUnavailable::NotFound {
                name: name.to_owned(),
                tried: SearchedDirs(vec![cpuset]),
            });
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

    /// The directory that accounts the group's CPU time: `cpuacct.usage` and others on version 1, `cpu.stat` on
    /// version 2.
    pub fn accounting_dir(&self) -> Option<&Path> {
        self.accounting.as_deref()
    }

    /// The writes that create the group, in order. Empty for an existing group.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    /// The files into which a child writes its own PID before `exec`, to join the group.
    pub fn procs_files(&self) -> Vec<PathBuf> {
        let mut dirs = vec![&self.cpuset];
        dirs.extend(self.accounting.iter().filter(|dir| **dir != self.cpuset));
        dirs.iter().map(|dir| dir.join("cgroup.procs")).collect()
    }
}

/// Whether the v2 group can delegate controllers to its children: it is the root, or it has no processes and is
/// not in a threaded subtree.
fn can_hand_down(root: &Root, group: &Path) -> Result<bool, KernelError> {
    // Only the root group of the machine (not of a namespace) lacks this file.
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
