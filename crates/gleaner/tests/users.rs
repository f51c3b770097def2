//! Root's Gleaner and an ordinary user's on one machine, with a real second user.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::PathBuf;
use std::process::Command;

use common::levers::{Levers, Machine};
use common::process::{GLEANER, Running, command, text, until, until_runs};
use common::threads;
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_policy::CpuSet;
use gleaner_testing::skipped;
use nix::fcntl::{Flock, FlockArg};

/// The user and group `nobody`.
const NOBODY: u32 = 65534;

/// An ordinary user with a state directory and an executable copy of the binary.
struct Nobody {
    dir: tempfile::TempDir,
}

impl Nobody {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::copy(GLEANER, dir.path().join("gleaner")).unwrap();
        fs::create_dir(dir.path().join("state")).unwrap();
        chown(dir.path().join("state"), Some(NOBODY), Some(NOBODY)).unwrap();
        Self { dir }
    }

    fn own(&self) -> PathBuf {
        self.dir.path().join("gleaner")
    }

    /// `program`, run as this user.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
        command.arg(program.as_ref()).env("XDG_RUNTIME_DIR", self.dir.path().join("state")).current_dir("/");
        command
    }

    /// An idle process of this user.
    fn sleep(&self) -> Running {
        let sleep = Running::start(self.command("sleep").arg("600"));
        // Until then it is `setpriv`, which is still root's.
        until_runs(&sleep.pid().to_string(), "sleep");
        sleep
    }

    fn gleaner(&self, args: &[&str]) -> Command {
        let mut command = self.command(self.own());
        command.args(args);
        command
    }
}

fn masks(pid: u32) -> CpuSet {
    threads::masks(pid).remove(&pid).unwrap_or_default()
}

#[test]
fn attach_to_another_users_process_is_refused_with_the_user_and_the_remedy() {
    let Some(machine) = Machine::take() else { return };
    let nobody = Nobody::new();
    let own = std::process::id().to_string();
    let output = nobody.gleaner(&["attach", "--pid", &own]).output().unwrap();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("belongs to user 0, and user 65534 may not place its threads: run as root"),
        "{printed}"
    );
    machine.assert_untouched();
}

#[test]
fn a_fixed_setting_without_rights_is_reported_at_once_and_attach_fails() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let nobody = Nobody::new();
    let args = ["run", "--quiet", "--fixed", "haltpoll:200us", "--", "sh", "-c", "exit 7"];
    let output = nobody.gleaner(&args).output().unwrap();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{printed}");
    assert!(printed.contains("not permitted to change /sys/module/haltpoll/parameters/"), "{printed}");
    assert!(printed.contains("run as root"), "{printed}");
    let sleep = nobody.sleep();
    let args = ["attach", "--fixed", "haltpoll:200us", "--pid", &sleep.pid().to_string()];
    let output = nobody.gleaner(&args).output().unwrap();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(printed.contains("haltpoll:200us, as asked for, was not in force: not permitted"), "{printed}");
    machine.assert_untouched();
}

#[test]
fn an_ordinary_user_is_refused_while_roots_gleaner_holds_the_machine() {
    let Some(machine) = Machine::take() else { return };
    let nobody = Nobody::new();
    let sleep = nobody.sleep();
    let root = Running::start(&mut command(&["run", "--quiet", "--", "cat"]));
    until("root's holds the machine", || Levers::read() != machine.before);
    let before = masks(sleep.pid());
    let args = ["attach", "--fixed", "consolidate:1", "--pid", &sleep.pid().to_string()];
    let output = nobody.gleaner(&args).output().unwrap();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains(&format!("root's gleaner (pid {}) controls this machine", root.pid())),
        "{printed}"
    );
    assert_eq!(masks(sleep.pid()), before);
    assert!(root.finish().status.success());
    machine.assert_untouched();
}

#[test]
fn an_ordinary_users_gleaner_gives_way_to_roots() {
    let Some(machine) = Machine::take() else { return };
    let all = Affinity::of_caller().unwrap();
    if all.len() < 2 {
        return skipped("needs two vCPUs");
    }
    let nobody = Nobody::new();
    let sleep = nobody.sleep();
    let args = ["attach", "--fixed", "consolidate:1", "--pid", &sleep.pid().to_string()];
    let users = Running::start(&mut nobody.gleaner(&args));
    until("the user's process is on one vCPU", || masks(sleep.pid()).len() == 1);
    let root = Running::start(&mut command(&["run", "--quiet", "--", "cat"]));
    until("the user's process is as it was", || masks(sleep.pid()) == all);
    until("root's holds the machine", || Levers::read() != machine.before);
    let output = users.finish();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains(&format!("root's gleaner (pid {}) controls this machine", root.pid())),
        "{printed}"
    );
    assert!(printed.contains("releases its setting"), "{printed}");
    let output = root.finish();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    machine.assert_untouched();
}

#[test]
fn an_ordinary_user_cannot_keep_roots_gleaner_out() {
    let Some(machine) = Machine::take() else { return };
    // Makes the directory and the lock, which an ordinary user must not be able to hold.
    assert!(common::process::gleaner(&["run", "--quiet", "--", "true"]).status.success());
    let nobody = Nobody::new();
    let output = nobody.command("flock").args(["--nonblock", "/run/gleaner/lock", "true"]).output().unwrap();
    assert!(!output.status.success() && text(&output.stderr).contains("Permission denied"), "{output:?}");
    let output = nobody.command("cat").arg("/run/gleaner/holder").output().unwrap();
    assert!(output.status.success(), "who holds the machine is no secret: {output:?}");
    // Nor does the user's own Gleaner keep root's out.
    let users = Running::start(&mut nobody.gleaner(&["run", "--quiet", "--", "cat"]));
    let lock = nobody.dir.path().join("state/gleaner/lock");
    until("the user's holds its own lock", || {
        fs::File::open(&lock).is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err())
    });
    let output = common::process::gleaner(&["run", "--quiet", "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(users.finish().status.success());
    machine.assert_untouched();
}
