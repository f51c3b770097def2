//! The set of a unit that systemd runs: what its property is set to, what systemd is not asked, and what is left of it.

use gleaner_testing::systemd::Systemd;

use super::*;
use crate::lease::restore;
use crate::live::UnitSet;

const UNIT: &str = "1";
const FILE: &str = "/cg/1/cpuset.cpus";

/// A machine whose systemd runs workload A as a unit, without the cpuset controller.
struct Units {
    world: World,
    systemd: Systemd,
}

impl Units {
    fn new() -> Self {
        let world = World::new();
        let systemd = Systemd::install(&world.dir.path().join("root"));
        systemd.add(UNIT, "/1", "");
        Self { world, systemd }
    }

    fn fleet(&self) -> Fleet {
        let mut fleet = self.world.fleet([]);
        self.world.group(1);
        let set = UnitSet::new(UNIT.to_owned(), "/cg/1".into(), set("0-1"));
        let parts = MemberParts { place: ActiveSetLever::Unit(set), ..self.world.parts(1) };
        fs::remove_file(self.world.root().path(FILE)).unwrap();
        fleet.join(A, parts).unwrap();
        fleet
    }

    /// The CPUs of the unit's group, and its property.
    fn state(&self) -> (Option<String>, String) {
        (self.world.root().read_opt(FILE).unwrap(), self.systemd.allowed(UNIT))
    }

    fn has(&self, group: &str, property: &str) -> bool {
        self.state() == (Some(group.to_owned()), property.to_owned())
    }

    #[track_caller]
    fn assert_untouched(&self) {
        assert_eq!(self.state(), (None, String::new()));
        assert_eq!(self.systemd.drop_in(UNIT), None);
    }

    /// Has everything that is held compared with what was written.
    fn check(fleet: &mut Fleet) -> Result<(), FleetError> {
        fleet.held_checked = Duration::ZERO;
        fleet.sensors.set_back(2 * CHECK_INTERVAL);
        fleet.observe(A, &[]).map(drop)
    }

    fn settle(fleet: &mut Fleet) -> Result<(), FleetError> {
        fleet.members.get_mut(&A).unwrap().settle();
        Self::check(fleet)
    }
}

#[test]
fn the_property_follows_what_lasts_and_systemd_is_asked_nothing_else() {
    let units = Units::new();
    let mut fleet = units.fleet();
    Units::check(&mut fleet).unwrap();
    assert!(units.systemd.asked().is_empty(), "nothing was changed");
    fleet.place(A, &set("0")).unwrap();
    assert!(units.has("0", "0-1"), "{:?}", units.state());
    let asked = units.systemd.asked().len();
    for active in ["0-1", "1", "0"] {
        fleet.place(A, &set(active)).unwrap();
        Units::check(&mut fleet).unwrap();
        assert!(units.has(active, "0-1"), "a trial is too short for systemd: {:?}", units.state());
    }
    assert_eq!(units.systemd.asked().len(), asked);
    Units::settle(&mut fleet).unwrap();
    assert!(units.has("0", "0"), "{:?}", units.state());
    let asked = units.systemd.asked().len();
    Units::settle(&mut fleet).unwrap();
    assert_eq!(units.systemd.asked().len(), asked, "nothing changes");
    let outcomes = fleet.leave(A);
    assert_eq!(
        outcomes.iter().map(|o| o.undone).collect::<Vec<_>>(),
        [UndoResult::Restored, UndoResult::Gone]
    );
    units.assert_untouched();
    assert!(fleet.close().is_empty());
}

#[test]
fn the_property_is_put_back_before_the_file_that_follows_from_it() {
    for before in ["", "0-1"] {
        let units = Units::new();
        units.systemd.share_controller(UNIT);
        let mut fleet = units.fleet();
        units.world.put(FILE, before);
        fleet.place(A, &set("0")).unwrap();
        drop(fleet);
        let state = StateDir::at(units.world.dir.path().join("state")).unwrap();
        let outcomes = restore(&state, &units.world.root()).unwrap();
        let order: Vec<_> = outcomes.iter().map(|outcome| outcome.target.to_string()).collect();
        assert_eq!(order, ["AllowedCPUs of 1", FILE]);
        assert!(units.has(before, ""), "{:?}", units.state());
    }
}

