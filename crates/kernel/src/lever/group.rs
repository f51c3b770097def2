//! Control groups and their controllers as targets: create and remove groups, turn controllers on and off.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::{GroupState, LeverError, Target};
use crate::cgroup::CgroupSetup;
use crate::{KernelError, Root};

/// How long to try to move processes out of a group before it counts as busy. A process that forks faster than
/// it is moved leaves its child behind for the next pass. An exiting process cannot be moved
/// (`cgroup_migrate_add_task`), and freeing its memory can take a while.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The time between two passes.
const PASS_INTERVAL: Duration = Duration::from_millis(1);

pub(super) fn state(root: &Root, path: &Path) -> GroupState {
    if root.path(path).is_dir() { GroupState::Present } else { GroupState::Absent }
}

/// Creates the group. Its parent must exist.
pub(super) fn create(root: &Root, target: &Target, path: &Path) -> Result<(), LeverError> {
    match fs::create_dir(root.path(path)) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(LeverError::io(target, "create", error));
        }
        _ => {}
    }
    // Only a cgroup v1 cpuset has a file of this name. It starts empty, and accepts no process while empty.
    if root.exists(path.join("cpuset.effective_cpus")) {
        for name in ["cpuset.mems", "cpuset.cpus"] {
            fill_from_parent(root, path, name).map_err(|e| LeverError::kernel(target, e))?;
        }
    }
    Ok(())
}

/// Sets `name` of the v1 cpuset `path` to its parent's value, unless it is set already.
fn fill_from_parent(root: &Root, path: &Path, name: &str) -> Result<(), crate::KernelError> {
    match path.parent() {
        Some(parent) if root.read(path.join(name))?.is_empty() => {
            root.write(path.join(name), &root.read(parent.join(name))?)
        }
        _ => Ok(()),
    }
}

/// Moves the group's processes to `home` and removes it.
pub(super) fn remove(root: &Root, target: &Target, path: &Path, home: &Path) -> Result<(), LeverError> {
    // An empty group takes no more than this: no file descriptor, for one, of which there may be none left.
    if fs::remove_dir(root.path(path)).is_ok() {
        return Ok(());
    }
    let start = Instant::now();
    loop {
        move_processes(root, target, path, home)?;
        match fs::remove_dir(root.path(path)) {
            Ok(()) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            Err(error) if error.raw_os_error() != Some(libc::EBUSY) => {
                return Err(LeverError::io(target, "remove", error));
            }
            Err(error) if start.elapsed() > TIMEOUT => {
                let reason = format!(
                    "it still has processes or groups of its own ({error}); end them and restore again"
                );
                return Err(LeverError::Busy { target: target.clone(), reason });
            }
            Err(_) => thread::sleep(PASS_INTERVAL),
        }
    }
}

/// Writes every process of the group into `cgroup.procs` of `home`, or of the caller's own group if that fails;
/// processes that end meanwhile are ignored.
///
/// On version 2 the parent will not do: a group that delegates controllers to its children accepts no
/// processes.
fn move_processes(root: &Root, target: &Target, path: &Path, home: &Path) -> Result<(), LeverError> {
    let processes = root.read_opt(path.join("cgroup.procs")).map_err(|e| LeverError::kernel(target, e))?;
    for pid in processes.iter().flat_map(|processes| processes.lines()) {
        let join = |group: &Path| match root.write(group.join("cgroup.procs"), pid) {
            Err(error) if error.errno() != Some(libc::ESRCH) => Err(error),
            _ => Ok(()),
        };
        if let Err(error) = join(home) {
            own(root, path).map_or(Err(error), |own| join(&own)).map_err(|e| not_removed(target, e))?;
        }
    }
    Ok(())
}

/// The error if processes cannot be moved. Not [`LeverError::Gone`], since the group itself exists.
fn not_removed(target: &Target, error: KernelError) -> LeverError {
    if !error.is_gone() {
        return LeverError::kernel(target, error);
    }
    let reason = format!("its processes have nowhere to go ({error}); end them and restore again");
    LeverError::Busy { target: target.clone(), reason }
}

/// The caller's own group in the version 2 hierarchy of `path`; it contains the caller, so it accepts
/// processes. `None` if it is `path` or below, which is being removed.
fn own(root: &Root, path: &Path) -> Option<PathBuf> {
    let v2 = CgroupSetup::detect(root).ok()?.v2?;
    (path.starts_with(&v2.mount) && !v2.own.starts_with(path)).then_some(v2.own)
}

/// Whether the v2 group delegates `name` to its children.
pub(super) fn controller(
    root: &Root,
    target: &Target,
    path: &Path,
    name: &str,
) -> Result<GroupState, LeverError> {
    let list = root.read(path.join("cgroup.subtree_control")).map_err(|e| LeverError::kernel(target, e))?;
    let present = list.split_whitespace().any(|controller| controller == name);
    Ok(if present { GroupState::Present } else { GroupState::Absent })
}

/// Delegates the controller to the group's children, or withdraws it.
///
/// Withdrawing `cpuset` would silently drop settings that other programs made in the group's other children; in
/// that case it stays, and the error says so.
pub(super) fn set_controller(
    root: &Root,
    target: &Target,
    path: &Path,
    name: &str,
    state: GroupState,
) -> Result<(), LeverError> {
    if controller(root, target, path, name)? == state {
        return Ok(());
    }
    let sign = match state {
        GroupState::Present => '+',
        GroupState::Absent => {
            if let Some(user) = controller_user(root, path, name) {
                return Err(LeverError::Busy {
                    target: target.clone(),
                    reason: format!("group {user} has settings of its own for it"),
                });
            }
            '-'
        }
    };
    root.write(path.join("cgroup.subtree_control"), &format!("{sign}{name}"))
        .map_err(|e| LeverError::kernel(target, e))
}

