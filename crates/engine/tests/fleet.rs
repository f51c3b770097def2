//! A fleet on this machine, as root: real processes in groups of their own, real levers. Each test leaves everything as
//! it was.

#![allow(clippy::print_stderr, reason = "a test says what it could not remove")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_engine::live::{ActiveSetLever, Fleet, FleetError, Found, MemberParts, Signals, group_sensor};
use gleaner_engine::{LeaseBook, StateDir, UndoResult, restore};
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::{CgroupSetup, WorkloadGroup};
use gleaner_kernel::lever::{GroupState, Value, haltpoll};
use gleaner_policy::{CpuSet, Method, Retention, WorkloadId};
use gleaner_testing::{has_two_vcpus, is_root, without_lever};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const HALTPOLL: Retention = Retention { method: Method::Haltpoll, limit: Duration::from_micros(150) };
const LIMIT: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
const A: WorkloadId = WorkloadId(0);
const B: WorkloadId = WorkloadId(1);
/// Names the state directory to the holder that another test kills.
const HOLDERS_STATE: &str = "GLEANER_TEST_STATE";
/// Names its groups, from the number of the first.
const HOLDERS_GROUPS: &str = "GLEANER_TEST_GROUPS";

/// The right to change the machine, one test at a time, and what the machine had before.
struct Machine {
    root: Root,
    state: tempfile::TempDir,
    haltpoll: Vec<String>,
    _turn: Flock<File>,
}

impl Machine {
    /// `None`, with a message, where the test cannot run.
    fn take() -> Option<Self> {
        if !is_root() || !has_two_vcpus() {
            return None;
        }
        let root = Root::system();
        if let Err(reason) = haltpoll::available(&root) {
            without_lever(reason);
            return None;
        }
        // The same file as for the tests of the command line.
        let turn = File::create(std::env::temp_dir().join("gleaner-tests.lock")).unwrap();
        let turn = Flock::lock(turn, FlockArg::LockExclusive).unwrap();
        let state = tempfile::tempdir().unwrap();
        Some(Self { haltpoll: parameters(&root), root, state, _turn: turn })
    }

    fn state(&self) -> StateDir {
        StateDir::at(self.state.path()).unwrap()
    }

    fn fleet(&self, members: &[Workload]) -> Fleet {
        fleet(&self.state(), members.iter().map(|member| &member.group))
    }

    #[track_caller]
    fn assert_untouched(&self, members: &[Workload]) {
        assert_eq!(parameters(&self.root), self.haltpoll);
        for member in members {
            assert_eq!(member.cpus(), member.before);
        }
        assert!(!self.state().leases().exists());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // After a failure: nothing that a test took may stay.
        let _ = restore(&self.state(), &self.root);
        for (name, value) in self.root.list(haltpoll::PARAMETERS).unwrap().iter().zip(&self.haltpoll) {
            let _ = self.root.write(PathBuf::from(haltpoll::PARAMETERS).join(name), value);
        }
    }
}

fn parameters(root: &Root) -> Vec<String> {
    let names = root.list(haltpoll::PARAMETERS).unwrap();
    names.iter().map(|n| root.read(PathBuf::from(haltpoll::PARAMETERS).join(n)).unwrap()).collect()
}

/// A process in a group of its own; both are gone when it is dropped.
struct Workload {
    group: WorkloadGroup,
    process: Child,
    before: String,
}

fn group(number: u32) -> WorkloadGroup {
    let root = Root::system();
    WorkloadGroup::new(&root, &CgroupSetup::detect(&root).unwrap(), number).unwrap()
}

impl Workload {
    fn start(number: u32) -> Self {
        let root = Root::system();
        let group = group(number);
        for write in group.writes() {
            write.target.write(&root, &write.value).unwrap();
        }
        let process = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        for file in group.procs_files() {
            root.write(&file, &process.id().to_string()).unwrap();
        }
        let before = root.read(group.cpuset_dir().join("cpuset.cpus")).unwrap();
        Self { group, process, before }
    }

    fn cpus(&self) -> String {
        Root::system().read(self.group.cpuset_dir().join("cpuset.cpus")).unwrap()
    }

    /// Where the process is allowed to run.
    fn allowed(&self) -> String {
        allowed(self.process.id())
    }
}

fn allowed(pid: u32) -> String {
    gleaner_testing::placement::allowed(pid).unwrap()
}

impl Drop for Workload {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        for write in self.group.writes().iter().rev() {
            if let Err(error) = write.target.write(&Root::system(), &Value::Group(GroupState::Absent)) {
                eprintln!("NOT REMOVED: {}: {error}", write.target);
            }
        }
    }
}

/// Numbers that no Gleaner has: each test's groups are its own.
fn workloads(count: u32) -> Vec<Workload> {
    (0..count).map(|n| Workload::start(std::process::id() * 10 + n)).collect()
}

