//! The policy of `gleaner run` controlling simulated VMs.

use std::time::Duration;

use gleaner_engine::{Journal, Pause};
use gleaner_policy::{Event, Method, Overload, OverloadSource, PolicyConfig, ReleaseReason, Veto, Watch};
use gleaner_proto::journal::{Record, Summary};

use super::govern;
use super::pause::{End, Paused};
use crate::library::{self, Parameters};
use crate::{Costs, HostSpec, Ns, Quota, Report, Spec, VmSpec, World};

const SECOND: Ns = 1_000_000_000;

fn world(program: &str, vcpus: u32) -> World {
    limited(program, vcpus, None)
}

fn limited(program: &str, vcpus: u32, quota: Option<Quota>) -> World {
    let program = library::make(program, Parameters { threads: 0, work: 0, grain: 0 }, vcpus).unwrap();
    let vm = VmSpec { quota, ..VmSpec::new("vm", vcpus, Costs::THIS_VM).running(program) };
    let mut spec = Spec::new(HostSpec { cores: vcpus, ..HostSpec::default() }, vec![vm]);
    spec.time_limit = 2 * SECOND;
    World::new(&spec).unwrap()
}

fn operations(report: &Report) -> f64 {
    report.vms[0].tasks[0].totals.operations as f64
}

fn with_and_without(program: &str, vcpus: u32) -> (f64, Summary) {
    let mut plain = world(program, vcpus);
    assert_eq!(*plain.run(), crate::End::TimeLimit);
    let plain = plain.report();
    let world = world(program, vcpus);
    let vm = world.vm_named("vm").unwrap();
    let config = PolicyConfig {
        method: Method::Haltpoll,
        wake_cost: Duration::from_nanos(Costs::THIS_VM.wake()[2]),
        ..PolicyConfig::default()
    };
    let (mut governed, summary) = govern(world, vm, config, false, &mut Journal::disabled()).unwrap();
    (operations(&governed.report()) / operations(&plain), summary)
}

#[test]
fn the_policy_of_gleaner_run_makes_a_ping_pong_fast_unchanged() {
    let (gain, summary) = with_and_without("ping-pong", 2);
    assert!(summary.proven > 0, "{summary:?}");
    assert!(gain > 2.0, "{gain}");
}

#[test]
fn and_leaves_plain_computation_alone() {
    let (gain, summary) = with_and_without("matmul", 2);
    assert_eq!(summary.proven, 0, "{summary:?}");
    assert!((0.97..=1.03).contains(&gain), "{gain}");
}

/// Waking up fast, the ping-pong does more, and uses up a quota that it does not notice while vCPUs halt.
#[test]
fn a_quota_that_only_retention_uses_up_ends_retention() {
    let quota = Quota { runtime: SECOND * 6 / 100, period: SECOND / 10 };
    let world = limited("ping-pong", 2, Some(quota));
    let vm = world.vm_named("vm").unwrap();
    let config = PolicyConfig {
        method: Method::Haltpoll,
        wake_cost: Duration::from_nanos(Costs::THIS_VM.wake()[2]),
        consolidate: false,
        ..PolicyConfig::default()
    };
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut journal = Journal::create(file.path(), false, |_| ()).unwrap();
    govern(world, vm, config, false, &mut journal).unwrap();
    drop(journal);
    let throttled = |record: &Record| {
        let Record::Decision { event: Event::Released { why }, .. } = record else { return false };
        matches!(why, ReleaseReason::Veto(Veto::Throttled { share }) if *share > 0.0)
    };
    let text = std::fs::read_to_string(file.path()).unwrap();
    let records: Vec<Record> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events = || records.iter().filter(|r| matches!(r, Record::Decision { .. })).collect::<Vec<_>>();
    assert!(records.iter().any(throttled), "{:?}", events());
}

