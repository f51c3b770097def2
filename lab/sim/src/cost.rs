//! Costs of operations as named tables, so that a simulation can state whose numbers it uses.

use gleaner_policy::{Method, Placement, WakeCosts};
use serde::{Deserialize, Serialize};

use crate::ids::Ns;

/// The costs of guest and hypervisor operations, in nanoseconds.
///
/// They add up to wake-ups. Same vCPU (A): `futex_wake + futex_return + futex_wait + context_switch +
/// futex_return` (the waker returns, then waits itself). Another vCPU that is awake (B): `futex_wake +
/// ipi_send_delay + ipi_deliver + irq + context_switch + futex_return`. A halted one (C): B + `vcpu_wake +
/// idle_exit`. One whose pCPU runs another VM (D): B + `vcpu_switch + cache_refill + idle_exit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Taking or releasing a free lock in user mode, or posting to a queue without waiters.
    pub user_lock: Ns,
    /// A waker's futex system call, until the wakee is on a runqueue. Holds the bucket's spinlock.
    pub futex_wake: Ns,
    /// A waiter's futex system call, until it reaches the scheduler. Holds the bucket's spinlock.
    pub futex_wait: Ns,
    /// Returning from a system call to user mode.
    pub futex_return: Ns,
    /// A system call that does little: `sched_yield`, a futex call that finds nobody.
    pub syscall: Ns,
    /// Cost of a socket write or read on top of a futex call.
    pub socket: Ns,
    /// A switch between two threads of a guest.
    pub context_switch: Ns,
    /// Refilling the caches when another program ran on the CPU before.
    pub thread_refill: Ns,
    /// From the waker's IPI write until the IPI is on its way.
    pub ipi_send_delay: Ns,
    /// The rest of the waker's exit for an IPI, before the waker continues.
    pub ipi_send_rest: Ns,
    /// From there until the interrupt reaches a running vCPU.
    pub ipi_deliver: Ns,
    /// The sender's cost of a TLB shootdown, per vCPU that it interrupts.
    pub flush_send: Ns,
    /// The interrupt handler.
    pub irq: Ns,
    /// Flushing a TLB and acknowledging it, on top of the interrupt.
    pub tlb_flush: Ns,
    /// Going idle: tick stop, `TSC_DEADLINE` exits, the HLT exit.
    pub idle_enter: Ns,
    /// Going idle to poll: the same without the HLT exit.
    pub poll_enter: Ns,
    /// Leaving idle: tick restart and its exits.
    pub idle_exit: Ns,
    /// From the interrupt for a blocked vCPU until it runs on an idle pCPU (RV in the ATC'14 paper, Table 2).
    pub vcpu_wake: Ns,
    /// Switching a pCPU from one vCPU to another.
    pub vcpu_switch: Ns,
    /// Refilling caches and TLBs when another VM ran on the pCPU before.
    pub cache_refill: Ns,
    /// From the interrupt for a halted vCPU whose pCPU polls in the hypervisor until it runs.
    pub host_poll_wake: Ns,
    /// Until a polling guest's idle loop notices a wake-up flag.
    pub poll_notice: Ns,
    /// One round of a yield thread.
    pub yield_round: Ns,
    /// One pause-loop exit.
    pub pause_exit: Ns,
    /// Delivering a timer or device interrupt to the guest.
    pub timer_irq: Ns,
    /// Moving a thread to another vCPU.
    pub migrate: Ns,
}

/// Names of the built-in tables.
pub const NAMES: [&str; 4] = ["atc14-vm", "atc14-native", "tpds21-vm", "this-vm"];

