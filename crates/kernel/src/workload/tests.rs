use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use super::*;
use crate::testing::{fake, put};

/// Started long after any sample.
const LATER: u64 = u64::MAX / 2;

fn put_stat(root: &Root, pid: u32, parent: u32, times: (u64, u64), start: u64) {
    let (user, system) = times;
    let text =
        format!("{pid} (w k) S {parent} 1 1 0 -1 0 0 0 0 0 {user} {system} 0 0 20 0 1 0 {start} 0 0\n");
    put(root, &format!("/proc/{pid}/stat"), &text);
    put(root, &format!("/proc/{pid}/task/{pid}/stat"), &text);
}

fn put_thread(root: &Root, pid: u32, tid: u32, start: u64, schedstat: [u64; 3]) {
    let [run, delay, switches] = schedstat;
    put(root, &format!("/proc/{tid}/schedstat"), &format!("{run} {delay} {switches}\n"));
    put(root, &format!("/proc/{pid}/task/{tid}/children"), "");
    let text = format!("{tid} (w) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {start} 0 0\n");
    put(root, &format!("/proc/{tid}/task/{tid}/stat"), &text);
}

fn put_process(root: &Root, pid: u32, parent: u32, start: u64) {
    put_thread(root, pid, pid, start, [0; 3]);
    put_stat(root, pid, parent, (0, 0), start);
}

fn put_io(root: &Root, pid: u32, moved: u64) {
    put(
        root,
        &format!("/proc/{pid}/io"),
        &format!("rchar: {moved}\nwchar: 0\nsyscr: 1\nsyscw: {}\n", moved / 100),
    );
}

fn run_ns(counters: &WorkloadCounters) -> u128 {
    counters.cpu_time.as_nanos()
}

#[test]
fn sums_survive_the_end_of_threads() {
    let (_dir, root) = fake();
    put_process(&root, 10, 1, 0);
    put_thread(&root, 10, 11, 0, [500, 50, 5]);
    let mut sensor = WorkloadSensor::new(&root, Members::Tree(10)).unwrap();
    let first = sensor.sample().unwrap();
    assert_eq!((run_ns(&first), first.threads, first.processes), (0, 2, 1));
    assert_eq!(first.moved_bytes, None, "this kernel does not count bytes");

    put_thread(&root, 10, 11, 0, [700, 60, 8]);
    put_thread(&root, 10, 12, LATER, [30, 3, 1]);
    put_thread(&root, 10, 13, 0, [9000, 0, 0]);
    let second = sensor.sample().unwrap();
    assert_eq!(run_ns(&second), 230, "12 is new and counts whole, 13 is old and is first seen");
    assert_eq!((second.run_delay.as_nanos(), second.switches, second.threads), (13, 4, 4));
    assert_eq!(second.ran, 2, "11 and 12; what 13 did before it was first seen is not known");

    fs::remove_dir_all(root.path("/proc/10/task/11")).unwrap();
    fs::remove_dir_all(root.path("/proc/11")).unwrap();
    // Listed, but gone before it is read.
    fs::create_dir_all(root.path("/proc/10/task/14")).unwrap();
    put(&root, "/proc/10/task/14/children", "");
    put_thread(&root, 10, 12, LATER, [40, 3, 1]);
    let third = sensor.sample().unwrap();
    assert_eq!((run_ns(&third), third.threads, third.ran), (240, 3, 1));
    assert_eq!(sensor.threads().unwrap(), [10, 12, 13, 14]);
}

#[test]
fn trees_are_followed_by_children_and_by_parents() {
    for with_children in [true, false] {
        let (_dir, root) = fake();
        for (pid, parent) in [(10, 1), (20, 10), (15, 20), (30, 1)] {
            put_process(&root, pid, parent, 5);
        }
        if with_children {
            put(&root, "/proc/10/task/10/children", "20 \n");
            put(&root, "/proc/20/task/20/children", "15 ");
        } else {
            for pid in [10, 20, 15, 30] {
                fs::remove_file(root.path(format!("/proc/{pid}/task/{pid}/children"))).unwrap();
            }
        }
        let mut sensor = WorkloadSensor::new(&root, Members::Tree(10)).unwrap();
        assert_eq!(sensor.threads().unwrap(), [10, 15, 20], "children files: {with_children}");
        // The orphan stays; an unrelated process that reuses a PID does not.
        fs::remove_dir_all(root.path("/proc/20")).unwrap();
        put_stat(&root, 10, 1, (0, 0), 99);
        put(&root, "/proc/10/task/10/children", "");
        assert_eq!(sensor.threads().unwrap(), [15]);
        fs::remove_dir_all(root.path("/proc/15")).unwrap();
        assert_eq!(sensor.sample().unwrap().processes, 0, "the workload has ended");
    }
}

