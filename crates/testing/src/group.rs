//! Control groups for the workloads of a test, named as a service manager names them.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};

use crate::levers::hierarchies;
use crate::process::until;
use crate::skipped;

/// A slice of this test process alone, for the services of one test. Dropping it removes it, and them.
#[derive(Debug)]
pub struct Slice {
    name: String,
    /// Where it is, in every hierarchy that is used.
    dirs: Vec<PathBuf>,
}

/// One service: a group that is a workload of its own.
#[derive(Debug)]
pub struct Service {
    /// Its path within each hierarchy, as in `/proc/PID/cgroup`.
    pub path: PathBuf,
    dirs: Vec<PathBuf>,
}

impl Slice {
    /// `None`, with a message, where no hierarchy has CPU sets.
    #[track_caller]
    pub fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let hierarchies: Vec<_> = hierarchies(&mounts).into_iter().filter(|mount| is_usable(mount)).collect();
        if !hierarchies.iter().any(|mount| has_cpu_sets(mount)) {
            skipped("needs control groups with CPU sets");
            return None;
        }
        let name = format!("test{}.slice", std::process::id());
        let dirs = hierarchies.iter().map(|mount| mount.join(&name)).collect();
        let slice = Self { name, dirs };
        slice.dirs.iter().for_each(|dir| make(dir));
        Some(slice)
    }

    /// The pattern that matches its services, for rules.
    pub fn pattern(&self) -> String {
        format!("/{}/**", self.name)
    }

    /// The group of a service called `name`, made now.
    pub fn service(&self, name: &str) -> Service {
        let unit = format!("{name}.service");
        let service = Service {
            path: Path::new("/").join(&self.name).join(&unit),
            dirs: self.dirs.iter().map(|dir| dir.join(&unit)).collect(),
        };
        service.dirs.iter().for_each(|dir| make(dir));
        service
    }

    /// Makes the group of a service that only lives for a moment, in the hierarchies that services are found in, and
    /// removes it.
    pub fn churn(&self, name: &str) {
        for dir in &self.dirs {
            let dir = dir.join(format!("{name}.service"));
            fs::create_dir(&dir).unwrap();
            fs::remove_dir(&dir).unwrap();
        }
    }
}

impl Service {
    /// Moves a process into it.
    pub fn add(&self, pid: u32) {
        for dir in &self.dirs {
            fs::write(dir.join("cgroup.procs"), pid.to_string()).unwrap();
        }
    }

    /// The file with its CPU set.
    pub fn cpus_file(&self) -> PathBuf {
        let mut files = self.dirs.iter().map(|dir| dir.join("cpuset.cpus"));
        files.find(|file| file.exists()).unwrap()
    }

    /// Removes it, once its last process is gone.
    pub fn remove(self) {
        self.dirs.iter().for_each(|dir| remove(dir));
    }

    /// Its CPU set as it is configured; empty where version 2 inherits it.
    pub fn cpus(&self) -> String {
        fs::read_to_string(self.cpus_file()).unwrap().trim_end().to_owned()
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        for dir in &self.dirs {
            let services = fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
            services.filter(|path| path.is_dir()).for_each(|service| remove(&service));
            remove(dir);
        }
    }
}

/// Its processes have been killed, but the kernel counts them until they are reaped.
fn remove(dir: &Path) {
    if !dir.exists() {
        return;
    }
    if std::thread::panicking() {
        let _ = fs::remove_dir(dir);
        return;
    }
    until("the group is empty", || fs::remove_dir(dir).is_ok());
}

/// Version 1, or version 2 with CPU sets: beside version 1, version 2 has none and holds no service.
fn is_usable(mount: &Path) -> bool {
    let is_v2 = mount.join("cgroup.controllers").exists();
    !is_v2 || has_cpu_sets(mount)
}

fn has_cpu_sets(mount: &Path) -> bool {
    mount.join("cpuset.cpus").exists()
        || fs::read_to_string(mount.join("cgroup.controllers"))
            .is_ok_and(|text| text.split_whitespace().any(|name| name == "cpuset"))
}

fn make(dir: &Path) {
    let parent = dir.parent().unwrap();
    let control = parent.join("cgroup.subtree_control");
    if control.exists() {
        fs::write(control, "+cpuset").unwrap();
    }
    fs::create_dir(dir).unwrap();
    // Version 1 has no default: a group without these holds no process.
    if parent.join("cpuset.effective_cpus").exists() {
        for name in ["cpuset.cpus", "cpuset.mems"] {
            fs::write(dir.join(name), fs::read_to_string(parent.join(name)).unwrap()).unwrap();
        }
    }
}
