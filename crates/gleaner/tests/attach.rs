//! Runs `gleaner attach` on this machine.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]
#![allow(clippy::print_stderr, reason = "a test says what it leaves behind")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use common::journal::{known_at_start, observations};
use common::levers::{Machine, limit_is};
use common::process::{GLEANER, Running, command, text, until};
use common::{memory, threads};
use gleaner_engine::MemoryDir;
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::{CgroupSetup, WorkloadGroup};
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::lever::{GroupState, Target, Value};
use gleaner_policy::{CpuSet, Method, Observation};
use gleaner_proto::journal::{self, Record};
use gleaner_testing::skipped;
use nix::sys::signal::Signal;

/// A workload that gleaner attaches to.
fn workload(seconds: &str) -> Running {
    Running::start_workload(&["request-response", "--seconds", seconds])
}

fn attach(pid: u32, options: &[&str]) -> Running {
    let pid = pid.to_string();
    Running::start(command(&["attach", "--pid", &pid]).args(options))
}

#[test]
fn interrupted_it_releases_everything_and_the_workload_goes_on() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let mut workload = workload("600");
    let attached = attach(workload.pid(), &["--fixed", "haltpoll:200us"]);
    until("the limit is in force", || limit_is("200000"));
    attached.signal(Signal::SIGINT);
    let output = attached.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("haltpoll:200us"), "{}", text(&output.stderr));
    machine.assert_untouched();
    assert!(!workload.has_ended());
    workload.signal(Signal::SIGTERM);
    let output = workload.finish();
    assert!(output.status.success() && text(&output.stdout).contains("operations"), "{output:?}");
}

#[test]
fn signals_that_end_a_process_leave_no_lever() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let mut workload = workload("600");
    for signal in [Signal::SIGALRM, Signal::SIGVTALRM, Signal::SIGPROF, Signal::SIGUSR2, Signal::SIGIO] {
        let attached = attach(workload.pid(), &["--fixed", "haltpoll:200us"]);
        until("the limit is in force", || limit_is("200000"));
        attached.signal(signal);
        let output = attached.finish();
        assert!(output.status.success(), "{signal}: {}", text(&output.stderr));
        machine.assert_untouched();
    }
    assert!(!workload.has_ended());
}

#[test]
fn stopped_and_continued_it_goes_on() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let workload = workload("600");
    let mut attached = attach(workload.pid(), &["--fixed", "haltpoll:200us"]);
    until("the limit is in force", || limit_is("200000"));
    attached.signal(Signal::SIGTSTP);
    let stat = format!("/proc/{}/stat", attached.pid());
    until("it is stopped", || fs::read_to_string(&stat).unwrap().contains(") T "));
    assert!(limit_is(machine.limit_before().trim()));
    attached.signal(Signal::SIGCONT);
    until("the limit is in force again", || limit_is("200000") || attached.has_ended());
    assert!(!attached.has_ended(), "it took the continuation for the end");
    attached.signal(Signal::SIGTERM);
    assert!(attached.finish().status.success());
    machine.assert_untouched();
}

#[test]
fn its_status_survives_a_broken_stderr() {
    let Some(machine) = Machine::take() else { return };
    let workload = workload("600");
    let pid = workload.pid().to_string();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let script = "exec \"$@\" 2>/dev/full";
    let mut attached = Command::new("sh");
    attached.args(["-c", script, "sh", GLEANER, "attach", "--pid", &pid, "--journal"]).arg(&file);
    let attached = Running::start(&mut attached);
    until("it is attached", || file.exists());
    workload.signal(Signal::SIGTERM);
    assert!(workload.finish().status.success());
    assert_eq!(attached.finish().status.code(), Some(0));
    machine.assert_untouched();
}

#[test]
fn it_ends_with_the_workload() {
    let Some(machine) = Machine::take() else { return };
    let workload = workload("600");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let attached = attach(workload.pid(), &["--journal", file.to_str().unwrap()]);
    until("it is attached", || file.exists());
    workload.signal(Signal::SIGTERM);
    assert!(workload.finish().status.success());
    let output = attached.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    machine.assert_untouched();
}

