use gleaner_testing::systemd::Systemd;

use super::*;

const UNIT: &str = "db.service";
const GROUP: &str = "/cg/system.slice/db.service";

/// A machine on which systemd runs `UNIT`.
struct World {
    root: Root,
    systemd: Systemd,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let systemd = Systemd::install(dir.path());
        systemd.add(UNIT, "/system.slice/db.service", "");
        Self { root: Root::at(dir.path()), systemd, _dir: dir }
    }

    /// Of version 2 with the controller, or `None` without.
    fn group_cpus(&self) -> Option<String> {
        self.root.read_opt(Path::new(GROUP).join(cpuset::FILE)).unwrap()
    }

    fn write(&self, value: &Value) -> Result<(), LeverError> {
        target().write(&self.root, value)
    }
}

fn target() -> Target {
    Target::UnitCpus { unit: UNIT.to_owned(), group: GROUP.into() }
}

fn cpus_of(list: &str) -> Value {
    Value::Cpus(list.parse().unwrap())
}

#[test]
fn what_systemd_shows_is_understood() {
    let text = "LoadState=loaded\nControlGroup=/system.slice/db.service\nAllowedCPUs=0 2-3\nStartupAllowedCPUs=\nCPUAffinity=1\n";
    let state = UnitState::parse(text).unwrap();
    assert_eq!(state.allowed, Some("0,2-3".parse().unwrap()));
    assert_eq!((state.control_group.as_str(), state.is_loaded), ("/system.slice/db.service", true));
    assert_eq!(state.others, ["CPUAffinity"]);
    let plain =
        UnitState::parse("LoadState=loaded\nAllowedCPUs=\nStartupAllowedCPUs=0-1\nCPUAffinity=\n").unwrap();
    assert_eq!((plain.allowed, plain.others), (None, vec!["StartupAllowedCPUs"]));
    assert!(!UnitState::parse("LoadState=not-found\n").unwrap().is_loaded);
    assert!(UnitState::parse("AllowedCPUs=all\n").unwrap_err().contains("`AllowedCPUs=all`"));
}

#[test]
fn a_set_is_in_force_on_return_and_leaves_no_trace() {
    let world = World::new();
    assert_eq!(target().read(&world.root).unwrap(), Value::Unset);
    for list in ["0-1,3", "0"] {
        world.write(&cpus_of(list)).unwrap();
        assert_eq!(target().read(&world.root).unwrap(), cpus_of(list));
        assert_eq!(world.group_cpus().as_deref(), Some(list));
        assert!(world.systemd.drop_in(UNIT).unwrap().contains(&format!("AllowedCPUs={list}\n")));
    }
    world.write(&Value::Unset).unwrap();
    assert_eq!(target().read(&world.root).unwrap(), Value::Unset);
    assert_eq!((world.group_cpus(), world.systemd.drop_in(UNIT)), (None, None));
    assert!(!world.root.exists("/run/systemd/system.control/db.service.d"));
    assert_eq!(world.systemd.asked().iter().filter(|line| *line == "daemon-reload").count(), 1);
}

#[test]
fn other_runtime_properties_stay() {
    let world = World::new();
    world.write(&cpus_of("0")).unwrap();
    let other = "/run/systemd/system.control/db.service.d/50-CPUWeight.conf";
    std::fs::write(world.root.path(other), "[Service]\nCPUWeight=50\n").unwrap();
    world.write(&Value::Unset).unwrap();
    assert_eq!(world.systemd.drop_in(UNIT), None);
    assert!(world.root.exists(other));
}

#[test]
fn a_group_that_does_not_get_its_set_is_an_error_with_the_cause() {
    let world = World::new();
    world.systemd.disable_controller(UNIT);
    let error = world.write(&cpus_of("0")).unwrap_err().to_string();
    assert!(error.starts_with("cannot set AllowedCPUs= of db.service: "), "{error}");
    assert!(error.contains("DisableControllers="), "{error}");
}

#[test]
fn what_an_administrator_sets_stays_and_ours_is_forgotten() {
    let world = World::new();
    world.write(&cpus_of("0")).unwrap();
    world.systemd.ctl(&["set-property", "--", UNIT, "AllowedCPUs=1"]);
    assert_eq!(target().read(&world.root).unwrap(), cpus_of("1"));
    target().forget(&world.root, &[cpus_of("0-1"), cpus_of("0")]).unwrap();
    assert_eq!(world.systemd.drop_in(UNIT), None);
    assert_eq!(target().read(&world.root).unwrap(), cpus_of("1"));

    // In the very drop-in that was ours.
    world.systemd.ctl(&["set-property", "--runtime", "--", UNIT, "AllowedCPUs=0-1"]);
    let reloads = world.systemd.asked().len();
    target().forget(&world.root, &[cpus_of("0")]).unwrap();
    assert!(world.systemd.drop_in(UNIT).unwrap().contains("AllowedCPUs=0-1"));
    assert_eq!(world.systemd.asked().len(), reloads, "nothing was removed, nothing is read anew");
}

#[test]
fn a_unit_that_is_gone_is_gone() {
    let world = World::new();
    world.write(&cpus_of("0")).unwrap();
    world.systemd.remove(UNIT);
    assert!(target().read(&world.root).unwrap_err().is_gone());
    target().forget(&world.root, &[cpus_of("0")]).unwrap();
    assert_eq!(world.systemd.drop_in(UNIT), None);
}

#[test]
fn without_systemctl_the_error_says_so() {
    let world = World::new();
    world.systemd.uninstall();
    let error = target().read(&world.root).unwrap_err().to_string();
    assert_eq!(
        error,
        "cannot read AllowedCPUs= of db.service: there is no systemctl to ask systemd with; install it"
    );
}

#[test]
fn what_systemctl_complains_about_is_the_reason() {
    let world = World::new();
    let error = systemctl::ask(&world.root, &["frobnicate"], SHORTLY).unwrap_err();
    assert_eq!(error, "Unknown command verb frobnicate.");
}

#[test]
fn waiting_for_systemd_is_bounded() {
    let world = World::new();
    world.systemd.hang();
    let start = Instant::now();
    let error = systemctl::ask(&world.root, &["show"], Duration::from_millis(50)).unwrap_err();
    assert!(error.starts_with("no answer within 50ms"), "{error}");
    assert!(start.elapsed() < Duration::from_secs(10));
}
