//! `sched stop`.

use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gleaner_host::sched::KernelScheduler;
use gleaner_kernel::Root;
use gleaner_print::outln;
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{connect, without_answer};

const TIMEOUT: Duration = Duration::from_secs(30);
const INTERVAL: Duration = Duration::from_millis(50);

pub(super) fn run() -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let Some(client) = connect()? else {
        let kernel = KernelScheduler::read(&root);
        if kernel.has_gleaner() {
            bail!("{}", without_answer(&kernel));
        }
        outln!("no scx_gleaner runs; {}", kernel.text())?;
        return Ok(ExitCode::SUCCESS);
    };
    let pid = client.pid()?;
    match kill(Pid::from_raw(pid), Signal::SIGTERM) {
        // It has ended by itself meanwhile.
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(errno) => {
            return Err(errno)
                .with_context(|| format!("cannot end scx_gleaner (process {pid}); run it as root"));
        }
    }
    let started = Instant::now();
    while started.elapsed() < TIMEOUT {
        let kernel = KernelScheduler::read(&root);
        // Its socket is removed at the very end: then another one can be started.
        if !kernel.has_gleaner() && connect()?.is_none() {
            outln!("scx_gleaner (process {pid}) has ended; {}", kernel.text())?;
            return Ok(ExitCode::SUCCESS);
        }
        sleep(INTERVAL);
    }
    bail!(
        "scx_gleaner (process {pid}) has not ended after {} s: `kill -KILL {pid}` ends it, and the kernel's own scheduler takes over",
        TIMEOUT.as_secs()
    )
}
