//! Resolves the control group that a user named.

use std::path::{Path, PathBuf};

use gleaner_kernel::Root;
use gleaner_kernel::cgroup::{CgroupSetup, GroupUnavailable};

/// The directory of the group `name`.
///
/// # Errors
/// There is no such group, or the name is ambiguous; the message says what was tried.
pub(crate) fn directory(name: &Path) -> Result<PathBuf, GroupUnavailable> {
    let root = Root::system();
    Ok(CgroupSetup::detect(&root)?.find(&root, name)?.dir())
}
