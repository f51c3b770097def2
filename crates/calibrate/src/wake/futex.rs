//! The two futex calls, and the CPU clock of the calling thread.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `expected`. Returns true if woken by another thread's [`wake`], and false if the
/// word had changed before the thread slept, or a signal arrived.
pub(super) fn wait(word: &AtomicU32, expected: u32) -> bool {
    // SAFETY: the word is alive and aligned for the whole call, and a null timeout means "none".
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            std::ptr::null::<libc::timespec>(),
        )
    };
    rc == 0
}

/// Wakes up to `count` threads that sleep on `word`.
pub(super) fn wake(word: &AtomicU32, count: i32) {
    // SAFETY: the kernel only uses the address to find the sleepers; the word is alive anyway. The call
    // cannot fail with an aligned address, and its result is irrelevant: the wakee reports.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, count);
    }
}

/// The calling thread's CPU time so far. Exact to the nanosecond even if user time is tick-based: the kernel
/// updates the thread's run time first (kernel/sched/core.c, `task_sched_runtime`).
pub(super) fn thread_cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux, and `time` is a valid place for its value.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