impl Costs {
    /// Operations that take next to no time: a nanosecond each.
    pub const NONE: Self = Self {
        user_lock: 1,
        futex_wake: 1,
        futex_wait: 1,
        futex_return: 1,
        syscall: 1,
        socket: 1,
        context_switch: 1,
        thread_refill: 1,
        ipi_send_delay: 1,
        ipi_send_rest: 1,
        ipi_deliver: 1,
        flush_send: 1,
        irq: 1,
        tlb_flush: 1,
        idle_enter: 1,
        poll_enter: 1,
        idle_exit: 1,
        vcpu_wake: 1,
        vcpu_switch: 1,
        cache_refill: 1,
        host_poll_wake: 1,
        poll_notice: 1,
        yield_round: 1,
        pause_exit: 1,
        timer_irq: 1,
        migrate: 1,
    };
    /// The VM of the ATC'14 paper. Its Table 2 (A 6, B 17, C 37, D 96 us) gives the sums; how we split each
    /// sum is an assumption.
    pub const ATC14_VM: Self = Self {
        user_lock: 25,
        futex_wake: 1_500,
        futex_wait: 700,
        futex_return: 800,
        syscall: 300,
        socket: 1_000,
        context_switch: 2_200,
        thread_refill: 9_000,
        ipi_send_delay: 2_000,
        ipi_send_rest: 1_000,
        ipi_deliver: 8_000,
        flush_send: 3_000,
        irq: 2_500,
        tlb_flush: 500,
        idle_enter: 5_000,
        poll_enter: 3_000,
        idle_exit: 3_000,
        vcpu_wake: 17_000,
        vcpu_switch: 20_000,
        cache_refill: 56_000,
        host_poll_wake: 3_000,
        poll_notice: 300,
        yield_round: 700,
        pause_exit: 2_000,
        timer_irq: 5_000,
        migrate: 2_000,
    };

    /// The physical machine of the ATC'14 paper: Table 2's A 4, B 8, C 8, D 17 us. A shootdown is sent to a
    /// whole cluster of cores at once (x2APIC cluster mode).
    pub const ATC14_NATIVE: Self = Self {
        user_lock: 25,
        futex_wake: 1_000,
        futex_wait: 500,
        futex_return: 500,
        syscall: 200,
        socket: 700,
        context_switch: 1_500,
        thread_refill: 9_000,
        ipi_send_delay: 300,
        ipi_send_rest: 200,
        ipi_deliver: 2_500,
        flush_send: 100,
        irq: 2_200,
        tlb_flush: 300,
        idle_enter: 500,
        poll_enter: 300,
        idle_exit: 0,
        vcpu_wake: 0,
        vcpu_switch: 1_500,
        cache_refill: 9_000,
        host_poll_wake: 0,
        poll_notice: 200,
        yield_round: 500,
        pause_exit: 0,
        timer_irq: 1_000,
        migrate: 1_000,
    };

    /// The VM of the TPDS'21 paper, which has no such table: the ATC'14 paper's costs with 60 % cheaper
    /// interrupts between vCPUs due to `APICv` (its §7.1.1), which avoids the receiver's exits but not the
    /// sender's (its §6.2.1).
    pub const TPDS21_VM: Self = {
        let sent = Self::ATC14_VM.ipi_send_delay + Self::ATC14_VM.ipi_send_rest;
        Self { ipi_deliver: (sent + Self::ATC14_VM.ipi_deliver) * 2 / 5 - sent, ..Self::ATC14_VM }
    };

    /// A 2-vCPU KVM guest (PVM) with Linux 6.18: medians of its `gleaner doctor`, for simulations without a
    /// measurement (A 2.7, B 22.1, C 23.1, polling 2.9 us; the waker's share of an IPI 8.3 us). The cost of
    /// going idle is fitted to `gleaner workload request-response` under haltpoll.
    pub const THIS_VM: Self = Self {
        user_lock: 20,
        futex_wake: 700,
        futex_wait: 400,
        futex_return: 300,
        syscall: 250,
        socket: 900,
        context_switch: 1_000,
        thread_refill: 1_000,
        ipi_send_delay: 7_000,
        ipi_send_rest: 1_300,
        ipi_deliver: 10_100,
        flush_send: 8_300,
        irq: 2_000,
        tlb_flush: 300,
        idle_enter: 4_000,
        poll_enter: 3_500,
        idle_exit: 500,
        vcpu_wake: 1_500,
        vcpu_switch: 3_000,
        cache_refill: 5_000,
        host_poll_wake: 500,
        poll_notice: 900,
        yield_round: 900,
        pause_exit: 2_000,
        timer_irq: 3_000,
        migrate: 1_000,
    };

