//! A thread's identity, affinity and scheduling policy: the system calls behind two kinds of target.

use std::fmt;
use std::io;

use gleaner_policy::{CpuId, CpuSet};
use serde::{Deserialize, Serialize};

use super::{LeverError, Target};
use crate::{KernelError, Root};

/// Identifies a thread, even after its TID is reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ThreadKey {
    /// The TID, as in `/proc/TID`.
    pub tid: u32,
    /// Start time in clock ticks (`USER_HZ`) since boot: field 22 of `/proc/TID/stat`.
    pub start_time_ticks: u64,
}

impl ThreadKey {
    /// The thread that has the TID `tid` now.
    ///
    /// # Errors
    /// One with [`KernelError::is_gone`] if there is no such thread.
    pub fn of(root: &Root, tid: u32) -> Result<Self, KernelError> {
        // Not /proc/TID/stat, for which the kernel adds up all threads of the process.
        let path = format!("/proc/{tid}/task/{tid}/stat");
        let stat = root.read(&path)?;
        // The name in parentheses can contain spaces and parentheses; field 3 follows the last one.
        let ticks =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(22 - 3)?.parse().ok());
        match ticks {
            Some(start_time_ticks) => Ok(Self { tid, start_time_ticks }),
            None => Err(KernelError::parse(root.path(path), "a start time in field 22", &stat)),
        }
    }

    /// Fails with [`LeverError::Gone`] unless the TID still is this thread's.
    pub(super) fn check(self, root: &Root, target: &Target) -> Result<(), LeverError> {
        match Self::of(root, self.tid) {
            Ok(now) if now == self => Ok(()),
            Ok(_) => Err(LeverError::Gone { target: target.clone() }),
            Err(error) => Err(LeverError::kernel(target, error)),
        }
    }
}

/// A scheduling policy of the kernel (`include/uapi/linux/sched.h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SchedPolicy {
    /// `SCHED_OTHER`: the default.
    Other,
    /// `SCHED_FIFO`: real-time.
    Fifo,
    /// `SCHED_RR`: real-time with time slices.
    Rr,
    /// `SCHED_BATCH`: as the default, but a wake-up does not preempt.
    Batch,
    /// `SCHED_IDLE`: yields to everything else.
    Idle,
    /// Any other, by number (6 is `SCHED_DEADLINE`, 7 is `SCHED_EXT`). Never written by a lever.
    Unknown(i32),
}

impl SchedPolicy {
    fn from_raw(raw: i32) -> Self {
        match raw {
            libc::SCHED_OTHER => Self::Other,
            libc::SCHED_FIFO => Self::Fifo,
            libc::SCHED_RR => Self::Rr,
            libc::SCHED_BATCH => Self::Batch,
            libc::SCHED_IDLE => Self::Idle,
            other => Self::Unknown(other),
        }
    }

    fn raw(self) -> i32 {
        match self {
            Self::Other => libc::SCHED_OTHER,
            Self::Fifo => libc::SCHED_FIFO,
            Self::Rr => libc::SCHED_RR,
            Self::Batch => libc::SCHED_BATCH,
            Self::Idle => libc::SCHED_IDLE,
            Self::Unknown(raw) => raw,
        }
    }
}

impl fmt::Display for SchedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other => f.write_str("SCHED_OTHER"),
            Self::Fifo => f.write_str("SCHED_FIFO"),
            Self::Rr => f.write_str("SCHED_RR"),
            Self::Batch => f.write_str("SCHED_BATCH"),
            Self::Idle => f.write_str("SCHED_IDLE"),
            Self::Unknown(raw) => write!(f, "policy {raw}"),
        }
    }
}

/// A scheduling policy with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SchedAttr {
    /// The scheduling policy.
    pub policy: SchedPolicy,
    /// Nice value, -20 (favoured) to 19.
    pub nice: i32,
    /// Real-time priority, 1 to 99; 0 with the other policies.
    pub rt_priority: i32,
    /// Whether children fall back to `SCHED_OTHER` (`SCHED_RESET_ON_FORK`).
    pub reset_on_fork: bool,
}

impl fmt::Display for SchedAttr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.policy {
            SchedPolicy::Fifo | SchedPolicy::Rr => {
                write!(f, "{} priority {}", self.policy, self.rt_priority)?;
            }
            _ => write!(f, "{} nice {}", self.policy, self.nice)?,
        }
        f.write_str(if self.reset_on_fork { " (reset on fork)" } else { "" })
    }
}

/// A CPU mask as the kernel expects it: 8192 CPUs (`NR_CPUS` with `MAXSMP`), eight times as many as
/// `cpu_set_t`.
type Mask = [u64; 8192 / 64];

