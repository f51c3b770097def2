//! The whole machine: Table 2 of the ATC'14 paper, and every way to sleep and wake.

use gleaner_coordination::UrgentConfig;
use gleaner_policy::Method;

use super::{Category, End};
use crate::{
    BarrierKind, ChannelKind, Costs, Dist, HostSpec, IdleMode, Ns, ObjectKind, Op, PauseLoops, Program,
    Report, Spec, VmSpec, World,
};

mod quota;
mod urgent;

const US: Ns = 1_000;
const MS: Ns = 1_000_000;

fn us(n: Ns) -> Dist {
    Dist::Constant(n * US)
}

/// Two threads that wake each other in turn, with `gap` of computation before each wake-up.
fn ping_pong(rounds: u64, gap: Dist) -> Program {
    let mut program = Program::new("ping-pong");
    let there = program.object(ObjectKind::Channel(ChannelKind::Futex));
    let back = program.object(ObjectKind::Channel(ChannelKind::Futex));
    let turn =
        |first, second| vec![Op::Repeat(rounds), first, Op::Compute(gap), second, Op::Done(1), Op::Again];
    program.role(
        "ping",
        1,
        vec![
            Op::Repeat(rounds),
            Op::Compute(gap),
            Op::Send(there),
            Op::Receive(back),
            Op::Done(1),
            Op::Again,
        ],
    );
    program.role("pong", 1, turn(Op::Receive(there), Op::Send(back)));
    program
}

fn run(host: HostSpec, vms: Vec<VmSpec>) -> (Report, End) {
    let mut spec = Spec::new(host, vms);
    spec.time_limit = 20_000 * MS;
    let mut world = World::new(&spec).unwrap();
    let end = world.run().clone();
    (world.report(), end)
}

fn wake_us(report: &Report) -> f64 {
    let totals = &report.vms[0].tasks[0].totals;
    totals.wake_ns as f64 / totals.wakes as f64 / 1e3
}

#[test]
fn a_ping_pong_reproduces_table_2() {
    let cores = |cores| HostSpec { cores, ..HostSpec::default() };
    let vm = |vcpus| VmSpec::new("vm", vcpus, Costs::ATC14_VM).running(ping_pong(200, us(200)));
    let (a, end) = run(cores(1), vec![vm(1)]);
    assert_eq!(end, End::Finished);
    let mut awake = vm(2);
    awake.idle = IdleMode { method: Method::Yield, limit: 100 * MS };
    let (b, _) = run(cores(2), vec![awake]);
    let (c, _) = run(cores(2), vec![vm(2)]);
    let mut polling = vm(2);
    polling.idle = IdleMode { method: Method::QosPoll, limit: 0 };
    let (polled, _) = run(cores(2), vec![polling]);
    for (what, report, expected) in
        [("A", &a, 6.0), ("B", &b, 17.0), ("C", &c, 37.0), ("polling", &polled, 4.8)]
    {
        let found = wake_us(report);
        assert!((found / expected - 1.0).abs() < 0.02, "{what}: {found} us, {expected} expected");
    }
    assert_eq!(a.vms[0].count(|v| v.resched_ipis), 0, "the same vCPU needs no interrupt");
    assert!(c.vms[0].count(|v| v.halts) >= 390, "each hand-off finds the other vCPU halted");
    assert_eq!(polled.vms[0].count(|v| v.halts), 0);
}

/// Threads that compute forever.
fn hog(threads: u32) -> Program {
    let mut program = Program::new("hog");
    program.role(
        "hog",
        threads,
        vec![Op::Repeat(0), Op::Compute(Dist::Constant(MS)), Op::Done(1), Op::Again],
    );
    program
}

#[test]
fn waking_on_a_taken_pcpu_costs_what_table_2_says_for_d() {
    // Each vCPU shares a pCPU with one of the other VM; otherwise the host would put both on one pCPU.
    let pinned = |name| VmSpec { pinned: true, ..VmSpec::new(name, 2, Costs::ATC14_VM) };
    let vm = pinned("vm").running(ping_pong(300, us(20)));
    let other = pinned("matmul").repeating(hog(2));
    let (d, end) = run(HostSpec { cores: 2, ..HostSpec::default() }, vec![vm, other]);
    assert_eq!(end, End::Finished);
    assert!(wake_us(&d) > 96.0, "at least 96 us, since the host can make it wait longer: {}", wake_us(&d));
    assert!(d.vms[0].time(Category::Steal) > 0);
    assert!(d.vms[1].count(|v| v.preempted) > 50, "the other VM is preempted by wake-ups");
}

