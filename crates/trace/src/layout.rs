//! The numbers of `src/bpf/trace.h`: which counter lies where. A test compares them with the compiled programs.

/// Buckets to a power of two, as a power of two.
pub(crate) const HIST_SUB_BITS: u32 = 3;
pub(crate) const HIST_BUCKETS: usize = 256;
pub(crate) const RUN_BUCKETS: usize = 36;
/// The first name that is in the map of names; those below stand for what has none.
pub(crate) const NAME_OTHER: u32 = 0;
pub(crate) const NAME_INTERRUPT: u32 = 1;
pub(crate) const NAME_FIRST: u32 = 2;
pub(crate) const MAX_NAMES: u32 = 1024;

/// `enum hist_id`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Hist {
    WakeSame,
    WakeAwake,
    WakePolling,
    WakeHalted,
    Preempted,
    WaitFutex,
    WaitSocket,
    WaitPoll,
    WaitSleep,
    WaitIo,
    WaitOther,
    Spin,
    Shootdown,
}

/// `enum idle_id`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Idle {
    Poll,
    Halt,
}

/// `enum who`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Who {
    All,
    Scope,
}

/// `enum count_id`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    SentReschedule,
    SentCall,
    SentTlb,
    ReceivedReschedule,
    ReceivedCall,
    ReceivedTlb,
    TimerInterrupt,
    TimerProgrammed,
    TickStopped,
    WakeWithoutIpi,
    WakeQueued,
    Yield,
    FutexWake,
    FutexRequeue,
    FutexPi,
    LostTask,
    LostName,
    LostEdge,
}

/// The length of `struct counts`, in words.
#[cfg(test)]
pub(crate) const COUNTS: usize = Count::LostEdge as usize + 1;

/// `struct thread`, word by word; the run lengths follow.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Thread {
    CpuNs,
    Segments,
    SegmentNs,
    Preempted,
    Yields,
    Yielded,
    Ticks,
    UserTicks,
    PauseTicks,
    YieldTicks,
    Woken,
    WokenNs,
    Runs,
}

/// `struct edge`, word by word.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Edge {
    Count,
    TotalNs,
    Halted,
    Polling,
}

/// `enum scope_kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeKind {
    System,
    Tree,
    Children,
    Cgroup,
}

/// `enum scope_hierarchy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScopeHierarchy {
    V2,
    Cpuset,
    Cpu,
    Cpuacct,
}

#[cfg(test)]
mod tests {
    use crate::skeleton::types;

    use super::*;

    #[test]
    fn the_programs_have_the_same_layout() {
        assert_eq!(size_of::<types::hist>(), 8 * (2 + HIST_BUCKETS));
        assert_eq!(size_of::<types::counts>(), 8 * COUNTS);
        assert_eq!(std::mem::offset_of!(types::thread, woken_ns), 8 * Thread::WokenNs as usize);
        assert_eq!(std::mem::offset_of!(types::thread, runs), 8 * Thread::Runs as usize);
        assert_eq!(size_of::<types::thread>(), 8 * (Thread::Runs as usize + RUN_BUCKETS));
        assert_eq!(std::mem::offset_of!(types::edge, polling), 8 * Edge::Polling as usize);
    }
}
