//! Which cause costs a VM how much of the time in which its vCPUs want to run, and what to do about it.
//!
//! A cause is what the guest does, or what happens to it, and takes in all exits that come with it: a thread that is woken
//! on an idle vCPU costs an interrupt command, the end of a halt, and the wait for a pCPU. What a halt costs is charged to
//! what ended it: a wake-up from another vCPU, the guest's timer, or a device.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::attribution::{ReasonTimes, Times};
use crate::reading::Interrupts;
use crate::report::VcpuRecord;
use crate::setup::HostSetup;
use crate::{Group, Reason};

/// Causes that take less than this share of the time in which the vCPUs want to run are not worth a remedy.
pub const WORTH: f64 = 0.05;

/// What costs a VM time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Threads are woken on other vCPUs: interrupts for halted vCPUs, the halts that they end, and reschedule interrupts.
    WakeUps,
    /// Functions are called on vCPUs that run: TLB shootdowns, membarrier.
    FunctionCalls,
    /// The guest programs its timer and sleeps until it runs out.
    Timers,
    /// Devices: accesses, waiting for the VMM, and the halts that their interrupts end.
    Devices,
    /// Spinning that the processor or the guest reports.
    Spinning,
    /// vCPUs are preempted: more vCPUs want to run than there are pCPUs.
    Preemption,
    /// Guest memory is mapped, swapped in or migrated.
    Memory,
    /// Ends of interrupts.
    InterruptEnds,
    /// Other model-specific registers.
    Registers,
    /// Interrupts of the host, CPUID and everything else.
    Other,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 10] = [
        Self::WakeUps,
        Self::FunctionCalls,
        Self::Timers,
        Self::Devices,
        Self::Spinning,
        Self::Preemption,
        Self::Memory,
        Self::InterruptEnds,
        Self::Registers,
        Self::Other,
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WakeUps => "wake-ups of idle vCPUs",
            Self::FunctionCalls => "function calls between vCPUs",
            Self::Timers => "timers",
            Self::Devices => "devices",
            Self::Spinning => "spinning",
            Self::Preemption => "preemption",
            Self::Memory => "memory",
            Self::InterruptEnds => "ends of interrupts",
            Self::Registers => "model-specific registers",
            Self::Other => "other exits",
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What a cause costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// The cause.
    pub cause: Cause,
    /// Time that the vCPUs would otherwise have spent in the guest or halted, in ns.
    pub ns: u64,
    /// Its share of the time in which the vCPUs wanted to run.
    pub share: f64,
    /// The remedies, if it is worth one.
    pub remedies: Vec<String>,
}

/// The causes that cost something, the most expensive first.
pub fn rank(
    times: &Times,
    reasons: &BTreeMap<Reason, ReasonTimes>,
    vcpus: &[VcpuRecord],
    setup: &HostSetup,
) -> Vec<Cost> {
    let mut interrupts = Totals::default();
    for vcpu in vcpus {
        interrupts.wakes += vcpu.waking + vcpu.to_running.reschedule;
        interrupts.calls += vcpu.to_running.call;
        interrupts.halts_ended.add(&vcpu.halts.ended_by);
        interrupts.guest_polls |= vcpu.halts.guest_polls;
    }
    let wanted = times.wanted_ns().max(1) as f64;
    let mut costs: Vec<Cost> = sums(reasons, &interrupts)
        .into_iter()
        .filter(|(_, ns)| *ns >= 1.0)
        .map(|(cause, ns)| {
            let share = ns / wanted;
            let remedies = if share >= WORTH { remedies(cause, &interrupts, setup) } else { Vec::new() };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of times")]
            Cost { cause, ns: ns as u64, share, remedies }
        })
        .collect();
    costs.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.cause.cmp(&b.cause)));
    costs
}

#[derive(Debug, Default)]
struct Totals {
    /// Interrupts that wake threads on other vCPUs.
    wakes: u64,
    /// Interrupts that call functions on other vCPUs.
    calls: u64,
    halts_ended: Interrupts,
    guest_polls: bool,
}

