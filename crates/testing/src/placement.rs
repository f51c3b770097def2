//! Where workloads are allowed to run: what a controller that was killed could leave changed, beside [`Levers`].
//!
//! [`Levers`]: crate::levers::Levers

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::group::Service;

/// CPU sets of groups, and the affinity of each thread.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Placement {
    /// The text of each group's `cpuset.cpus`.
    pub sets: BTreeMap<PathBuf, String>,
    /// The allowed vCPUs of each thread, by its ID.
    pub affinities: BTreeMap<u32, String>,
}

impl Placement {
    /// As it is now, of these groups and of every thread of these processes; those that have ended are left out.
    pub fn read<'g>(
        services: impl IntoIterator<Item = &'g Service>,
        pids: impl IntoIterator<Item = u32>,
    ) -> Self {
        let sets = services.into_iter().map(|service| (service.cpus_file(), service.cpus())).collect();
        let affinities = pids.into_iter().flat_map(threads).filter_map(|tid| Some((tid, allowed(tid)?)));
        Self { sets, affinities: affinities.collect() }
    }
}

/// The threads of a process.
pub fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The vCPUs on which a thread is allowed to run, as a list.
pub fn allowed(tid: u32) -> Option<String> {
    field(tid, "Cpus_allowed_list")
}

/// A field of `/proc/TID/status`.
pub fn field(tid: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().to_owned())
}
