//! A fleet on a fake machine: two vCPUs under haltpoll, and groups with one process each.

mod sets;
mod taken;
mod units;

use std::fs;
use std::path::PathBuf;

use gleaner_kernel::Root;
use gleaner_kernel::lever::haltpoll;
use gleaner_kernel::workload::Members;
use gleaner_policy::{CpuId, Method, Retention};

use super::*;
use crate::lease::UndoResult;
use crate::state::StateDir;

const HALTPOLL: Retention = Retention { method: Method::Haltpoll, limit: Duration::from_micros(200) };

fn set(list: &str) -> CpuSet {
    list.parse().unwrap()
}

/// The files of a machine with two vCPUs.
struct World {
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let world = Self { dir: tempfile::tempdir().unwrap() };
        world.put("/proc/stat", "cpu0 1 0 0 0 0 0 0 0\ncpu1 1 0 0 0 0 0 0 0\nctxt 1\n");
        world.put("/proc/loadavg", "0.60 0.38 0.67 1/106 8196\n");
        let cpus = "/sys/devices/system/cpu";
        world.put(&format!("{cpus}/online"), "0-1\n");
        world.put(&format!("{cpus}/possible"), "0-1\n");
        world.put(&format!("{cpus}/cpuidle/current_driver"), "haltpoll\n");
        world.put(&format!("{cpus}/cpuidle/current_governor"), "haltpoll\n");
        for cpu in 0..2 {
            world.put(&format!("{cpus}/cpu{cpu}/power/pm_qos_resume_latency_us"), "0\n");
            for (state, name) in [(0, "POLL"), (1, "haltpoll idle")] {
                let dir = format!("{cpus}/cpu{cpu}/cpuidle/state{state}");
                world.put(&format!("{dir}/name"), name);
                world.put(&format!("{dir}/usage"), "10\n");
                world.put(&format!("{dir}/time"), "10\n");
            }
        }
        for (name, value) in
            [("ns", "0"), ("grow_start", "50000"), ("shrink", "2"), ("allow_shrink", "Y"), ("grow", "2")]
        {
            world.put(&parameter(name), value);
        }
        world
    }

    fn root(&self) -> Root {
        Root::at(self.dir.path().join("root"))
    }

    /// Creates or replaces a file, in place: sensors keep it open.
    fn put(&self, absolute: &str, text: &str) {
        let path = self.root().path(absolute);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, absolute: &str) -> String {
        self.root().read(absolute).unwrap()
    }

    /// What the haltpoll governor does.
    fn parameters(&self) -> [String; 4] {
        ["ns", "grow_start", "shrink", "allow_shrink"].map(|name| self.read(&parameter(name)))
    }

    /// Another halt on a vCPU.
    fn halt(&self, cpu: u32) {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state1/usage");
        let halts: u32 = self.read(&path).parse().unwrap();
        self.put(&path, &format!("{}\n", halts + 1));
    }

    /// A process in a group of its own.
    fn group(&self, id: u64) {
        let pid = 100 + id;
        self.put(&format!("/proc/{pid}/schedstat"), "0 0 0\n");
        let stat = format!("{pid} (w) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n");
        self.put(&format!("/proc/{pid}/stat"), &stat);
        self.put(&format!("/proc/{pid}/task/{pid}/stat"), &stat);
        for (file, text) in [
            ("cgroup.procs", pid.to_string()),
            ("cgroup.threads", pid.to_string()),
            ("cpuset.cpus", String::new()),
            ("cpuset.cpus.effective", "0-1".to_owned()),
            ("cgroup.controllers", "cpuset".to_owned()),
        ] {
            self.put(&format!("/cg/{id}/{file}"), &text);
        }
        self.put("/proc/self/mountinfo", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n");
        self.put("/proc/self/cgroup", "0::/\n");
        self.put("/cg/cgroup.controllers", "cpuset\n");
    }

    fn cpus(&self, id: u64) -> String {
        self.read(&format!("/cg/{id}/cpuset.cpus"))
    }

    /// A fleet of the groups with these numbers, which are made.
    fn fleet(&self, ids: impl IntoIterator<Item = u64>) -> Fleet {
        let state = StateDir::at(self.dir.path().join("state")).unwrap();
        let (book, _) = LeaseBook::open(&state, self.root()).unwrap();
        let signals = Signals::block().unwrap();
        let mut fleet = Fleet::new(book, set("0-1"), &signals, |_| ()).unwrap();
        for id in ids {
            self.group(id);
            fleet.join(WorkloadId(id), self.parts(id)).unwrap();
        }
        fleet
    }

    fn parts(&self, id: u64) -> MemberParts {
        let root = self.root();
        let dir = PathBuf::from(format!("/cg/{id}"));
        let setup = gleaner_kernel::cgroup::CgroupSetup::detect(&root).unwrap();
        let group = gleaner_kernel::cgroup::WorkloadGroup::existing(&root, &setup, &dir).unwrap();
        MemberParts {
            place: ActiveSetLever::Group(group),
            workload: WorkloadSensor::new(&root, Members::Cgroup(dir)).unwrap(),
            counter: None,
            allowed: set("0-1"),
            heads: Vec::new(),
            overloads: None,
            waiting: None,
            traffic: None,
            wake_cost: Duration::from_micros(30),
        }
    }
}

