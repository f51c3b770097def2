//! Claim 8: `scx_gleaner` schedules a KVM host: it comes and goes safely, shares fairly, and vCPUs that are asked for run
//! sooner.

mod control;
mod fairness;
mod groups;
mod holders;
mod latency;
mod mixes;
mod replayed;
mod safety;
mod stress;
mod symbiosis;
mod times;

use std::fs;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::NamedTempFile;

use crate::claims::{Claim, ClaimHost};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Step, VmSpec};

pub(super) const SAFETY: Claim = Claim {
    name: "sched-safety",
    group: 8,
    says: "scx_gleaner takes over a host with its guests, is refused twice, and however it ends the kernel's scheduler is back; \
           gleaner-host sched starts, shows, changes and ends it",
    quick: false,
    place: ClaimHost::NestedHost,
    prove: safety::prove,
};

pub(super) const FAIRNESS: Claim = Claim {
    name: "sched-fairness",
    group: 8,
    says: "under scx_gleaner VMs get pCPU time by the weights of their control groups, and one that floods the host with \
           interrupts gets no more",
    quick: false,
    place: ClaimHost::NestedHost,
    prove: fairness::prove,
};

pub(super) const LATENCY: Claim = Claim {
    name: "sched-latency",
    group: 8,
    says: "on an overcommitted host, scx_gleaner runs the recipients of interrupts between vCPUs sooner than the kernel's \
           scheduler does",
    quick: false,
    // A wake-up alone is short beside a slice, as on a real host, which is many times faster still.
    place: ClaimHost::CountedHost { pcpus: Cpus::flat(latency::PCPUS), n: -2 },
    prove: latency::prove,
};

pub(super) const HOLDERS: Claim = Claim {
    name: "sched-holders",
    group: 8,
    says: "scx_gleaner does not preempt a vCPU that has just sent a reschedule interrupt: half as many of those that hold a lock \
           then lose their pCPU",
    quick: false,
    place: ClaimHost::CountedHost { pcpus: Cpus::flat(holders::PCPUS), n: -1 },
    prove: holders::prove,
};

pub(super) const TIMES: Claim = Claim {
    name: "sched-times",
    group: 8,
    says: "under scx_gleaner recipients of shootdowns wait longer with a longer urgent slice, and less with a larger allowance",
    quick: false,
    place: ClaimHost::CountedHost { pcpus: Cpus::flat(times::PCPUS), n: 0 },
    prove: times::prove,
};

pub(super) const SMALL: Claim = Claim {
    name: "sched-small",
    group: 8,
    says: "under scx_gleaner a parallel VM beside four small ones gets more done than under the kernel's scheduler, and \
           load-conscious balance takes little from the small ones",
    quick: false,
    // Six pCPUs with an instruction per ns each take too long.
    place: ClaimHost::CountedHost { pcpus: Cpus::flat(mixes::PCPUS_BESIDE_SMALL), n: -1 },
    prove: mixes::beside_small,
};

pub(super) const PAIRS: Claim = Claim {
    name: "sched-pairs",
    group: 8,
    says: "two parallel VMs together get more done under scx_gleaner than under the kernel's scheduler",
    quick: false,
    place: ClaimHost::CountedHost { pcpus: Cpus::flat(4), n: -2 },
    prove: mixes::pairs,
};

pub(super) const STRESS: Claim = Claim {
    name: "sched-stress",
    group: 8,
    says: "scx_gleaner schedules a host on which VMs come and go and move between control groups, a pCPU goes offline and comes \
           back, and the scheduler itself is ended and started with other rules: nothing waits for too long",
    quick: false,
    // With a thread for each pCPU, the emulator loses breakpoints that the kernel patches into itself when a pCPU goes offline.
    place: ClaimHost::CountedHost { pcpus: Cpus::flat(4), n: 3 },
    prove: stress::prove,
};

pub(super) const REPLAYED: Claim = Claim {
    name: "sched-replayed",
    group: 8,
    says: "the simulator decides as scx_gleaner did, in the same order, from the same events",
    quick: false,
    place: ClaimHost::CountedHost { pcpus: Cpus::flat(replayed::PCPUS), n: 0 },
    prove: replayed::prove,
};