fn sums(reasons: &BTreeMap<Reason, ReasonTimes>, interrupts: &Totals) -> BTreeMap<Cause, f64> {
    let mut costs: BTreeMap<Cause, f64> = Cause::ALL.iter().map(|cause| (*cause, 0.0)).collect();
    let mut add = |cause: Cause, ns: f64| *costs.entry(cause).or_default() += ns;
    for (reason, sum) in reasons {
        let (run, preempted) = (sum.run_ns as f64, sum.preempted_ns as f64);
        // Asleep after another exit than HLT: the VMM or the kernel works for the vCPU.
        let away = if *reason == Reason::Hlt { 0.0 } else { sum.sleep_ns as f64 } + sum.woken_ns as f64;
        let cost = run + away;
        match reason.group() {
            Group::Scheduling => {
                for (cause, share) in halts(&interrupts.halts_ended) {
                    add(cause, cost * share);
                }
                add(Cause::Preemption, preempted);
            }
            Group::Ipi => {
                let calls = share(interrupts.calls, interrupts.calls + interrupts.wakes);
                add(Cause::FunctionCalls, cost * calls);
                add(Cause::WakeUps, cost * (1.0 - calls));
                add(Cause::Preemption, preempted);
            }
            // A spinning vCPU gives its pCPU away on purpose.
            Group::Ple => add(Cause::Spinning, cost + preempted),
            group => {
                let cause = match group {
                    Group::TscDeadline => Cause::Timers,
                    Group::Io => Cause::Devices,
                    Group::Ept => Cause::Memory,
                    Group::Eoi => Cause::InterruptEnds,
                    Group::Msr => Cause::Registers,
                    _ => Cause::Other,
                };
                add(cause, cost);
                add(Cause::Preemption, preempted);
            }
        }
    }
    costs
}

