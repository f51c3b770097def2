//! Resolves the name of a control group, in the same way for every command.

use std::path::{Component, Path, PathBuf};

use super::{CgroupSetup, GroupUnavailable};
use crate::Root;

/// A control group that the user named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedGroup {
    /// Mount point of its hierarchy.
    pub mount: PathBuf,
    /// Its path in the hierarchy, without a leading slash; empty for the root group.
    pub relative: PathBuf,
}

impl NamedGroup {
    /// Its directory, without links and `..`.
    pub fn dir(&self) -> PathBuf {
        // Joining an empty path would append a slash.
        if self.is_root() { self.mount.clone() } else { self.mount.join(&self.relative) }
    }

    /// Whether it is the root group, which holds every process of the hierarchy.
    pub fn is_root(&self) -> bool {
        self.relative.as_os_str().is_empty()
    }
}

impl CgroupSetup {
    /// The group `name`: a directory of a mounted hierarchy, or a path within one as in `/proc/PID/cgroup`,
    /// with or without the leading slash. Such a path is searched first in the hierarchy with the cpuset
    /// controller, which is the one that Gleaner changes, then in version 2, `cpu`, `cpuacct` and the rest.
    ///
    /// # Errors
    /// [`GroupUnavailable::NotFound`] with the directories tried; [`GroupUnavailable::Ambiguous`] if a relative
    /// path matches one group from the working directory and another within the hierarchies.
    pub fn find(&self, root: &Root, name: &Path) -> Result<NamedGroup, GroupUnavailable> {
        // Without a working directory (it was removed) relative paths can only be within a hierarchy.
        let here = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
        self.find_from(root, &here, name)
    }

    pub(super) fn find_from(
        &self,
        root: &Root,
        here: &Path,
        name: &Path,
    ) -> Result<NamedGroup, GroupUnavailable> {
        let within = name.strip_prefix("/").unwrap_or(name);
        let as_file = here.join(name);
        let as_group: Vec<PathBuf> = self.mounts().into_iter().map(|mount| mount.join(within)).collect();
        let mut named = self.mounts().into_iter().zip(&as_group).filter_map(|(mount, path)| {
            // Excludes what `..` or a link reaches outside of the hierarchy, and mounts within it.
            self.at(root, path).filter(|group| group.mount == mount)
        });
        match (self.at(root, &as_file), named.next()) {
            (Some(file), Some(group)) if file != group && !is_of_file_system(name) => {
                Err(GroupUnavailable::Ambiguous {
                    name: name.to_owned(),
                    file: file.dir(),
                    group: group.dir(),
                })
            }
            (Some(found), _) | (None, Some(found)) => Ok(found),
            (None, None) => Err(GroupUnavailable::NotFound {
                name: name.to_owned(),
                tried: SearchedDirs(std::iter::once(as_file).chain(as_group).collect()),
            }),
        }
    }

    /// Mount points without duplicates, in search order.
    fn mounts(&self) -> Vec<&Path> {
        let first = ["cpuset"].iter().filter_map(|name| self.v1.get(*name));
        let then = ["cpu", "cpuacct"].iter().filter_map(|name| self.v1.get(*name));
        let mut mounts: Vec<&Path> = Vec::new();
        for hierarchy in first.chain(&self.v2).chain(then).chain(self.v1.values()) {
            if !mounts.contains(&hierarchy.mount.as_path()) {
                mounts.push(&hierarchy.mount);
            }
        }
        mounts
    }

    /// The group whose directory is `path`, with links resolved.
    fn at(&self, root: &Root, path: &Path) -> Option<NamedGroup> {
        let dir = root.canonical(path).ok().filter(|dir| root.path(dir).is_dir())?;
        let inside = |mount: &&Path| dir.starts_with(mount);
        // Mounts can be nested: the innermost counts.
        let mount =
            self.mounts().into_iter().filter(inside).max_by_key(|mount| mount.components().count())?;
        let relative = dir.strip_prefix(mount).ok()?.to_owned();
        Some(NamedGroup { mount: mount.to_owned(), relative })
    }
}

/// Whether `name` can only be a file system path: absolute, or starting with `.` or `..`.
fn is_of_file_system(name: &Path) -> bool {
    !matches!(name.components().next(), Some(Component::Normal(_)))
}

/// The directories that were searched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchedDirs(pub Vec<PathBuf>);

impl std::fmt::Display for SearchedDirs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (index, path) in self.0.iter().enumerate() {
            write!(f, "{}{}", if index == 0 { "" } else { ", " }, path.display())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::cgroup::{Hierarchy, WorkloadGroup};

