//! Whether this host can have the scheduler.

use std::fs;

use gleaner_kernel::Root;

use crate::ScxError;

const SCHED_EXT: &str = "/sys/kernel/sched_ext";
/// `include/uapi/linux/prctl.h`
const PR_SCHED_CORE: libc::c_int = 62;
const PR_SCHED_CORE_GET: libc::c_ulong = 0;
/// `include/linux/pid.h`
const PIDTYPE_PID: libc::c_ulong = 0;

/// Checks that a scheduler can be loaded on this host.
///
/// # Errors
/// There is no `sched_ext`, it is in use, or the host is known to hang with it.
pub fn check(root: &Root) -> Result<(), ScxError> {
    let directory = root.path(SCHED_EXT);
    if !directory.exists() {
        return Err(ScxError::NoSchedExt { path: directory.display().to_string() });
    }
    if root.read(format!("{SCHED_EXT}/state"))? != "disabled" {
        let name = root.read(format!("{SCHED_EXT}/root/ops")).unwrap_or_else(|_| "it has no name".to_owned());
        return Err(ScxError::Occupied { name });
    }
    let smt = root.read("/sys/devices/system/cpu/smt/active").is_ok_and(|active| active == "1");
    match processes(root).find(|pid| smt && has_cookie(*pid)) {
        Some(pid) => Err(ScxError::Cookies { pid }),
        None => Ok(()),
    }
}

fn processes(root: &Root) -> impl Iterator<Item = u32> {
    let entries = fs::read_dir(root.path("/proc")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether the process is in a group of core scheduling. `false` if the kernel has none.
fn has_cookie(pid: u32) -> bool {
    let mut cookie = 0_u64;
    // SAFETY: the call writes a number of 64 bits, which is there and outlives it.
    let answer = unsafe {
        libc::prctl(
            PR_SCHED_CORE,
            PR_SCHED_CORE_GET,
            libc::c_ulong::from(pid),
            PIDTYPE_PID,
            std::ptr::from_mut(&mut cookie),
        )
    };
    answer == 0 && cookie != 0
}

#[cfg(test)]
mod tests {
    use gleaner_testing::tree::tree;

    use super::*;

    #[test]
    fn a_host_that_cannot_have_it_says_what_is_missing() {
        let dir = tree(&[]);
        let root = Root::at(dir.path());
        let error = check(&root).unwrap_err().to_string();
        assert!(error.contains("CONFIG_SCHED_CLASS_EXT=y"), "{error}");

        let dir = tree(&[
            ("sys/kernel/sched_ext/state", "enabled\n"),
            ("sys/kernel/sched_ext/root/ops", "flash\n"),
        ]);
        let root = Root::at(dir.path());
        let error = check(&root).unwrap_err().to_string();
        assert_eq!(error, "another scheduler runs already: flash; stop it first");

        let dir = tree(&[("sys/kernel/sched_ext/state", "disabled\n")]);
        let root = Root::at(dir.path());
        check(&root).unwrap();
    }
}
