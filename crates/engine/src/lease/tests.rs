use std::fs;

use gleaner_kernel::lever::GroupState;

use super::*;

struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("root")).unwrap();
        Self { dir }
    }

    fn root(&self) -> Root {
        Root::at(self.dir.path().join("root"))
    }

    fn state(&self) -> StateDir {
        StateDir::at(self.dir.path().join("state")).unwrap()
    }

    fn knob(&self, name: &str, value: &str) -> Target {
        fs::write(self.dir.path().join("root").join(name), value).unwrap();
        Target::File(format!("/{name}").into())
    }

    fn value(&self, name: &str) -> String {
        fs::read_to_string(self.dir.path().join("root").join(name)).unwrap()
    }

    fn open(&self) -> LeaseBook {
        LeaseBook::open(&self.state(), self.root()).unwrap().0
    }
}

fn text(target: &Target, value: &str) -> Write {
    Write { target: target.clone(), value: Value::Text(value.into()) }
}

#[test]
fn closing_restores_in_reverse_order() {
    let world = World::new();
    let (a, b) = (world.knob("a", "0"), world.knob("b", "x"));
    let mut book = world.open();
    book.set(&text(&a, "1")).unwrap();
    book.set(&text(&b, "y")).unwrap();
    book.set(&text(&a, "2")).unwrap();
    assert_eq!((world.value("a"), world.value("b")), ("2".into(), "y".into()));
    let order: Vec<_> = book.close().into_iter().map(|o| (o.target, o.undone)).collect();
    assert_eq!(order, [(b, UndoResult::Restored), (a, UndoResult::Restored)]);
    assert_eq!((world.value("a"), world.value("b")), ("0".into(), "x".into()));
    assert!(!world.state().leases().exists());
}

#[test]
fn a_group_that_was_made_is_removed_before_what_was_set_later() {
    let world = World::new();
    let group = Target::Group { path: "/group".into(), home: "/".into() };
    let knob = world.knob("knob", "0");
    let mut book = world.open();
    book.set(&Write { target: group.clone(), value: Value::Group(GroupState::Present) }).unwrap();
    let set = world.knob("group/set", "");
    for target in [&set, &knob] {
        book.set(&text(target, "1")).unwrap();
    }
    drop(book);
    let order: Vec<_> =
        restore(&world.state(), &world.root()).unwrap().into_iter().map(|o| o.target).collect();
    assert_eq!(order, [group, knob, set]);
}

#[test]
fn a_dead_holders_leases_are_restored() {
    let world = World::new();
    let a = world.knob("a", "0");
    let mut book = world.open();
    book.set(&text(&a, "1")).unwrap();
    book.set(&text(&a, "2")).unwrap();
    book.set(&text(&a, "1")).unwrap();
    drop(book); // as SIGKILL does: the lock ends, the file stays
    assert_eq!(world.value("a"), "1");
    let outcomes = restore(&world.state(), &world.root()).unwrap();
    assert_eq!(outcomes[0].undone, UndoResult::Restored, "{}", outcomes[0].detail);
    assert_eq!(world.value("a"), "0");
    assert!(restore(&world.state(), &world.root()).unwrap().is_empty(), "once is enough");
}

#[test]
fn the_next_holder_restores_what_a_dead_one_left() {
    let world = World::new();
    let a = world.knob("a", "0");
    let mut book = world.open();
    book.set(&text(&a, "1")).unwrap();
    drop(book);
    let (_, left) = LeaseBook::open(&world.state(), world.root()).unwrap();
    assert_eq!((left.len(), world.value("a")), (1, "0".into()));
}

#[test]
fn what_somebody_else_changed_stays_theirs() {
    let world = World::new();
    let a = world.knob("a", "0");
    let mut book = world.open();
    book.set(&text(&a, "1")).unwrap();
    world.knob("a", "theirs");
    assert_eq!(book.close()[0].undone, UndoResult::Theirs);
    assert_eq!(world.value("a"), "theirs");
}

#[test]
fn a_kill_between_record_and_write_changes_nothing() {
    let world = World::new();
    let a = world.knob("a", "0");
    let mut book = world.open();
    book.set(&text(&a, "1")).unwrap();
    drop(book);
    world.knob("a", "0"); // the recorded write did not happen
    let outcomes = restore(&world.state(), &world.root()).unwrap();
    assert_eq!(outcomes[0].undone, UndoResult::Unchanged);
}

#[test]
fn a_torn_record_is_a_change_that_was_not_made() {
    let world = World::new();
    let a = world.knob("a", "0");
    let mut book = world.open();
    book.set(&text(&a, "1")).unwrap();
    drop(book);
    let leases = world.state().leases();
    let mut bytes = fs::read(&leases).unwrap();
    bytes.extend_from_slice(b"{\"record\":\"change\",\"targ");
    fs::write(&leases, bytes).unwrap();
    restore(&world.state(), &world.root()).unwrap();
    assert_eq!(world.value("a"), "0");
}