    /// A machine with version 2 mounted within version 1, as on most hybrid ones, and groups in both.
    fn hybrid() -> (tempfile::TempDir, Root, CgroupSetup) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let at = |path: &str| Hierarchy { mount: path.into(), own: path.into() };
        let v1 = [("cpuset", "/cg/cpuset"), ("cpu", "/cg/cpu,cpuacct"), ("cpuacct", "/cg/cpu,cpuacct")];
        let setup = CgroupSetup {
            v2: Some(at("/cg/unified")),
            v2_cpuset: false,
            v1: v1.into_iter().map(|(name, mount)| (name.to_owned(), at(mount))).collect(),
        };
        for path in ["cpuset/a/b", "cpuset/b", "cpu,cpuacct/a", "unified/system.slice/x", "unified/a"] {
            fs::create_dir_all(root.path("/cg").join(path)).unwrap();
            fs::write(root.path("/cg").join(path).join("cpuset.cpus"), "0\n").unwrap();
        }
        fs::create_dir_all(root.path("/home/cpuset")).unwrap();
        symlink("cpu,cpuacct", root.path("/cg/cpu")).unwrap();
        symlink("../../cg/cpuset", root.path("/home/cpuset/link")).unwrap();
        (dir, root, setup)
    }

    #[test]
    fn a_directory_and_a_path_as_in_proc_name_the_same_group() {
        let (_dir, root, setup) = hybrid();
        for (here, name, dir) in [
            ("/home", "/cg/cpuset/a", "/cg/cpuset/a"),
            ("/home", "/cg/cpu/a/", "/cg/cpu,cpuacct/a"),
            ("/home", "/a", "/cg/cpuset/a"),
            ("/home", "a/b/..", "/cg/cpuset/a"),
            ("/home", "/system.slice/x", "/cg/unified/system.slice/x"),
            ("/home", "system.slice//x/", "/cg/unified/system.slice/x"),
            ("/home", "cpuset/link/a", "/cg/cpuset/a"),
            ("/cg/cpuset/a", ".", "/cg/cpuset/a"),
            ("/cg/cpuset/a", "./b", "/cg/cpuset/a/b"),
            ("/cg/cpuset/a/b", "..", "/cg/cpuset/a"),
            ("/cg/unified", "./a", "/cg/unified/a"),
        ] {
            let found = setup.find_from(&root, Path::new(here), Path::new(name)).unwrap();
            assert_eq!(found.dir(), Path::new(dir), "`{name}` from {here}");
        }
    }

    #[test]
    fn every_name_of_the_root_group_is_refused() {
        let (_dir, root, setup) = hybrid();
        for (here, name) in [
            ("/cg/cpuset", "."),
            ("/cg/cpuset", ""),
            ("/home", "."),
            ("/home", "/"),
            ("/home", "//"),
            ("/cg/cpuset/a", ".."),
            ("/cg/cpuset/a", "../"),
            ("/cg/cpuset/a/b", "../.././"),
            ("/cg/cpuset", "a/.."),
            ("/home", "/cg/cpuset"),
            ("/home", "/cg/cpuset/"),
            ("/home", "/cg/cpuset/a/.."),
            ("/home", "/cg/unified"),
            ("/home", "/cg/cpu"),
            ("/home", "cpuset/link"),
            ("/home", "/home/cpuset/link/"),
        ] {
            let error = WorkloadGroup::existing_from(&root, &setup, Path::new(here), Path::new(name));
            let error = error.unwrap_err();
            assert!(matches!(error, GroupUnavailable::IsRoot { .. }), "`{name}` from {here}: {error}");
        }
    }

    #[test]
    fn what_is_missing_or_ambiguous_is_reported_with_what_was_tried() {
        let (_dir, root, setup) = hybrid();
        let error = |here: &str, name: &str| {
            setup.find_from(&root, Path::new(here), Path::new(name)).unwrap_err().to_string()
        };
        assert_eq!(
            error("/home", "no/such"),
            "there is no control group `no/such`: tried /home/no/such, /cg/cpuset/no/such, /cg/unified/no/such, \
             /cg/cpu,cpuacct/no/such"
        );
        assert!(error("/home", "/cg").contains("no control group `/cg`"), "of no hierarchy");
        assert!(error("/home", "../../..").contains("no control group"), "above every hierarchy");
        assert!(error("/home", "/a/cpuset.cpus").contains("no control group"), "a file");
        let message = error("/cg/cpuset/a", "b");
        assert!(message.contains("`b` is /cg/cpuset/a/b or /cg/cpuset/b"), "{message}");
    }
}