#[test]
fn a_process_or_group_that_does_not_exist_is_named() {
    let Some(machine) = Machine::take() else { return };
    let mut gone = Command::new("true").spawn().unwrap();
    gone.wait().unwrap();
    let pid = gone.id().to_string();
    for (args, name) in [(["--pid", &pid], pid.as_str()), (["--cgroup", "no/such/group"], "no/such/group")] {
        let output = common::process::gleaner(&["attach", args[0], args[1]]);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let printed = text(&output.stderr);
        assert!(printed.starts_with("gleaner: ") && printed.contains(name), "{printed}");
    }
    let output = common::process::gleaner(&["attach", "--pid", "0"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    machine.assert_untouched();
}

#[test]
fn the_root_group_is_refused_by_every_name() {
    let setup = CgroupSetup::detect(&Root::system()).unwrap();
    let mounts: Vec<_> =
        setup.v1.values().chain(&setup.v2).map(|hierarchy| hierarchy.mount.clone()).collect();
    let dir = tempfile::tempdir().unwrap();
    for (number, mount) in mounts.iter().enumerate() {
        let link = dir.path().join(number.to_string());
        std::os::unix::fs::symlink(mount, &link).unwrap();
        let below =
            fs::read_dir(mount).unwrap().flatten().map(|entry| entry.path()).find(|path| path.is_dir());
        let mut names = vec![
            (mount.clone(), ".".to_owned()),
            (mount.clone(), "./".to_owned()),
            (dir.path().to_owned(), "/".to_owned()),
            (dir.path().to_owned(), format!("{}/", mount.display())),
            (dir.path().to_owned(), number.to_string()),
        ];
        names.extend(below.map(|below| (below, "..".to_owned())));
        for (here, name) in names {
            let output = command(&["attach", "--cgroup", &name]).current_dir(&here).output().unwrap();
            let printed = text(&output.stderr);
            assert_eq!(output.status.code(), Some(1), "`{name}` from {}: {printed}", here.display());
            assert!(printed.contains("is the root group"), "`{name}` from {}: {printed}", here.display());
        }
    }
}

#[test]
fn every_command_says_where_it_searched_for_a_missing_group() {
    let Some(machine) = Machine::take() else { return };
    for command in [&["attach"][..], &["diagnose"], &["record", "-o", "/dev/null"], &["top", "--once"]] {
        let args = [command, &["--cgroup", "/no/such.slice"]].concat();
        let output = common::process::gleaner(&args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let printed = text(&output.stderr);
        assert!(printed.contains("no control group `/no/such.slice`: tried /no/such.slice, /"), "{printed}");
    }
    machine.assert_untouched();
}

#[test]
fn a_kernel_thread_is_refused_with_the_reason() {
    const KTHREADD: &str = "2";
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name == "kthreadd\n") {
        let output = common::process::gleaner(&["attach", "--pid", KTHREADD]);
        let printed = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(
            printed.contains("process 2 (kthreadd) is a kernel thread: it has no user-space threads"),
            "{printed}"
        );
    } else {
        skipped("the kernel's threads cannot be seen");
    }
}

#[test]
fn consolidating_on_more_vcpus_than_there_are_is_wrong_usage() {
    let own = std::process::id().to_string();
    let output = common::process::gleaner(&["attach", "--fixed", "consolidate:999", "--pid", &own]);
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{printed}");
    assert!(printed.contains("`consolidate:999` needs 999 vCPUs, but there "), "{printed}");
}

/// A control group for this test. Dropping it moves its processes out and removes it.
struct Group(WorkloadGroup);

impl Group {
    fn new() -> Option<Self> {
        let root = Root::system();
        let setup = CgroupSetup::detect(&root).unwrap();
        match WorkloadGroup::new(&root, &setup, std::process::id()) {
            Ok(group) => {
                group.writes().iter().for_each(|write| write.target.write(&root, &write.value).unwrap());
                Some(Self(group))
            }
            Err(reason) => {
                skipped(format_args!("{setup}: {reason}"));
                None
            }
        }
    }

    fn take_in(&self, pid: u32) {
        for file in self.0.procs_files() {
            fs::write(file, pid.to_string()).unwrap();
        }
    }

    fn cpus(&self) -> CpuSet {
        fs::read_to_string(self.0.cpuset_dir().join("cpuset.cpus")).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for write in self.0.writes().iter().rev() {
            if let Target::Group { .. } = &write.target
                && let Err(error) = write.target.write(&Root::system(), &Value::Group(GroupState::Absent))
            {
                eprintln!("NOT REMOVED: {error}");
            }
        }
    }
}

#[test]
fn a_group_of_ones_own_is_controlled_and_given_back() {
    let Some(machine) = Machine::take() else { return };
    let Some(group) = Group::new() else { return };
    let all = Affinity::of_caller().unwrap();
    let one: CpuSet = all.iter().take(1).collect();
    let workload = workload("600");
    group.take_in(workload.pid());
    let before = group.cpus();
    let dir = group.0.cpuset_dir().to_str().unwrap().to_owned();
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let args = ["attach", "--quiet", "--fixed", "consolidate:1", "--cgroup", &dir];
        let attached = Running::start(&mut command(&args));
        until("the group is on one vCPU", || group.cpus() == one);
        attached.signal(signal);
        let output = attached.finish();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        assert_eq!(group.cpus(), before);
    }
    // Attached to a group, Gleaner ends with the group's last process.
    let attached = Running::start(&mut command(&["attach", "--quiet", "--cgroup", &dir]));
    drop(workload);
    assert!(attached.finish().status.success());
    drop(group);
    machine.assert_untouched();
}

#[test]
fn what_is_known_of_the_group_or_the_executable_is_used_and_kept() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let Some(group) = Group::new() else { return };
    let workload = workload("600");
    let group_dir = group.0.cpuset_dir().to_str().unwrap().to_owned();
    let found = CgroupSetup::detect(&Root::system()).unwrap().find(&Root::system(), group.0.cpuset_dir());
    let group_name = format!("/{}", found.unwrap().relative.display());
    let pid = workload.pid().to_string();
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("memory");
    for (target, value, name) in
        [("--pid", &pid, memory::running_workload()), ("--cgroup", &group_dir, group_name)]
    {
        if target == "--cgroup" {
            group.take_in(workload.pid());
        }
        let seeded = memory::seed(&place, &name, Method::Haltpoll, memory::polling());
        let file = dir.path().join(target);
        let args = ["--method", "haltpoll", "--quiet", target, value, "--journal", file.to_str().unwrap()];
        let attached = Running::start(command(&["attach"]).args(args).env("GLEANER_MEMORY", &place));
        until("it has started", || known_at_start(&file).is_some());
        attached.signal(Signal::SIGINT);
        let output = attached.finish();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        assert_eq!(known_at_start(&file), Some(memory::loads(&seeded)), "of {name}");
        let (known, _) = MemoryDir::at(&place).list().unwrap();
        let runs: Vec<_> = known.iter().map(|program| (program.program.as_str(), program.runs)).collect();
        assert!(runs.contains(&(&name, 2)), "{runs:?} without {name}");
    }
    drop(workload);
    drop(group);
    machine.assert_untouched();
}

