//! Sets and retention: what belongs to whom.

use super::*;

#[test]
fn sets_are_each_workloads_own_and_retention_is_everybodys() {
    let world = World::new();
    let before = world.parameters();
    let mut fleet = world.fleet([1, 2]);
    fleet.retain(HALTPOLL).unwrap();
    assert_eq!(world.parameters(), ["200000", "200000", "2", "N"]);
    fleet.place(A, &set("0")).unwrap();
    assert_eq!((world.cpus(1), world.cpus(2)), ("0".into(), String::new()));
    assert_eq!(world.parameters()[3], "N", "B uses both vCPUs");
    fleet.place(B, &set("0")).unwrap();
    assert_eq!(world.parameters()[3], "Y", "nobody uses vCPU 1: its poll limit may shrink");
    fleet.place(A, &set("0-1")).unwrap();
    assert_eq!((world.cpus(1), world.cpus(2)), ("0-1".into(), "0".into()));
    assert_eq!(world.parameters()[3], "N");
    let outcomes = fleet.close();
    assert!(outcomes.iter().all(|o| o.undone != UndoResult::Failed), "{outcomes:?}");
    assert_eq!(world.parameters(), before);
}

#[test]
fn who_leaves_gets_its_set_back_and_nothing_else_changes() {
    let world = World::new();
    let mut fleet = world.fleet([1, 2]);
    world.put("/cg/1/cpuset.cpus", "0-1");
    for id in [A, B] {
        fleet.place(id, &set("0")).unwrap();
    }
    fleet.retain(HALTPOLL).unwrap();
    assert_eq!(world.parameters()[3], "Y");
    let outcomes = fleet.leave(A);
    assert_eq!(outcomes.len(), 1);
    assert_eq!(outcomes[0].undone, UndoResult::Restored, "{outcomes:?}");
    assert_eq!((world.cpus(1), world.cpus(2)), ("0-1".into(), "0".into()));
    assert_eq!(world.parameters()[0], "200000");
    assert!(fleet.ended(A) && !fleet.ended(B));
    assert!(fleet.leave(A).is_empty());
    fleet.observe(B, &[]).unwrap();
    fleet.close();
    assert_eq!(world.cpus(2), "");
}

#[test]
fn a_latency_request_is_for_the_vcpus_that_somebody_uses() {
    let request = |world: &World, cpu| {
        world.read(&format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"))
    };
    let world = World::new();
    let mut fleet = world.fleet([1, 2]);
    for id in [A, B] {
        fleet.place(id, &set("0")).unwrap();
    }
    fleet.retain(Retention { method: Method::QosPoll, limit: Duration::ZERO }).unwrap();
    assert_eq!([request(&world, 0), request(&world, 1)], ["n/a", "0"]);
    fleet.place(B, &set("1")).unwrap();
    assert_eq!([request(&world, 0), request(&world, 1)], ["n/a", "n/a"]);
    fleet.leave(B);
    assert_eq!([request(&world, 0), request(&world, 1)], ["n/a", "0"]);
    fleet.retain(Retention::NONE).unwrap();
    assert_eq!([request(&world, 0), request(&world, 1)], ["0", "0"]);
}

#[test]
fn a_setting_settles_for_those_whose_vcpus_have_halted() {
    let world = World::new();
    let mut fleet = world.fleet([1]);
    world.group(2);
    fleet.join(B, MemberParts { allowed: set("1"), ..world.parts(2) }).unwrap();
    let settled = |fleet: &mut Fleet, id| fleet.observe(id, &[]).unwrap().settled;
    fleet.retain(HALTPOLL).unwrap();
    assert!(settled(&mut fleet, A) && settled(&mut fleet, B));
    fleet.retain(Retention::NONE).unwrap();
    assert!(!settled(&mut fleet, A) && !settled(&mut fleet, B));
    world.halt(1);
    assert!(!settled(&mut fleet, A) && settled(&mut fleet, B));
    world.halt(0);
    assert!(settled(&mut fleet, A) && settled(&mut fleet, B));
}

#[test]
fn to_reset_poll_limits_everybody_moves_and_comes_back() {
    let world = World::new();
    let mut fleet = world.fleet([1, 2]);
    fleet.place(B, &set("0")).unwrap();
    fleet.reset_poll_limits().unwrap();
    assert_eq!(world.cpus(1), "", "nothing polls");
    fleet.retain(HALTPOLL).unwrap();
    fleet.retain(Retention::NONE).unwrap();
    // No vCPU of a fake machine halts: the wait is bounded.
    fleet.reset_poll_limits().unwrap();
    assert_eq!((world.cpus(1), world.cpus(2)), ("0-1".into(), "0".into()));
    assert!(!fleet.observe(A, &[]).unwrap().settled);
}

#[test]
fn what_retains_nothing_is_put_back_after_a_while() {
    let world = World::new();
    let before = world.parameters();
    let mut fleet = world.fleet([1]);
    fleet.retain(HALTPOLL).unwrap();
    fleet.retain(Retention::NONE).unwrap();
    assert_eq!(world.parameters(), ["0", "200000", "0", "Y"], "as a trial's baseline");
    for cpu in 0..2 {
        world.halt(cpu);
    }
    fleet.observe(A, &[]).unwrap();
    fleet.off_since = Some(Duration::ZERO);
    fleet.sensors.set_back(Duration::from_secs(60));
    fleet.observe(A, &[]).unwrap();
    assert_eq!(world.parameters(), before);
    fleet.retain(HALTPOLL).unwrap();
    assert_eq!(world.parameters(), ["200000", "200000", "2", "N"]);
    fleet.close();
    assert_eq!(world.parameters(), before);
}
