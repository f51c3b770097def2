//! One reading of the counters.

use std::collections::BTreeMap;

use gleaner_trace::Histogram;
use serde::{Deserialize, Serialize};

use crate::Reason;
use crate::attribution::{Attribution, ReasonTimes, State};
use crate::skeleton::types::{self, hist_id, injecting, vcpu_state, vector_class};

/// Counters at one moment.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    /// When it was read, in ns of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
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
    fn of(counts: &[u64]) -> Self {
        let of = |class: vector_class| counts.get(class.0 as usize).copied().unwrap_or_default();
        Self {
            reschedule: of(vector_class::VECTOR_RESCHEDULE),
            call: of(vector_class::VECTOR_CALL),
            timer: of(vector_class::VECTOR_TIMER),
            device: of(vector_class::VECTOR_DEVICE),
            other: of(vector_class::VECTOR_OTHER),
        }
    }

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
    /// Waits for a pCPU after a wake-up.
    pub woken: Histogram,
    /// Waits for a pCPU after preemption.
    pub preempted: Histogram,
}

impl VcpuCounters {
    /// From a slot and its histograms, continued until `now`, in ns.
    pub(crate) fn of(slot: &types::vcpu, hists: &[types::hist], now: u64) -> Self {
        let mut attribution = Attribution {
            state: match slot.state {
                vcpu_state::STATE_GUEST => State::Guest,
                vcpu_state::STATE_HYPERVISOR => State::Hypervisor,
                vcpu_state::STATE_ASLEEP => State::Asleep,
                vcpu_state::STATE_PREEMPTED => State::Preempted,
                _ => State::Unknown,
            },
            reason: Reason::from_number(slot.reason.0),
            first_ns: slot.first_ns,
            since_ns: slot.since_ns,
            woken_ns: slot.woken_ns,
            unknown_ns: slot.unknown_ns,
            guest_ns: slot.guest_ns,
            unpaired: slot.unpaired,
            disordered: slot.disordered,
            reasons: slot.reasons.iter().map(reason_times).collect(),
        };
        let ended = slot.exited != 0;
        if !ended {
            attribution.account(now);
        }
        let after = |kind: injecting| {
            slot.ended.get(kind.0 as usize).map(|counts| Interrupts::of(counts)).unwrap_or_default()
        };
        let hist = |id: hist_id| {
            let hist = hists.get(id.0 as usize);
            hist.map(|hist| Histogram::new(hist.count, hist.total_ns, &hist.buckets)).unwrap_or_default()
        };
        Self {
            pid: slot.tgid,
            tid: slot.tid,
            vcpu: slot.vcpu_id,
            ended,
            pcpu: slot.pcpu,
            attribution,
            halts_polled: slot.halts_polled,
            halts_blocked: slot.halts_blocked,
            halts_ended: after(injecting::INJECT_HALT),
            exits_injecting: after(injecting::INJECT_INTERRUPT),
            windows_injecting: after(injecting::INJECT_WINDOW),
            poll_success_ns: slot.poll_success_ns.saturating_sub(slot.first_poll_success_ns),
            poll_fail_ns: slot.poll_fail_ns.saturating_sub(slot.first_poll_fail_ns),
            poll_limit_ns: slot.poll_limit_ns,
            guest_polls: slot.guest_polls != 0,
            migrations: slot.migrations,
            waking: slot.waking,
            to_running: Interrupts::of(&slot.to_running),
            delivered: Interrupts::of(&slot.delivered),
            injected: Interrupts::of(&slot.injected),
            waking_latency: hist(hist_id::HIST_WAKING),
            reschedule_latency: hist(hist_id::HIST_RESCHEDULE),
            call_latency: hist(hist_id::HIST_CALL),
            woken: hist(hist_id::HIST_WOKEN),
            preempted: hist(hist_id::HIST_PREEMPTED),
        }
    }

    /// The thread, by which vCPUs differ, and its start, by which threads with the same number differ.
    pub(crate) fn identity(&self) -> (u32, u32, u64) {
        (self.pid, self.tid, self.attribution.first_ns)
    }
}

fn reason_times(sum: &types::reason_sum) -> ReasonTimes {
    ReasonTimes {
        count: sum.count,
        run_ns: sum.run_ns,
        sleep_ns: sum.sleep_ns,
        woken_ns: sum.woken_ns,
        preempted_ns: sum.preempted_ns,
        to_vmm: sum.to_vmm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skeleton::types::exit_reason;

    #[test]
    fn both_sides_number_reasons_alike() {
        for (number, reason) in [
            (exit_reason::REASON_UNKNOWN, Reason::Unknown),
            (exit_reason::REASON_HLT, Reason::Hlt),
            (exit_reason::REASON_TSC_DEADLINE, Reason::TscDeadline),
            (exit_reason::REASON_PLE, Reason::Ple),
            (exit_reason::REASON_MSR_WRITE, Reason::MsrWrite),
            (exit_reason::REASON_INTERRUPT, Reason::Interrupt),
            (exit_reason::REASON_CACHE, Reason::Cache),
            (exit_reason::REASON_OTHER, Reason::Other),
        ] {
            assert_eq!(number.0, reason as u32, "{reason}");
        }
        assert_eq!(exit_reason::REASONS.0 as usize, Reason::ALL.len());
    }

    #[test]
    fn a_reading_continues_the_current_state() {
        let mut slot = types::vcpu::default();
        (slot.state, slot.reason) = (vcpu_state::STATE_ASLEEP, exit_reason::REASON_HLT);
        (slot.first_ns, slot.since_ns) = (1_000_000, 5_000_000);
        let read = |slot: &types::vcpu| VcpuCounters::of(slot, &[], 9_000_000).attribution;
        assert_eq!(read(&slot).reasons[Reason::Hlt as usize].sleep_ns, 4_000_000);
        slot.woken_ns = 8_000_000;
        let hlt = read(&slot).reasons[Reason::Hlt as usize];
        assert_eq!((hlt.sleep_ns, hlt.woken_ns), (3_000_000, 1_000_000));
        slot.exited = 1;
        assert_eq!(read(&slot).reasons[Reason::Hlt as usize].sleep_ns, 0);
    }
}
