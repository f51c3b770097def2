//! Which cause costs a VM how much of the time in which its vCPUs want to run, and what to do about it.
//!
//! A cause is what the guest does, or what happens to it, and takes in all exits that come with it: a thread that is woken
//! on an idle vCPU costs an interrupt command, the end of a halt, the wait for a pCPU, and the end of the interrupt. What a
//! halt costs is charged to what ended it, what an exit for an interrupt costs to the interrupt that is then injected:
//! a wake-up from another vCPU, a function call, the guest's timer, or a device. If none is, it is the host's own.

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
    /// Functions are called on vCPUs that run: TLB shootdowns, membarrier. The caller spins until the other vCPU takes the
    /// call.
    FunctionCalls,
    /// Threads sleep for short times: timers that end halts, and programming them whenever a vCPU starts or ends to idle.
    Timers,
    /// Timer interrupts of vCPUs that run: the guest's tick, and timers that do not wait for anything.
    Tick,
    /// Devices: accesses, waiting for the VMM, and the halts that their interrupts end.
    Devices,
    /// Spinning that the processor or the guest reports.
    Spinning,
    /// vCPUs are preempted: more vCPUs want to run than there are pCPUs.
    Preemption,
    /// Guest memory is mapped, swapped in or migrated.
    Memory,
    /// The host's own interrupts: its timer, its devices.
    HostInterrupts,
    /// Other model-specific registers.
    Registers,
    /// CPUID and everything else.
    Other,
}

impl Cause {
    /// Every cause.
    pub const ALL: [Self; 11] = [
        Self::WakeUps,
        Self::FunctionCalls,
        Self::Timers,
        Self::Tick,
        Self::Devices,
        Self::Spinning,
        Self::Preemption,
        Self::Memory,
        Self::HostInterrupts,
        Self::Registers,
        Self::Other,
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::WakeUps => "wake-ups of idle vCPUs",
            Self::FunctionCalls => "function calls between vCPUs",
            Self::Timers => "timers",
            Self::Tick => "ticks of busy vCPUs",
            Self::Devices => "devices",
            Self::Spinning => "spinning",
            Self::Preemption => "preemption",
            Self::Memory => "memory",
            Self::HostInterrupts => "the host's interrupts",
            Self::Registers => "model-specific registers",
            Self::Other => "other exits",
        }
    }
}

