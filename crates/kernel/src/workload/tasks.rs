//! Counters of threads and processes, accumulated so that the sums survive their ends.

mod cache;
mod processes;
mod sockets;
mod threads;

use std::time::Duration;

pub(super) use cache::FileBudget;
pub(super) use processes::Processes;
pub(super) use sockets::have_sockets;
pub(super) use threads::Threads;

use crate::stat::{ticks, user_tick};
use crate::{KernelError, Root};

/// `/proc/PID/stat` (kernel: `Documentation/filesystems/proc.rst`, table 1-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessStat {
    pub(super) parent: u32,
    /// `PF_*` of the kernel's `include/linux/sched.h`.
    flags: u32,
    user_ticks: u64,
    system_ticks: u64,
    /// Start time in ticks since boot.
    pub(super) start_ticks: u64,
}

impl ProcessStat {
    pub(super) fn read(root: &Root, pid: u32) -> Result<Self, KernelError> {
        Self::read_at(root, &format!("/proc/{pid}/stat"))
    }

    fn read_at(root: &Root, path: &str) -> Result<Self, KernelError> {
        let text = root.read(path)?;
        Self::parse(&text).ok_or_else(|| KernelError::parse(root.path(path), "52 fields", &text))
    }

    fn parse(text: &str) -> Option<Self> {
        // The command's name, in parentheses, can itself contain blanks and parentheses.
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        Some(Self {
            parent: fields.nth(1)?.parse().ok()?,
            flags: fields.nth(4)?.parse().ok()?,
            user_ticks: fields.nth(4)?.parse().ok()?,
            system_ticks: fields.next()?.parse().ok()?,
            start_ticks: fields.nth(6)?.parse().ok()?,
        })
    }
}

/// User and system time of the process `pid`, with those of its ended threads but not of its children, in ticks
/// of `/proc` (10 ms).
///
/// # Errors
/// There is no such process; one that has ended exists until it is waited for.
pub fn process_times(root: &Root, pid: u32) -> Result<(Duration, Duration), KernelError> {
    let stat = ProcessStat::read(root, pid)?;
    Ok((ticks(stat.user_ticks, user_tick()), ticks(stat.system_ticks, user_tick())))
}

/// Who owns a process, as far as changing its threads is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// A kernel thread, without threads in user space.
    Kernel,
    /// A user's process.
    User {
        /// Effective UID.
        uid: u32,
        /// Real UID.
        real: u32,
    },
}

impl Owner {
    /// `PF_KTHREAD`.
    const KERNEL_THREAD: u32 = 0x0020_0000;
    /// `CAP_SYS_NICE`: the right to set any thread's affinity.
    const PLACE_ANY: u32 = 23;

    /// The owner of process `pid`.
    ///
    /// # Errors
    /// There is no such process.
    pub fn of(root: &Root, pid: u32) -> Result<Self, KernelError> {
        if ProcessStat::read(root, pid)?.flags & Self::KERNEL_THREAD != 0 {
            return Ok(Self::Kernel);
        }
        let path = format!("/proc/{pid}/status");
        let status = root.read(&path)?;
        let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let mut ids = ids.unwrap_or_default().split_ascii_whitespace().map_while(|id| id.parse().ok());
        match (ids.next(), ids.next()) {
            (Some(real), Some(uid)) => Ok(Self::User { uid, real }),
            _ => Err(KernelError::parse(root.path(path), "the user in the line `Uid:`", &status)),
        }
    }

    /// Whether the caller, with the effective UID `caller`, is permitted to set the affinity of the process's
    /// threads (kernel: `check_same_owner`, or `CAP_SYS_NICE`).
    pub fn lets(self, root: &Root, caller: u32) -> bool {
        let Self::User { uid, real } = self else { return false };
        if caller == uid || caller == real {
            return true;
        }
        let status = root.read("/proc/thread-self/status").unwrap_or_default();
        let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let mask = effective.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.is_some_and(|mask| mask & (1 << Self::PLACE_ANY) != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_a_hostile_name() {
        let text = "7 (a) (b 1 2) S 5 7 7 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1 0 4242 8 9";
        let expected =
            ProcessStat { parent: 5, flags: 4_194_560, user_ticks: 11, system_ticks: 12, start_ticks: 4242 };
        assert_eq!(ProcessStat::parse(text), Some(expected));
        assert_eq!(ProcessStat::parse("7 (a) S 5 7"), None);
        assert_eq!(ProcessStat::parse(""), None);
    }

    #[test]
    fn kernel_threads_and_other_users_processes_are_distinguished() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let write = |path: &str, text: &str| {
            let path = root.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("/proc/2/stat", "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 9 0");
        write("/proc/7/stat", "7 (cat) S 1 7 7 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1 0 4242 8");
        write("/proc/7/status", "Name:\tcat\nUid:\t1000\t1001\t1001\t1001\n");
        write("/proc/thread-self/status", "CapEff:\t0000000000000000\n");
        assert_eq!(Owner::of(&root, 2).unwrap(), Owner::Kernel);
        let owner = Owner::of(&root, 7).unwrap();
        assert_eq!(owner, Owner::User { uid: 1001, real: 1000 });
        for (caller, allowed) in [(1000, true), (1001, true), (1002, false), (0, false)] {
            assert_eq!(owner.lets(&root, caller), allowed, "{caller}");
        }
        write("/proc/thread-self/status", "CapEff:\t0000000000800000\n");
        assert!(owner.lets(&root, 0) && !Owner::Kernel.lets(&root, 0));
        assert!(Owner::of(&root, 9).unwrap_err().is_gone());
    }
}
