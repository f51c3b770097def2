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

/// The counts of everybody in `struct counts`, in words; those of the scope follow.
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

/// Where in `struct code` the bytes begin, and which of these the program counter is at.
pub(crate) const CODE_AT: usize = 8;
pub(crate) const CODE_BEFORE: usize = 32;
/// The length of `struct code`.
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

/// The beginning of `struct vcpu`, word by word.
#[derive(Debug, Clone, Copy)]
pub(crate) enum VcpuTime {
    IdleSince,
    IdleUntil,
    PollNs,
    HaltNs,
    ScopeNs,
}

/// Where in `struct vcpu` the state is that it is or was idle in, a `u32`.
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