/// The result of a system call, or `errno`.
fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The CPU affinity of thread `tid` (0: the caller).
pub(super) fn affinity(tid: u32) -> io::Result<CpuSet> {
    let mut mask: Mask = [0; 8192 / 64];
    // SAFETY: the kernel writes at most the given number of bytes, which is the size of `mask`.
    checked(unsafe {
        libc::syscall(libc::SYS_sched_getaffinity, tid, size_of::<Mask>(), mask.as_mut_ptr())
    })?;
    let bits = (0u32..).zip(mask);
    Ok(bits
        .flat_map(|(word, bits)| {
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| word * 64 + bit)
        })
        .map(CpuId)
        .collect())
}

/// Sets the CPU affinity of thread `tid` (0: the caller). The kernel ignores CPUs that do not exist.
pub(super) fn set_affinity(tid: u32, cpus: &CpuSet) -> io::Result<()> {
    let mut mask: Mask = [0; 8192 / 64];
    for CpuId(cpu) in cpus.iter() {
        if let Some(word) = mask.get_mut(cpu as usize / 64) {
            *word |= 1 << (cpu % 64);
        }
    }
    // SAFETY: the kernel reads the given number of bytes, which is the size of `mask`.
    checked(unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid, size_of::<Mask>(), mask.as_ptr()) })?;
    Ok(())
}

/// The policy and parameters of thread `tid` (0: the caller).
pub(super) fn scheduling(tid: u32) -> io::Result<SchedAttr> {
    let mut priority: libc::c_int = 0;
    // SAFETY: takes no pointer.
    let raw = checked(unsafe { libc::syscall(libc::SYS_sched_getscheduler, tid) })?;
    // SAFETY: the kernel writes one `struct sched_param`, which is a single int.
    checked(unsafe { libc::syscall(libc::SYS_sched_getparam, tid, &raw mut priority) })?;
    // Unlike the library function, the system call returns 20 - nice, which is never negative. SAFETY: takes no
    // pointer.
    let nice = 20 - checked(unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid) })?;
    let raw = i32::try_from(raw).map_err(io::Error::other)?;
    Ok(SchedAttr {
        policy: SchedPolicy::from_raw(raw & !libc::SCHED_RESET_ON_FORK),
        nice: i32::try_from(nice).map_err(io::Error::other)?,
        rt_priority: priority,
        reset_on_fork: raw & libc::SCHED_RESET_ON_FORK != 0,
    })
}

/// Sets the policy of thread `tid` (0: the caller), and its nice value if it differs.
///
/// `sched_setscheduler`, because unlike `sched_setattr` it keeps a time slice that the thread chose for itself
/// (kernel/sched/syscalls.c, `custom_slice`). Not through the C library, since musl refuses it.
pub(super) fn set_scheduling(tid: u32, attr: SchedAttr) -> io::Result<()> {
    let now = scheduling(tid)?;
    let flag = if attr.reset_on_fork { libc::SCHED_RESET_ON_FORK } else { 0 };
    let policy = attr.policy.raw() | flag;
    if now != (SchedAttr { nice: now.nice, ..attr }) {
        let priority: libc::c_int = attr.rt_priority;
        // SAFETY: the kernel reads one `struct sched_param`, which is a single int.
        checked(unsafe { libc::syscall(libc::SYS_sched_setscheduler, tid, policy, &raw const priority) })?;
    }
    if now.nice != attr.nice {
        // SAFETY: takes no pointer.
        checked(unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, tid, attr.nice) })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn start_time_is_field_22_whatever_the_name() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::create_dir_all(root.path("/proc/7/task/7")).unwrap();
        let line = "7 (a) b (c)) S 1 7 7 0 -1 4194304 1 0 0 0 3 4 0 0 20 0 1 0 987654 0 0";
        fs::write(root.path("/proc/7/task/7/stat"), line).unwrap();
        let key = ThreadKey::of(&root, 7).unwrap();
        assert_eq!(key, ThreadKey { tid: 7, start_time_ticks: 987_654 });
        fs::write(root.path("/proc/7/task/7/stat"), "7 (short) S 1").unwrap();
        assert!(ThreadKey::of(&root, 7).unwrap_err().to_string().contains("field 22"));
        assert!(ThreadKey::of(&root, 8).unwrap_err().is_gone());
    }

    #[test]
    fn a_recycled_thread_is_gone_and_not_touched() {
        let root = Root::system();
        // SAFETY: takes no argument.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        let mut key = ThreadKey::of(&root, tid).unwrap();
        let before = affinity(0).unwrap();
        assert!(!before.is_empty());
        key.start_time_ticks += 1;
        let target = Target::Affinity(key);
        assert!(target.read(&root).unwrap_err().is_gone());
        let none = super::super::Value::Cpus([CpuId(0)].into_iter().collect());
        assert!(target.write(&root, &none).unwrap_err().is_gone());
        assert_eq!(affinity(0).unwrap(), before);
    }
}