#[test]
fn a_program_that_waits_for_itself_is_a_deadlock_with_names() {
    let mut program = Program::new("abba");
    let a = program.object(ObjectKind::Mutex { spin: 0, handoff: false });
    let b = program.object(ObjectKind::Mutex { spin: 0, handoff: false });
    let code = |first, second| vec![Op::Lock(first), Op::Compute(us(50)), Op::Lock(second)];
    program.role("left", 1, code(a, b));
    program.role("right", 1, code(b, a));
    let (_, end) = run(HostSpec::default(), vec![VmSpec::new("vm", 2, Costs::THIS_VM).running(program)]);
    let End::Deadlock(blocked) = end else { panic!("{end}") };
    let sentences: Vec<String> = blocked.iter().map(ToString::to_string).collect();
    assert_eq!(
        sentences,
        ["abba/left.0 waits at mutex 1 for abba/right.1", "abba/right.1 waits at mutex 0 for abba/left.0"]
    );
}

#[test]
fn a_loop_without_time_is_reported_and_limits_hold() {
    let mut program = Program::new("empty");
    program.role("spinner", 1, vec![Op::Repeat(0), Op::Done(1), Op::Again]);
    let vm = VmSpec::new("vm", 1, Costs::THIS_VM);
    let (_, end) = run(HostSpec::default(), vec![vm.clone().running(program)]);
    assert!(matches!(end, End::NoProgress(ref who) if who == "empty/spinner.0"), "{end}");

    let mut spec = Spec::new(HostSpec::default(), vec![vm.running(hog(1))]);
    spec.time_limit = 10 * MS;
    assert_eq!(*World::new(&spec).unwrap().run(), End::TimeLimit);
    spec.event_limit = 5;
    assert_eq!(*World::new(&spec).unwrap().run(), End::EventLimit);
}

#[test]
fn barriers_wait_in_their_own_way() {
    let with = |kind| {
        let mut program = Program::new("barrier");
        let barrier = program.object(ObjectKind::Barrier { parties: 4, kind });
        let code = vec![
            Op::Repeat(100),
            Op::Compute(Dist::Exponential { mean: 50 * US }),
            Op::Barrier(barrier),
            Op::Done(1),
            Op::Again,
        ];
        program.role("worker", 4, code);
        let vm = VmSpec::new("vm", 4, Costs::ATC14_VM).running(program);
        let (report, end) = run(HostSpec { cores: 4, ..HostSpec::default() }, vec![vm]);
        assert_eq!(end, End::Finished);
        assert_eq!(report.vms[0].tasks[0].totals.operations, 400, "every thread passes every barrier");
        report
    };
    let block = with(BarrierKind::Block);
    let spin = with(BarrierKind::Spin);
    let both = with(BarrierKind::SpinThenBlock(10 * US));
    let spinning = |r: &Report| r.vms[0].time(Category::UserSpin);
    let halts = |r: &Report| r.vms[0].count(|v| v.halts);
    assert_eq!(spinning(&block), 0);
    assert!(halts(&block) > 200);
    assert!(halts(&spin) <= 4, "only at the end");
    assert!(spinning(&both) > 0 && spinning(&both) < spinning(&spin));
    assert!(halts(&both) < halts(&block));
    assert!(block.elapsed > spin.elapsed, "{} {}", block.elapsed, spin.elapsed);
    let condition = with(BarrierKind::Condition(0));
    assert_eq!(spinning(&condition), 0);
    assert!(condition.elapsed > block.elapsed, "each is woken by the one before it");
    let spinning = with(BarrierKind::Condition(5 * MS));
    assert!(
        halts(&spinning) < halts(&condition) / 4,
        "a thread that spins long enough sees the others arrive"
    );
}

