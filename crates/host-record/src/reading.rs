//! One reading of the counters.

use std::collections::BTreeMap;

use gleaner_proto::histogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::attribution::Attribution;

/// Counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// When it was read, in ns of a clock that stands still while following is paused.
    pub at_ns: u64,
    /// The same in ns of `CLOCK_MONOTONIC`.
    pub monotonic_ns: u64,
    /// The vCPUs that had an event since the start, those that ended among them.
    pub vcpus: Vec<VcpuCounters>,
    /// Time that one process' vCPUs waited for a pCPU that another one had just before.
    pub steals: BTreeMap<(u32, u32), Steal>,
    /// What found no room.
    pub lost: Lost,
    /// Where the pCPUs' time went, by number.
    pub pcpus: Vec<Pcpu>,
}

/// Where a pCPU's time went since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pcpu {
    /// Threads of vCPUs, in ns.
    pub vcpu_ns: u64,
    /// Other threads, in ns.
    pub other_ns: u64,
    /// Idle, in ns.
    pub idle_ns: u64,
}

/// What following the vCPUs costs while it lasts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Time in the BPF programs, in pCPUs.
    pub pcpus: f64,
    /// What it takes from the vCPUs, as a share of the time that they have on pCPUs.
    pub share: f64,
}

impl Pcpu {
    /// The difference from `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            vcpu_ns: self.vcpu_ns.saturating_sub(earlier.vcpu_ns),
            other_ns: self.other_ns.saturating_sub(earlier.other_ns),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
        }
    }
}

/// Waiting of one VM for another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steal {
    /// How often.
    pub count: u64,
    /// How long, in ns.
    pub ns: u64,
}

/// What is missing in the counters because there was no room for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// vCPUs without counters.
    pub vcpus: u64,
    /// Threads without storage.
    pub storage: u64,
    /// Pairs of VMs without a sum.
    pub pairs: u64,
    /// Interrupts whose recipient is not known: a vCPU without an event so far.
    pub recipients: u64,
}

impl Lost {
    /// Whether something other than single interrupts is missing.
    pub fn matters(&self) -> bool {
        self.vcpus > 0 || self.storage > 0 || self.pairs > 0
    }
}

/// Interrupts by what Linux guests use their vectors for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interrupts {
    /// Reschedule: a thread was woken on an idle vCPU.
    pub reschedule: u64,
    /// Function calls: TLB shootdowns, membarrier and others.
    pub call: u64,
    /// The local timer.
    pub timer: u64,
    /// Devices.
    pub device: u64,
    /// All others.
    pub other: u64,
}

impl Interrupts {
    /// All of them.
    pub fn total(&self) -> u64 {
        self.reschedule + self.call + self.timer + self.device + self.other
    }

    /// Adds `more`.
    pub fn add(&mut self, more: &Self) {
        self.reschedule += more.reschedule;
        self.call += more.call;
        self.timer += more.timer;
        self.device += more.device;
        self.other += more.other;
    }

    /// The difference from `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            reschedule: self.reschedule.saturating_sub(earlier.reschedule),
            call: self.call.saturating_sub(earlier.call),
            timer: self.timer.saturating_sub(earlier.timer),
            device: self.device.saturating_sub(earlier.device),
            other: self.other.saturating_sub(earlier.other),
        }
    }
}

/// A vCPU's counters.
#[derive(Debug, Clone)]
pub struct VcpuCounters {
    /// The VMM's process.
    pub pid: u32,
    /// The vCPU's thread.
    pub tid: u32,
    /// Its number in the VM, which is also its APIC id.
    pub vcpu: u32,
    /// Whether the thread has ended.
    pub ended: bool,
    /// The pCPU that it was on last.
    pub pcpu: u32,
    /// Its state and its times, up to the reading.
    pub attribution: Attribution,
    /// Halts that ended while KVM polled.
    pub halts_polled: u64,
    /// Halts for which the pCPU was given away.
    pub halts_blocked: u64,
    /// Halts by the interrupt that ended them.
    pub halts_ended: Interrupts,
    /// Exits for an interrupt of the host that led to the injection of one into the guest, by that one.
    pub exits_injecting: Interrupts,
    /// Exits at the opening of an interrupt window, by what was injected.
    pub windows_injecting: Interrupts,
    /// KVM's account of polling that ended with a wake-up, in ns.
    pub poll_success_ns: u64,
    /// KVM's account of polling in vain, in ns.
    pub poll_fail_ns: u64,
    /// KVM's current limit for polling, in ns.
    pub poll_limit_ns: u64,
    /// Whether the guest polls itself and asked the host not to.
    pub guest_polls: bool,
    /// Changes of the pCPU.
    pub migrations: u64,
    /// Interrupts that woke another, halted vCPU of the VM.
    pub waking: u64,
    /// Interrupts for other vCPUs of the VM that were not halted.
    pub to_running: Interrupts,
    /// Interrupts that reached the vCPU's APIC from vCPUs of its VM, its own timer among them.
    pub delivered: Interrupts,
    /// Interrupts with which the vCPU entered the guest.
    pub injected: Interrupts,
    /// From the delivery of an interrupt of another vCPU until this one, halted, enters the guest with it.
    pub waking_latency: Histogram,
    /// The same of reschedule interrupts, not halted.
    pub reschedule_latency: Histogram,
    /// The same of function calls, not halted.
    pub call_latency: Histogram,
    /// From the wake-up of the thread of this vCPU, halted, until it enters the guest with the timer interrupt that ended the
    /// halt.
    pub timer_latency: Histogram,
    /// The same of devices' interrupts.
    pub device_latency: Histogram,
    /// Waits for a pCPU after a wake-up.
    pub woken: Histogram,
    /// Waits for a pCPU after preemption.
    pub preempted: Histogram,
    /// From a reschedule or function-call interrupt of another vCPU for this one, halted and without a pCPU, until it gets one.
    pub pcpu_halted: Histogram,
    /// The same of reschedule interrupts, not halted.
    pub pcpu_reschedule: Histogram,
    /// The same of function calls, not halted.
    pub pcpu_call: Histogram,
}

impl VcpuCounters {
    /// The thread, by which vCPUs differ, and its start, by which threads with the same number differ.
    pub(crate) fn identity(&self) -> (u32, u32, u64) {
        (self.pid, self.tid, self.attribution.first_ns)
    }
}