#[test]
fn a_dry_run_suggests_and_changes_nothing() {
    let world = world("ping-pong", 2);
    let vm = world.vm_named("vm").unwrap();
    let config = PolicyConfig {
        mode: gleaner_policy::Mode::DryRun,
        method: Method::Haltpoll,
        ..PolicyConfig::default()
    };
    let (_, summary) = govern(world, vm, config, false, &mut Journal::disabled()).unwrap();
    assert!(!summary.would_try.is_empty(), "{summary:?}");
    let settings: Vec<_> = summary.settings.iter().map(|s| s.setting.to_string()).collect();
    assert_eq!(settings.len(), 1, "{settings:?}");
}

/// How and when a pause that watches for overload ends while eight threads compute on two vCPUs.
fn overloaded(after_a_report: bool) -> (End, Ns) {
    let program = library::make("matmul", Parameters { threads: 8, work: 0, grain: 0 }, 2).unwrap();
    let vm = VmSpec::new("vm", 2, Costs::THIS_VM).running(program);
    let mut spec = Spec::new(HostSpec { cores: 2, ..HostSpec::default() }, vec![vm]);
    spec.time_limit = SECOND;
    let mut world = World::new(&spec).unwrap();
    let vm = world.vm_named("vm").unwrap();
    world.run_until(SECOND / 10);
    let ms = Duration::from_millis;
    let watch = Watch { every: ms(5), at_least: Some(6), at_most: None, times: 3, persistence: ms(2) };
    let (start, pause) = (world.now(), Pause { length: ms(100), watch: Some(watch) });
    let mut paused = Paused::new(&world, pause, after_a_report.then_some(start));
    loop {
        world.run_until(paused.next());
        if let Some(end) = paused.check(&world, vm) {
            return (end, world.now() - start);
        }
    }
}

#[test]
fn overload_is_reported_as_by_the_kernel_and_found_by_counting_after_a_report() {
    let by = |source| End::Overload(Overload { runnable: 8, waiting: 6.0, source });
    // The overload must persist for five run-queue samples; then three counts.
    assert_eq!(overloaded(false), (by(OverloadSource::RunQueues), 2_500_000));
    assert_eq!(overloaded(true), (by(OverloadSource::Counts), 15_000_000));
}

/// Two VMs on the same pCPUs, each with a program and a policy.
fn two_governed(first: &str, second: &str) -> (Report, Vec<Summary>) {
    let made = |name: &str| library::make(name, Parameters { threads: 0, work: 0, grain: 0 }, 2).unwrap();
    let vm = |name: &str, program: &str| VmSpec::new(name, 2, Costs::THIS_VM).running(made(program));
    let host = HostSpec { cores: 4, ..HostSpec::default() };
    let mut spec = Spec::new(host, vec![vm("a", first), vm("b", second)]);
    spec.time_limit = 2 * SECOND;
    let world = World::new(&spec).unwrap();
    let governors = ["a", "b"].map(|name| super::Governor {
        vm: world.vm_named(name).unwrap(),
        config: PolicyConfig {
            method: Method::Haltpoll,
            wake_cost: Duration::from_nanos(Costs::THIS_VM.wake()[2]),
            ..PolicyConfig::default()
        },
        counter: false,
    });
    let mut journals = [Journal::disabled(), Journal::disabled()];
    let (mut world, summaries) = super::govern_all(world, &governors, &mut journals).unwrap();
    (world.report(), summaries)
}

#[test]
fn several_vms_have_a_policy_of_their_own_each_and_the_same_outcome_every_time() {
    let (report, summaries) = two_governed("ping-pong", "matmul");
    assert!(summaries[0].proven > 0, "{summaries:?}");
    assert_eq!(summaries[1].proven, 0, "{summaries:?}");
    let elapsed = |s: &Summary| s.settings.iter().map(|s| s.time).sum::<Duration>();
    for summary in &summaries {
        assert!(elapsed(summary) > Duration::from_millis(1990), "{summary:?}");
    }
    let mut alone = world("ping-pong", 2);
    alone.run();
    assert!(operations(&report) > 2.0 * operations(&alone.report()));
    for _ in 0..5 {
        assert!(report == two_governed("ping-pong", "matmul").0, "it depends on more than the worlds");
    }
    // Each settles on its own setting.
    let (_, both) = two_governed("ping-pong", "request-response");
    assert!(both.iter().all(|s| s.proven > 0), "{both:?}");
}