#[test]
fn a_barrier_of_a_condition_lets_nobody_in_before_all_have_left() {
    // One thread is so fast that it is back at the barrier while the others are still leaving.
    let mut program = Program::new("barrier");
    let barrier = program.object(ObjectKind::Barrier { parties: 8, kind: BarrierKind::Condition(0) });
    let code = |mean| {
        let work = Op::Compute(Dist::Exponential { mean });
        vec![Op::Repeat(200), work, Op::Barrier(barrier), Op::Done(1), Op::Again]
    };
    program.role("fast", 1, code(100));
    program.role("slow", 7, code(20 * US));
    let vm = VmSpec::new("vm", 8, Costs::ATC14_VM).running(program.clone());
    let (report, end) = run(HostSpec { cores: 8, ..HostSpec::default() }, vec![vm]);
    assert_eq!(end, End::Finished);
    assert_eq!(report.vms[0].tasks[0].totals.operations, 8 * 200);

    program.roles[1].code.truncate(2);
    program.roles[1].code.push(Op::Again);
    let (_, end) = run(HostSpec::default(), vec![VmSpec::new("vm", 2, Costs::THIS_VM).running(program)]);
    let End::Deadlock(blocked) = end else { panic!("{end}") };
    let sentences: Vec<String> = blocked.iter().map(ToString::to_string).collect();
    assert_eq!(sentences, ["barrier/fast.0 waits at barrier 0 for 7 more threads to arrive"]);
}

#[test]
fn a_waker_is_not_preempted_by_a_wakee_on_its_own_pcpu_with_urgent_scheduling() {
    // One pCPU: each woken vCPU goes to the pCPU of its waker, which holds the wait queue's spinlock and has
    // run for longer than the wake-up granularity.
    let preempted = |urgent| {
        let vm = VmSpec::new("vm", 2, Costs::ATC14_VM).running(ping_pong(60, us(10_000)));
        let host = HostSpec { cores: 1, urgent: UrgentConfig::into(urgent), ..HostSpec::default() };
        let (report, end) = run(host, vec![vm]);
        assert_eq!(end, End::Finished);
        report.vms[0].count(|v| v.lock_holder_preempted)
    };
    let delayed = UrgentConfig { tlb_co: false, ..UrgentConfig::PAPER };
    let (before, after) = (preempted(UrgentConfig::OFF), preempted(delayed));
    assert!(before > 20, "{before}");
    assert!(after * 10 <= before, "{after} of {before}");
}

/// A thread that alternates between sleep and a little work, in us.
fn sleeper(sleep: u64, work: u64) -> Program {
    let mut program = Program::new("sleeper");
    let body = vec![Op::Repeat(0), Op::Sleep(us(sleep)), Op::Compute(us(work)), Op::Done(1), Op::Again];
    program.role("sleeper", 1, body);
    program
}

/// Mean wake-up delay of a VM with these shares, which runs `program`, beside a VM that computes, in us.
fn delay_beside_a_hog(fair: crate::Fair, shares: u64, costs: Costs, program: Program) -> f64 {
    let with = |name, program| VmSpec { shares, ..VmSpec::new(name, 1, costs).running(program) };
    let vms = vec![with("sleeper", program), with("hog", hog(1))];
    let mut spec = Spec::new(HostSpec { cores: 1, fair, ..HostSpec::default() }, vms);
    spec.time_limit = 4_000 * MS;
    let mut world = World::new(&spec).unwrap();
    world.run();
    let report = world.report();
    let wakes = report.vms[0].tasks[0].totals.operations as f64;
    assert!(wakes > 200.0, "{wakes}");
    report.vms[0].time(Category::Steal) as f64 / wakes / 1e3
}

#[test]
fn a_vcpu_with_little_weight_waits_for_the_tick_and_one_with_much_preempts() {
    // The 4 ms wake-up granularity is divided by the weight, the sleeper's 12 ms credit is not.
    let heavy = delay_beside_a_hog(crate::Fair::CFS, 1024, Costs::ATC14_VM, sleeper(10_000, 50));
    assert!((60.0..200.0).contains(&heavy), "a switch and the caches: {heavy} us");
    let light = delay_beside_a_hog(crate::Fair::CFS, 64, Costs::ATC14_VM, sleeper(10_000, 50));
    assert!((1_000.0..8_000.0).contains(&light), "a tick comes every 4 ms: {light} us");
}