#[test]
fn where_another_unit_needs_the_controller_the_group_has_all_vcpus_again() {
    let units = Units::new();
    units.systemd.share_controller(UNIT);
    let mut fleet = units.fleet();
    units.world.put(FILE, "\n");
    fleet.place(A, &set("0")).unwrap();
    Units::settle(&mut fleet).unwrap();
    assert!(units.has("0", "0"), "{:?}", units.state());
    let outcomes = fleet.close();
    assert!(outcomes.iter().all(|o| o.undone == UndoResult::Restored), "{outcomes:?}");
    assert!(units.has("", ""), "{:?}", units.state());
}

#[test]
fn what_systemd_writes_because_of_the_property_is_nobody_elses() {
    let units = Units::new();
    units.systemd.share_controller(UNIT);
    let mut fleet = units.fleet();
    fleet.place(A, &set("0")).unwrap();
    // As when its CPUWeight= was changed.
    units.world.put(FILE, "0-1\n");
    Units::check(&mut fleet).unwrap();
    assert!(units.has("0", "0-1"), "{:?}", units.state());
    units.world.put(FILE, "0-1\n");
    fleet.place(A, &set("1")).unwrap();
    assert!(units.has("1", "0-1"), "{:?}", units.state());
    Units::settle(&mut fleet).unwrap();
    fleet.place(A, &set("0-1")).unwrap();
    units.world.put(FILE, "1\n");
    let outcomes = fleet.close();
    assert!(outcomes.iter().all(|o| o.undone == UndoResult::Restored), "{outcomes:?}");
    assert!(units.has("", ""), "{:?}", units.state());
}

#[test]
fn an_administrators_property_is_theirs() {
    for scope in [&["set-property", "--runtime"][..], &["set-property"]] {
        let units = Units::new();
        let mut fleet = units.fleet();
        fleet.place(A, &set("0")).unwrap();
        units.systemd.ctl(&[scope, &["--", UNIT, "AllowedCPUs=1"]].concat());
        let error = Units::check(&mut fleet).unwrap_err();
        assert!(matches!(error, FleetError::SetTaken { id: A, .. }), "{error:?}");
        assert_eq!(
            error.to_string(),
            "AllowedCPUs of 1 is CPUs 1 now, changed by somebody else: left as it is"
        );
        let outcomes = fleet.abandon_set(A);
        assert!(outcomes.iter().all(|o| o.undone == UndoResult::Theirs), "{outcomes:?}");
        assert!(units.has("1", "1"), "{:?}", units.state());
        let ours = units.systemd.drop_in(UNIT).is_some_and(|text| text.contains("0-1"));
        assert!(!ours, "our drop-in stays below theirs");
        let asked = units.systemd.asked().len();
        fleet.place(A, &set("0")).unwrap();
        Units::check(&mut fleet).unwrap();
        fleet.close();
        assert!(units.has("1", "1"), "{:?}", units.state());
        assert_eq!(units.systemd.asked().len(), asked, "it stays away");
    }
}

#[test]
fn a_set_that_was_given_up_is_taken_up_only_if_nobody_holds_it() {
    let units = Units::new();
    let mut fleet = units.fleet();
    fleet.place(A, &set("0")).unwrap();
    units.systemd.ctl(&["set-property", "--", UNIT, "AllowedCPUs=1"]);
    Units::check(&mut fleet).unwrap_err();
    fleet.abandon_set(A);
    fleet.take_up_set(A);
    assert!(matches!(fleet.place(A, &set("0")), Err(FleetError::SetTaken { id: A, .. })));
    fleet.abandon_set(A);
    units.systemd.ctl(&["set-property", "--", UNIT, "AllowedCPUs="]);
    fleet.take_up_set(A);
    fleet.place(A, &set("0")).unwrap();
    assert!(units.has("0", "0-1"), "{:?}", units.state());
    fleet.close();
    assert_eq!(units.state(), (None, String::new()));
}

#[test]
fn a_set_of_a_group_in_the_unit_ends_that_of_the_unit() {
    let units = Units::new();
    let mut fleet = units.fleet();
    fleet.place(A, &set("0")).unwrap();
    units.world.put("/cg/1/worker/cpuset.cpus", "1");
    let error = Units::check(&mut fleet).unwrap_err();
    assert!(matches!(error, FleetError::SetTaken { id: A, .. }), "{error:?}");
    fleet.abandon_set(A);
    fleet.take_up_set(A);
    assert!(matches!(fleet.place(A, &set("0")), Err(FleetError::SetTaken { id: A, .. })));
    fleet.abandon_set(A);
    units.assert_untouched();
}

