//! Which control group hierarchies are mounted, and the caller's groups in them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::has_word;
use crate::{KernelError, Root};

/// The version of a hierarchy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Version {
    /// One hierarchy per controller.
    V1,
    /// One hierarchy for all controllers.
    V2,
}

/// One mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    /// Mount point of the hierarchy.
    pub mount: PathBuf,
    /// The caller's own group in it, as a directory.
    pub own: PathBuf,
}

/// The hierarchies of this machine that Gleaner uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CgroupSetup {
    /// The version 2 hierarchy.
    pub v2: Option<Hierarchy>,
    /// Whether the version 2 hierarchy has the cpuset controller, rather than version 1.
    pub v2_cpuset: bool,
    /// The version 1 hierarchies by controller; several controllers can share one.
    pub v1: BTreeMap<String, Hierarchy>,
}

impl CgroupSetup {
    /// Reads `/proc/self/mountinfo` and `/proc/self/cgroup`.
    pub fn detect(root: &Root) -> Result<Self, KernelError> {
        Self::of_member(root, "/proc/self/cgroup")
    }

    /// The hierarchies that the caller sees, with the groups of process `pid` as its own ones.
    ///
    /// # Errors
    /// The process has ended, or a file is not readable.
    pub fn of_process(root: &Root, pid: u32) -> Result<Self, KernelError> {
        Self::of_member(root, &format!("/proc/{pid}/cgroup"))
    }

    fn of_member(root: &Root, groups: &str) -> Result<Self, KernelError> {
        let groups = root.read(groups)?;
        let mounts = root.read("/proc/self/mountinfo")?;
        let mut setup = Self::default();
        for line in mounts.lines() {
            let Some(mount) = Mount::parse(line) else { continue };
            if mount.version == Version::V2 {
                setup.v2 = setup.v2.or_else(|| Some(mount.hierarchy(own_path(&groups, ""))));
            } else {
                for option in mount.options.split(',') {
                    // Options that are not controllers (`rw`, `xattr`) have no line in /proc/self/cgroup.
                    if let Some(own) = own_path(&groups, option) {
                        setup.v1.entry(option.to_owned()).or_insert_with(|| mount.hierarchy(Some(own)));
                    }
                }
            }
        }
        if let Some(v2) = &setup.v2 {
            setup.v2_cpuset = has_word(root, &v2.mount.join("cgroup.controllers"), "cpuset")?;
        }
        Ok(setup)
    }

    /// The groups whose CPU quotas apply to the own one: itself and its visible ancestors, except for the root,
    /// which has no quota.
    pub fn quota_dirs(&self) -> Vec<PathBuf> {
        let Some(Hierarchy { mount, own }) = self.v1.get("cpu").or(self.v2.as_ref()) else {
            return Vec::new();
        };
        own.ancestors().take_while(|dir| *dir != mount).map(Path::to_owned).collect()
    }

    /// The version with the cpuset controller.
    pub fn cpuset_version(&self) -> Option<Version> {
        if self.v1.contains_key("cpuset") { Some(Version::V1) } else { self.v2_cpuset.then_some(Version::V2) }
    }
}

impl fmt::Display for CgroupSetup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match (&self.v2, self.v1.is_empty()) {
            (Some(_), true) => "version 2",
            (Some(_), false) => "hybrid",
            (None, false) => "version 1",
            (None, true) => "not mounted",
        };
        match self.cpuset_version() {
            Some(Version::V1) => write!(f, "{kind}, cpuset in version 1"),
            Some(Version::V2) => write!(f, "{kind}, cpuset in version 2"),
            None => write!(f, "{kind}, no cpuset controller"),
        }
    }
}

/// A line of `/proc/self/mountinfo` that mounts a cgroup hierarchy.
struct Mount<'a> {
    version: Version,
    root: &'a Path,
    point: &'a Path,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, filesystem) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let mut filesystem = filesystem.split(' ');
        let version = match filesystem.next()? {
            "cgroup" => Version::V1,
            "cgroup2" => Version::V2,
            _ => return None,
        };
        let (root, point) = (Path::new(mount.next()?), Path::new(mount.next()?));
        Some(Self { version, root, point, options: filesystem.nth(1).unwrap_or_default() })
    }

    /// `own` is the caller's group as seen from the hierarchy's root; only what is below the mount's root is
    /// visible.
    fn hierarchy(&self, own: Option<&str>) -> Hierarchy {
        let visible = own.and_then(|own| Path::new(own).strip_prefix(self.root).ok());
        let own = visible.map_or(self.point.to_owned(), |own| {
            if own.as_os_str().is_empty() { self.point.to_owned() } else { self.point.join(own) }
        });
        Hierarchy { mount: self.point.to_owned(), own }
    }
}

/// The caller's group in the hierarchy of `controller` (`""`: version 2), from lines of `/proc/self/cgroup`.
fn own_path<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|name| name == controller).then_some(path)
    })
}