fn parameter(name: &str) -> String {
    format!("{}/guest_halt_poll_{name}", haltpoll::PARAMETERS)
}

const A: WorkloadId = WorkloadId(1);
const B: WorkloadId = WorkloadId(2);

/// Observes A until that fails.
fn error_of_a(fleet: &mut Fleet) -> FleetError {
    let end = Instant::now() + 10 * CHECK_INTERVAL;
    loop {
        match fleet.observe(A, &[]) {
            Err(error) => return error,
            Ok(_) => assert!(Instant::now() < end, "nothing was noticed"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn each_observation_is_of_one_workload_and_its_vcpus() {
    let world = World::new();
    let mut fleet = world.fleet([1, 2]);
    world.put("/proc/101/schedstat", "500 50 5\n");
    world.put("/proc/102/schedstat", "900 0 9\n");
    world.halt(1);
    let (a, b) = (fleet.observe(A, &[]).unwrap(), fleet.observe_too(B, &[]).unwrap());
    assert_eq!((a.workload.switches, b.workload.switches), (5, 9));
    assert_eq!((a.at, &a.vcpus), (b.at, &b.vcpus), "the machine was read once");
    assert_eq!((a.vcpus[1].cpu, a.vcpus[1].halts), (CpuId(1), 1));
    assert_eq!(a.runnable, 0, "the caller does not count");
    world.halt(1);
    assert_eq!(fleet.observe_too(B, &[]).unwrap().period, Duration::ZERO);
    assert_eq!(fleet.observe(B, &[]).unwrap().vcpus[1].halts, 1);
    assert!(matches!(fleet.observe(WorkloadId(9), &[]), Err(FleetError::Ended { .. })));
}

#[test]
fn without_its_group_a_workload_has_ended_unless_the_process_that_heads_it_runs_on() {
    let world = World::new();
    let mut fleet = world.fleet([1]);
    world.group(2);
    let heads = vec![ProcessFd::open(nix::unistd::Pid::this()).unwrap()];
    fleet.join(B, MemberParts { heads, ..world.parts(2) }).unwrap();
    for id in [A, B] {
        fleet.observe(id, &[]).unwrap();
        fs::remove_dir_all(world.root().path(format!("/cg/{id}"))).unwrap();
    }
    assert!(fleet.ended(A) && matches!(fleet.observe(A, &[]), Err(FleetError::Ended { id: A })));
    assert!(!fleet.ended(B) && matches!(fleet.observe(B, &[]), Err(FleetError::Member { id: B, .. })));
}

#[test]
fn a_workload_that_joins_later_starts_there() {
    let world = World::new();
    let mut fleet = world.fleet([1]);
    world.halt(0);
    world.group(2);
    fleet.join(B, world.parts(2)).unwrap();
    assert_eq!(fleet.observe(B, &[]).unwrap().vcpus[0].halts, 0);
    assert_eq!(fleet.observe(A, &[]).unwrap().vcpus[0].halts, 1);
}

#[test]
fn what_nobody_reports_is_sampled_when_it_is_due() {
    let world = World::new();
    let mut fleet = world.fleet([1, 2]);
    assert_eq!(fleet.next_sample(), None);
    let watch = Watch {
        every: Duration::from_millis(1),
        at_least: Some(3),
        at_most: None,
        times: 2,
        persistence: Duration::from_millis(1),
    };
    fleet.watch(B, Some(watch));
    assert_eq!(fleet.reported().unwrap(), []);
    world.put("/proc/loadavg", "0.60 0.38 0.67 5/106 8196\n");
    let end = Instant::now() + Duration::from_secs(5);
    let reported = loop {
        let due = fleet.next_sample().unwrap();
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let reported = fleet.reported().unwrap();
        if !reported.is_empty() || Instant::now() > end {
            break reported;
        }
    };
    assert_eq!(reported, [B]);
    assert_eq!(fleet.next_sample(), None, "it has matched");
    assert_eq!(fleet.observe(A, &[]).unwrap().overload, None);
    assert_eq!(fleet.observe(B, &[]).unwrap().overload.map(|overload| overload.runnable), Some(4));
    assert_eq!(fleet.observe(B, &[]).unwrap().overload, None, "reported once");
}