fn fleet<'g>(state: &StateDir, groups: impl Iterator<Item = &'g WorkloadGroup>) -> Fleet {
    let root = Root::system();
    let (book, _) = LeaseBook::open(state, root.clone()).unwrap();
    let signals = Signals::block().unwrap();
    let mut fleet = Fleet::new(book, all(), &signals, |_| ()).unwrap();
    for (id, group) in groups.enumerate() {
        let parts = MemberParts {
            workload: group_sensor(&root, group).unwrap(),
            place: ActiveSetLever::Group(group.clone()),
            counter: None,
            allowed: all(),
            heads: Vec::new(),
            overloads: None,
            waiting: None,
            traffic: None,
            wake_cost: Duration::from_micros(30),
        };
        fleet.join(WorkloadId(id as u64), parts).unwrap();
    }
    fleet
}

/// Not the caller's affinity: a fleet changes that.
fn all() -> CpuSet {
    Root::system().parse("/sys/devices/system/cpu/online", "a CPU list").unwrap()
}

/// The first vCPU.
fn one() -> CpuSet {
    all().iter().take(1).collect()
}

/// The last vCPU.
fn other() -> CpuSet {
    all().iter().next_back().into_iter().collect()
}

/// Observes A until that fails.
fn error_of_a(fleet: &mut Fleet) -> FleetError {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match fleet.observe(A, &[]) {
            Err(error) => return error,
            Ok(_) => assert!(Instant::now() < end, "nothing was noticed"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn two_workloads_have_a_set_each_and_one_retention() {
    let Some(machine) = Machine::take() else { return };
    let members = workloads(2);
    let mut fleet = machine.fleet(&members);
    fleet.retain(HALTPOLL).unwrap();
    fleet.place(A, &one()).unwrap();
    fleet.place(B, &other()).unwrap();
    assert_eq!([members[0].allowed(), members[1].allowed()], [one().to_string(), other().to_string()]);
    assert_eq!(haltpoll::limit(&machine.root).unwrap(), HALTPOLL.limit);
    let o = fleet.observe(A, &[]).unwrap();
    assert_eq!(o.workload.threads, 1);
    fleet.retain(Retention::NONE).unwrap();
    fleet.reset_poll_limits().unwrap();
    fleet.retain(HALTPOLL).unwrap();
    assert_eq!([members[0].allowed(), members[1].allowed()], [one().to_string(), other().to_string()]);

    let outcomes = fleet.leave(A);
    assert!(outcomes.iter().all(|o| o.undone == UndoResult::Restored), "{outcomes:?}");
    assert_eq!(members[0].cpus(), members[0].before);
    assert_eq!(members[1].allowed(), other().to_string());
    assert_eq!(haltpoll::limit(&machine.root).unwrap(), HALTPOLL.limit);
    let outcomes = fleet.close();
    assert!(outcomes.iter().all(|o| o.undone != UndoResult::Failed), "{outcomes:?}");
    machine.assert_untouched(&members);
}

#[test]
fn what_an_administrator_changes_is_noticed_kept_and_reported() {
    let Some(machine) = Machine::take() else { return };
    let members = workloads(2);
    let mut fleet = machine.fleet(&members);
    for id in [A, B] {
        fleet.place(id, &one()).unwrap();
    }
    fleet.retain(HALTPOLL).unwrap();
    let file = members[1].group.cpuset_dir().join("cpuset.cpus");
    fs::write(&file, other().to_string()).unwrap();
    let error = error_of_a(&mut fleet);
    assert!(matches!(error, FleetError::SetTaken { id: B, .. }), "{error:?}");
    fleet.abandon_set(B);
    fs::write(LIMIT, "77000").unwrap();
    let error = error_of_a(&mut fleet);
    assert!(matches!(error, FleetError::RetentionTaken { .. }), "{error:?}");
    fleet.abandon_retention();
    assert_eq!(members[0].allowed(), one().to_string(), "A's set stays in force");
    fleet.observe(B, &[]).unwrap();
    fleet.close();
    assert_eq!(members[1].cpus(), other().to_string());
    assert_eq!(fs::read_to_string(LIMIT).unwrap().trim(), "77000");
    let names = machine.root.list(haltpoll::PARAMETERS).unwrap();
    for ((name, before), now) in names.iter().zip(&machine.haltpoll).zip(parameters(&machine.root)) {
        assert!(name.ends_with("poll_ns") || *before == now, "{name} is {now}, and was {before}");
    }
}

#[test]
fn a_workload_that_is_killed_in_the_middle_of_its_changes_leaves_the_others_alone() {
    let Some(machine) = Machine::take() else { return };
    let mut members = workloads(2);
    let mut fleet = machine.fleet(&members);
    for id in [A, B] {
        fleet.place(id, &one()).unwrap();
    }
    fleet.retain(HALTPOLL).unwrap();
    // With its group.
    drop(members.remove(0));
    fleet.place(A, &other()).unwrap();
    fleet.retain(Retention::NONE).unwrap();
    fleet.reset_poll_limits().unwrap();
    assert!(fleet.ended(A) && !fleet.ended(B));
    assert!(matches!(fleet.observe(A, &[]), Err(FleetError::Ended { id: A })));
    let outcomes = fleet.leave(A);
    assert!(outcomes.iter().all(|o| o.undone == UndoResult::Gone), "{outcomes:?}");
    fleet.observe(B, &[]).unwrap();
    assert_eq!(members[0].allowed(), one().to_string());
    fleet.close();
    machine.assert_untouched(&members);
}

#[test]
#[ignore = "is the holder that another test kills"]
fn holder_of_three() {
    let Ok(state) = std::env::var(HOLDERS_STATE) else { return };
    let first: u32 = std::env::var(HOLDERS_GROUPS).unwrap().parse().unwrap();
    let groups: Vec<_> = (first..first + 3)
        .map(|n| {
            let root = Root::system();
            let group = group(n);
            WorkloadGroup::existing(&root, &CgroupSetup::detect(&root).unwrap(), group.cpuset_dir()).unwrap()
        })
        .collect();
    let mut fleet = fleet(&StateDir::at(state).unwrap(), groups.iter());
    let sets = [one(), other(), all()];
    println!("holding");
    for round in 0.. {
        for id in 0..3 {
            fleet.place(WorkloadId(id as u64), &sets[(round + id) % 3]).unwrap();
        }
        let limit = Duration::from_micros(10 * (round as u64 % 20));
        let retention = Retention { limit, ..HALTPOLL };
        fleet.retain(if limit.is_zero() { Retention::NONE } else { retention }).unwrap();
    }
}

#[test]
fn after_sigkill_of_the_holder_of_three_everything_is_put_back() {
    const KILLS: u32 = 20;
    let Some(machine) = Machine::take() else { return };
    let members = workloads(3);
    let mut changed = 0;
    for kill in 0..KILLS {
        let mut holder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "holder_of_three", "--ignored", "--nocapture", "--test-threads=1"])
            .env(HOLDERS_STATE, machine.state.path())
            .env(HOLDERS_GROUPS, (std::process::id() * 10).to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.contains("holding")), "the holder has failed");
        // Another instant each time.
        thread::sleep(Duration::from_micros(u64::from(kill * kill) * 37));
        holder.kill().unwrap();
        holder.wait().unwrap();
        changed += u32::from(members.iter().any(|member| member.cpus() != member.before));
        let outcomes = restore(&machine.state(), &machine.root).unwrap();
        assert!(outcomes.iter().all(|o| o.undone != UndoResult::Failed), "{outcomes:?}");
        machine.assert_untouched(&members);
    }
    assert!(changed > KILLS / 2, "only {changed} of {KILLS} kills hit a moment that mattered");
}

