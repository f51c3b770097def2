//! The policy of `gleaner run` in charge of simulated VMs.

use std::time::Duration;

use gleaner_engine::Journal;
use gleaner_policy::{Event, Method, PolicyConfig};
use gleaner_proto::journal::Summary;

use super::govern;
use crate::library::{self, Parameters};
use crate::{Costs, End, HostSpec, Ns, Report, Spec, VmSpec, World};

const SECOND: Ns = 1_000_000_000;

fn world(program: &str, vcpus: u32) -> World {
    let program = library::make(program, Parameters { threads: 0, work: 0, grain: 0 }, vcpus).unwrap();
    let vm = VmSpec::new("vm", vcpus, Costs::THIS_VM).running(program);
    let mut spec = Spec::new(HostSpec { cores: vcpus, ..HostSpec::default() }, vec![vm]);
    spec.time_limit = 2 * SECOND;
    World::new(&spec).unwrap()
}

fn operations(report: &Report) -> f64 {
    report.vms[0].tasks[0].totals.operations as f64
}

fn with_and_without(program: &str, vcpus: u32) -> (f64, Summary) {
    let mut plain = world(program, vcpus);
    assert_eq!(*plain.run(), End::TimeLimit);
    let plain = plain.report();
    let world = world(program, vcpus);
    let vm = world.vm_named("vm").unwrap();
    let config = PolicyConfig {
        method: Method::Haltpoll,
        wake_cost: Duration::from_nanos(Costs::THIS_VM.wake()[2]),
        ..PolicyConfig::default()
    };
    let (mut governed, summary) = govern(world, vm, config, false, &mut Journal::nowhere()).unwrap();
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

#[test]
fn a_dry_run_suggests_and_changes_nothing() {
    let world = world("ping-pong", 2);
    let vm = world.vm_named("vm").unwrap();
    let config = PolicyConfig {
        mode: gleaner_policy::Mode::DryRun,
        method: Method::Haltpoll,
        ..PolicyConfig::default()
    };
    let mut machine = super::SimMachine::new(world, vm);
    let mut policy = gleaner_policy::Policy::new(config, gleaner_engine::Machine::allowed(&machine)).unwrap();
    let mut suggestions = 0;
    for _ in 0..20 {
        use gleaner_engine::Machine as _;
        machine.wait(Duration::from_millis(20), None).unwrap();
        let observation = machine.observe().unwrap();
        assert!(observation.settled);
        let decision = policy.step(&observation);
        suggestions += decision.events.iter().filter(|e| matches!(e, Event::WouldTry { .. })).count();
    }
    assert!(suggestions > 0);
}
