//! The programs, and when they are attached.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use gleaner_trace::bpf::{self, RunTime};
use libbpf_rs::skel::Skel as _;
use libbpf_rs::{Link, Result};

use crate::skeleton::HostSkel;

/// Of use on Intel's processors alone.
pub(super) const ON_APIC: &str = "on_apic";
/// Rare, and of use in pauses, too: a thread that ends is no vCPU any more.
const ON_THREAD_END: &str = "on_thread_end";

/// A program, its tracepoint, and what is missing without it; `None`: everything.
pub(super) const PROGRAMS: [(&str, &str, Option<&str>); 13] = [
    ("on_exit", "kvm_exit", None),
    ("on_entry", "kvm_entry", None),
    ("on_switch", "sched_switch", None),
    ("on_waking", "sched_waking", None),
    (ON_THREAD_END, "sched_process_exit", None),
    (ON_APIC, "kvm_apic", Some("registers of the local APIC in device memory, counted as MMIO")),
    ("on_mmio", "kvm_mmio", Some("device memory, counted as EPT")),
    ("on_fast_mmio", "kvm_fast_mmio", Some("notifications of devices, counted as EPT")),
    ("on_hypercall", "kvm_hypercall", Some("hypercalls by kind")),
    ("on_userspace", "kvm_userspace_exit", Some("exits that go on to the VMM")),
    ("on_wakeup", "kvm_vcpu_wakeup", Some("success of halt polling")),
    ("on_accept", "kvm_apic_accept_irq", Some("interrupts between vCPUs, and their latencies")),
    (
        "on_inject",
        "kvm_inj_virq",
        Some("interrupts that vCPUs take, what ends halts, and the latencies of timers and devices"),
    ),
];

/// A program that the kernel accepted.
pub(super) struct Program {
    name: &'static str,
    fd: OwnedFd,
    /// Detaches it when dropped.
    link: Option<Link>,
}

impl Program {
    /// Attaches a program of these.
    pub(super) fn attached(name: &'static str, skel: &HostSkel<'_>) -> Result<Self> {
        let (fd, link) = attach(name, skel)?;
        Ok(Self { name, fd, link: Some(link) })
    }
}

fn attach(name: &str, skel: &HostSkel<'_>) -> Result<(OwnedFd, Link)> {
    let program = skel.object().progs_mut().find(|program| program.name() == name);
    let program = program.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
    Ok((program.as_fd().try_clone_to_owned()?, program.attach_trace()?))
}

/// Detaches those that have nothing to do in pauses.
pub(super) fn detach_all(programs: &mut [Program]) {
    for program in programs.iter_mut().filter(|program| program.name != ON_THREAD_END) {
        program.link = None;
    }
}

/// Attaches those that are detached.
pub(super) fn attach_all(programs: &mut [Program], skel: &HostSkel<'_>) -> Result<()> {
    for program in programs.iter_mut().filter(|program| program.link.is_none()) {
        program.link = Some(attach(program.name, skel)?.1);
    }
    Ok(())
}

/// What they take while `time` passes, in pCPUs, by the kernel's account. It adds the reading of a clock to each run, and leaves
/// out the way to the program, which takes about as long.
pub(super) fn take(programs: &[Program], time: Duration) -> f64 {
    let run = || programs.iter().map(|program| bpf::run_time(&program.fd)).collect::<Vec<RunTime>>();
    let (before, started) = (run(), Instant::now());
    std::thread::sleep(time);
    let ran: Duration = run().iter().zip(&before).map(|(now, then)| now.since(*then).time).sum();
    ran.as_secs_f64() / started.elapsed().as_secs_f64()
}
