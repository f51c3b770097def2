//! What operations cost: named tables, so that a simulation says on whose numbers it rests.

use gleaner_policy::{Method, Placement, WakeCosts};
use serde::{Deserialize, Serialize};

use crate::ids::Ns;

/// The costs of a guest's and a hypervisor's operations, in nanoseconds.
///
/// A wake-up is made of them. Same vCPU (A): `futex_wake + futex_return + futex_wait + context_switch + futex_return`
/// (the waker returns, then waits itself). Another, awake (B): `futex_wake + ipi_send_delay + ipi_deliver + irq +
/// context_switch + futex_return`. Another, halted (C): B + `vcpu_wake + idle_exit`. Another, whose pCPU runs another VM
/// (D): B + `vcpu_switch + cache_refill + idle_exit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Costs {
    /// Taking or releasing a free lock in user mode, posting to a queue without waiters.
    pub user_lock: Ns,
    /// The futex system call of a waker, up to the wakee being on a runqueue. The bucket's spinlock is held.
    pub futex_wake: Ns,
    /// The futex system call of a waiter, up to the scheduler. The bucket's spinlock is held.
    pub futex_wait: Ns,
    /// The way back from a system call to user mode.
    pub futex_return: Ns,
    /// A system call that does little: `sched_yield`, a futex call that finds nobody.
    pub syscall: Ns,
    /// What a write to or read from a socket costs beyond a futex call.
    pub socket: Ns,
    /// A switch between two threads of a guest.
    pub context_switch: Ns,
    /// What a thread loses to the caches when another program ran on its CPU before it.
    pub thread_refill: Ns,
    /// From the waker's IPI write to the IPI being on its way.
    pub ipi_send_delay: Ns,
    /// The rest of the waker's exit for an IPI; the waker goes on after it.
    pub ipi_send_rest: Ns,
    /// From there to the interrupt at a vCPU that runs.
    pub ipi_deliver: Ns,
    /// What the sender of a TLB shootdown takes for each vCPU that it interrupts.
    pub flush_send: Ns,
    /// The interrupt handler.
    pub irq: Ns,
    /// Invalidating a TLB and acknowledging it, on top of the interrupt.
    pub tlb_flush: Ns,
    /// Going idle: tick stop, `TSC_DEADLINE` exits, the HLT exit.
    pub idle_enter: Ns,
    /// From going idle to polling: the same without the HLT exit.
    pub poll_enter: Ns,
    /// Leaving idle: tick restart and its exits.
    pub idle_exit: Ns,
    /// From the interrupt for a blocked vCPU to its running on an idle pCPU (RV in the ATC'14 paper, Table 2).
    pub vcpu_wake: Ns,
    /// Switching a pCPU from one vCPU to another.
    pub vcpu_switch: Ns,
    /// What a vCPU loses to caches and TLBs when another VM ran on its pCPU before it.
    pub cache_refill: Ns,
    /// From the interrupt for a halted vCPU whose pCPU polls in the hypervisor to its running.
    pub host_poll_wake: Ns,
    /// From a wake-up flag to a polling guest's idle loop noticing it.
    pub poll_notice: Ns,
    /// One round of a yield thread.
    pub yield_round: Ns,
    /// A pause-loop exit.
    pub pause_exit: Ns,
    /// A timer or device interrupt's way into the guest.
    pub timer_irq: Ns,
    /// Moving a thread to another vCPU.
    pub migrate: Ns,
}

/// The tables that come with the simulator.
pub const NAMES: [&str; 4] = ["atc14-vm", "atc14-native", "tpds21-vm", "this-vm"];

impl Costs {
    /// The VM of the ATC'14 paper: its Table 2 (A 6, B 17, C 37, D 96 us) fixes the sums; how each sum is split is our
    /// assumption.
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

    /// The physical machine of the ATC'14 paper: Table 2's A 4, B 8, C 8, D 17 us. A shootdown is sent to a cluster of cores at
    /// once (x2APIC in cluster mode).
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

    /// The VM of the TPDS'21 paper, which has no table: the ATC'14 paper's costs stand for its own, with interrupts between
    /// vCPUs 60 % cheaper by `APICv` (its §7.1.1). That spares the exits of who receives them; who sends them still exits (its
    /// §6.2.1).
    pub const TPDS21_VM: Self = {
        let sent = Self::ATC14_VM.ipi_send_delay + Self::ATC14_VM.ipi_send_rest;
        Self { ipi_deliver: (sent + Self::ATC14_VM.ipi_deliver) * 2 / 5 - sent, ..Self::ATC14_VM }
    };

    /// A 2-vCPU KVM guest (PVM) with Linux 6.18: medians of its `gleaner doctor`, so that a simulation is possible
    /// without a measurement (A 2.7, B 22.1, C 23.1, polling 2.9 us; the waker's share of an IPI 8.3 us). What going idle
    /// costs is fitted to `gleaner workload request-response` under haltpoll.
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

    /// The table called `name`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "atc14-vm" => Some(Self::ATC14_VM),
            "atc14-native" => Some(Self::ATC14_NATIVE),
            "tpds21-vm" => Some(Self::TPDS21_VM),
            "this-vm" => Some(Self::THIS_VM),
            _ => None,
        }
    }

    /// The table of the machine that `gleaner doctor` measured: [`Costs::THIS_VM`], scaled to the medians in `costs`.
    /// `waker_ns` is the waker's share of a wake-up with an IPI, if it was measured; `clock_ns` is what the two readings of
    /// the clock, one on each side, add to what was measured: tens of nanoseconds, or a microsecond where a reading is a system
    /// call.
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

    /// A cost that is longer than `limit`, if there is one: what it is called in scenario files, and what it is. Times
    /// are sums of costs, which must not overflow.
    pub(crate) fn longer_than(&self, limit: Ns) -> Option<(String, Ns)> {
        let Ok(serde_json::Value::Object(costs)) = serde_json::to_value(self) else { return None };
        costs.into_iter().find_map(|(name, ns)| Some((name, ns.as_u64().filter(|ns| *ns > limit)?)))
    }

    /// What Table 2 of the ATC'14 paper measures, by these costs: A, B, C and D.
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