#[test]
fn a_vcpu_that_wakes_up_while_its_pcpu_switches_to_another_does_not_wait_for_the_tick() {
    // It sleeps for a part of the switch, and works so little that it stays far below its share.
    let costs = Costs { vcpu_switch: 50 * US, ..Costs::THIS_VM };
    let delay = delay_beside_a_hog(crate::Fair::EEVDF, 1024, costs, sleeper(20, 1));
    assert!((50.0..150.0).contains(&delay), "two switches and the caches: {delay} us");
}

#[test]
fn a_neighbour_that_sleeps_often_takes_its_share_and_no_more() {
    for (shares, grain) in [(64, 5 * US), (64, 200 * US), (1024, 5 * US), (1024, 200 * US)] {
        let vm = |name: &str, program: &str, grain| {
            let parameters = crate::library::Parameters { threads: 8, work: 0, grain };
            let program = crate::library::make(program, parameters, 8).unwrap();
            VmSpec { shares, ..VmSpec::new(name, 8, Costs::ATC14_VM).running(program) }
        };
        let host = HostSpec { cores: 8, ..HostSpec::default() };
        let mut spec = Spec::new(host, vec![vm("a", "matmul", 0), vm("b", "freqsleep", grain)]);
        spec.time_limit = 1_000 * MS;
        let mut world = World::new(&spec).unwrap();
        world.run();
        let report = world.report();
        let computes = report.vms[0].tasks[0].totals.cpu as f64 / 8e9;
        assert!(computes > 0.3, "shares {shares}, work {grain} ns: computation gets {computes}");
        // In the worst case it waits for the second tick.
        let sleeps = report.vms[1].tasks[0].totals.operations;
        assert!(sleeps > 8 * 120, "shares {shares}, work {grain} ns: {sleeps} sleeps");
    }
}

#[test]
fn a_yield_with_a_lock_held_lets_the_other_thread_of_the_vcpu_run() {
    for fair in [crate::Fair::CFS, crate::Fair::EEVDF] {
        let parameters = crate::library::Parameters { threads: 2, work: 0, grain: 0 };
        let convoy = crate::library::make("convoy", parameters, 1).unwrap();
        let vm = VmSpec { fair, ..VmSpec::new("vm", 1, Costs::THIS_VM).running(convoy) };
        let mut spec = Spec::new(HostSpec { cores: 1, ..HostSpec::default() }, vec![vm]);
        spec.time_limit = 50 * MS;
        let mut world = World::new(&spec).unwrap();
        world.run();
        let totals = world.report().vms[0].tasks[0].totals;
        assert!(totals.operations > 1_000);
        assert!(totals.switches >= totals.operations, "{fair:?}: {totals:?}");
    }
}

#[test]
fn where_halted_vcpus_count_as_preempted_a_reply_is_awaited_on_the_same_vcpu() {
    let ipis = |halted_is_preempted| {
        let parameters = crate::library::Parameters { threads: 1, work: 0, grain: 0 };
        let program = crate::library::make("request-response", parameters, 2).unwrap();
        let vm = VmSpec::new("vm", 2, Costs::THIS_VM).running(program);
        let mut spec = Spec::new(HostSpec::default(), vec![VmSpec { halted_is_preempted, ..vm }]);
        spec.time_limit = 50 * MS;
        let mut world = World::new(&spec).unwrap();
        world.run();
        let report = world.report();
        let requests = report.vms[0].tasks[0].totals.operations as f64;
        report.vms[0].count(|c| c.resched_ipis) as f64 / requests
    };
    assert!(ipis(false) > 1.5, "each message wakes the other vCPU");
    assert!(ipis(true) < 0.5, "both threads share a vCPU most of the time");
}

/// Computation that varies a lot between threads, so that some are back before all are woken.
const UNEVEN: Dist = Dist::Exponential { mean: 20 * US };