#[test]
fn an_administrator_who_takes_the_property_back_is_noticed() {
    let units = Units::new();
    let mut fleet = units.fleet();
    fleet.place(A, &set("0")).unwrap();
    units.systemd.ctl(&["set-property", "--runtime", "--", UNIT, "AllowedCPUs="]);
    let error = Units::check(&mut fleet).unwrap_err();
    assert!(matches!(error, FleetError::SetTaken { id: A, .. }), "{error:?}");
    fleet.abandon_set(A);
    units.assert_untouched();
}

#[test]
fn a_property_that_was_set_before_the_first_change_stays() {
    let units = Units::new();
    let mut fleet = units.fleet();
    units.systemd.ctl(&["set-property", "--", UNIT, "AllowedCPUs=1"]);
    let error = fleet.place(A, &set("0")).unwrap_err();
    assert!(matches!(error, FleetError::SetTaken { id: A, .. }), "{error:?}");
    assert!(fleet.abandon_set(A).is_empty());
    assert!(units.has("1", "1"), "{:?}", units.state());
}

#[test]
fn a_value_written_past_systemd_stays_and_ours_goes() {
    let units = Units::new();
    units.systemd.share_controller(UNIT);
    let mut fleet = units.fleet();
    fleet.place(A, &set("0")).unwrap();
    Units::settle(&mut fleet).unwrap();
    units.world.put(FILE, "1\n");
    let error = Units::check(&mut fleet).unwrap_err();
    assert_eq!(error.to_string(), "/cg/1/cpuset.cpus is 1 now, changed by somebody else: left as it is");
    fleet.abandon_set(A);
    assert!(units.has("1", ""), "{:?}", units.state());
}

#[test]
fn after_sigkill_the_property_is_put_back_whenever_it_came() {
    for settles in [false, true] {
        let units = Units::new();
        let mut fleet = units.fleet();
        fleet.place(A, &set("0")).unwrap();
        if settles {
            Units::settle(&mut fleet).unwrap();
            fleet.place(A, &set("0-1")).unwrap();
        }
        // As SIGKILL does: the lock ends, the file stays.
        drop(fleet);
        let state = StateDir::at(units.world.dir.path().join("state")).unwrap();
        let outcomes = restore(&state, &units.world.root()).unwrap();
        assert!(outcomes.iter().any(|o| o.undone == UndoResult::Restored), "{outcomes:?}");
        units.assert_untouched();
        assert!(restore(&state, &units.world.root()).unwrap().is_empty());
    }
}

#[test]
fn without_systemd_nothing_is_claimed_to_be_restored() {
    let units = Units::new();
    let mut fleet = units.fleet();
    fleet.place(A, &set("0")).unwrap();
    drop(fleet);
    units.systemd.uninstall();
    let state = StateDir::at(units.world.dir.path().join("state")).unwrap();
    let outcomes = restore(&state, &units.world.root()).unwrap();
    let property =
        outcomes.iter().find(|o| matches!(o.target, gleaner_kernel::lever::Target::UnitCpus { .. }));
    let property = property.unwrap();
    assert_eq!(property.undone, UndoResult::Failed);
    assert!(
        property.detail.starts_with("cannot read AllowedCPUs= of 1: there is no systemctl"),
        "{property:?}"
    );
    assert!(state.leases().exists(), "the next try can still put it back");
}

#[test]
fn a_unit_that_ends_leaves_nothing_behind() {
    let units = Units::new();
    let mut fleet = units.fleet();
    fleet.place(A, &set("0")).unwrap();
    fs::remove_dir_all(units.world.root().path("/cg/1")).unwrap();
    fleet.place(A, &set("0-1")).unwrap();
    assert!(fleet.ended(A));
    units.systemd.remove(UNIT);
    let outcomes = fleet.leave(A);
    assert!(outcomes.iter().all(|o| o.undone == UndoResult::Gone), "{outcomes:?}");
    assert_eq!(units.systemd.drop_in(UNIT), None);
}
