//! What somebody else changes stays theirs, and the rest stays in force.

use super::*;

#[test]
fn a_set_that_somebody_else_changed_is_noticed_and_given_up_alone() {
    let world = World::new();
    let mut fleet = world.fleet([1, 2]);
    for id in [A, B] {
        fleet.place(id, &set("0")).unwrap();
    }
    fleet.retain(HALTPOLL).unwrap();
    world.put("/cg/2/cpuset.cpus", "1");
    let error = error_of_a(&mut fleet);
    assert!(matches!(error, FleetError::SetTaken { id: B, .. }), "{error:?}");
    assert_eq!(error.to_string(), "/cg/2/cpuset.cpus is 1 now, changed by somebody else: left as it is");
    let again = fleet.place(B, &set("0-1")).unwrap_err();
    assert!(matches!(again, FleetError::SetTaken { id: B, .. }), "{again:?}");
    let outcomes = fleet.abandon_set(B);
    assert_eq!(outcomes.iter().map(|o| o.undone).collect::<Vec<_>>(), [UndoResult::Theirs]);
    assert_eq!((world.cpus(1), world.cpus(2)), ("0".into(), "1".into()));
    assert_eq!(world.parameters()[0], "200000");
    for id in [A, B] {
        fleet.observe(id, &[]).unwrap();
    }
    fleet.close();
    assert_eq!((world.cpus(1), world.cpus(2)), (String::new(), "1".into()));
}

#[test]
fn a_set_that_is_back_as_it_was_is_somebody_elses_doing() {
    let world = World::new();
    let mut fleet = world.fleet([1]);
    fleet.place(A, &set("0")).unwrap();
    world.put("/cg/1/cpuset.cpus", "");
    assert!(matches!(error_of_a(&mut fleet), FleetError::SetTaken { id: A, .. }));
}

#[test]
fn a_set_that_was_chosen_before_it_was_held_is_theirs_until_it_is_as_it_was_found() {
    let world = World::new();
    let mut fleet = world.fleet([1]);
    let choose = |cpus: &str, effective: &str| {
        world.put("/cg/1/cpuset.cpus", cpus);
        world.put("/cg/1/cpuset.cpus.effective", effective);
    };
    let taken = |fleet: &mut Fleet| {
        let error = fleet.place(A, &set("0")).unwrap_err();
        assert_eq!(error.to_string(), "/cg/1/cpuset.cpus is 1 now, changed by somebody else: left as it is");
        assert!(fleet.abandon_set(A).is_empty());
        fleet.take_up_set(A);
    };
    choose("1", "1");
    taken(&mut fleet);
    taken(&mut fleet);
    choose("", "1");
    taken(&mut fleet);
    assert_eq!(world.cpus(1), "", "the group above it has the set");
    choose("", "0-1");
    fleet.place(A, &set("0")).unwrap();
    assert_eq!(world.cpus(1), "0");
    fleet.close();
    assert_eq!(world.cpus(1), "");
}

#[test]
fn a_set_that_a_group_below_gets_ends_that_of_the_whole() {
    let world = World::new();
    let mut fleet = world.fleet([1]);
    world.put("/cg/1/container/cpuset.cpus", "");
    fleet.place(A, &set("0")).unwrap();
    world.put("/cg/1/container/cpuset.cpus", "1");
    let error = error_of_a(&mut fleet);
    assert!(matches!(error, FleetError::SetTaken { id: A, .. }), "{error:?}");
    assert!(error.to_string().starts_with("/cg/1/container/cpuset.cpus is 1 now"), "{error}");
    fleet.abandon_set(A);
    assert_eq!(world.cpus(1), "");
    fleet.take_up_set(A);
    assert!(fleet.place(A, &set("0")).is_err(), "before it is held, too");
    assert_eq!(world.cpus(1), "");
}

#[test]
fn a_limit_that_somebody_else_changed_ends_the_retention_and_leaves_the_sets() {
    let world = World::new();
    let mut fleet = world.fleet([1, 2]);
    fleet.place(A, &set("0")).unwrap();
    fleet.retain(HALTPOLL).unwrap();
    world.put(&parameter("ns"), "123456");
    let error = error_of_a(&mut fleet);
    assert!(matches!(error, FleetError::RetentionTaken { .. }), "{error:?}");
    let again = fleet.retain(Retention::NONE).unwrap_err();
    assert!(matches!(again, FleetError::RetentionTaken { .. }), "{again:?}");
    let outcomes = fleet.abandon_retention();
    assert!(outcomes.iter().any(|o| o.undone == UndoResult::Theirs), "{outcomes:?}");
    assert_eq!(world.parameters(), ["123456", "50000", "2", "Y"], "what is still ours is put back");
    assert_eq!(world.cpus(1), "0");
    fleet.retain(Retention::NONE).unwrap();
    fleet.observe(A, &[]).unwrap();
    fleet.close();
    assert_eq!(world.parameters()[0], "123456");
}

#[test]
fn a_group_that_vanishes_in_the_middle_is_not_an_error_of_the_machine() {
    let world = World::new();
    let mut fleet = world.fleet([1, 2]);
    fleet.place(A, &set("0")).unwrap();
    fleet.retain(HALTPOLL).unwrap();
    fs::remove_dir_all(world.root().path("/cg/1")).unwrap();
    fleet.place(A, &set("1")).unwrap();
    fleet.retain(Retention::NONE).unwrap();
    fleet.reset_poll_limits().unwrap();
    assert!(fleet.ended(A));
    let error = fleet.observe(A, &[]).unwrap_err();
    assert!(matches!(error, FleetError::Ended { id: A }), "{error:?}");
    fleet.observe(B, &[]).unwrap();
    let outcomes = fleet.leave(A);
    assert_eq!(outcomes.iter().map(|o| o.undone).collect::<Vec<_>>(), [UndoResult::Gone]);
    assert!(fleet.close().iter().all(|o| o.undone != UndoResult::Failed));
}

#[test]
fn a_sensor_that_fails_concerns_its_workload_only() {
    let world = World::new();
    let mut fleet = world.fleet([1, 2]);
    world.put("/proc/101/schedstat", "garbled\n");
    let error = fleet.observe(A, &[]).unwrap_err();
    assert!(matches!(error, FleetError::Member { id: A, .. }), "{error:?}");
    fleet.observe(B, &[]).unwrap();
}
