//! What can go wrong around `gleaner run`: the command must go on, and nothing that is not Gleaner's may be touched.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]
#![allow(clippy::print_stderr, reason = "a test says what it leaves behind")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::levers::{LEASES, LIMIT, Levers, Machine, groups, limit_is};
use common::process::{GLEANER, Running, command, gleaner, text, until};
use gleaner_kernel::Root;
use gleaner_kernel::lever::{GroupState, Target, Value};
use gleaner_kernel::topology::Topology;
use gleaner_proto::journal::{self, Record};
use gleaner_proto::lease::{self, LeaseRecord};
use gleaner_testing::left_out;
use nix::sys::signal::Signal;

/// A limit that only these tests set.
const THEIRS: &str = "123456";

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn notes(file: &Path) -> Vec<String> {
    let text = |record| match record {
        Record::Note { text, .. } => Some(text),
        _ => None,
    };
    journal::read(file).unwrap().into_iter().filter_map(text).collect()
}

/// A file that is removed when dropped, so that no later Gleaner finds it.
struct Temporary(&'static str);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

#[test]
fn the_command_survives_the_loss_of_its_group() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let options = ["--quiet", "--fixed", "haltpoll:200us", "--journal", path(&file)];
    let command_line = ["--", "sh", "-c", "cat; exit 7"];
    let mut run = Running::start(command(&["run"]).args(options).args(command_line));
    until("the limit is in force", || limit_is("200000"));
    let made = || Levers::read().groups.difference(&machine.before.groups).cloned().collect::<Vec<_>>();
    let is_inhabited =
        |group: &PathBuf| fs::read_to_string(group.join("cgroup.procs")).is_ok_and(|pids| !pids.is_empty());
    assert!(!made().is_empty() && made().iter().all(is_inhabited));
    for group in made() {
        let home = group.parent().unwrap().to_owned();
        let target = Target::Group { path: group, home };
        target.write(&Root::system(), &Value::Group(GroupState::Absent)).unwrap();
    }
    until("Gleaner releases its setting", || limit_is(machine.limit_before().trim()));
    assert!(!run.has_ended());
    let output = run.finish();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(notes(&file).iter().any(|note| note.contains("releases its setting")), "{:?}", notes(&file));
    machine.assert_untouched();
}

#[test]
fn a_value_that_somebody_else_sets_meanwhile_stays_theirs() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let args = ["run", "--quiet", "--fixed", "haltpoll:200us", "--journal", path(&file), "--", "cat"];
    let run = Running::start(&mut command(&args));
    until("the limit is in force", || limit_is("200000"));
    fs::write(LIMIT, THEIRS).unwrap();
    let output = run.finish();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert!(limit_is(THEIRS), "their value is gone");
    assert!(notes(&file).iter().any(|note| note.contains("changed by somebody else")), "{:?}", notes(&file));
    fs::write(LIMIT, machine.limit_before().trim()).unwrap();
    machine.assert_untouched();
}

#[test]
fn a_malformed_lease_file_is_refused_and_nothing_is_touched() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (ran, knob) = (dir.path().join("ran"), dir.path().join("knob"));
    fs::write(&knob, "1\n").unwrap();
    let line = |record| serde_json::to_string(&record).unwrap() + "\n";
    let holder = LeaseRecord::Holder { version: lease::VERSION, pid: 1 };
    let change = LeaseRecord::Change {
        target: Target::File(knob.clone()),
        old: Value::Text("0".to_owned()),
        new: Value::Text("1".to_owned()),
    };
    let malformed = line(holder) + &line(change) + "{\"record\":\"change\",\n";
    let _lease_file = Temporary(LEASES);
    fs::write(LEASES, &malformed).unwrap();
    for (args, status) in [
        (&["run", "--require", "--", "touch", path(&ran)][..], 125),
        (&["restore"], 1),
        (&["run", "--", "sh", "-c", "exit 7"], 7),
    ] {
        let output = gleaner(args);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {}", text(&output.stderr));
        let printed = text(&output.stderr);
        assert!(printed.contains(&format!("{LEASES}: line 3 is not a lease record")), "{printed}");
        assert!(!ran.exists(), "the command ran");
        assert_eq!(fs::read_to_string(&knob).unwrap(), "1\n");
        assert_eq!(fs::read_to_string(LEASES).unwrap(), malformed);
        assert_eq!(Levers::read(), machine.before);
    }
    // Without the malformed line, the valid part is restored.
    fs::write(LEASES, malformed.rsplit_once("{\"record\"").unwrap().0).unwrap();
    let output = gleaner(&["restore"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&knob).unwrap().trim(), "0");
    machine.assert_untouched();
}

