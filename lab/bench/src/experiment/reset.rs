//! Resets poll limits, which outlive the setting that raised them.
//!
//! The haltpoll governor keeps a poll limit per vCPU. A latency request of 0 leaves it at a sixteenth of a
//! tick (`cpuidle_poll_time` in `drivers/cpuidle/cpuidle.c`), and it only shrinks when the vCPU halts
//! (`adjust_poll_limit` in `drivers/cpuidle/governors/haltpoll.c`). If a program's idle periods are shorter
//! than the limit, its vCPUs never halt: a sample of the untouched system after a polling one would poll,
//! too.

use std::thread;
use std::time::Duration;

use gleaner_calibrate::wake::{allowed, pin};
use gleaner_policy::CpuId;

use crate::servers::ServersError;

/// Longer than a sixteenth of the longest tick (10 ms), so that the vCPU polls in vain and halts.
const HALT_TIME: Duration = Duration::from_micros(700);

/// Each halt halves the limit (`guest_halt_poll_shrink` is 2): 20 halts reduce 1 ms to less than 1 ns.
const HALTS: u32 = 20;

/// Makes every vCPU halt until its poll limit is reset; takes about 20 ms.
///
/// # Errors
/// If a thread cannot be started, or not be pinned to its vCPU.
pub(super) fn reset_polling() -> Result<(), ServersError> {
    let failed = |what: &str| ServersError::system(format!("reset the poll limits of idle vCPUs: {what}"));
    let vcpus = allowed().map_err(|error| failed("find them")(std::io::Error::other(error)))?;
    thread::scope(|scope| {
        let rest = |vcpu: CpuId| {
            thread::Builder::new().spawn_scoped(scope, move || {
                pin(vcpu)?;
                (0..HALTS).for_each(|_| thread::sleep(HALT_TIME));
                Ok::<(), gleaner_calibrate::wake::WakeError>(())
            })
        };
        let threads: Vec<_> =
            vcpus.iter().map(rest).collect::<Result<_, _>>().map_err(failed("start a thread"))?;
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(rested) => rested.map_err(|error| failed("rest")(std::io::Error::other(error))),
            Err(_) => Err(failed("rest")(std::io::Error::other("a thread panicked"))),
        })
    })
}
