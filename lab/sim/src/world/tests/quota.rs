//! The quota of a VM's programs.

use super::super::{Category, End};
use super::{MS, ping_pong, run, us};
use crate::{Costs, HostSpec, Ns, Op, Program, Quota, Report, Spec, VmSpec, World};

/// `threads` that compute for ever on two vCPUs, for a second, and the report.
fn with_quota(threads: u32, quota: Option<Quota>) -> Report {
    let mut program = Program::new("compute");
    program.role("worker", threads, vec![Op::Repeat(u64::MAX), Op::Compute(us(300)), Op::Done(1), Op::Again]);
    let mut vm = VmSpec::new("vm", 2, Costs::ATC14_VM).running(program);
    vm.quota = quota;
    let mut spec = Spec::new(HostSpec { cores: 2, ..HostSpec::default() }, vec![vm]);
    spec.time_limit = 1_000 * MS;
    let mut world = World::new(&spec).unwrap();
    world.run();
    world.report()
}

#[test]
fn a_quota_limits_the_cpu_time_of_each_period() {
    for threads in [1, 2, 5] {
        let report = with_quota(threads, Some(Quota { runtime: 50 * MS, period: 100 * MS }));
        let cpu = report.vms[0].tasks[0].totals.cpu;
        // The last period might still owe what it has overrun.
        assert!((490 * MS..=505 * MS).contains(&cpu), "{threads} threads: {cpu}");
        let expected = 1_000 * MS - 500 * MS / Ns::from(threads.min(2));
        assert!(
            report.vms[0].throttled.abs_diff(expected) < 20 * MS,
            "{threads}: {}",
            report.vms[0].throttled
        );
        assert_eq!(report.vms[0].time(Category::Steal), 0, "its vCPUs halt instead");
    }
}

#[test]
fn a_quota_that_is_not_used_up_changes_nothing() {
    let quota = Quota { runtime: 200 * MS, period: 100 * MS };
    let (with, without) = (with_quota(2, Some(quota)), with_quota(2, None));
    assert_eq!(with.vms, without.vms);
}

#[test]
fn threads_that_wake_each_other_wait_for_the_next_period_together() {
    let mut vm = VmSpec::new("vm", 2, Costs::ATC14_VM).running(ping_pong(20_000, us(10)));
    let (without, _) = run(HostSpec { cores: 2, ..HostSpec::default() }, vec![vm.clone()]);
    vm.quota = Some(Quota { runtime: 10 * MS, period: 100 * MS });
    let (with, end) = run(HostSpec { cores: 2, ..HostSpec::default() }, vec![vm]);
    assert_eq!(end, End::Finished);
    let done = |report: &Report| report.vms[0].tasks[0].totals.operations;
    assert_eq!(done(&with), done(&without));
    let (cpu, elapsed) = (with.vms[0].tasks[0].totals.cpu, with.elapsed);
    assert!(with.elapsed > 2 * without.elapsed, "{elapsed} {}", without.elapsed);
    assert!(cpu <= (elapsed / (100 * MS) + 1) * 12 * MS, "{cpu} in {elapsed}");
}