impl Cause {
    /// One or two words, where a line is short.
    pub const fn short(self) -> &'static str {
        match self {
            Self::WakeUps => "wake-ups",
            Self::FunctionCalls => "function calls",
            Self::Timers => "timers",
            Self::Tick => "ticks",
            Self::Devices => "devices",
            Self::Spinning => "spinning",
            Self::Preemption => "preemption",
            Self::Memory => "memory",
            Self::HostInterrupts => "host interrupts",
            Self::Registers => "registers",
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
pub struct CauseCost {
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
) -> Vec<CauseCost> {
    let mut interrupts = Totals::default();
    for vcpu in vcpus {
        interrupts.wakes += vcpu.waking + vcpu.to_running.reschedule;
        interrupts.calls += vcpu.to_running.call;
        interrupts.calling_ns += vcpu.latencies.call.total_ns;
        interrupts.halts.add(&vcpu.halts.ended_by);
        interrupts.exits.add(&vcpu.exits_injecting);
        interrupts.windows.add(&vcpu.windows_injecting);
        interrupts.injected.add(&vcpu.injected);
        interrupts.guest_polls |= vcpu.halts.guest_polls;
    }
    let wanted = times.wanted_ns().max(1) as f64;
    let mut costs: Vec<CauseCost> = sums(reasons, &interrupts)
        .into_iter()
        .filter(|(_, ns)| *ns >= 1.0)
        .map(|(cause, ns)| {
            let share = ns / wanted;
            let remedies = if share >= WORTH { remedies(cause, &interrupts, setup) } else { Vec::new() };
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of times")]
            CauseCost { cause, ns: ns as u64, share, remedies }
        })
        .collect();
    costs.sort_by(|a, b| b.ns.cmp(&a.ns).then(a.cause.cmp(&b.cause)));
    costs
}

/// Interrupts of all vCPUs, by what they are for.
#[derive(Debug, Default)]
struct Totals {
    /// Interrupts that wake threads on other vCPUs.
    wakes: u64,
    /// Interrupts that call functions on other vCPUs.
    calls: u64,
    /// From calls until the other vCPUs take them, in ns.
    calling_ns: u64,
    /// What ended halts.
    halts: Interrupts,
    /// What was injected after exits for an interrupt of the host.
    exits: Interrupts,
    /// What was injected when an interrupt window opened.
    windows: Interrupts,
    /// Everything that was injected.
    injected: Interrupts,
    guest_polls: bool,
}

fn sums(reasons: &BTreeMap<Reason, ReasonTimes>, interrupts: &Totals) -> BTreeMap<Cause, f64> {
    let mut costs: BTreeMap<Cause, f64> = Cause::ALL.iter().map(|cause| (*cause, 0.0)).collect();
    let mut add = |cause: Cause, ns: f64| *costs.entry(cause).or_default() += ns;
    add(Cause::FunctionCalls, interrupts.calling_ns as f64);
    for (reason, sum) in reasons {
        let (run, preempted) = (sum.run_ns as f64, sum.preempted_ns as f64);
        // Asleep after another exit than HLT: the VMM or the kernel works for the vCPU.
        let away = if *reason == Reason::Hlt { 0.0 } else { sum.sleep_ns as f64 } + sum.woken_ns as f64;
        let cost = run + away;
        let mut spread = |of: &Interrupts, exits: u64, timer: Cause, rest: Cause| {
            for (cause, share) in shares(of, exits, timer, rest) {
                add(cause, cost * share);
            }
        };
        match reason {
            // Where the processor hides what ends halts, they are taken for waits between threads.
            Reason::Hlt if interrupts.halts.total() == 0 => add(Cause::WakeUps, cost),
            Reason::Hlt => {
                let Interrupts { call, .. } = interrupts.halts;
                // Guests wake idle vCPUs by reschedule interrupts or by function calls.
                let woken = Interrupts { call: 0, other: interrupts.halts.other + call, ..interrupts.halts };
                spread(&woken, woken.total(), Cause::Timers, Cause::WakeUps);
            }
            Reason::Interrupt => spread(&interrupts.exits, sum.count, Cause::Tick, Cause::HostInterrupts),
            Reason::InterruptWindow => spread(&interrupts.windows, sum.count, Cause::Tick, Cause::Other),
            Reason::Eoi => {
                let idle = 2 * interrupts.halts.timer > interrupts.injected.timer;
                let timer = if idle { Cause::Timers } else { Cause::Tick };
                spread(&interrupts.injected, interrupts.injected.total(), timer, Cause::Other);
            }
            Reason::Ipi | Reason::PvIpi => {
                let calls = share(interrupts.calls, interrupts.calls + interrupts.wakes);
                add(Cause::FunctionCalls, cost * calls);
                add(Cause::WakeUps, cost * (1.0 - calls));
            }
            // Each timer that ran out was programmed once; the rest is for vCPUs that start or end to idle.
            Reason::TscDeadline | Reason::ApicTimer => {
                let ticks =
                    share(interrupts.injected.timer.saturating_sub(interrupts.halts.timer), sum.count);
                add(Cause::Tick, cost * ticks.min(1.0));
                add(Cause::Timers, cost * (1.0 - ticks.min(1.0)));
            }
            other => add(of_group(other.group()), cost),
        }
        // A spinning vCPU gives its pCPU away on purpose.
        let spins = reason.group() == Group::Ple;
        add(if spins { Cause::Spinning } else { Cause::Preemption }, preempted);
    }
    costs
}

const fn of_group(group: Group) -> Cause {
    match group {
        Group::TscDeadline => Cause::Timers,
        Group::Io => Cause::Devices,
        Group::Ept => Cause::Memory,
        Group::Msr => Cause::Registers,
        Group::Ple => Cause::Spinning,
        Group::Scheduling | Group::Ipi | Group::Eoi | Group::Other => Cause::Other,
    }
}

/// The shares of causes in exits that led to these injections; `rest` is charged for the others.
fn shares(of: &Interrupts, exits: u64, timer: Cause, rest: Cause) -> [(Cause, f64); 5] {
    let exits = exits.max(of.total());
    [
        (Cause::WakeUps, share(of.reschedule, exits)),
        (Cause::FunctionCalls, share(of.call, exits)),
        (timer, share(of.timer, exits)),
        (Cause::Devices, share(of.device, exits)),
        (rest, 1.0 - share(of.total() - of.other, exits)),
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
             interrupt; AVIC or APICv let running ones take it without an exit",
        ]),
        Cause::Timers => remedies.extend([
            "in the guest: threads sleep for short times, or poll by timers; let them wait for events, and keep the timer \
             frequency low (CONFIG_HZ, skew_tick)",
            "in the guest: each idle period that stops the tick programs the timer twice; nohz=off avoids that where vCPUs \
             are busy, and retention (`gleaner`) where they idle for short times",
        ]),
        Cause::Tick => remedies.extend([
            "in the guest: a lower timer frequency (CONFIG_HZ), or nohz_full= for vCPUs that run one thread each",
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
        Cause::Registers => remedies.extend([
            "in the guest: find what accesses the registers (perf trace -e msr:*): counters of perf and frequency drivers \
             do",
        ]),
        Cause::Other => {}
        Cause::HostInterrupts => remedies.extend([
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
        let by = |ended: Interrupts| Totals { halts: ended, wakes: 9, ..Totals::default() };
        let pings = by(Interrupts { reschedule: 5, call: 5, ..Interrupts::default() });
        assert_eq!(ranked(&reasons, 500, &pings), [(Cause::WakeUps, 50)]);
        let sleeps = by(Interrupts { timer: 9, reschedule: 1, ..Interrupts::default() });
        assert_eq!(ranked(&reasons, 500, &sleeps), [(Cause::Timers, 36), (Cause::WakeUps, 14)]);
        // Where the processor hides interrupts, the halts are still there.
        assert_eq!(ranked(&reasons, 500, &by(Interrupts::default())), [(Cause::WakeUps, 50)]);
    }

    #[test]
    fn exits_for_interrupts_are_charged_to_what_is_injected() {
        let totals = Totals {
            exits: Interrupts { timer: 5, call: 2, ..Interrupts::default() },
            injected: Interrupts { timer: 10, ..Interrupts::default() },
            ..Totals::default()
        };
        let exits = ReasonTimes { count: 10, run_ns: 500, ..ReasonTimes::default() };
        let costs = ranked(&[(Reason::Interrupt, exits), (Reason::Eoi, run(100))], 400, &totals);
        assert_eq!(costs, [(Cause::Tick, 35), (Cause::HostInterrupts, 15), (Cause::FunctionCalls, 10)]);
    }

    #[test]
    fn programming_the_timer_more_often_than_it_runs_out_is_for_idle_vcpus() {
        let injected = Interrupts { timer: 4, ..Interrupts::default() };
        let writes = ReasonTimes { count: 10, ..run(100) };
        let of = |halts: Interrupts| {
            ranked(&[(Reason::TscDeadline, writes)], 900, &Totals { halts, injected, ..Totals::default() })
        };
        assert_eq!(of(Interrupts::default()), [(Cause::Timers, 6), (Cause::Tick, 4)]);
        assert_eq!(of(Interrupts { timer: 4, ..Interrupts::default() }), [(Cause::Timers, 10)]);
    }

    #[test]
    fn callers_wait_for_the_called() {
        let totals = Totals { calls: 1, calling_ns: 300, ..Totals::default() };
        assert_eq!(ranked(&[(Reason::Ipi, run(100))], 900, &totals), [(Cause::FunctionCalls, 40)]);
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
        assert_eq!(costs, [(Cause::Spinning, 40), (Cause::Preemption, 30), (Cause::HostInterrupts, 10)]);
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