pub(super) const SYMBIOSIS: Claim = Claim {
    name: "sched-symbiosis",
    group: 8,
    says: "on a host whose cores have two threads, where a woken vCPU can go beside one that waits or beside one that computes, \
           scx_gleaner puts those that wait beside those that compute, and vice versa",
    quick: false,
    place: ClaimHost::CountedHost { pcpus: Cpus::smt(symbiosis::CORES), n: 0 },
    prove: symbiosis::prove,
};

const STATE: &str = "/sys/kernel/sched_ext/state";
/// For the kernel to switch schedulers.
const SWITCH: Duration = Duration::from_secs(30);

/// A running `scx_gleaner`; ended, and waited for, when dropped.
struct Scheduler {
    process: Child,
    output: NamedTempFile,
    errors: NamedTempFile,
}

impl Scheduler {
    /// Starts it, and waits until the kernel uses it.
    fn start(arguments: &[&str]) -> Result<Self> {
        let output = NamedTempFile::new().map_err(Error::system("make a temporary file"))?;
        let errors = NamedTempFile::new().map_err(Error::system("make a temporary file"))?;
        let reopen =
            |file: &NamedTempFile| file.reopen().map_err(Error::system("open a temporary file again"));
        let (stdout, stderr) = (reopen(&output)?, reopen(&errors)?);
        let process = Command::new("scx_gleaner")
            .args(arguments)
            .args(["--stats", "1"])
            .stdout(stdout)
            .stderr(stderr)
            .spawn()
            .map_err(Error::system("start scx_gleaner"))?;
        let mut scheduler = Self { process, output, errors };
        if !wait_for(|| state() == "enabled" || !scheduler.runs()) || !scheduler.runs() {
            return Err(failed(format!("scx_gleaner does not start: {}", scheduler.said())));
        }
        Ok(scheduler)
    }

    /// What it says of itself: what happened since its start.
    fn counts(&self) -> String {
        let said = fs::read_to_string(self.output.path()).unwrap_or_default();
        said.lines().next_back().unwrap_or_default().to_owned()
    }

    /// Its messages.
    fn said(&self) -> String {
        fs::read_to_string(self.errors.path()).unwrap_or_default()
    }

    fn runs(&mut self) -> bool {
        matches!(self.process.try_wait(), Ok(None))
    }

    /// Sends it a signal, waits for its end, and until the kernel's own scheduler is back. Returns its messages, too.
    fn end(&mut self, signal: Signal) -> Result<(ExitStatus, String)> {
        self.signal(signal);
        let status = self.process.wait().map_err(Error::system("wait for scx_gleaner"))?;
        if !wait_for(|| state() == "disabled") {
            return Err(failed(format!("after {signal} the kernel's scheduler is not back: {}", state())));
        }
        Ok((status, self.said()))
    }

    fn signal(&self, signal: Signal) {
        // It is a child that was not waited for, so the number is still its own.
        kill(Pid::from_raw(self.process.id().cast_signed()), signal).ok();
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
        self.process.wait().ok();
    }
}

/// Guests that stand still until dropped.
struct Still<'a>(&'a [&'a Guest]);

impl<'a> Still<'a> {
    fn keep(guests: &'a [&'a Guest]) -> Self {
        let still = Self(guests);
        still.signal(Signal::SIGSTOP);
        still
    }

    fn signal(&self, signal: Signal) {
        // Children that were not waited for, so the numbers are still theirs.
        for guest in self.0 {
            kill(Pid::from_raw(guest.pid().cast_signed()), signal).ok();
        }
    }
}

impl Drop for Still<'_> {
    fn drop(&mut self) {
        self.signal(Signal::SIGCONT);
    }
}

fn state() -> String {
    fs::read_to_string(STATE).unwrap_or_default().trim().to_owned()
}

fn wait_for(mut condition: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while started.elapsed() < SWITCH {
        if condition() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    false
}

fn failed(error: String) -> Error {
    Error::Guest { vm: "host".to_owned(), error }
}

/// A guest with as many vCPUs as the host has pCPUs.
fn guest(name: &str) -> VmSpec {
    VmSpec::new(name, Image::Tiny, Kernel::V7, Cpus::flat(4))
}

/// Longer than everything that happens beside a workload of 900 s.
const ENDLESS: Duration = Duration::from_secs(1000);

fn endless(workload: &[&str]) -> Step {
    Step::new(&[&["gleaner", "workload", "--for", "900s"], workload].concat()).timeout(ENDLESS)
}