#[test]
fn it_ends_when_its_group_is_removed() {
    let Some(machine) = Machine::take() else { return };
    let Some(group) = Group::new() else { return };
    let one: CpuSet = Affinity::of_caller().unwrap().iter().take(1).collect();
    let workload = workload("600");
    group.take_in(workload.pid());
    let dir = group.0.cpuset_dir().to_str().unwrap().to_owned();
    let args = ["attach", "--quiet", "--fixed", "consolidate:1", "--cgroup", &dir];
    let attached = Running::start(&mut command(&args));
    until("the group is on one vCPU", || group.cpus() == one);
    // Gleaner must find the group gone rather than empty.
    attached.signal(Signal::SIGSTOP);
    drop(workload);
    drop(group);
    attached.signal(Signal::SIGCONT);
    let output = attached.finish();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    machine.assert_untouched();
}

#[test]
fn thousands_of_threads_are_moved_and_given_back_but_not_one_that_chose_for_itself() {
    const THREADS: usize = 2000;
    let Some(machine) = Machine::take() else { return };
    let all = Affinity::of_caller().unwrap();
    let (Some(first), Some(last)) = (all.iter().next(), all.iter().next_back()) else { return };
    if first == last {
        return skipped("needs two vCPUs");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let mut process = Running::start(&mut threads::command(&[], THREADS, Some(last)));
    threads::wait_for(&mut process, "ready");
    let before = threads::masks(process.pid());
    let only = |cpu| [cpu].into_iter().collect::<CpuSet>();
    assert_eq!(before.values().filter(|mask| **mask == only(last)).count(), 1);
    assert!(before.len() > THREADS);

    let options = ["--quiet", "--fixed", "consolidate:1", "--journal", file.to_str().unwrap()];
    let attached = attach(process.pid(), &options);
    until("every other thread is on the first vCPU", || {
        let masks = threads::masks(process.pid());
        masks.values().filter(|mask| **mask == only(first)).count() == before.len() - 1
    });
    let during = threads::masks(process.pid());
    assert_eq!(during.values().filter(|mask| **mask == only(last)).count(), 1);
    process.send("once more");
    threads::wait_for(&mut process, "round");
    attached.signal(Signal::SIGINT);
    let output = attached.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(threads::masks(process.pid()), before);
    machine.assert_untouched();
    assert_eq!(process.finish().status.code(), Some(threads::STATUS));

    let records = journal::read(&file).unwrap();
    let respected =
        |record: &Record| matches!(record, Record::Note { text, .. } if text.contains("respected"));
    assert_eq!(records.iter().filter(|record| respected(record)).count(), 1);
    let observed = |record: &Record| match record {
        Record::Observation { observation, .. } => observation.workload.threads,
        _ => 0,
    };
    assert!(records.iter().map(observed).max().unwrap() as usize > THREADS);
}

/// CPU time of a process in clock ticks (fields 14 and 15 of its `stat`).
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<_> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().unwrap()).sum()
}

