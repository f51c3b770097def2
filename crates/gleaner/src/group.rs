//! The control group that a user named, for every command that takes one.

use std::path::{Path, PathBuf};

use gleaner_kernel::Root;
use gleaner_kernel::cgroup::{CgroupSetup, GroupUnavailable};

/// The directory of the group called `name`.
///
/// # Errors
/// There is no such group, or the name is ambiguous; what was tried is named.
pub(crate) fn directory(name: &Path) -> Result<PathBuf, GroupUnavailable> {
    let root = Root::system();
    Ok(CgroupSetup::detect(&root)?.find(&root, name)?.dir())
}