/// Threads that compute for `grain` between blocking barriers.
fn phases(threads: u32, rounds: u64, grain: Dist) -> Program {
    let mut program = Program::new("phases");
    let meet = program.object(ObjectKind::Barrier { parties: threads, kind: BarrierKind::Block });
    let code =
        vec![Op::Repeat(rounds), Op::Compute(grain), Op::Barrier(meet), Op::Done(1), Op::Again, Op::End];
    program.role("worker", threads, code);
    program
}

fn lock_spin(report: &Report) -> Ns {
    report.vms.iter().map(|vm| vm.time(Category::LockSpin)).sum()
}

#[test]
fn waiters_that_are_woken_outside_the_queues_lock_do_not_spin_for_it() {
    let spins = |wake_queue| {
        let vm =
            VmSpec { wake_queue, ..VmSpec::new("vm", 8, Costs::ATC14_VM).running(phases(8, 500, UNEVEN)) };
        let (report, end) = run(HostSpec { cores: 8, ..HostSpec::default() }, vec![vm]);
        assert_eq!(end, End::Finished);
        lock_spin(&report)
    };
    let (held, released) = (spins(false), spins(true));
    assert!(2 * released < held, "{released} ns, with the lock held {held} ns");
}

#[test]
fn a_paravirtual_spinlock_passes_preempted_waiters_over() {
    // Two VMs share the cores. Their threads spin in user mode now and then, so the host preempts vCPUs that
    // wait for a queue's lock. A fair spinlock then belongs to a vCPU that is not running.
    let outcome = |pv_lock| {
        let mut program = Program::new("frames");
        let [block, spin] = [BarrierKind::Block, BarrierKind::Spin]
            .map(|kind| program.object(ObjectKind::Barrier { parties: 32, kind }));
        let mut code = vec![Op::Repeat(0), Op::Repeat(4)];
        code.extend([Op::Compute(UNEVEN), Op::Barrier(block), Op::Again]);
        code.extend([Op::Compute(UNEVEN), Op::Barrier(spin), Op::Done(1), Op::Again]);
        program.role("worker", 32, code);
        let vm = |name| VmSpec {
            pv_lock,
            pinned: true,
            ple: false,
            ..VmSpec::new(name, 32, Costs::ATC14_VM).running(program.clone())
        };
        let mut spec = Spec::new(HostSpec { cores: 32, ..HostSpec::default() }, vec![vm("a"), vm("b")]);
        spec.time_limit = 2_000 * MS;
        let mut world = World::new(&spec).unwrap();
        world.run();
        let report = world.report();
        (lock_spin(&report), report.vms.iter().map(|vm| vm.tasks[0].totals.operations).sum::<u64>())
    };
    let (fair, paravirtual) = (outcome(false), outcome(true));
    assert!(2 * paravirtual.0 < fair.0, "spinning: {paravirtual:?} ns, with fair spinlocks {fair:?} ns");
    assert!(4 * paravirtual.1 > 5 * fair.1, "frames: {paravirtual:?}, with fair spinlocks {fair:?}");
}

#[test]
fn pause_loop_exits_grow_rarer_where_the_window_grows() {
    // Each vCPU loses its pCPU to another VM half of the time: the running one waits for the other's flush.
    let exits = |pause_loops| {
        let mut program = Program::new("shoots");
        let code = vec![Op::Repeat(0), Op::Compute(us(300)), Op::Shootdown, Op::Done(1), Op::Again];
        program.role("worker", 2, code);
        let vm = VmSpec { pinned: true, ..VmSpec::new("vm", 2, Costs::ATC14_VM).running(program) };
        let other = VmSpec { pinned: true, ..VmSpec::new("other", 2, Costs::ATC14_VM).running(hog(2)) };
        let mut spec = Spec::new(HostSpec { cores: 2, pause_loops, ..HostSpec::default() }, vec![vm, other]);
        spec.time_limit = 1_000 * MS;
        let mut world = World::new(&spec).unwrap();
        world.run();
        let vm = &world.report().vms[0];
        (vm.count(|c| c.pause_exits), vm.time(Category::TlbSpin))
    };
    let (fixed, growing) = (exits(PauseLoops::Preempted), exits(PauseLoops::Late));
    assert!(fixed.1 > 10 * MS && growing.1 > 10 * MS, "they wait: {fixed:?}, {growing:?}");
    assert!(10 * growing.0 < fixed.0, "exits and waiting: {growing:?}, with a fixed window {fixed:?}");
}