#[test]
fn cgroups_of_both_versions_with_those_below() {
    for tasks in ["tasks", "cgroup.threads"] {
        let (_dir, root) = fake();
        put(&root, "/cg/cgroup.procs", "10\n");
        put(&root, &format!("/cg/{tasks}"), "10\n11\n");
        put(&root, "/cg/below/cgroup.procs", "20\n");
        put(&root, &format!("/cg/below/{tasks}"), "20\n");
        put(&root, "/cg/cpu.stat", "nr_periods 2\nnr_throttled 1\nthrottled_usec 7\n");
        put(&root, "/acct/cpuacct.stat", "user 5\nsystem 5\n");
        for pid in [10, 20] {
            put_process(&root, pid, 1, 0);
        }
        put_thread(&root, 10, 11, 0, [5, 0, 1]);
        let members = Members::Cgroup("/cg".into());
        let mut sensor =
            WorkloadSensor::new(&root, members).unwrap().with_accounting("/acct".as_ref()).unwrap();
        let first = sensor.sample().unwrap();
        assert_eq!((first.threads, first.processes), (3, 2));
        assert_eq!(sensor.throttled().unwrap().unwrap().throttled, 1);
        put(&root, "/cpu/above/cpu.stat", "nr_periods 8\nnr_throttled 5\nthrottled_time 2000\n");
        let quotas = vec!["/cg".into(), "/none".into(), "/cpu/above".into()];
        let mut sensor = sensor.with_quotas(quotas);
        let throttled = sensor.throttled().unwrap().unwrap();
        assert_eq!((throttled.throttled, throttled.time), (6, Duration::from_micros(9)));
        put(&root, "/acct/cpuacct.stat", "user 8\nsystem 6\n");
        put_stat(&root, 10, 1, (900, 900), 0);
        let second = sensor.sample().unwrap();
        assert_eq!(second.user_time, Duration::from_millis(30), "from accounting, not from processes");
        assert_eq!(second.system_time, Duration::from_millis(10));
        fs::remove_dir_all(root.path("/cg")).unwrap();
        assert!(sensor.sample().unwrap_err().is_gone());
    }
}

#[test]
fn the_bytes_of_a_child_count_once() {
    let (_dir, root) = fake();
    put_io(&root, 1, 0);
    put(&root, "/proc/self/io", "");
    for (pid, parent) in [(10, 1), (20, 10)] {
        put_process(&root, pid, parent, 0);
        put_io(&root, pid, 1000);
    }
    put(&root, "/proc/10/task/10/children", "20");
    let mut sensor = WorkloadSensor::new(&root, Members::Tree(10)).unwrap();
    assert_eq!(sensor.sample().unwrap().moved_bytes, Some(0));
    put_io(&root, 20, 1700);
    put_stat(&root, 20, 10, (3, 1), 0);
    let second = sensor.sample().unwrap();
    assert_eq!((second.moved_bytes, second.user_time.as_millis()), (Some(700), 30));
    assert_eq!(second.write_calls, Some(7));
    // The child moves 50 more and ends; its 1750 go to the parent, which moves 7.
    fs::remove_dir_all(root.path("/proc/20")).unwrap();
    put(&root, "/proc/10/task/10/children", "");
    put_io(&root, 10, 1000 + 1750 + 7);
    assert_eq!(sensor.sample().unwrap().moved_bytes, Some(757));
}

#[test]
fn a_family_is_a_process_with_its_workers_but_not_what_they_start() {
    let (_dir, root) = fake();
    // 10 has two workers, of which the second executes something else, with a child of its own.
    for (pid, parent, children) in [(10, 1, "20 30"), (20, 10, ""), (30, 10, "40"), (40, 30, "")] {
        put_process(&root, pid, parent, 0);
        put(&root, &format!("/proc/{pid}/task/{pid}/children"), children);
        symlink("/usr/bin/server", root.path(format!("/proc/{pid}/exe"))).unwrap();
    }
    let mut family = WorkloadSensor::new(&root, Members::Family(10)).unwrap();
    assert_eq!(family.sample().unwrap().processes, 4);
    fs::remove_file(root.path("/proc/30/exe")).unwrap();
    symlink("/bin/sh", root.path("/proc/30/exe")).unwrap();
    let mut family = WorkloadSensor::new(&root, Members::Family(10)).unwrap();
    assert_eq!(family.threads().unwrap(), [10, 20]);
    let mut tree = WorkloadSensor::new(&root, Members::Tree(10)).unwrap();
    assert_eq!(tree.threads().unwrap(), [10, 20, 30, 40]);
}

