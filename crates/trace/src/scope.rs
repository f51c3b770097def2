//! Whose threads are traced.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use gleaner_kernel::cgroup::CgroupSetup;
use gleaner_kernel::workload::Members;
use gleaner_kernel::{KernelError, Root};

use crate::skeleton::types::{scope_hierarchy, scope_kind};

/// Whose threads are traced. What vCPUs do (idle periods, interrupts) is counted for the whole machine all the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// The whole machine.
    System,
    /// This process and its descendants.
    Tree(u32),
    /// The future descendants of this process.
    Children,
    /// Everything in this control group and those below it (up to eight levels). A directory of the v2 hierarchy, or of
    /// the v1 controllers cpuset, cpu and cpuacct.
    Cgroup(PathBuf),
}

/// Why a scope cannot be traced.
#[derive(Debug, thiserror::Error)]
pub enum ScopeError {
    /// There is no such process.
    #[error("there is no process {pid}")]
    NoProcess {
        /// The PID.
        pid: u32,
    },
    /// There is no such control group.
    #[error("cannot read control group {}: {source}", path.display())]
    NoGroup {
        /// The group's directory.
        path: PathBuf,
        /// The kernel's error.
        r#source: io::Error,
    },
    /// The group is in a hierarchy that the programs cannot read.
    #[error("{} is in no hierarchy that can be traced: name its directory in cgroup v2, or in cpuset, cpu or cpuacct of \
             version 1", path.display())]
    OtherHierarchy {
        /// The group's directory.
        path: PathBuf,
    },
    /// The mounted hierarchies cannot be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// A scope in the programs' terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resolved {
    pub(crate) kind: scope_kind,
    pub(crate) pid: u32,
    pub(crate) cgroup: u64,
    pub(crate) hierarchy: scope_hierarchy,
}

/// Sets the scope of programs that are not loaded yet. A macro, since each skeleton has types of its own.
macro_rules! set_scope {
    ($skel:expr, $scope:expr) => {
        if let Some(data) = $skel.maps.rodata_data.as_deref_mut() {
            data.scope_kind.0 = $scope.kind.0;
            data.scope_pid = $scope.pid;
            data.scope_cgroup = $scope.cgroup;
            data.scope_hierarchy.0 = $scope.hierarchy.0;
        }
    };
}
pub(crate) use set_scope;

impl Resolved {
    pub(crate) fn is_tree(&self) -> bool {
        matches!(self.kind, scope_kind::SCOPE_TREE | scope_kind::SCOPE_CHILDREN)
    }
}

impl Scope {
    /// The scopes that together hold these members.
    pub fn of(members: &Members) -> Vec<Self> {
        match members {
            Members::Cgroup(path) => vec![Self::Cgroup(path.clone())],
            // A family's other descendants, such as what a shell started, are traced, too.
            Members::Tree(pid) | Members::Family(pid) => vec![Self::Tree(*pid)],
            Members::Several(parts) => parts.iter().flat_map(Self::of).collect(),
        }
    }

    pub(crate) fn resolve(&self, root: &Root) -> Result<Resolved, ScopeError> {
        let plain = |kind, pid| Resolved { kind, pid, cgroup: 0, hierarchy: scope_hierarchy::HIERARCHY_V2 };
        Ok(match self {
            Self::System => plain(scope_kind::SCOPE_SYSTEM, 0),
            Self::Children => plain(scope_kind::SCOPE_CHILDREN, std::process::id()),
            Self::Tree(pid) => {
                if !root.exists(format!("/proc/{pid}/task")) {
                    return Err(ScopeError::NoProcess { pid: *pid });
                }
                plain(scope_kind::SCOPE_TREE, *pid)
            }
            Self::Cgroup(path) => {
                let setup = CgroupSetup::detect(root)?;
                let hierarchy = hierarchy(&setup, path)
                    .ok_or_else(|| ScopeError::OtherHierarchy { path: path.clone() })?;
                // In kernfs a group's inode number is its id, too.
                let cgroup = fs::metadata(root.path(path))
                    .map_err(|source| ScopeError::NoGroup { path: path.clone(), source })?
                    .ino();
                Resolved { kind: scope_kind::SCOPE_CGROUP, pid: 0, cgroup, hierarchy }
            }
        })
    }
}

/// The hierarchy that the directory is in. Mounts can be nested: the innermost counts.
fn hierarchy(setup: &CgroupSetup, path: &Path) -> Option<scope_hierarchy> {
    let v1 = [
        ("cpuset", scope_hierarchy::HIERARCHY_CPUSET),
        ("cpu", scope_hierarchy::HIERARCHY_CPU),
        ("cpuacct", scope_hierarchy::HIERARCHY_CPUACCT),
    ];
    let v1 = v1.iter().filter_map(|(name, kind)| Some((&setup.v1.get(*name)?.mount, *kind)));
    let v2 = setup.v2.iter().map(|hierarchy| (&hierarchy.mount, scope_hierarchy::HIERARCHY_V2));
    v1.chain(v2)
        .filter(|(mount, _)| path.starts_with(mount))
        .max_by_key(|(mount, _)| mount.components().count())
        .map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gleaner_kernel::cgroup::Hierarchy;

    use super::*;

    #[test]
    fn a_group_belongs_to_the_innermost_mount() {
        let at = |path: &str| Hierarchy { mount: path.into(), own: path.into() };
        let setup = CgroupSetup {
            v2: Some(at("/sys/fs/cgroup")),
            v2_cpuset: false,
            v1: BTreeMap::from([("cpuset".to_owned(), at("/sys/fs/cgroup/cpuset"))]),
        };
        let of = |path: &str| hierarchy(&setup, Path::new(path));
        assert_eq!(of("/sys/fs/cgroup/cpuset/a"), Some(scope_hierarchy::HIERARCHY_CPUSET));
        assert_eq!(of("/sys/fs/cgroup/a/b"), Some(scope_hierarchy::HIERARCHY_V2));
        assert_eq!(of("/tmp"), None);
    }

    #[test]
    fn several_members_have_a_scope_each() {
        let several = Members::Several(vec![Members::Tree(7), Members::Cgroup("/cg".into())]);
        let scopes = Scope::of(&Members::Several(vec![several, Members::Family(9)]));
        assert_eq!(scopes, [Scope::Tree(7), Scope::Cgroup("/cg".into()), Scope::Tree(9)]);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let error = |scope: Scope| scope.resolve(&Root::system()).unwrap_err().to_string();
        assert!(error(Scope::Tree(u32::MAX)).contains("4294967295"));
        assert!(error(Scope::Cgroup("/nowhere".into())).contains("/nowhere"));
    }
}