#[test]
fn a_malformed_journal_is_refused_with_its_line() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    fs::write(&file, "{\"record\":\"note\",\"at\":{\"secs\":0,\"nanos\":0},\"text\":\"x\"}\nnonsense\n")
        .unwrap();
    let output = gleaner(&["why", path(&file)]);
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stderr);
    assert!(printed.contains(&format!("{}: line 2 is not a journal record", file.display())), "{printed}");
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
}

/// Kills a Gleaner that holds the limit, and ends its command; the limit stays in effect.
fn leave_a_stale_lease(machine: &Machine) {
    let mut run = Running::start(&mut command(&["run", "--quiet", "--fixed", "haltpoll:200us", "--", "cat"]));
    until("the limit is in force", || limit_is("200000"));
    run.signal(Signal::SIGKILL);
    run.wait();
    drop(run);
    assert!(limit_is("200000"));
    assert_ne!(Levers::read().groups, machine.before.groups);
}

#[test]
fn what_a_dead_holder_left_is_put_back_by_restore_and_by_the_next_run() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    leave_a_stale_lease(&machine);
    let output = gleaner(&["restore"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let restored = format!("{LIMIT}: 200000 back to {}", machine.limit_before().trim());
    assert!(text(&output.stdout).contains(&restored), "{}", text(&output.stdout));
    machine.assert_untouched();

    leave_a_stale_lease(&machine);
    let output = gleaner(&["run", "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let restored = format!("restored what a killed Gleaner left: {restored}");
    assert!(text(&output.stderr).contains(&restored), "{}", text(&output.stderr));
    machine.assert_untouched();
}

/// A vCPU that is offline until dropped. On cgroup v1 every cpuset loses it permanently (kernel:
/// kernel/cgroup/cpuset-v1.c), so the cpusets are restored, too. Device interrupts stay where the kernel moved them:
/// most cannot be moved back from user space.
struct Offline {
    file: PathBuf,
    sets: BTreeMap<PathBuf, String>,
}

impl Offline {
    /// Takes the last vCPU offline; `None` if the kernel refuses.
    fn take() -> Option<Self> {
        let online = Topology::read(&Root::system()).unwrap().online;
        let last = online.iter().next_back().unwrap();
        let file = PathBuf::from(format!("/sys/devices/system/cpu/cpu{last}/online"));
        let sets = groups().into_iter().map(|group| group.join("cpuset.cpus"));
        let sets = sets.filter_map(|set| Some((set.clone(), fs::read_to_string(set).ok()?))).collect();
        match fs::write(&file, "0") {
            Ok(()) => Some(Self { file, sets }),
            Err(error) => {
                // The kernel's choice, even on a CI machine.
                left_out(format_args!("{} cannot be written: {error}", file.display()));
                None
            }
        }
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.file, "1") {
            eprintln!("NOT RESTORED: {} to 1: {error}", self.file.display());
        }
        // Parents first: a cpuset cannot have a vCPU that its parent lacks.
        for (set, before) in &self.sets {
            if fs::read_to_string(set).is_ok_and(|now| now != *before)
                && let Err(error) = fs::write(set, before.trim())
            {
                eprintln!("NOT RESTORED: {} to {before}: {error}", set.display());
            }
        }
    }
}

#[test]
fn the_command_survives_a_vcpu_that_goes_and_comes_back() {
    // The kernel moves device interrupts off the vCPU permanently, so this needs a machine that may be changed.
    if std::env::var_os("GLEANER_TEST_HOTPLUG").is_none() {
        return left_out("takes a vCPU offline; set GLEANER_TEST_HOTPLUG=1 on a machine that may be changed");
    }
    let Some(machine) = Machine::take() else { return };
    let args = ["run", "--quiet", "--", GLEANER, "workload", "request-response", "--seconds", "2"];
    let run = Running::start(&mut command(&args));
    until("Gleaner controls the command", || Levers::read() != machine.before);
    // Offline long enough for several samples and a trial.
    let half = Duration::from_millis(300);
    std::thread::sleep(half);
    let Some(offline) = Offline::take() else { return };
    assert_eq!(fs::read_to_string(&offline.file).unwrap(), "0\n");
    std::thread::sleep(half);
    let file = offline.file.clone();
    drop(offline);
    assert_eq!(fs::read_to_string(file).unwrap(), "1\n");
    let output = run.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("operations"), "{}", text(&output.stdout));
    machine.assert_untouched();
}