#[test]
fn a_process_and_a_group_together() {
    let (_dir, root) = fake();
    for pid in [10, 50] {
        put_process(&root, pid, 1, 0);
    }
    put(&root, "/cg/cgroup.procs", "50\n");
    put(&root, "/cg/cgroup.threads", "50\n");
    let tree = WorkloadSensor::new(&root, Members::Tree(10)).unwrap();
    let group = WorkloadSensor::new(&root, Members::Cgroup("/cg".into())).unwrap();
    let mut both = WorkloadSensor::together(&root, &[&tree, &group]).unwrap();
    assert_eq!(both.processes().unwrap(), [10, 50]);
    assert_eq!(both.sample().unwrap().processes, 2);
    assert_eq!(both.quotas, [PathBuf::from("/cg")]);
    assert!(both.exists());
    fs::remove_dir_all(root.path("/cg")).unwrap();
    assert!(!both.exists() && both.processes().unwrap_err().is_gone(), "one part is missing");
}

#[test]
fn garbled_files_are_errors_and_missing_members_too() {
    let (_dir, root) = fake();
    assert!(WorkloadSensor::new(&root, Members::Tree(10)).unwrap_err().is_gone());
    assert!(WorkloadSensor::new(&root, Members::Cgroup("/cg".into())).unwrap_err().is_gone());
    put_process(&root, 10, 1, 0);
    put(&root, "/proc/10/schedstat", "1 2\n");
    let mut sensor = WorkloadSensor::new(&root, Members::Tree(10)).unwrap();
    assert!(sensor.sample().unwrap_err().to_string().contains("/proc/10/schedstat"));
}

#[test]
fn more_threads_than_files_are_all_counted() {
    let (_dir, root) = fake();
    put_process(&root, 10, 1, 0);
    for tid in 100..150 {
        put_thread(&root, 10, tid, 0, [1, 1, 1]);
    }
    let mut sensor = WorkloadSensor::with_open_files(&root, Members::Tree(10), 8).unwrap();
    assert_eq!(sensor.sample().unwrap().threads, 51);
    assert_eq!(sensor.threads.open_files(), 6, "two of the eight are kept for processes");
    for tid in 100..150 {
        put_thread(&root, 10, tid, 0, [3, 1, 1]);
    }
    assert_eq!(run_ns(&sensor.sample().unwrap()), 100);
    for tid in 100..148 {
        fs::remove_dir_all(root.path(format!("/proc/10/task/{tid}"))).unwrap();
    }
    assert_eq!(sensor.sample().unwrap().threads, 3);
    assert_eq!(sensor.threads.open_files(), 1, "the others were open by path");
    put_thread(&root, 10, 150, LATER, [1, 1, 1]);
    assert_eq!(sensor.sample().unwrap().threads, 4);
    assert_eq!(sensor.threads.open_files(), 2, "what was given back is used again");
}

#[test]
fn a_real_shell_and_its_children_are_counted() {
    // `read` waits for the test, so that no sample depends on timing. The shell gives a background command
    // /dev/null as input, hence the third descriptor.
    let script = "read start; i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; echo done; read go; exec 3<&0; (read more <&3) & wait";
    let mut child =
        Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut sensor = WorkloadSensor::new(&Root::system(), Members::Tree(child.id())).unwrap();
    let first = sensor.sample().unwrap();
    assert_eq!((run_ns(&first), first.processes), (0, 1));
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"start\n").unwrap();
    let mut word = [0; 5];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut word).unwrap();
    let second = sensor.sample().unwrap();
    assert!(second.cpu_time > Duration::ZERO, "{second:?}");
    assert!(second.moved_bytes.is_none_or(|bytes| bytes >= 5), "{second:?}");
    std::io::Write::write_all(child.stdin.as_mut().unwrap(), b"go\n").unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut last = second;
    while last.processes < 2 {
        assert!(Instant::now() < deadline, "the child never appeared: {last:?}");
        std::thread::yield_now();
        let now = sensor.sample().unwrap();
        assert!(now.cpu_time >= last.cpu_time && now.switches >= last.switches);
        last = now;
    }
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(sensor.sample().unwrap().processes, 0);
}
