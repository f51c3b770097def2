//! Urgent vCPU first (ASPLOS'13 §3.1.3), and what is counted for its figures.

use gleaner_coordination::UrgentConfig;

use super::{MS, US, hog, run, us};
use crate::spec::UrgentRules;
use crate::{
    BarrierKind, ChannelKind, Costs, DirectedYield, Dist, HostSpec, Ns, ObjectKind, Op, Program, Report,
    Spec, VmSpec, World,
};

fn simulate(host: HostSpec, vms: Vec<VmSpec>, time_limit: Ns) -> Report {
    let mut spec = Spec::new(host, vms);
    spec.time_limit = time_limit;
    let mut world = World::new(&spec).unwrap();
    world.run();
    world.report()
}

/// A thread that wakes another one and then computes for long.
fn waker() -> Program {
    let mut program = Program::new("waker");
    let there = program.object(ObjectKind::Channel(ChannelKind::Futex));
    program.role("waker", 1, vec![Op::Repeat(0), Op::Compute(us(10_000)), Op::Send(there), Op::Again]);
    program.role("wakee", 1, vec![Op::Repeat(0), Op::Receive(there), Op::Done(1), Op::Again]);
    program
}

#[test]
fn a_delayed_preemption_takes_place_when_the_delay_is_over() {
    // One pCPU: the woken vCPU would preempt its waker, which computes on. Ticks come every 4 ms.
    let wake_us = |delay| {
        let rules = UrgentConfig { resched_dp_ns: delay, ..UrgentConfig::OFF };
        let host = HostSpec { cores: 1, urgent: rules.into(), ..HostSpec::default() };
        let vm = VmSpec::new("vm", 2, Costs::ATC14_VM).running(waker());
        let totals = simulate(host, vec![vm], 1_000 * MS).vms[0].tasks[0].totals;
        assert!(totals.wakes > 20, "{totals:?}");
        totals.wake_ns / totals.wakes / 1_000
    };
    let (at_once, short, long) = (wake_us(0), wake_us(300 * US), wake_us(500 * US));
    assert!(at_once < 100, "{at_once} us");
    assert!((300..400).contains(&short), "{short} us");
    assert!((500..600).contains(&long), "{long} us");
}

#[test]
fn with_early_delay_nobody_is_preempted_while_it_prepares_an_interrupt() {
    // Another VM wakes up on the waker's pCPU every 5 ms, and preempts. Preparing an interrupt takes long.
    let holders = |early| {
        let mut program = Program::new("waker");
        let there = program.object(ObjectKind::Channel(ChannelKind::Futex));
        program.role("waker", 1, vec![Op::Repeat(0), Op::Compute(us(1_000)), Op::Send(there), Op::Again]);
        program.role("wakee", 1, vec![Op::Repeat(0), Op::Receive(there), Op::Done(1), Op::Again]);
        let mut sleeper = Program::new("sleeper");
        let body = vec![Op::Repeat(0), Op::Sleep(us(5_000)), Op::Compute(us(10)), Op::Again];
        sleeper.role("sleeper", 1, body);
        let pinned = |name, vcpus, program| {
            let costs = Costs { ipi_send_delay: 200 * US, ..Costs::ATC14_VM };
            VmSpec { pinned: true, ..VmSpec::new(name, vcpus, costs).running(program) }
        };
        let on_send = UrgentConfig { resched_dp_ns: 500 * US, ..UrgentConfig::OFF };
        let vm = VmSpec { urgent: Some(UrgentRules { on_send, early }), ..pinned("vm", 2, program) };
        let host = HostSpec { cores: 2, ..HostSpec::default() };
        let vm = simulate(host, vec![vm, pinned("other", 1, sleeper)], 4_000 * MS).vms.remove(0);
        (vm.count(|c| c.sending_holder_preempted), vm.count(|c| c.lock_holder_preempted))
    };
    let (late, early) = (holders(false), holders(true));
    assert!(late.0 > 50 && late.1 >= late.0, "{late:?}");
    assert_eq!(early, (0, 0), "{late:?} without");
}