    /// The table with this name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "atc14-vm" => Some(Self::ATC14_VM),
            "atc14-native" => Some(Self::ATC14_NATIVE),
            "tpds21-vm" => Some(Self::TPDS21_VM),
            "this-vm" => Some(Self::THIS_VM),
            _ => None,
        }
    }

    /// The costs of a machine measured by `gleaner doctor`: [`Costs::THIS_VM`] scaled to the medians in
    /// `costs`. `waker_ns` is the waker's share of a wake-up with an IPI, if measured. `clock_ns` is what
    /// reading the clock on both sides adds to the measurement: tens of nanoseconds, or a microsecond where a
    /// reading is a system call.
    pub fn measured(costs: &WakeCosts, waker_ns: Option<Ns>, clock_ns: Ns) -> Self {
        let median = |method, placement| {
            costs.get(method, placement).and_then(|c| Ns::try_from(c.median.as_nanos()).ok())
        };
        let mut table = Self::THIS_VM;
        if let Some(same) = median(Method::Halt, Placement::SameVcpu) {
            let same = same.saturating_sub(clock_ns).max(same / 3);
            let sum = table.wake()[0];
            for part in [
                &mut table.futex_wake,
                &mut table.futex_wait,
                &mut table.context_switch,
                &mut table.futex_return,
                &mut table.yield_round,
            ] {
                *part = (*part * same / sum).max(1);
            }
        }
        let local = table.futex_wake + table.context_switch + table.futex_return;
        if let Some(polling) = median(Method::Haltpoll, Placement::AcrossHalting) {
            table.poll_notice = polling.saturating_sub(local).max(50);
        }
        let halted = median(Method::Halt, Placement::AcrossHalting);
        let awake = median(Method::Halt, Placement::AcrossAwake).into_iter().chain(halted).min();
        if let (Some(awake), Some(halted)) = (awake, halted) {
            let interrupt = awake.saturating_sub(local).max(1_000);
            let share = waker_ns.unwrap_or(interrupt / 2).saturating_sub(table.futex_wake);
            table.irq = table.irq.min(interrupt / 4);
            table.ipi_send_delay = (share * 4 / 5).min(interrupt / 2);
            table.ipi_send_rest = share - share * 4 / 5;
            table.flush_send = share;
            table.ipi_deliver = interrupt - table.irq - table.ipi_send_delay;
            table.vcpu_wake = halted - awake;
            table.idle_exit = table.idle_exit.min(halted / 40);
        }
        table
    }

    /// Name (as in scenario files) and value of a cost above `limit`, with which sums could overflow.
    pub(crate) fn longer_than(&self, limit: Ns) -> Option<(String, Ns)> {
        let Ok(serde_json::Value::Object(costs)) = serde_json::to_value(self) else { return None };
        costs.into_iter().find_map(|(name, ns)| Some((name, ns.as_u64().filter(|ns| *ns > limit)?)))
    }

    /// The latencies of the ATC'14 paper's Table 2 with these costs: A, B, C and D.
    pub fn wake(&self) -> [Ns; 4] {
        let local = self.futex_wake + self.context_switch + self.futex_return;
        let a = local + self.futex_wait + self.futex_return;
        let b = local + self.ipi_send_delay + self.ipi_deliver + self.irq;
        let c = b + self.vcpu_wake + self.idle_exit;
        let d = b + self.vcpu_switch + self.cache_refill + self.idle_exit;
        [a, b, c, d]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_papers_tables_add_up_to_its_table_2() {
        assert_eq!(Costs::ATC14_VM.wake(), [6_000, 17_000, 37_000, 96_000]);
        assert_eq!(Costs::ATC14_NATIVE.wake()[..3], [4_000, 8_000, 8_000]);
    }

    #[test]
    fn every_named_table_exists() {
        assert!(NAMES.iter().all(|name| Costs::named(name).is_some()));
        assert_eq!(Costs::named("none"), None);
    }

    #[test]
    fn a_measured_table_gives_back_what_was_measured() {
        let mut measured = WakeCosts::default();
        for (method, placement, us) in [
            (Method::Halt, Placement::SameVcpu, 4),
            (Method::Halt, Placement::AcrossAwake, 30),
            (Method::Halt, Placement::AcrossHalting, 50),
            (Method::Haltpoll, Placement::AcrossHalting, 5),
        ] {
            let median = Duration::from_micros(us);
            measured.insert(
                method,
                placement,
                gleaner_policy::WakeCost { min: median, median, p99: median, n: 100 },
            );
        }
        let table = Costs::measured(&measured, Some(12_000), 1_200);
        let [a, b, c, _] = table.wake();
        for (found, wanted) in [(a, 2_800), (b, 30_000), (c, 50_000)] {
            assert!((found as f64 / f64::from(wanted) - 1.0).abs() < 0.03, "{found} for {wanted}");
        }
        let polling = table.futex_wake + table.poll_notice + table.context_switch + table.futex_return;
        assert!(polling.abs_diff(5_000) < 100, "{polling}");
        assert!((table.futex_wake + table.ipi_send_delay + table.ipi_send_rest).abs_diff(12_000) < 100);
    }
}
