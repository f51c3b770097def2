//! The processes of groups that are no workloads of their own, and the families that they form.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use gleaner_kernel::stat::{ticks, user_tick};
use gleaner_kernel::{KernelError, Root};

use crate::Main;
use crate::file::read_short;

/// `/proc/PID/stat` (kernel: `Documentation/filesystems/proc.rst`, table 1-4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stat<'t> {
    pub(crate) command: Cow<'t, str>,
    parent: u32,
    is_kernel_thread: bool,
    /// User and system time, in ticks.
    pub(crate) ticks: u64,
    /// Since boot.
    pub(crate) start_ticks: u64,
}

impl<'t> Stat<'t> {
    /// Enough for all fields.
    pub(crate) const BUFFER: usize = 1024;
    /// `PF_KTHREAD` of the kernel's `include/linux/sched.h`.
    const KERNEL_THREAD: u64 = 0x0020_0000;

    pub(crate) fn read(root: &Root, pid: u32, buffer: &'t mut [u8]) -> Result<Self, KernelError> {
        let path = format!("/proc/{pid}/stat");
        let text = read_short(root, &path, buffer)?;
        Self::parse(text)
            .ok_or_else(|| KernelError::parse(root.path(path), "52 fields", &String::from_utf8_lossy(text)))
    }

    fn parse(text: &'t [u8]) -> Option<Self> {
        // The command's name, in parentheses, can itself contain blanks and parentheses.
        let start = text.iter().position(|byte| *byte == b'(')? + 1;
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let mut fields = std::str::from_utf8(&text[end + 1..]).ok()?.split_ascii_whitespace();
        let mut number = |skip| fields.nth(skip)?.parse::<u64>().ok();
        Some(Self {
            command: String::from_utf8_lossy(text.get(start..end)?),
            parent: u32::try_from(number(1)?).ok()?,
            is_kernel_thread: number(4)? & Self::KERNEL_THREAD != 0,
            ticks: number(4)?.saturating_add(number(0)?),
            start_ticks: number(6)?,
        })
    }
}

/// A process that can be a workload, or part of one.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) command: String,
    /// `None` where reading it is not permitted.
    executable: Option<PathBuf>,
    pub(crate) start_ticks: u64,
    /// Whether it was too young to be looked into at the last update: most such processes live for a moment.
    pub(crate) is_young: bool,
    /// CPU time since the update before, in ticks.
    used_ticks: u64,
    parent: u32,
    ticks: u64,
}

impl Process {
    /// CPU time since the update before.
    pub(crate) fn used(&self) -> Duration {
        ticks(self.used_ticks, user_tick())
    }

    /// What a candidate that it heads says of it.
    pub(crate) fn main(&self, pid: u32) -> Main {
        Main {
            pid,
            start_ticks: self.start_ticks,
            command: self.command.clone(),
            executable: self.executable.clone(),
        }
    }

    fn runs_the_same(&self, other: &Self) -> bool {
        match (&self.executable, &other.executable) {
            (Some(own), Some(others)) => own == others,
            _ => self.command == other.command,
        }
    }
}

/// Follows the processes of some groups.
#[derive(Debug)]
pub(crate) struct Processes {
    root: Root,
    own_pid: u32,
    /// Whether PID 1 is the machine's: what its children would inherit is left alone.
    leave_init: bool,
    known: BTreeMap<u32, Process>,
    /// Kernel threads, with the time at which each was last checked.
    kernel_threads: BTreeMap<u32, Duration>,
}

impl Processes {
    /// Younger processes are left out until the kernel has accounted a tick of CPU time to them.
    const GROWN_UP: Duration = Duration::from_secs(1);
    /// For so long a PID is taken for a kernel thread's without another look: they live for long.
    const TRUST: Duration = Duration::from_secs(60);
    /// A deeper chain of processes that run the same executable is a new family.
    const DEEPEST: usize = 64;

    pub(crate) fn new(root: &Root, own_pid: u32, leave_init: bool) -> Self {
        Self {
            root: root.clone(),
            own_pid,
            leave_init,
            known: BTreeMap::new(),
            kernel_threads: BTreeMap::new(),
        }
    }