/// A shell that starts another process once it is asked to; both are gone when it is dropped.
struct Shell {
    process: Child,
    started: Option<u32>,
}

impl Shell {
    fn new() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "read line; sleep 600 & echo $!; wait"]);
        let process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Self { process, started: None }
    }

    /// Starts the other process; its PID.
    fn start(&mut self) -> u32 {
        writeln!(self.process.stdin.as_mut().unwrap()).unwrap();
        let mut line = String::new();
        BufReader::new(self.process.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        *self.started.insert(line.trim().parse().unwrap())
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        for pid in self.started.into_iter().chain([self.process.id()]) {
            let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
        }
        let _ = self.process.wait();
    }
}

#[test]
fn what_partners_start_late_is_not_left_on_a_smaller_set() {
    if !is_root() || !has_two_vcpus() {
        return;
    }
    let (root, state) = (Root::system(), tempfile::tempdir().unwrap());
    let mut shells = [Shell::new(), Shell::new()];
    let found =
        shells.iter().map(|shell| Found::process(&root, shell.process.id(), false).unwrap()).collect();
    let Found { place, workload, heads, allowed: all_vcpus, .. } = Found::together(&root, found).unwrap();
    assert_eq!(all_vcpus, all());
    let mut fleet = fleet(&StateDir::at(state.path()).unwrap(), std::iter::empty());
    let parts = MemberParts {
        workload,
        place,
        counter: None,
        allowed: all_vcpus,
        heads,
        overloads: None,
        waiting: None,
        traffic: None,
        wake_cost: Duration::from_micros(30),
    };
    fleet.join(A, parts).unwrap();
    fleet.place(A, &one()).unwrap();
    let late = shells.each_mut().map(Shell::start);
    let heads = shells.each_ref().map(|shell| shell.process.id());
    for pid in heads.into_iter().chain(late) {
        assert_eq!(allowed(pid), one().to_string());
    }
    assert_eq!(fleet.processes(A).concat(), [heads[0], late[0], heads[1], late[1]]);
    let outcomes = fleet.leave(A);
    assert!(outcomes.iter().all(|o| o.undone != UndoResult::Failed), "{outcomes:?}");
    for pid in heads.into_iter().chain(late) {
        assert_eq!(allowed(pid), all().to_string());
    }
}
