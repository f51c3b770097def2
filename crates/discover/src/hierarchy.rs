//! The control group hierarchy that holds this machine's processes, and where it accounts their CPU time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_kernel::cgroup::{CgroupSetup, Hierarchy as Mounted, Version};
use gleaner_kernel::{KernelError, Root};

use crate::file::{numbers, read_short};

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub(crate) mount: PathBuf,
    /// The daemon's own group, within the hierarchy.
    pub(crate) own: PathBuf,
    version: Version,
    /// Where version 1 accounts CPU time.
    cpuacct: Option<PathBuf>,
}

/// What a group's account says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Account {
    /// CPU time since the group was made.
    Used(Duration),
    /// Nobody accounts it: its processes are to be added up.
    None,
    /// The group is gone.
    Gone,
}

impl Hierarchy {
    /// How many groups are searched for one that holds processes.
    const MOST_SEARCHED: usize = 256;

    /// The first hierarchy, of those that are known to hold workloads, with processes in a group below its root:
    /// version 2, systemd's own (or `OpenRC`'s) of version 1, `cpuacct`, `cpuset`. `None` if all processes are in
    /// the root groups.
    pub(crate) fn find(root: &Root, setup: &CgroupSetup) -> Option<Self> {
        let cpuacct = setup.v1.get("cpuacct").map(|mounted| mounted.mount.clone());
        let named = setup.v1.iter().filter(|(name, _)| name.starts_with("name=")).map(|(_, mounted)| mounted);
        let of_v1 = named.chain(["cpuacct", "cpuset"].iter().filter_map(|name| setup.v1.get(*name)));
        let all = setup.v2.iter().map(|mounted| (mounted, Version::V2));
        let mut all = all.chain(of_v1.map(|mounted| (mounted, Version::V1)));
        let (Mounted { mount, own }, version) = all.find(|(mounted, version)| {
            let mut left = Self::MOST_SEARCHED;
            children(root, &mounted.mount)
                .unwrap_or_default()
                .iter()
                .any(|name| is_populated(root, &mounted.mount.join(name), *version, &mut left))
        })?;
        let own = own.strip_prefix(mount).unwrap_or(Path::new(""));
        Some(Self {
            mount: mount.clone(),
            own: Path::new("/").join(own),
            version,
            cpuacct: cpuacct.filter(|_| version == Version::V1),
        })
    }

    /// The directory of the group `path`.
    pub(crate) fn dir(&self, path: &Path) -> PathBuf {
        let below = path.strip_prefix("/").unwrap_or(path);
        // Joining an empty path would append a slash.
        if below.as_os_str().is_empty() { self.mount.clone() } else { self.mount.join(below) }
    }

    /// The CPU time of the group `path` with those below it.
    pub(crate) fn account(&self, root: &Root, path: &Path) -> Account {
        let used = match self.version {
            Version::V2 => {
                read_number(root, &self.dir(path).join("cpu.stat"), b"usage_usec ").map(Duration::from_micros)
            }
            Version::V1 => self.cpuacct.as_ref().and_then(|mount| {
                let below = path.strip_prefix("/").unwrap_or(path);
                read_number(root, &mount.join(below).join("cpuacct.usage"), b"").map(Duration::from_nanos)
            }),
        };
        match used {
            Some(used) => Account::Used(used),
            None if root.exists(self.dir(path)) => Account::None,
            None => Account::Gone,
        }
    }

    /// The processes in the group `path` itself; none if it is gone, or has none to show (a threaded group).
    pub(crate) fn processes(&self, root: &Root, path: &Path) -> Vec<u32> {
        let text = root.read(self.dir(path).join("cgroup.procs")).unwrap_or_default();
        text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }
}

/// The number that follows `name` at the start of the text.
fn read_number(root: &Root, file: &Path, name: &[u8]) -> Option<u64> {
    let mut buffer = [0; 64];
    let text = read_short(root, file, &mut buffer).ok()?;
    numbers(text.strip_prefix(name)?).next()
}

/// The child groups of a directory. Uses the type in the directory entry: a stat of each of the dozens of files would
/// cost far more.
pub(crate) fn children(root: &Root, dir: &Path) -> Result<Vec<std::ffi::OsString>, KernelError> {
    let path = root.path(dir);
    let failed = |source| KernelError::read(&path, source);
    let mut names = Vec::new();
    for entry in fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            names.push(entry.file_name());
        }
    }
    Ok(names)
}

fn is_populated(root: &Root, dir: &Path, version: Version, left: &mut usize) -> bool {
    if *left == 0 {
        return false;
    }
    *left -= 1;
    if version == Version::V2 {
        // Includes the groups below.
        let events = root.read(dir.join("cgroup.events")).unwrap_or_default();
        return events.lines().any(|line| line == "populated 1");
    }
    root.read(dir.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty())
        || children(root, dir)
            .unwrap_or_default()
            .iter()
            .any(|name| is_populated(root, &dir.join(name), version, left))
}