    /// Reads the processes `pids`, ascending, at `now`, and drops all others. `uptime` is the time since boot.
    pub(crate) fn update(&mut self, pids: &[u32], now: Duration, uptime: Duration) {
        let is_listed = |pid: &u32| pids.binary_search(pid).is_ok();
        self.known.retain(|pid, _| is_listed(pid));
        self.kernel_threads
            .retain(|pid, checked| is_listed(pid) && now.saturating_sub(*checked) < Self::TRUST);
        let tick = user_tick();
        for pid in pids {
            if *pid == self.own_pid || (*pid == 1 && self.leave_init) || self.kernel_threads.contains_key(pid)
            {
                continue;
            }
            let mut buffer = [0; Stat::BUFFER];
            let stat = match Stat::read(&self.root, *pid, &mut buffer) {
                Ok(stat) if stat.is_kernel_thread => {
                    self.kernel_threads.insert(*pid, now);
                    continue;
                }
                Ok(stat) => stat,
                // It ended meanwhile, or belongs to another user under `hidepid`.
                Err(_) => {
                    self.known.remove(pid);
                    continue;
                }
            };
            let age = uptime.saturating_sub(ticks(stat.start_ticks, tick));
            let is_young = age < Self::GROWN_UP;
            if !is_young || stat.ticks > 0 {
                self.see(*pid, &stat, is_young);
            }
        }
    }

    fn see(&mut self, pid: u32, stat: &Stat<'_>, is_young: bool) {
        if let Some(process) = self.known.get_mut(&pid)
            && process.start_ticks == stat.start_ticks
            && process.command == stat.command
        {
            process.used_ticks = stat.ticks.saturating_sub(process.ticks);
            (process.ticks, process.parent, process.is_young) = (stat.ticks, stat.parent, is_young);
            return;
        }
        // A new one, a reused PID, or one that executes something else now.
        let executable = std::fs::read_link(self.root.path(format!("/proc/{pid}/exe"))).ok();
        let process = Process {
            command: stat.command.clone().into_owned(),
            executable,
            start_ticks: stat.start_ticks,
            is_young,
            used_ticks: 0,
            parent: stat.parent,
            ticks: stat.ticks,
        };
        self.known.insert(pid, process);
    }

    /// The families: for each process whose parent runs something else or is not among these, the process itself
    /// and its descendants that run the same executable.
    pub(crate) fn families(&self) -> BTreeMap<u32, Vec<u32>> {
        let mut families: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for pid in self.known.keys() {
            families.entry(self.head_of(*pid)).or_default().push(*pid);
        }
        families
    }

    fn head_of(&self, pid: u32) -> u32 {
        let mut head = pid;
        for _ in 0..Self::DEEPEST {
            let Some(process) = self.known.get(&head) else { break };
            match self.known.get(&process.parent) {
                // Whoever has the PID of the parent by now must be older.
                Some(parent)
                    if parent.start_ticks <= process.start_ticks && parent.runs_the_same(process) =>
                {
                    head = process.parent;
                }
                _ => break,
            }
        }
        head
    }

