//! The causes, with the papers' names and the advice for each.

use serde::Serialize;

/// Why a program is slower in a VM: the categories of the TPDS'21 paper, §6, and others that a guest can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    Hlt,
    Ipi,
    Tick,
    TlbShootdown,
    KernelSpinning,
    UserSpinning,
    IoWait,
    RunQueueDelay,
    Steal,
}

impl Kind {
    /// The name, after the paper's category.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Hlt => "blocking synchronisation: HLT",
            Self::Ipi => "blocking synchronisation: IPI",
            Self::Tick => "blocking synchronisation: tick",
            Self::TlbShootdown => "TLB shootdown",
            Self::KernelSpinning => "kernel spinning",
            Self::UserSpinning => "user-level spinning",
            Self::IoWait => "I/O waits",
            Self::RunQueueDelay => "run-queue delay",
            Self::Steal => "steal",
        }
    }

    /// The paper and section.
    pub(super) const fn source(self) -> &'static str {
        match self {
            Self::Hlt | Self::Ipi | Self::Tick => "high host overhead, TPDS'21 section 6.2.1",
            Self::TlbShootdown => "high host overhead, TPDS'21 sections 6.2.2 and 6.3.1",
            Self::KernelSpinning => "high host overhead, TPDS'21 section 6.2.3",
            Self::UserSpinning => "high overcommitted overhead, TPDS'21 section 6.3.2",
            Self::IoWait => "TPDS'21 section 7.1.1: HLT by I/O rather than synchronisation",
            Self::RunQueueDelay => "not virtualisation: too few vCPUs for the runnable threads",
            Self::Steal => "overcommitted host, TPDS'21 section 4.3",
        }
    }

    /// The noun for `N ... a second`.
    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Hlt => "wake-ups of halted vCPUs",
            Self::Ipi => "interrupts sent",
            Self::Tick => "timer programmings",
            Self::TlbShootdown => "shootdowns",
            Self::KernelSpinning => "contended kernel locks",
            Self::UserSpinning => "ticks met a spinning thread",
            Self::IoWait => "waits for block devices",
            Self::RunQueueDelay => "waits for a busy vCPU",
            Self::Steal => "",
        }
    }

    /// What to do about it, the easiest first.
    pub(super) const fn advice(self) -> &'static [&'static str] {
        match self {
            Self::Hlt => &[
                "run it under `gleaner run`: retention keeps idle vCPUs from halting while that pays",
                "let waiting threads spin for a few microseconds before they block (spin-then-block locks and queues)",
                "hand off fewer, larger pieces of work: pipelining, batching, fewer threads in the chain",
            ],
            Self::Ipi => &[
                "run it under `gleaner run`: consolidation puts waker and wakee on one vCPU, polling vCPUs need no interrupt",
                "wake fewer threads: one worker instead of all of them, batched notifications, smaller thread pools",
            ],
            Self::Tick => &[
                "retention (`gleaner run`) also keeps the tick: an idle period that polls does not stop it",
                "longer or fewer idle periods: batch timers and timeouts",
            ],
            Self::TlbShootdown => &[
                "return memory to the kernel less often: glibc.malloc.trim_threshold and mmap_threshold, jemalloc's \
                 dirty_decay_ms, MALLOC_ARENA_MAX",
                "map and unmap in larger pieces, or re-use the mappings; madvise and mprotect in batches",
                "separate processes in place of threads that share nothing but the address space",
            ],
            Self::KernelSpinning => &[
                "fewer threads in the same system calls on the same object (one socket, file or address space)",
                "a host that does not overcommit: a preempted lock holder makes the others spin",
            ],
            Self::UserSpinning => &[
                "block after a short spin: a futex, condition variable or std barrier in place of the loop",
                "not more spinning threads than vCPUs; for OpenMP: OMP_WAIT_POLICY=passive, GOMP_SPINCOUNT=0",
                "a pause instruction in the loop (std::hint::spin_loop, _mm_pause)",
            ],
            Self::IoWait => &[
                "more requests at a time: asynchronous I/O, a deeper queue",
                "retention (`gleaner run`): where the device answers faster than a halted vCPU wakes up",
            ],
            Self::RunQueueDelay => &[
                "more vCPUs, or fewer runnable threads: a thread pool of the size of the machine",
                "a wider affinity or CPU set, if one confines it",
            ],
            Self::Steal => &["the host is short of CPU time: another host or instance type, or fewer vCPUs"],
        }
    }
}
