//! Levers that need root and change the machine. Each test restores its changes, even if it panics.

#![allow(clippy::print_stderr, reason = "a test says what it measures")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use gleaner_kernel::Root;
use gleaner_kernel::cgroup::{CgroupSetup, WorkloadGroup};
use gleaner_kernel::lever::dma_latency::DmaLatency;
use gleaner_kernel::lever::{GroupState, Target, Value, Write, affinity::Affinity, cpuset, haltpoll, pm_qos};
use gleaner_policy::{CpuId, CpuSet};
use gleaner_testing::{is_root, skipped, without_lever};

/// The changed targets with their old values; dropping restores them, the last one first.
#[derive(Default)]
struct Restore(Vec<(Target, Value)>);

impl Restore {
    /// Writes, and checks that the values read back.
    fn apply(&mut self, writes: &[Write]) {
        let root = Root::system();
        for Write { target, value } in writes {
            self.0.push((target.clone(), target.read(&root).unwrap()));
            target.write(&root, value).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(target.read(&root).unwrap(), *value, "{target}");
        }
    }
}

impl Drop for Restore {
    fn drop(&mut self) {
        for (target, old) in self.0.drain(..).rev() {
            if let Err(error) = target.write(&Root::system(), &old) {
                eprintln!("NOT RESTORED: {target} to {old}: {error}");
            }
        }
    }
}

/// A process that waits for its input to end; it is killed when dropped.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn cpus_allowed(&self) -> CpuSet {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        line.unwrap().parse().unwrap()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The control group of the Gleaner with PID `pid`, not created yet; `None`, with a message, if that is not
/// possible.
fn group(pid: u32) -> Option<WorkloadGroup> {
    let root = Root::system();
    let setup = CgroupSetup::detect(&root).unwrap();
    let refused = |reason| skipped(format_args!("{setup}: {reason}"));
    WorkloadGroup::new(&root, &setup, pid).map_err(refused).ok()
}

#[test]
fn a_workload_group_restricts_its_processes_and_leaves_nothing_behind() {
    if !is_root() {
        return;
    }
    let root = Root::system();
    let Some(group) = group(std::process::id()) else { return };
    let all = Affinity::of_caller().unwrap();
    let one: CpuSet = all.iter().take(1).collect();
    let sleeper = Sleeper::new();
    let mut restore = Restore::default();
    restore.apply(group.writes());
    for file in group.procs_files() {
        root.write(&file, &sleeper.0.id().to_string()).unwrap();
    }
    restore.apply(&cpuset::writes(&group, &one));
    assert_eq!(sleeper.cpus_allowed(), one);

    // The same group is found by its path, as `attach` does.
    let setup = CgroupSetup::detect(&root).unwrap();
    let found = WorkloadGroup::existing(&root, &setup, group.cpuset_dir()).unwrap();
    assert_eq!((found.cpuset_dir(), found.procs_files()), (group.cpuset_dir(), group.procs_files()));
    let usage = group
        .accounting_dir()
        .map(|dir| root.read(dir.join("cpuacct.usage")).or_else(|_| root.read(dir.join("cpu.stat"))));
    assert!(usage.is_none_or(|read| read.is_ok()));

    // Undone with the process still inside: it moves to the parent group and gets its CPUs back.
    drop(restore);
    for file in group.procs_files() {
        assert!(!root.exists(file.parent().unwrap()), "{} is still there", file.display());
    }
    assert_eq!(sleeper.cpus_allowed(), all);
}

/// Freeing half a gigabyte takes the kernel a while, during which the process is in the group and cannot be
/// moved.
#[test]
fn a_process_that_is_about_to_exit_does_not_keep_its_group() {
    if !is_root() {
        return;
    }
    let root = Root::system();
    let script = r#"$x = "x" x 500_000_000; syswrite STDOUT, "ready\n"; <STDIN>"#;
    let mut perl = Command::new("perl");
    let child = perl.args(["-e", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut large = Sleeper(child);
    let mut said = String::new();
    BufReader::new(large.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    assert_eq!(said, "ready\n");
    let Some(group) = group(large.0.id()) else { return };
    let mut restore = Restore::default();
    restore.apply(group.writes());
    for file in group.procs_files() {
        root.write(&file, &large.0.id().to_string()).unwrap();
    }
    large.0.kill().unwrap();
    drop(restore);
    for file in group.procs_files() {
        assert!(!root.exists(file.parent().unwrap()), "{} is still there", file.display());
    }
}

#[test]
fn haltpoll_limits_are_taken_and_put_back() {
    if !is_root() {
        return;
    }
    let root = Root::system();
    if let Err(reason) = haltpoll::available(&root) {
        return without_lever(reason);
    }
    let dump = || {
        let names = root.list(haltpoll::PARAMETERS).unwrap();
        names.iter().map(|n| root.read(Path::new(haltpoll::PARAMETERS).join(n)).unwrap()).collect::<Vec<_>>()
    };
    let (before, limit) = (dump(), Duration::from_micros(80));
    {
        let mut restore = Restore::default();
        restore.apply(&haltpoll::writes(limit, Duration::ZERO, false));
        assert_eq!(haltpoll::limit(&root).unwrap(), limit);
        restore.apply(&haltpoll::writes(Duration::ZERO, limit, false));
        assert_eq!(haltpoll::limit(&root).unwrap(), Duration::ZERO);
    }
    assert_eq!(dump(), before);
}

#[test]
fn a_latency_request_for_one_vcpu_reads_back_and_is_withdrawn() {
    if !is_root() {
        return;
    }
    let root = Root::system();
    if let Err(reason) = pm_qos::available(&root) {
        return without_lever(reason);
    }
    let cpu = CpuId(0);
    let before = root.read(pm_qos::file(cpu)).unwrap();
    let only = [cpu].into_iter().collect();
    {
        let mut restore = Restore::default();
        restore.apply(&pm_qos::writes(&only, &only).0);
        assert_eq!(root.read(pm_qos::file(cpu)).unwrap(), "n/a");
    }
    assert_eq!(root.read(pm_qos::file(cpu)).unwrap(), before);
}

#[test]
fn the_latency_request_for_all_vcpus_ends_with_its_holder() {
    if !is_root() {
        return;
    }
    let root = Root::system();
    if !root.exists(gleaner_kernel::lever::dma_latency::DEVICE) {
        return skipped("the kernel has no /dev/cpu_dma_latency");
    }
    let before = DmaLatency::in_force(&root).unwrap();
    let wanted = before.saturating_sub(Duration::from_micros(1));
    let held = DmaLatency::request(&root, wanted).unwrap();
    assert_eq!(DmaLatency::in_force(&root).unwrap(), wanted);
    drop(held);
    assert_eq!(DmaLatency::in_force(&root).unwrap(), before);
}

#[test]
fn removing_a_group_that_is_gone_is_no_error() {
    if !is_root() {
        return;
    }
    let root = Root::system();
    let Some(group) = group(u32::MAX) else { return };
    let target = &group.writes()[0].target;
    assert_eq!(target.read(&root).unwrap(), Value::Group(GroupState::Absent));
    target.write(&root, &Value::Group(GroupState::Absent)).unwrap();
}