    pub(crate) fn get(&self, pid: u32) -> Option<&Process> {
        self.known.get(&pid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Proc, fake};

    const UPTIME: Duration = Duration::from_secs(1000);

    fn update(processes: &mut Processes, pids: &[u32], now_s: u64) {
        processes.update(pids, Duration::from_secs(now_s), UPTIME);
    }

    fn families(processes: &Processes) -> Vec<(u32, Vec<u32>)> {
        processes.families().into_iter().collect()
    }

    #[test]
    fn a_stat_line_with_a_hostile_name() {
        let text = b"7 (a) (b\xff 1 2) S 5 7 7 0 -1 4194560 1 2 3 4 11 12 13 14 20 0 1 0 4242 8 9";
        let stat = Stat::parse(text).unwrap();
        assert_eq!(
            (stat.command.as_ref(), stat.parent, stat.is_kernel_thread),
            ("a) (b\u{fffd} 1 2", 5, false)
        );
        assert_eq!((stat.ticks, stat.start_ticks), (23, 4242));
        for garbled in ["7 (a) S 5 7", "", "7 )a( S 5", "7 (a)"] {
            assert_eq!(Stat::parse(garbled.as_bytes()), None, "{garbled}");
        }
    }

    #[test]
    fn workers_belong_to_the_process_that_runs_the_same_executable() {
        let (_dir, root) = fake();
        for (pid, parent, command) in [
            (1, 0, "init"),
            (10, 1, "sh"),
            (20, 10, "nginx"),
            (21, 20, "nginx"),
            (22, 21, "nginx"),
            (30, 10, "sleep"),
            (40, 1, "nginx"),
        ] {
            Proc::new(pid, parent, command).put(&root);
        }
        let mut processes = Processes::new(&root, 999, true);
        update(&mut processes, &[1, 10, 20, 21, 22, 30, 40], 0);
        let expected = [(10, vec![10]), (20, vec![20, 21, 22]), (30, vec![30]), (40, vec![40])];
        assert_eq!(families(&processes), expected);
        // The middle one executes something else.
        Proc::new(21, 20, "gzip").put(&root);
        update(&mut processes, &[1, 10, 20, 21, 22, 30, 40], 1);
        assert_eq!(families(&processes)[1..4], [(20, vec![20]), (21, vec![21]), (22, vec![22])]);
    }

    #[test]
    fn itself_the_young_and_the_kernels_are_left_out() {
        let (_dir, root) = fake();
        Proc::new(1, 0, "redis").put(&root);
        Proc::new(2, 0, "kthreadd").put(&root);
        Proc::new(10, 1, "gleanerd").put(&root);
        let young = Proc { start: 99_950, ..Proc::new(11, 1, "short") };
        young.put(&root);
        let mut processes = Processes::new(&root, 10, false);
        update(&mut processes, &[1, 2, 10, 11], 0);
        assert_eq!(families(&processes), [(1, vec![1])], "in a container PID 1 is a program like others");
        // It does something.
        Proc { used: 1, ..young }.put(&root);
        update(&mut processes, &[1, 2, 10, 11], 0);
        assert_eq!(families(&processes), [(1, vec![1]), (11, vec![11])]);
        assert!(processes.get(11).unwrap().is_young && !processes.get(1).unwrap().is_young);
        young.put(&root);
        processes.update(&[1, 2, 10], Duration::ZERO, UPTIME);
        // A kernel thread's PID is looked at again only after a minute.
        Proc::new(2, 1, "late").put(&root);
        update(&mut processes, &[1, 2, 10, 11], 59);
        assert_eq!(processes.families().len(), 1);
        update(&mut processes, &[1, 2, 10, 11], 60);
        assert_eq!(families(&processes), [(1, vec![1]), (2, vec![2])]);
        update(&mut processes, &[], 61);
        assert!(processes.known.is_empty() && processes.kernel_threads.is_empty());
    }

    #[test]
    fn cpu_time_is_that_since_the_update_before_and_a_reused_pid_starts_anew() {
        let (_dir, root) = fake();
        let mut processes = Processes::new(&root, 999, true);
        let mut see = |used, start| {
            Proc { used, start, ..Proc::new(10, 1, "redis") }.put(&root);
            update(&mut processes, &[10], 0);
            processes.get(10).map(|process| process.used_ticks)
        };
        assert_eq!(see(700, 10), Some(0));
        assert_eq!(see(707, 10), Some(7));
        assert_eq!(see(900, 50), Some(0));
        std::fs::remove_dir_all(root.path("/proc/10")).unwrap();
        update(&mut processes, &[10], 0);
        assert!(processes.get(10).is_none(), "it ended after it was listed");
    }

    #[test]
    fn a_ring_of_parents_ends() {
        let (_dir, root) = fake();
        Proc::new(10, 11, "odd").put(&root);
        Proc::new(11, 10, "odd").put(&root);
        let mut processes = Processes::new(&root, 999, true);
        update(&mut processes, &[10, 11], 0);
        let members: usize = processes.families().values().map(Vec::len).sum();
        assert_eq!(members, 2);
    }
}
