//! The other threads of Table 2: spinners that keep a vCPU awake, and co-runners that keep it busy.

use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use gleaner_policy::{CpuId, CpuSet};
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::WakeError;
use super::handoff::spawn;

/// What a helper does on its vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Helper {
    /// Calls `sched_yield` in `SCHED_IDLE`: the vCPU never idles, and any other thread preempts the helper.
    Spin,
    /// Computes at normal priority.
    Compute,
}

/// Timeout for one spinner to start, or for all of them to end. On a vCPU that is kept busy, a `SCHED_IDLE`
/// thread can take seconds for either. That does no harm: such a vCPU does not idle anyway, and a spinner
/// that ends late disturbs nobody at its priority.
const SPINNER_TIMEOUT: Duration = Duration::from_millis(20);

/// Running helpers; dropping it ends them.
#[derive(Debug)]
pub(super) struct Helpers {
    /// Timeout for one helper to start, or for all of them to end.
    timeout: Duration,
    stop: Arc<AtomicBool>,
    /// Each helper holds a sender: once all senders are gone, so are the helpers.
    events: Receiver<Result<(), WakeError>>,
}

impl Helpers {
    /// Starts one helper on each of `cpus` and returns once all of them run. `timeout` is for co-runners.
    pub(super) fn start(helper: Helper, cpus: &CpuSet, timeout: Duration) -> Result<Self, WakeError> {
        let timeout = match helper {
            Helper::Spin => SPINNER_TIMEOUT,
            Helper::Compute => timeout,
        };
        let (sender, events) = mpsc::channel();
        let helpers = Self { timeout, stop: Arc::new(AtomicBool::new(false)), events };
        for cpu in cpus.iter() {
            let (stop, sender) = (Arc::clone(&helpers.stop), sender.clone());
            spawn(cpu, move || {
                let ready = pin(cpu).and_then(|()| match helper {
                    Helper::Spin => set_idle_priority(cpu),
                    Helper::Compute => Ok(()),
                });
                let ok = ready.is_ok();
                if sender.send(ready).is_ok() && ok {
                    run_helper(helper, &stop);
                }
            })?;
        }
        drop(sender);
        for cpu in cpus.iter() {
            match helpers.events.recv_timeout(timeout) {
                Ok(ready) => ready?,
                Err(RecvTimeoutError::Timeout) if helper == Helper::Spin => {}
                Err(_) => {
                    return Err(WakeError::Starved { waker: cpu, wakee: cpu, waited: timeout });
                }
            }
        }
        Ok(helpers)
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Ends with the last sender or, if a helper gets no CPU time, with the timeout.
        while self.events.recv_timeout(self.timeout).is_ok() {}
    }
}

fn run_helper(helper: Helper, stop: &AtomicBool) {
    let mut x = 1_u64;
    while !stop.load(Ordering::Relaxed) {
        match helper {
            Helper::Spin => thread::yield_now(),
            Helper::Compute => {
                for _ in 0..1000 {
                    x = black_box(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
                }
            }
        }
    }
}

/// Binds the calling thread to `cpu`.
pub fn pin(cpu: CpuId) -> Result<(), WakeError> {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu.0 as usize)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|errno| WakeError::Affinity { cpu, source: errno.into() })
}

/// The vCPUs that the calling thread may use.
///
/// # Errors
/// [`WakeError::Allowed`], if the kernel does not report them.
pub fn allowed() -> Result<CpuSet, WakeError> {
    let set = sched_getaffinity(Pid::from_raw(0)).map_err(|errno| WakeError::Allowed(errno.into()))?;
    let numbers = 0..nix::sched::CpuSet::count();
    Ok(numbers
        .filter(|n| set.is_set(*n).unwrap_or(false))
        .filter_map(|n| u32::try_from(n).ok())
        .map(CpuId)
        .collect())
}

fn set_idle_priority(cpu: CpuId) -> Result<(), WakeError> {
    let param = libc::sched_param { sched_priority: 0 };
    // SAFETY: pid 0 is the calling thread, and `param` is valid for the call.
    let rc = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const param) };
    if rc == 0 { Ok(()) } else { Err(WakeError::Priority { cpu, source: io::Error::last_os_error() }) }
}
