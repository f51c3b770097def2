//! Numbers and offsets of `src/bpf/trace.h`. A test compares them with the compiled programs.

/// log2 of the buckets per power of two.
pub(crate) const HIST_SUB_BITS: u32 = 3;
pub(crate) const HIST_BUCKETS: usize = 256;
pub(crate) const RUN_BUCKETS: usize = 36;
/// `NAME_FIRST` is the first name in the map of names; those below it have no entry.
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

/// `enum count_id`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Count {
    SentReschedule,
    SentCall,
    SentTlb,
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

/// Number of counts for the whole machine in `struct counts`, in words; those of the scope follow.
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
    YieldTicks,
    Woken,
    WokenNs,
    Runs,
}

/// Offset of the bytes in `struct code`, and the index of the byte at the program counter.
pub(crate) const CODE_AT: usize = 8;
pub(crate) const CODE_BEFORE: usize = 32;
#[cfg(test)]
pub(crate) const CODE_SIZE: usize = CODE_AT + 64;

/// `struct edge`, word by word.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Edge {
    Count,
    TotalNs,
    Halted,
    Polling,
}

/// The start of `struct vcpu`, word by word.
#[derive(Debug, Clone, Copy)]
pub(crate) enum VcpuTime {
    IdleSince,
    IdleUntil,
    PollNs,
    HaltNs,
    ScopeNs,
}

/// Offset in `struct vcpu` of the current or latest idle state, a `u32`.
pub(crate) const IDLE_STATE_AT: usize = 56;

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
        assert_eq!(size_of::<types::counts>(), 2 * 8 * COUNTS);
        assert_eq!(std::mem::offset_of!(types::thread, woken_ns), 8 * Thread::WokenNs as usize);
        assert_eq!(std::mem::offset_of!(types::thread, runs), 8 * Thread::Runs as usize);
        assert_eq!(size_of::<types::thread>(), 8 * (Thread::Runs as usize + RUN_BUCKETS));
        assert_eq!(std::mem::offset_of!(types::code, bytes), CODE_AT);
        assert_eq!(size_of::<types::code>(), CODE_SIZE);
        assert_eq!(std::mem::offset_of!(types::edge, polling), 8 * Edge::Polling as usize);
        assert_eq!(std::mem::offset_of!(types::vcpu, idle_ns), 8 * VcpuTime::PollNs as usize);
        assert_eq!(std::mem::offset_of!(types::vcpu, scope_ns), 8 * VcpuTime::ScopeNs as usize);
        assert_eq!(std::mem::offset_of!(types::vcpu, idle_state), IDLE_STATE_AT);
    }
}