#[test]
fn a_malformed_file_is_an_error_and_nothing_is_touched() {
    let world = World::new();
    let a = world.knob("a", "0");
    let mut book = world.open();
    book.set(&text(&a, "1")).unwrap();
    drop(book);
    let leases = world.state().leases();
    let mut garbled = fs::read_to_string(&leases).unwrap();
    garbled.push_str("not json\n");
    fs::write(&leases, &garbled).unwrap();
    let error = restore(&world.state(), &world.root()).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("by hand"), "{error}");
    assert_eq!((world.value("a"), fs::read_to_string(&leases).unwrap()), ("1".into(), garbled));
    assert!(LeaseBook::open(&world.state(), world.root()).is_err(), "a new holder does not start either");
}

#[test]
fn a_change_to_the_present_value_takes_no_lease() {
    let world = World::new();
    let a = world.knob("a", "0\n");
    let mut book = world.open();
    book.set(&text(&a, "0")).unwrap();
    assert!(!book.holds(&a));
    world.knob("a", "5");
    assert!(book.close().is_empty());
    assert_eq!(world.value("a"), "5");
}

#[test]
fn releasing_one_target_keeps_the_others() {
    let world = World::new();
    let (a, b) = (world.knob("a", "0"), world.knob("b", "0"));
    let mut book = world.open();
    book.set(&text(&a, "1")).unwrap();
    book.set(&text(&b, "1")).unwrap();
    assert_eq!(book.release(&a).unwrap().undone, UndoResult::Restored);
    world.knob("a", "1"); // now somebody else's
    drop(book);
    restore(&world.state(), &world.root()).unwrap();
    assert_eq!((world.value("a"), world.value("b")), ("1".into(), "0".into()));
}

#[test]
fn a_fragment_that_a_full_disk_leaves_is_dropped() {
    let world = World::new();
    let lever = world.knob("lever", "0");
    let mut book = world.open();
    book.set(&text(&lever, "1")).unwrap();
    let file = world.state().leases();
    let whole = fs::read(&file).unwrap();
    book.file.write_all(b"{\"record\":\"cha").unwrap();
    book.drop_fragment();
    assert_eq!(fs::read(&file).unwrap(), whole);
    book.set(&text(&lever, "2")).unwrap();
    let (_, records) = lease::read(&file).unwrap().unwrap();
    assert_eq!(records.len(), 2, "the next record is a line of its own: {records:?}");
}

#[test]
fn a_failed_change_is_an_error_that_names_the_file() {
    let world = World::new();
    let mut book = world.open();
    let error = book.set(&text(&Target::File("/missing".into()), "1")).unwrap_err().to_string();
    assert!(error.contains("missing"), "{error}");
    assert!(book.close().is_empty());
}

#[test]
fn a_value_that_is_back_although_we_hold_another_is_somebody_elses() {
    let world = World::new();
    let (a, b) = (world.knob("a", "0"), world.knob("b", "0"));
    let mut book = world.open();
    for value in ["1", "2"] {
        book.set(&text(&a, value)).unwrap();
        book.set(&text(&b, value)).unwrap();
    }
    book.check(&a).unwrap();
    for value in ["0", "1", "theirs"] {
        world.knob("a", value);
        assert!(matches!(book.check(&a), Err(LeaseError::Theirs { .. })), "{value}");
        assert!(matches!(book.set(&text(&a, "3")), Err(LeaseError::Theirs { .. })), "{value}");
        assert_eq!(world.value("a"), value);
    }
    world.knob("a", "1");
    assert_eq!(book.release(&a).unwrap().undone, UndoResult::Theirs);
    book.check(&b).unwrap();
    book.reset(&b).unwrap();
    world.knob("b", "1");
    book.check(&b).unwrap_or_else(|error| panic!("nothing is held: {error}"));
    assert_eq!((world.value("a"), world.value("b")), ("1".into(), "1".into()));
}

#[test]
fn the_file_of_a_holder_that_lasts_stays_short_and_still_undoes_everything() {
    let world = World::new();
    let (a, b) = (world.knob("a", "0"), world.knob("b", "x"));
    let mut book = world.open();
    book.set(&text(&b, "y")).unwrap();
    let mut longest = 0;
    for value in 1..4000 {
        book.set(&text(&a, &value.to_string())).unwrap();
        longest = longest.max(fs::metadata(world.state().leases()).unwrap().len());
    }
    assert!((60 << 10..80 << 10).contains(&longest), "{longest} bytes");
    drop(book);
    let order: Vec<_> =
        restore(&world.state(), &world.root()).unwrap().into_iter().map(|o| (o.target, o.undone)).collect();
    assert_eq!(order, [(a, UndoResult::Restored), (b, UndoResult::Restored)]);
    assert_eq!((world.value("a"), world.value("b")), ("0".into(), "x".into()));
}
