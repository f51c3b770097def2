//! Workloads as functions from a setting to rates. The two-vCPU ones were measured in a KVM guest.

use crate::Setting;

/// What a workload does under a setting, per second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    /// CPU seconds, per second.
    pub(crate) load: f64,
    /// The user-mode share of `load`, 0..=1.
    pub(crate) user_share: f64,
    pub(crate) switches: f64,
    /// Idle periods of all active vCPUs, halted or retained.
    pub(crate) idle_periods: f64,
    /// Seconds that runnable threads wait.
    pub(crate) run_delay: f64,
    /// Runnable threads at any moment.
    pub(crate) runnable: u32,
    pub(crate) moved_bytes: Option<f64>,
    /// What the policy cannot see: work done, in the workload's own unit.
    pub(crate) progress: f64,
}

pub(crate) type Workload = fn(&Setting) -> Rates;

/// Threads that hand work to each other: on one vCPU there are no idle periods, else each switch leaves one.
fn hand_offs(s: &Setting, load: f64, user_share: f64, switches: f64) -> Rates {
    let consolidated = s.active.len() == 1;
    Rates {
        load,
        user_share,
        switches,
        idle_periods: if consolidated { 100.0 } else { switches },
        run_delay: if consolidated { 0.1 } else { 0.05 },
        runnable: 1,
        moved_bytes: None,
        progress: switches,
    }
}

/// Picks by whether the workload runs on one vCPU, is retained, or is untouched.
fn by<T>(s: &Setting, untouched: T, retained: T, consolidated: T) -> T {
    match (s.active.len(), s.retention.is_on()) {
        (1, _) => consolidated,
        (_, true) => retained,
        (_, false) => untouched,
    }
}

/// One Redis connection: retention wins, consolidation gains a little less.
pub(crate) fn redis_1(s: &Setting) -> Rates {
    let (load, user, switches) = by(s, (0.80, 0.20, 42e3), (1.19, 0.42, 152e3), (1.0, 0.40, 143e3));
    hand_offs(s, load, user, switches)
}

/// A byte back and forth through two pipes: consolidation wins.
pub(crate) fn pipe(s: &Setting) -> Rates {
    let (load, user, switches) = by(s, (0.727, 0.08, 40e3), (1.02, 0.08, 342e3), (1.0, 0.10, 456e3));
    hand_offs(s, load, user, switches)
}

/// `MariaDB`, reads and writes over one connection: retention wins, consolidation gains a fifth less.
pub(crate) fn mariadb(s: &Setting) -> Rates {
    let (load, user, switches) = by(s, (0.813, 0.45, 24e3), (0.942, 0.60, 64e3), (0.82, 0.60, 51e3));
    hand_offs(s, load, user, switches)
}

/// A lock convoy: retained it switches more and works less, on one vCPU it does a sixth of the work.
pub(crate) fn convoy(s: &Setting) -> Rates {
    let (load, user, switches, progress) =
        by(s, (1.30, 0.10, 54e3, 1.0), (1.24, 0.0725, 86e3, 0.69), (1.0, 0.14, 617e3, 0.16));
    Rates { progress, ..hand_offs(s, load, user, switches) }
}

/// Eight Redis connections over TCP: with retention more CPU time and fewer answers.
pub(crate) fn redis_8(s: &Setting) -> Rates {
    let (load, user, switches, moved) =
        by(s, (1.65, 0.09, 15.7e3, 9.28e6), (1.69, 0.07, 37.0e3, 8.88e6), (1.0, 0.09, 60e3, 6.0e6));
    Rates { moved_bytes: Some(moved), progress: moved, ..hand_offs(s, load, user, switches) }
}

/// `threads` that never block: only the number of active vCPUs counts.
fn computing(s: &Setting, threads: f64, runnable: u32) -> Rates {
    let load = threads.min(s.active.len() as f64);
    Rates {
        load,
        user_share: 0.99,
        switches: 60.0 * threads,
        idle_periods: 100.0,
        run_delay: threads - load,
        runnable,
        moved_bytes: None,
        progress: load,
    }
}

/// One computing thread, the other vCPU idle.
pub(crate) fn compute_1(s: &Setting) -> Rates {
    computing(s, 1.0, 1)
}

/// Four computing threads: every vCPU is saturated.
pub(crate) fn compute_4(s: &Setting) -> Rates {
    computing(s, 4.0, 4)
}

/// Sixteen computing threads: every vCPU is saturated.
pub(crate) fn compute_16(s: &Setting) -> Rates {
    computing(s, 16.0, 16)
}

/// A daemon that wakes up now and then; nothing changes its progress.
pub(crate) fn idle_daemon(_: &Setting) -> Rates {
    Rates {
        load: 0.002,
        user_share: 0.5,
        switches: 20.0,
        idle_periods: 30.0,
        run_delay: 0.0,
        runnable: 0,
        moved_bytes: None,
        progress: 1.0,
    }
}

/// The same while other programs, which are none of Gleaner's business, halt and wake the vCPUs all the time.
pub(crate) fn idle_daemon_among_others(s: &Setting) -> Rates {
    Rates { idle_periods: 30_000.0, ..idle_daemon(s) }
}

/// A fine-grained pipeline on eight vCPUs: each vCPU fewer saves wake-ups, down to four; three are too few.
/// Retention gains a quarter everywhere.
pub(crate) fn pipeline_8(s: &Setting) -> Rates {
    const HAND_OFFS: [f64; 8] = [24e3, 46e3, 76e3, 82e3, 71e3, 63e3, 56e3, 50e3];
    let switches = HAND_OFFS[s.active.len() - 1] * if s.retention.is_on() { 1.25 } else { 1.0 };
    let load = switches * 18e-6;
    Rates {
        load,
        user_share: 0.5,
        switches,
        idle_periods: switches * 0.8,
        run_delay: 0.1,
        runnable: 2,
        moved_bytes: None,
        progress: switches,
    }
}

/// A client and a server on eight emulated vCPUs of two pCPUs, as measured: polling takes nearly all of the
/// time, and a hand-off is cheap only if both share a vCPU.
pub(crate) fn emulated_requests_8(s: &Setting) -> Rates {
    let (load, switches, moved) = match (s.active.len(), s.retention.is_on()) {
        (1, _) => (1.0, 22.7e3, 1.47e6),
        (_, false) => (0.83, 8.1e3, 0.67e6),
        (_, true) => (0.1, 0.25e3, 0.02e6),
    };
    Rates { moved_bytes: Some(moved), progress: moved, ..hand_offs(s, load, 0.3, switches) }
}

/// Eight threads that compute for 10 ms and meet at a barrier: each vCPU fewer costs its share.
pub(crate) fn phases_8(s: &Setting) -> Rates {
    all_needed(s, 0.8, 100.0, 0.95, 8)
}

/// Eight threads that compute for 50 us and meet at a barrier: wake-ups take half of the time, but all vCPUs
/// are needed at once.
pub(crate) fn barrier_8(s: &Setting) -> Rates {
    all_needed(s, 0.4, 1e4, 0.8, 4)
}

/// Eight threads that progress with the number of vCPUs; `load` and `switches` are per vCPU.
fn all_needed(s: &Setting, load: f64, switches: f64, user_share: f64, runnable: u32) -> Rates {
    let n = s.active.len() as f64;
    Rates {
        load: load * n,
        user_share,
        switches: switches * n,
        idle_periods: switches * n,
        run_delay: 8.0 - n,
        runnable,
        moved_bytes: None,
        progress: n,
    }
}
