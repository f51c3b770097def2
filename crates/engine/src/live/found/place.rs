//! How the set of a running workload is changed, and whether it is at all: never against whoever chose one.

use std::path::Path;

use gleaner_kernel::cgroup::{CgroupSetup, NamedGroup, Version, WorkloadGroup};
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::lever::unit::UnitState;
use gleaner_kernel::lever::{Target, ThreadKey, Value, cpuset};
use gleaner_kernel::workload::MemberList;
use gleaner_kernel::{KernelError, Root};
use gleaner_policy::CpuSet;

use crate::live::{ActiveSetLever, UnitSet};

/// As many threads of a group are asked for their affinity.
const ASKED_THREADS: usize = 256;

/// How the set of a workload is changed.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) lever: ActiveSetLever,
    /// The vCPUs that it is allowed to use.
    pub(super) allowed: CpuSet,
    /// Why its set is left alone, as a clause.
    pub(super) own_set: Option<String>,
}

impl Place {
    /// Of a process with these vCPUs as its affinity.
    pub(super) fn of_process(root: &Root, allowed: CpuSet) -> Result<Self, KernelError> {
        let own_set = smaller(&allowed, &online(root)?, "its CPU affinity");
        let lever = match own_set {
            Some(_) => ActiveSetLever::Untouched,
            None => ActiveSetLever::Threads(Affinity::new(allowed.clone())),
        };
        Ok(Self { lever, allowed, own_set })
    }

    /// Of the control group `named`, which has a CPU set if `group` is there. `None` if nothing shows its CPUs.
    pub(super) fn of_group(
        root: &Root,
        setup: &CgroupSetup,
        named: &NamedGroup,
        group: Option<WorkloadGroup>,
        members: &MemberList,
    ) -> Result<Option<Self>, KernelError> {
        let online = online(root)?;
        let effective = match group.as_ref().map(WorkloadGroup::cpuset_dir) {
            Some(dir) => effective(root, dir, dir),
            None if is_of_version_2(setup, named) => effective(root, &named.dir(), &named.mount),
            None => None,
        };
        let heads = affinities(root, &members.processes);
        // Of a group without a CPU set, the threads alone show where it is allowed to run.
        let Some(allowed) = effective.or_else(|| heads.first().map(|(_, cpus)| cpus.clone())) else {
            return Ok(None);
        };
        let of_head = |(pid, cpus): &(u32, CpuSet)| {
            smaller(cpus, &online, &format!("the CPU affinity of its process {pid}"))
        };
        let cpuset_dir = group.as_ref().map(WorkloadGroup::cpuset_dir);
        let of_below = || {
            let (file, cpus) = cpuset::chosen_below(root, cpuset_dir?, &allowed)?;
            Some(format!("{} is {cpus}", file.display()))
        };
        let own_set = smaller(&allowed, &online, "its CPU set")
            .or_else(|| heads.iter().find_map(of_head))
            .or_else(of_below);
        if let Some(why) = own_set {
            return Ok(Some(Self::untouched(allowed, why)));
        }
        let unit = match unit_of(root, setup, named) {
            Ok(unit) => unit,
            Err(why) => return Ok(Some(Self::untouched(allowed, why))),
        };
        let threads = affinities(root, &members.threads);
        let lever = match (unit, group) {
            // Moved one by one, those that chose an affinity are left alone.
            _ if threads.iter().any(|(_, cpus)| *cpus != allowed) => {
                ActiveSetLever::Threads(Affinity::new(allowed.clone()))
            }
            (Some(unit), _) => ActiveSetLever::Unit(UnitSet::new(unit, named.dir(), allowed.clone())),
            // Version 1 refuses a set that leaves out CPUs of a group below.
            (None, Some(group))
                if group.version() == Version::V1 && cpuset::has_groups(root, group.cpuset_dir()) =>
            {
                ActiveSetLever::Threads(Affinity::new(allowed.clone()))
            }
            (None, Some(group)) => ActiveSetLever::Group(group),
            (None, None) => ActiveSetLever::Threads(Affinity::new(allowed.clone())),
        };
        Ok(Some(Self { lever, allowed, own_set: None }))
    }

    fn untouched(allowed: CpuSet, why: String) -> Self {
        Self { lever: ActiveSetLever::Untouched, allowed, own_set: Some(why) }
    }
}

fn online(root: &Root) -> Result<CpuSet, KernelError> {
    root.parse("/sys/devices/system/cpu/online", "a CPU list")
}

/// Says so, if the set leaves out vCPUs that are online.
fn smaller(cpus: &CpuSet, online: &CpuSet, what: &str) -> Option<String> {
    (!online.difference(cpus).is_empty()).then(|| format!("{what} is {cpus}, the machine has {online}"))
}

/// The CPUs that the group `dir` may use: its own, or those of the nearest group above it, up to `top`.
fn effective(root: &Root, dir: &Path, top: &Path) -> Option<CpuSet> {
    dir.ancestors().take_while(|dir| dir.starts_with(top)).find_map(|dir| cpuset::effective(root, dir))
}

/// The affinities of the first of these threads; those that have ended are left out.
fn affinities(root: &Root, threads: &[u32]) -> Vec<(u32, CpuSet)> {
    let affinity = |tid: &u32| match Target::Affinity(ThreadKey::of(root, *tid).ok()?).read(root) {
        Ok(Value::Cpus(cpus)) => Some((*tid, cpus)),
        _ => None,
    };
    threads.iter().take(ASKED_THREADS).filter_map(affinity).collect()
}

fn is_of_version_2(setup: &CgroupSetup, named: &NamedGroup) -> bool {
    let v2 = setup.v2.as_ref().filter(|_| setup.cpuset_version() == Some(Version::V2));
    v2.is_some_and(|v2| v2.mount == named.mount)
}

/// The unit of systemd whose own group this is, if its CPUs can be set.
///
/// # Errors
/// Why they are left alone.
fn unit_of(root: &Root, setup: &CgroupSetup, named: &NamedGroup) -> Result<Option<String>, String> {
    if !is_of_version_2(setup, named) {
        return Ok(None);
    }
    let Some(unit) = cpuset::managed_by_systemd(root, &named.dir()) else { return Ok(None) };
    let state = UnitState::read(root, &unit).map_err(|error| error.to_string())?;
    // A unit of a user's service manager is not known, nor is one in a container; and a group can lie deeper in a unit.
    let own = Path::new("/").join(&named.relative);
    if !state.is_loaded || Path::new(&state.control_group) != own {
        return Ok(None);
    }
    match (&state.allowed, state.others.first()) {
        (Some(cpus), _) => Err(format!("AllowedCPUs= of {unit} is {cpus}")),
        (None, Some(other)) => Err(format!("{other}= of {unit} is set")),
        (None, None) => Ok(Some(unit)),
    }
}

#[cfg(test)]
mod tests;