#[test]
fn shootdowns_leave_out_vcpus_that_do_not_run_where_the_guest_knows() {
    // One thread causes shootdowns; its sibling is preempted half of the time, or has halted.
    let waits = |pv_tlb| {
        let mut program = Program::new("shoots");
        let code = vec![Op::Repeat(0), Op::Compute(us(300)), Op::Shootdown, Op::Done(1), Op::Again];
        program.role("worker", 1, code);
        program.role("idler", 1, vec![Op::Repeat(0), Op::Compute(us(50)), Op::Sleep(us(500)), Op::Again]);
        let vm = VmSpec {
            pinned: true,
            pv_tlb,
            lazy_tlb: true,
            ..VmSpec::new("vm", 2, Costs::ATC14_VM).running(program)
        };
        let other = VmSpec { pinned: true, ..VmSpec::new("other", 2, Costs::ATC14_VM).running(hog(2)) };
        let mut spec = Spec::new(HostSpec { cores: 2, ..HostSpec::default() }, vec![vm, other]);
        spec.time_limit = 1_000 * MS;
        let mut world = World::new(&spec).unwrap();
        world.run();
        world.report().vms[0].time(Category::TlbSpin)
    };
    let (all, running) = (waits(false), waits(true));
    assert!(4 * running < all, "{running} ns, with all of them {all} ns");
}

#[test]
fn a_broadcast_wakes_all_waiters_where_the_c_library_does_not_requeue() {
    // With requeueing, each thread is woken by the previous one, which has then released the mutex.
    let switches = |requeue| {
        let mut program = Program::new("meeting");
        let kind = BarrierKind::Condition(0);
        let meet = program.object(ObjectKind::Barrier { parties: 32, kind });
        let code = vec![Op::Repeat(200), Op::Compute(us(200)), Op::Barrier(meet), Op::Done(1), Op::Again];
        program.role("worker", 32, code);
        let vm = VmSpec { requeue, ..VmSpec::new("vm", 32, Costs::ATC14_VM).running(program) };
        let (report, end) = run(HostSpec { cores: 32, ..HostSpec::default() }, vec![vm]);
        assert_eq!(end, End::Finished);
        assert_eq!(report.vms[0].tasks[0].totals.operations, 32 * 200);
        report.vms[0].tasks[0].totals.switches
    };
    let (requeued, woken) = (switches(true), switches(false));
    assert!(4 * woken > 5 * requeued, "{woken} switches, with requeueing {requeued}");
}

#[test]
fn idle_vcpus_that_poll_give_way_where_the_hardware_notices_them() {
    // Both vCPUs share a pCPU, so the waiting one must yield it to the other.
    let operations = |ple| {
        let vm = VmSpec {
            ple,
            idle: IdleMode { method: Method::QosPoll, limit: Ns::MAX },
            ..VmSpec::new("vm", 2, Costs::ATC14_VM).running(ping_pong(u64::MAX, us(50)))
        };
        let mut spec = Spec::new(HostSpec { cores: 1, ..HostSpec::default() }, vec![vm]);
        spec.time_limit = 500 * MS;
        let mut world = World::new(&spec).unwrap();
        world.run();
        let report = world.report();
        assert_eq!(report.vms[0].count(|v| v.halts), 0);
        report.vms[0].tasks[0].totals.operations
    };
    let (unnoticed, noticed) = (operations(false), operations(true));
    assert!(noticed > 10 * unnoticed, "{noticed} hand-offs, {unnoticed} without pause-loop exits");
}

#[test]
fn vcpus_start_on_cores_of_their_own() {
    let vm = VmSpec::new("vm", 2, Costs::ATC14_VM).running(hog(2));
    let mut spec = Spec::new(HostSpec { cores: 2, smt: 2, ..HostSpec::default() }, vec![vm]);
    spec.time_limit = 10 * MS;
    let mut world = World::new(&spec).unwrap();
    world.run();
    let busy: Vec<bool> = world.report().pcpus.iter().map(|p| p.guest > 9 * MS).collect();
    assert_eq!(busy, [true, false, true, false]);
}
