//! The machine as a whole: Table 2 of the ATC'14 paper, sleeping and waking in every way.

use gleaner_policy::Method;

use super::{Category, End};
use crate::{
    BarrierKind, ChannelKind, Costs, Dist, HostSpec, IdleMode, Ns, ObjectKind, Op, Program, Report, Spec,
    VmSpec, World,
};

const US: Ns = 1_000;
const MS: Ns = 1_000_000;

fn us(n: Ns) -> Dist {
    Dist::Constant(n * US)
}

/// Two threads that hand a turn to each other, with `gap` of computation before each.
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
    assert!(c.vms[0].count(|v| v.halts) >= 390, "each hand-over finds the other vCPU halted");
    assert_eq!(polled.vms[0].count(|v| v.halts), 0);
}

/// A thread that computes for ever.
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
    let vm = VmSpec::new("vm", 2, Costs::ATC14_VM).running(ping_pong(300, us(20)));
    let other = VmSpec::new("matmul", 2, Costs::ATC14_VM).repeating(hog(2));
    let (d, end) = run(HostSpec { cores: 2, ..HostSpec::default() }, vec![vm, other]);
    assert_eq!(end, End::Finished);
    assert!(wake_us(&d) > 96.0, "at least 96 us, since the host may make it wait longer: {}", wake_us(&d));
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
}