/// By what ended them; all by wake-ups if that is not known.
fn halts(ended: &Interrupts) -> [(Cause, f64); 3] {
    let total = ended.total();
    if total == 0 {
        return [(Cause::WakeUps, 1.0), (Cause::Timers, 0.0), (Cause::Devices, 0.0)];
    }
    [
        // Guests wake idle vCPUs by reschedule interrupts or by function calls.
        (Cause::WakeUps, share(ended.reschedule + ended.call + ended.other, total)),
        (Cause::Timers, share(ended.timer, total)),
        (Cause::Devices, share(ended.device, total)),
    ]
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn remedies(cause: Cause, interrupts: &Totals, setup: &HostSetup) -> Vec<String> {
    let mut remedies: Vec<&str> = Vec::new();
    match cause {
        Cause::WakeUps => {
            remedies.push(
                "in the guest: run `gleaner`, which keeps idle vCPUs from halting, or uses fewer of them, where that \
                 pays",
            );
            if setup.halt_poll_ns == Some(0) && !interrupts.guest_polls {
                remedies.push(
                    "on the host: KVM does not poll before it gives a halted vCPU's pCPU away; where pCPUs are free, \
                     set kvm.halt_poll_ns (default 200000)",
                );
            }
            if !setup.delivers_interrupts {
                remedies.push(
                    "on the host: each interrupt between vCPUs is an exit; turn on AVIC (kvm_amd.avic=1) or APICv \
                     (kvm_intel.enable_apicv=1) if the processor has it",
                );
            }
        }
        Cause::FunctionCalls => remedies.extend([
            "in the guest: threads of one process that map, unmap and free memory interrupt each other; limit the trimming \
             of the heap (MALLOC_TRIM_THRESHOLD_, or another allocator), use larger mappings, or fewer vCPUs for the \
             process",
            "in the VM's CPUID: offer kvm_pv_tlb_flush (kvm-pv-tlb-flush=on), by which vCPUs that do not run need no \
             interrupt",
        ]),
        Cause::Timers => remedies.extend([
            "in the guest: threads sleep for short times, or poll by timers; let them wait for events, and keep the timer \
             frequency low (CONFIG_HZ, skew_tick)",
            "in the guest: each idle period that stops the tick programs the timer twice; nohz=off avoids that where vCPUs \
             are busy, and retention (`gleaner`) where they idle for short times",
        ]),
        Cause::Devices => remedies.extend([
            "in the VM's devices: use virtio with vhost or an I/O thread (iothread=), so that accesses do not wait for the \
             VMM",
            "in the guest: send larger requests, and more of them at a time",
        ]),
        Cause::Spinning => remedies.extend([
            "in the guest: threads spin for a vCPU that does not run; use locks that sleep, or as many threads as vCPUs \
             that really run",
            "on the host: give the VM pCPUs of its own, or fewer vCPUs",
        ]),
        Cause::Preemption => remedies.extend([
            "on the host: more vCPUs want to run than there are pCPUs; move VMs away, pin them apart, or give them fewer \
             vCPUs",
        ]),
        Cause::Memory => remedies.extend([
            "on the host: back the guest's memory with huge pages, allocated in advance (prealloc=on), and keep it from \
             being swapped or migrated between NUMA nodes",
        ]),
        Cause::InterruptEnds => remedies.extend([
            "in the VM's CPUID: offer kvm_pv_eoi (kvm-pv-eoi=on), or turn on AVIC or APICv on the host",
        ]),
        Cause::Registers => remedies.extend([
            "in the guest: find what accesses the registers (perf trace -e msr:*): counters of perf and frequency drivers \
             do",
        ]),
        Cause::Other => remedies.extend([
            "on the host: keep interrupts and timers away from the pCPUs of VMs (irqaffinity=, nohz_full=)",
        ]),
    }
    remedies.into_iter().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Isa;

    fn setup() -> HostSetup {
        HostSetup {
            kernel: "6.12".to_owned(),
            isa: Isa::Svm,
            pcpus: 4,
            halt_poll_ns: Some(200_000),
            delivers_interrupts: false,
            detects_spinning: true,
        }
    }

    /// Causes with their share in per cent.
    fn ranked(reasons: &[(Reason, ReasonTimes)], guest_ns: u64, totals: &Totals) -> Vec<(Cause, i32)> {
        let reasons: BTreeMap<Reason, ReasonTimes> = reasons.iter().copied().collect();
        let times = Times::of(0, guest_ns, &reasons);
        let wanted = times.wanted_ns();
        let mut costs: Vec<(Cause, i32)> = sums(&reasons, totals)
            .into_iter()
            .filter(|(_, ns)| *ns >= 1.0)
            .map(|(cause, ns)| (cause, percent(ns / wanted as f64)))
            .collect();
        costs.sort_by_key(|(_, share)| std::cmp::Reverse(*share));
        costs
    }

    #[expect(clippy::cast_possible_truncation, reason = "0 to 100")]
    fn percent(share: f64) -> i32 {
        (100.0 * share).round() as i32
    }

    fn run(ns: u64) -> ReasonTimes {
        ReasonTimes { count: 1, run_ns: ns, ..ReasonTimes::default() }
    }

    #[test]
    fn halts_are_charged_to_what_ended_them() {
        let halt =
            ReasonTimes { count: 10, run_ns: 300, sleep_ns: 5000, woken_ns: 100, ..ReasonTimes::default() };
        let reasons = [(Reason::Hlt, halt), (Reason::Ipi, run(100))];
        let by = |ended: Interrupts| Totals { halts_ended: ended, wakes: 9, ..Totals::default() };
        let pings = by(Interrupts { reschedule: 5, call: 5, ..Interrupts::default() });
        assert_eq!(ranked(&reasons, 500, &pings), [(Cause::WakeUps, 50)]);
        let sleeps = by(Interrupts { timer: 9, reschedule: 1, ..Interrupts::default() });
        assert_eq!(ranked(&reasons, 500, &sleeps), [(Cause::Timers, 36), (Cause::WakeUps, 14)]);
        // Where the processor hides interrupts, the halts are still there.
        assert_eq!(ranked(&reasons, 500, &by(Interrupts::default())), [(Cause::WakeUps, 50)]);
    }

    #[test]
    fn interrupts_are_charged_by_what_they_are_for() {
        let totals = Totals { wakes: 1, calls: 3, ..Totals::default() };
        assert_eq!(
            ranked(&[(Reason::Ipi, run(400))], 600, &totals),
            [(Cause::FunctionCalls, 30), (Cause::WakeUps, 10)]
        );
    }

    #[test]
    fn preemption_counts_wherever_it_happens_but_in_spinning() {
        let preempted = ReasonTimes { preempted_ns: 300, ..run(100) };
        let costs =
            ranked(&[(Reason::Interrupt, preempted), (Reason::Ple, preempted)], 200, &Totals::default());
        assert_eq!(costs, [(Cause::Spinning, 40), (Cause::Preemption, 30), (Cause::Other, 10)]);
    }

    #[test]
    fn waiting_for_the_vmm_is_a_devices_cost_and_being_halted_is_none() {
        let waits = ReasonTimes { sleep_ns: 300, ..run(100) };
        let costs = ranked(
            &[(Reason::Pio, waits), (Reason::Hlt, ReasonTimes { sleep_ns: 10_000, ..run(0) })],
            600,
            &Totals::default(),
        );
        assert_eq!(costs, [(Cause::Devices, 40)]);
    }

    #[test]
    fn only_what_is_worth_it_has_remedies() {
        let reasons: BTreeMap<Reason, ReasonTimes> =
            [(Reason::TscDeadline, run(4)), (Reason::Pio, run(6))].into();
        let times = Times::of(0, 90, &reasons);
        let costs = rank(&times, &reasons, &[], &setup());
        assert_eq!((costs[0].cause, costs[0].remedies.is_empty()), (Cause::Devices, false));
        assert_eq!((costs[1].cause, costs[1].remedies.is_empty()), (Cause::Timers, true));
    }
}