/// Threads that compute for 300 us between TLB shootdowns.
fn shoots(threads: u32) -> Program {
    let mut program = Program::new("shoots");
    program.role(
        "worker",
        threads,
        vec![Op::Repeat(0), Op::Compute(us(300)), Op::Shootdown, Op::Done(1), Op::Again],
    );
    program
}

#[test]
fn a_receiver_that_runs_first_answers_sooner() {
    // One of the two pCPUs has to run another VM, too.
    let answer_us = |tlb_co| {
        let pinned = |name, vcpus, program| VmSpec {
            pinned: true,
            ..VmSpec::new(name, vcpus, Costs::ATC14_VM).running(program)
        };
        // It may run ahead for the whole second.
        let rules = UrgentConfig { tlb_co, allowance_ns: 1_000 * MS, ..UrgentConfig::OFF };
        let first = VmSpec { urgent: Some(rules.into()), ..pinned("vm", 2, shoots(2)) };
        let host = HostSpec { cores: 2, yielding: DirectedYield::Off, ..HostSpec::default() };
        let vm = simulate(host, vec![first, pinned("other", 1, hog(1))], 1_000 * MS).vms.remove(0);
        let answers = vm.count(|c| c.flush_answers);
        assert!(answers > 100 && answers <= vm.count(|c| c.flush_ipis), "{answers}");
        vm.count(|c| c.flush_answer_ns) / answers / 1_000
    };
    let (fair, urgent) = (answer_us(false), answer_us(true));
    assert!(3 * urgent < fair, "{urgent} us, without {fair} us");
}

#[test]
fn waits_at_a_barrier_are_counted_by_phase_and_by_how_they_end() {
    let counts = |spin| {
        let mut program = Program::new("barrier");
        let meet = program.object(ObjectKind::Barrier { parties: 4, kind: BarrierKind::Condition(spin) });
        let work = Op::Compute(Dist::Exponential { mean: 50 * US });
        program.role("worker", 4, vec![Op::Repeat(200), work, Op::Barrier(meet), Op::Again]);
        let vm = VmSpec::new("vm", 4, Costs::ATC14_VM).running(program);
        let (report, _) = run(HostSpec { cores: 4, ..HostSpec::default() }, vec![vm]);
        let vm = &report.vms[0];
        (vm.count(|c| c.arrival_waits), vm.count(|c| c.departure_waits), vm.count(|c| c.blocked_waits))
    };
    let (blocking, spinning) = (counts(0), counts(1_000 * MS));
    // All but the last to arrive wait.
    assert_eq!((blocking.0, spinning.0), (3 * 200, 3 * 200));
    // Some are over before the thread has gone to sleep.
    let waits = blocking.0 + blocking.1;
    assert!(blocking.2 <= waits && 10 * blocking.2 > 9 * waits, "{blocking:?}");
    assert_eq!(spinning.2, 0);
}

#[test]
fn waits_for_a_spinlock_are_counted_with_their_length() {
    let mut program = Program::new("phases");
    let meet = program.object(ObjectKind::Barrier { parties: 8, kind: BarrierKind::Block });
    let work = Op::Compute(Dist::Exponential { mean: 20 * US });
    program.role("worker", 8, vec![Op::Repeat(500), work, Op::Barrier(meet), Op::Again]);
    let vm = VmSpec::new("vm", 8, Costs::ATC14_VM).running(program);
    let (report, _) = run(HostSpec { cores: 8, ..HostSpec::default() }, vec![vm]);
    let vm = &report.vms[0];
    let (waits, ns) = (vm.count(|c| c.lock_waits), vm.count(|c| c.lock_wait_ns));
    assert!(waits > 100, "{waits}");
    // On pCPUs of their own nobody is preempted while it spins.
    assert_eq!(ns, vm.time(crate::Category::LockSpin));
}
