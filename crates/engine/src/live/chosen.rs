//! Whose the CPU set of a control group is. One that an administrator, a kubelet or a container runtime has chosen is
//! theirs, when the group is found and at any time later.

use std::path::Path;

use gleaner_kernel::Root;
use gleaner_kernel::lever::{Target, Value, cpuset};
use gleaner_policy::CpuSet;

use crate::lease::LeaseError;

/// Whether the group `dir`, of which nothing is changed, may still use all of `allowed`, and so may those below it.
///
/// # Errors
/// [`LeaseError::Theirs`]: somebody has chosen CPUs since the group was found.
pub(super) fn check_group(root: &Root, dir: &Path, allowed: &CpuSet) -> Result<(), LeaseError> {
    match cpuset::effective(root, dir).filter(|found| !allowed.difference(found).is_empty()) {
        Some(found) => Err(theirs(&dir.join(cpuset::FILE), &found)),
        None => check_below(root, dir, allowed),
    }
}

/// As [`check_group`], of the groups below `dir` alone.
///
/// # Errors
/// [`LeaseError::Theirs`], as there.
pub(super) fn check_below(root: &Root, dir: &Path, allowed: &CpuSet) -> Result<(), LeaseError> {
    cpuset::chosen_below(root, dir, allowed).map_or(Ok(()), |(file, found)| Err(theirs(&file, &found)))
}

fn theirs(file: &Path, found: &CpuSet) -> LeaseError {
    LeaseError::Theirs { target: Target::File(file.to_owned()), found: Value::Text(found.to_string()) }
}