fn resident_kib(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn attached_to_an_idle_process_it_costs_next_to_nothing() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let idle = Running::start(&mut Command::new("cat"));
    let attached = attach(idle.pid(), &["--quiet", "--journal", file.to_str().unwrap()]);
    until("it is attached", || Path::new(&file).exists());
    // Starting costs more than sampling. It is over once the journal exists.
    let start = ticks(attached.pid());
    // The sampling interval doubles from 20 ms up to half a second.
    let rare = |o: &Observation| o.period >= Duration::from_millis(500);
    until("it samples twice a second", || observations(&file).iter().filter(|(o, _)| rare(o)).count() >= 4);
    // A tick is 10 ms (USER_HZ is 100) for every program on Linux.
    let used = Duration::from_millis((ticks(attached.pid()) - start) * 10);
    let samples: Vec<_> = observations(&file).into_iter().map(|(o, _)| o).collect();
    let resident = resident_kib(attached.pid());
    let cost: Duration = samples.iter().map(|o| o.cost).sum();
    eprintln!(
        "attached to an idle process: {used:?} CPU in {} samples of {cost:?}, {resident} KiB",
        samples.len()
    );
    // Little happens after a sample, and nothing between samples.
    let most = cost + Duration::from_millis(10) * (1 + u32::try_from(samples.len()).unwrap());
    assert!(used <= most, "{used:?} in {} samples of {cost:?}", samples.len());
    // Costlier samples are rarer: the cheaper of two in a row costs at most 1/170 of the time to the next.
    for three in samples.windows(3) {
        let least = three[0].cost.min(three[1].cost) * 170;
        assert!(three[2].period >= least.min(Duration::from_secs(10)), "{three:?}");
    }
    assert!(resident < 20 << 10, "{resident} KiB");
    attached.signal(Signal::SIGINT);
    assert!(attached.finish().status.success());
    drop(idle);
    machine.assert_untouched();
}

/// A control group with a CPU quota of a tenth of a vCPU, and a group inside it; removed when dropped.
struct Quota {
    outer: PathBuf,
    inner: PathBuf,
}

impl Quota {
    /// `None`, with a message, if there are no quotas.
    fn take() -> Option<Self> {
        let setup = CgroupSetup::detect(&Root::system()).unwrap();
        let hierarchy = setup.v1.get("cpu").or(setup.v2.as_ref())?;
        let outer = hierarchy.mount.join(format!("quota-of-a-test-{}", std::process::id()));
        let quota = Self { inner: outer.join("inner"), outer };
        fs::create_dir_all(&quota.inner).unwrap();
        for (file, text) in [("cpu.cfs_quota_us", "10000"), ("cpu.max", "10000 100000")] {
            if quota.outer.join(file).exists() {
                fs::write(quota.outer.join(file), text).unwrap();
                return Some(quota);
            }
        }
        skipped("needs the cpu controller");
        None
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // The kernel removes members from a group shortly after they end.
        until("the groups are empty", || !self.inner.exists() || fs::remove_dir(&self.inner).is_ok());
        fs::remove_dir(&self.outer).unwrap();
    }
}

#[test]
fn a_quota_of_a_group_above_is_seen() {
    let Some(machine) = Machine::take() else { return };
    let Some(quota) = Quota::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let script = "echo $$ >\"$0\"/cgroup.procs; while :; do :; done";
    let mut process = Running::start(Command::new("sh").args(["-c", script, quota.inner.to_str().unwrap()]));
    let members = || fs::read_to_string(quota.inner.join("cgroup.procs")).unwrap();
    until("the process is in the group", || members().trim() == process.pid().to_string());
    let attached = attach(process.pid(), &["--quiet", "--journal", file.to_str().unwrap()]);
    let throttled = |record: &Record| match record {
        Record::Observation { observation, .. } => observation.throttled > 0.5,
        _ => false,
    };
    until("the quota is seen", || journal::read(&file).is_ok_and(|records| records.iter().any(throttled)));
    attached.signal(Signal::SIGINT);
    assert!(attached.finish().status.success());
    process.signal(Signal::SIGKILL);
    process.wait();
    machine.assert_untouched();
}