/// A child group with its own setting of the controller.
fn controller_user(root: &Root, path: &Path, name: &str) -> Option<String> {
    let children = root.list(path).ok()?;
    children.into_iter().find(|child| {
        ["cpus", "mems"].iter().any(|file| {
            let file = path.join(child).join(format!("{name}.{file}"));
            root.read(file).is_ok_and(|text| !text.is_empty())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lever::Value;

    const GROUP: &str = "/cg/gleaner-1";

    fn group(path: &str, home: &str) -> Target {
        Target::Group { path: path.into(), home: home.into() }
    }

    fn tree() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::create_dir(root.path("/cg")).unwrap();
        fs::write(root.path("/cg/cgroup.procs"), "").unwrap();
        (dir, root)
    }

    #[test]
    fn groups_come_and_go_and_going_twice_is_fine() {
        let (_dir, root) = tree();
        let target = group(GROUP, "/cg");
        assert_eq!(target.read(&root).unwrap(), Value::Group(GroupState::Absent));
        for _ in 0..2 {
            target.write(&root, &Value::Group(GroupState::Present)).unwrap();
            assert_eq!(target.read(&root).unwrap(), Value::Group(GroupState::Present));
        }
        for _ in 0..2 {
            target.write(&root, &Value::Group(GroupState::Absent)).unwrap();
            assert_eq!(target.read(&root).unwrap(), Value::Group(GroupState::Absent));
        }
        let orphan = group("/missing/group", "/cg");
        assert!(orphan.write(&root, &Value::Group(GroupState::Present)).unwrap_err().is_gone());
    }

    /// A group with two processes, below a mounted version 2 hierarchy with the caller in `/cg/own`.
    fn inhabited() -> (tempfile::TempDir, Root) {
        let (dir, root) = tree();
        for path in ["/cg/home", "/cg/own", GROUP, "/proc/self"] {
            fs::create_dir_all(root.path(path)).unwrap();
        }
        fs::write(root.path("/proc/self/mountinfo"), "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n").unwrap();
        fs::write(root.path("/proc/self/cgroup"), "0::/own\n").unwrap();
        fs::write(root.path("/cg/own/cgroup.procs"), "").unwrap();
        fs::write(root.path("/cg/gleaner-1/cgroup.procs"), "41\n42\n").unwrap();
        (dir, root)
    }

    /// A plain directory with a file in it cannot be removed, unlike a group; the test only observes the moves.
    fn removed(root: &Root) -> String {
        let target = group(GROUP, "/cg/home");
        target.write(root, &Value::Group(GroupState::Absent)).unwrap_err().to_string()
    }

    #[test]
    fn processes_are_moved_home_before_removal_and_never_into_the_parent() {
        let (_dir, root) = inhabited();
        fs::write(root.path("/cg/home/cgroup.procs"), "").unwrap();
        removed(&root);
        assert_eq!(root.read("/cg/home/cgroup.procs").unwrap(), "42", "one write for each process");
        assert_eq!(root.read("/cg/own/cgroup.procs").unwrap() + &root.read("/cg/cgroup.procs").unwrap(), "");
    }

    #[test]
    fn processes_without_a_home_come_to_the_remover() {
        let (_dir, root) = inhabited();
        removed(&root);
        assert_eq!(root.read("/cg/own/cgroup.procs").unwrap(), "42");
        assert_eq!(root.read("/cg/cgroup.procs").unwrap(), "");
    }

    #[test]
    fn a_remover_within_the_group_cannot_take_its_processes() {
        let (_dir, root) = inhabited();
        fs::write(root.path("/proc/self/cgroup"), "0::/gleaner-1/inner\n").unwrap();
        let said = removed(&root);
        assert!(said.contains("/cg/home/cgroup.procs"), "{said}");
    }

    #[test]
    fn a_controller_is_switched_by_name_and_not_taken_from_others() {
        let (_dir, root) = tree();
        let control = root.path("/cg/cgroup.subtree_control");
        fs::write(&control, "cpu memory").unwrap();
        let target = Target::Controller("/cg".into(), "cpuset".into());
        assert_eq!(target.read(&root).unwrap(), Value::Group(GroupState::Absent));
        target.write(&root, &Value::Group(GroupState::Present)).unwrap();
        assert_eq!(fs::read_to_string(&control).unwrap(), "+cpuset");
        fs::write(&control, "cpuset cpu memory\n").unwrap();
        fs::create_dir(root.path("/cg/other")).unwrap();
        fs::write(root.path("/cg/other/cpuset.cpus"), "0-1\n").unwrap();
        let error = target.write(&root, &Value::Group(GroupState::Absent)).unwrap_err();
        assert!(error.to_string().contains("group other has settings"), "{error}");
        fs::write(root.path("/cg/other/cpuset.cpus"), "\n").unwrap();
        target.write(&root, &Value::Group(GroupState::Absent)).unwrap();
        assert_eq!(fs::read_to_string(&control).unwrap(), "-cpuset");
    }
}
