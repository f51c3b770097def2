//! Counters of threads and processes, accumulated so that the sums survive their ends.

mod cache;
mod processes;
mod threads;

use std::time::Duration;

pub(super) use cache::FileBudget;
pub(super) use processes::Processes;
pub(super) use threads::Threads;

use crate::stat::{ticks, user_tick};
use crate::{KernelError, Root};

/// `/proc/PID/stat` (kernel: `Documentation/filesystems/proc.rst`, table 1-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessStat {
    pub(super) parent: u32,
    user_ticks: u64,
    system_ticks: u64,
    /// When it started, in ticks since boot.
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
        // The command's name, in parentheses, may itself hold blanks and parentheses.
        let mut fields = text.rsplit_once(')')?.1.split_ascii_whitespace();
        Some(Self {
            parent: fields.nth(1)?.parse().ok()?,
            user_ticks: fields.nth(9)?.parse().ok()?,
            system_ticks: fields.next()?.parse().ok()?,
            start_ticks: fields.nth(6)?.parse().ok()?,
        })
    }
}

/// User and system time of the process `pid`: of all of its threads, ended ones too, and not of its children. As fine
/// as the tick of `/proc`, 10 ms.
///
/// # Errors
/// Where there is no such process; one that has ended is still there until it is waited for.
pub fn process_times(root: &Root, pid: u32) -> Result<(Duration, Duration), KernelError> {
    let stat = ProcessStat::read(root, pid)?;
    Ok((ticks(stat.user_ticks, user_tick()), ticks(stat.system_ticks, user_tick())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stat_line_with_a_hostile_name() {
        let text = "7 (a) (b 1 2) S 5 7 7 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1 0 4242 8 9";
        let expected = ProcessStat { parent: 5, user_ticks: 11, system_ticks: 12, start_ticks: 4242 };
        assert_eq!(ProcessStat::parse(text), Some(expected));
        assert_eq!(ProcessStat::parse("7 (a) S 5 7"), None);
        assert_eq!(ProcessStat::parse(""), None);
    }
}
