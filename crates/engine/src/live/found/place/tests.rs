use std::fs;
use std::sync::mpsc;
use std::thread;

use gleaner_testing::systemd::Systemd;

use super::*;
use crate::live::Found;

const V2: &str = "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw\n";
const V1: &str = "30 23 0:26 / /cg rw - cgroup cgroup rw,name=systemd\n31 23 0:27 / /cpuset rw - cgroup cgroup rw,cpuset\n";
const UNIT: &str = "/system.slice/db.service";

/// A machine with this process in a group, since affinities are the kernel's own.
struct World {
    root: Root,
    systemd: Systemd,
    own: CpuSet,
    _dir: tempfile::TempDir,
}

impl World {
    fn new(mounts: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let pid = std::process::id();
        let systemd = Systemd::install(dir.path());
        let root = Root::at(dir.path());
        let first = ThreadKey::of(&Root::system(), pid).unwrap();
        let Value::Cpus(own) = Target::Affinity(first).read(&Root::system()).unwrap() else { panic!() };
        let world = Self { root, systemd, own, _dir: dir };
        world.put("/sys/devices/system/cpu/online", &world.own.to_string());
        world.put("/proc/self/mountinfo", mounts);
        world.put("/proc/self/cgroup", "1:name=systemd:/\n2:cpuset:/\n0::/\n");
        world.put(&format!("/proc/{pid}/cgroup"), "0::/\n");
        world.put("/cg/cgroup.controllers", "cpuset cpu");
        world.put("/cg/cpuset.cpus.effective", &world.own.to_string());
        world.put("/cpuset/tasks", "");
        world.thread(pid);
        world
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.root.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn thread(&self, tid: u32) {
        let stat = format!("{tid} (w) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 5 0 0\n");
        self.put(&format!("/proc/{tid}/stat"), &stat);
        self.put(&format!("/proc/{tid}/task/{tid}/stat"), &stat);
    }

    /// A unit of systemd with this process and these threads in its group.
    fn unit(&self, properties: &str, threads: &[u32]) {
        self.systemd.add("db.service", UNIT, properties);
        self.group(UNIT, threads);
    }

    fn group(&self, group: &str, threads: &[u32]) {
        let list = |ids: &[u32]| ids.iter().fold(String::new(), |list, id| list + &format!("{id}\n"));
        self.put(&format!("/cg{group}/cgroup.procs"), &list(&[std::process::id()]));
        self.put(&format!("/cg{group}/cgroup.threads"), &list(threads));
        self.put(&format!("/cg{group}/cpu.stat"), "usage_usec 0\nuser_usec 0\nsystem_usec 0\n");
    }

    fn cpuset(&self, group: &str, effective: &str) {
        self.put(&format!("/cg{group}/cpuset.cpus"), "");
        self.put(&format!("/cg{group}/cpuset.cpus.effective"), effective);
    }

    #[track_caller]
    fn found(&self, group: &str) -> Found {
        Found::group(&self.root, Path::new(group)).unwrap()
    }

    /// Why the set of a group is left alone.
    #[track_caller]
    fn own_set(&self, group: &str) -> String {
        let found = self.found(group);
        assert!(matches!(found.place, ActiveSetLever::Untouched), "{:?}", found.place);
        found.own_set.unwrap()
    }
}

#[test]
fn the_set_of_a_unit_is_systemds() {
    let world = World::new(V2);
    world.unit("AllowedMemoryNodes=\n", &[]);
    let found = world.found(UNIT);
    assert!(matches!(found.place, ActiveSetLever::Unit(_)), "{:?}", found.place);
    assert_eq!((found.allowed, found.own_set), (world.own.clone(), None));
    assert_eq!(found.group.as_deref(), Some(Path::new(UNIT)));
    assert_eq!(world.systemd.asked().len(), 1, "once: {:?}", world.systemd.asked());
    world.cpuset(UNIT, &world.own.to_string());
    let found = world.found(UNIT);
    assert!(
        matches!(found.place, ActiveSetLever::Unit(_)),
        "another unit needs the controller: {:?}",
        found.place
    );
}

#[test]
fn who_has_chosen_cpus_keeps_them() {
    for (properties, why) in [
        ("StartupAllowedCPUs=0\n", "StartupAllowedCPUs= of db.service is set"),
        ("CPUAffinity=0\n", "CPUAffinity= of db.service is set"),
    ] {
        let world = World::new(V2);
        world.unit(properties, &[]);
        assert_eq!(world.own_set(UNIT), why);
    }
    let world = World::new(V2);
    world.unit("", &[]);
    world.systemd.ctl(&["set-property", "--", "db.service", &format!("AllowedCPUs={}", world.own)]);
    assert_eq!(world.own_set(UNIT), format!("AllowedCPUs= of db.service is {}", world.own), "even if all");
}

#[test]
fn a_set_that_is_smaller_than_the_machine_is_left_alone() {
    let world = World::new(V2);
    let pod = "/kubepods.slice/cri-containerd-1.scope";
    world.group(pod, &[]);
    world.put("/sys/devices/system/cpu/online", "0-999");
    world.cpuset(pod, "0-1");
    assert_eq!(world.own_set(pod), "its CPU set is 0-1, the machine has 0-999");
    world.cpuset(pod, "0-999");
    let why = format!(
        "the CPU affinity of its process {} is {}, the machine has 0-999",
        std::process::id(),
        world.own
    );
    assert_eq!(world.own_set(pod), why);
    fs::remove_file(world.root.path("/cg/cpuset.cpus.effective")).unwrap();
    world.put("/cg/kubepods.slice/cpuset.cpus.effective", "4-7");
    fs::remove_file(world.root.path(format!("/cg{pod}/cpuset.cpus.effective"))).unwrap();
    fs::remove_file(world.root.path(format!("/cg{pod}/cpuset.cpus"))).unwrap();
    assert_eq!(world.own_set(pod), "its CPU set is 4-7, the machine has 0-999", "that of the group above it");
    assert!(world.systemd.asked().is_empty(), "{:?}", world.systemd.asked());
}

#[test]
fn a_pod_whose_containers_have_sets_is_left_alone() {
    let world = World::new(V2);
    let pod = "/kubepods/pod1";
    world.group(pod, &[]);
    world.cpuset(pod, &world.own.to_string());
    world.put(&format!("/cg{pod}/1/cpuset.cpus"), "");
    assert!(matches!(world.found(pod).place, ActiveSetLever::Group(_)));
    world.put(&format!("/cg{pod}/1/cpuset.cpus"), "999");
    assert_eq!(world.own_set(pod), format!("/cg{pod}/1/cpuset.cpus is 999"));
}

#[test]
fn on_version_1_a_group_with_groups_below_has_its_threads_moved() {
    let world = World::new(V1);
    let pod = "/cpuset/pod1";
    let all = world.own.to_string();
    let pid = std::process::id();
    world.put(&format!("/proc/{pid}/cgroup"), "2:cpuset:/pod1\n");
    for (file, text) in [
        ("tasks", format!("{pid}\n")),
        ("cgroup.procs", format!("{pid}\n")),
        ("cpuset.cpus", all.clone()),
        ("cpuset.effective_cpus", all.clone()),
    ] {
        world.put(&format!("{pod}/{file}"), &text);
    }
    assert!(matches!(world.found(pod).place, ActiveSetLever::Group(_)));
    world.put(&format!("{pod}/1/cpuset.cpus"), &all);
    let found = world.found(pod);
    assert!(matches!(found.place, ActiveSetLever::Threads(_)), "{:?}", found.place);
    assert_eq!(found.own_set, None);
}

#[test]
fn the_slice_of_a_pod_is_systemds() {
    let world = World::new(V2);
    let pod = "/kubepods.slice/kubepods-pod1.slice";
    world.systemd.add("kubepods-pod1.slice", pod, "");
    world.group(pod, &[]);
    let found = world.found(pod);
    assert!(matches!(found.place, ActiveSetLever::Unit(_)), "{:?}", found.place);
}

#[test]
fn a_group_that_is_no_unit_has_its_own_set_or_that_of_its_threads() {
    let world = World::new(V2);
    world.unit("", &[]);
    // Deeper in a unit, of a user's service manager, and of nobody.
    for group in ["/system.slice/db.service/worker", "/user.slice/user@0.service/my.service", "/mine"] {
        world.group(group, &[]);
        let found = world.found(group);
        assert!(matches!(found.place, ActiveSetLever::Threads(_)), "{group}: {:?}", found.place);
        assert_eq!((found.allowed, found.own_set), (world.own.clone(), None));
        world.cpuset(group, &world.own.to_string());
        let found = world.found(group);
        assert!(matches!(found.place, ActiveSetLever::Group(_)), "{group}: {:?}", found.place);
    }
}

#[test]
fn a_systemd_that_does_not_answer_is_the_reason() {
    let world = World::new(V2);
    world.unit("", &[]);
    world.systemd.uninstall();
    assert!(world.own_set(UNIT).starts_with("cannot read AllowedCPUs= of db.service: there is no systemctl"));
}

#[test]
fn on_version_1_systemd_has_no_such_property() {
    let world = World::new(V1);
    world.unit("", &[]);
    let found = world.found(&format!("/cg{UNIT}"));
    assert!(matches!(found.place, ActiveSetLever::Threads(_)), "{:?}", found.place);
    assert_eq!(found.allowed, world.own);
    assert!(world.systemd.asked().is_empty());
}

#[test]
fn a_thread_that_chose_its_affinity_has_the_others_moved_one_by_one() {
    if !gleaner_testing::has_two_vcpus() {
        return;
    }
    let world = World::new(V2);
    let (born, birth) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let one: CpuSet = world.own.iter().take(1).collect();
    let pinned = thread::spawn(move || {
        Affinity::set_caller(&one).unwrap();
        born.send(nix::unistd::gettid().as_raw().cast_unsigned()).unwrap();
        let _ = ended.recv();
    });
    let tid = birth.recv().unwrap();
    world.thread(tid);
    world.unit("", &[std::process::id(), tid]);
    let found = world.found(UNIT);
    assert!(matches!(found.place, ActiveSetLever::Threads(_)), "{:?}", found.place);
    assert_eq!(found.own_set, None);
    end.send(()).unwrap();
    pinned.join().unwrap();
}

#[test]
fn a_process_with_an_affinity_keeps_it() {
    let world = World::new(V2);
    let place = |online: &str| {
        world.put("/sys/devices/system/cpu/online", online);
        Place::of_process(&world.root, "0-1".parse().unwrap()).unwrap()
    };
    let free = place("0-1");
    assert!(matches!(free.lever, ActiveSetLever::Threads(_)) && free.own_set.is_none());
    let bound = place("0-3");
    assert!(matches!(bound.lever, ActiveSetLever::Untouched));
    assert_eq!(bound.own_set.unwrap(), "its CPU affinity is 0-1, the machine has 0-3");
}
