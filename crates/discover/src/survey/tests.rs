use std::fs;

use super::*;
use crate::testing::{Proc, fake, link, put};

const UNIFIED: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
const VERSION_1: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset
";
const HYBRID: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpuacct rw - cgroup cgroup rw,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

/// A machine that has been up for 1000 s, with the daemon as process 999.
struct Machine {
    _dir: tempfile::TempDir,
    root: Root,
    survey: Survey,
    now: Duration,
}

impl Machine {
    fn new(mounts: &str, own_groups: &str) -> Self {
        let (dir, root) = fake();
        link(&root, "/proc/self", "999");
        put(&root, "/proc/999/mountinfo", mounts);
        put(&root, "/proc/999/cgroup", own_groups);
        put(&root, "/proc/uptime", "1000.00 1500.00\n");
        Proc::new(999, 1, "gleanerd").put(&root);
        let survey = Survey::new(&root).unwrap();
        Self { _dir: dir, root, survey, now: Duration::ZERO }
    }

    fn unified() -> Self {
        let machine = Self::new(UNIFIED, "0::/system.slice/gleanerd.service\n");
        put(&machine.root, "/sys/fs/cgroup/cgroup.controllers", "cpuset cpu\n");
        machine
    }

    /// A group of version 2 with these processes, which has used so much CPU time.
    fn group(&self, path: &str, pids: &[u32], used_us: u64) {
        let dir = format!("/sys/fs/cgroup{path}");
        let lines = pids.iter().fold(String::new(), |lines, pid| format!("{lines}{pid}\n"));
        put(&self.root, &format!("{dir}/cpu.stat"), &format!("usage_usec {used_us}\nuser_usec 0\n"));
        put(&self.root, &format!("{dir}/cgroup.procs"), &lines);
        put(&self.root, &format!("{dir}/cgroup.threads"), &lines);
        put(&self.root, &format!("{dir}/cgroup.events"), "populated 1\nfrozen 0\n");
    }

    fn take_if(&mut self, allows: &mut dyn FnMut(&Subject<'_>) -> bool) {
        self.survey.take_at(self.now, allows).unwrap();
        self.now += Duration::from_secs(2);
    }

    /// A survey every two seconds.
    fn take(&mut self) {
        self.take_if(&mut |_| true);
    }

    fn names(&self) -> Vec<&str> {
        let mut names: Vec<&str> =
            self.survey.candidates().map(|candidate| candidate.name.as_str()).collect();
        names.sort_unstable();
        names
    }

    fn named(&self, name: &str) -> &Candidate {
        self.survey.candidates().find(|candidate| candidate.name == name).unwrap()
    }

    fn threads(&self, tids: &[u32], run_ns: u64, switches: u64) {
        for tid in tids {
            put(&self.root, &format!("/proc/{tid}/schedstat"), &format!("{run_ns} 0 {switches}\n"));
        }
    }
}

#[test]
fn units_containers_pods_and_sessions_are_one_workload_each() {
    let mut machine = Machine::unified();
    for path in [
        "/init.scope",
        "/system.slice/gleanerd.service",
        "/system.slice/redis-server.service",
        "/system.slice/web.service/workers/1",
        "/system.slice/docker-0123456789abcdef.scope/payload",
        "/user.slice/user-1000.slice/session-3.scope",
        "/user.slice/user-1000.slice/user@1000.service/init.scope",
        "/user.slice/user-1000.slice/user@1000.service/app.slice/my.service",
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2.slice/cri-containerd-aa.scope",
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2.slice/cri-containerd-bb.scope",
        "/system.slice/web.service",
        "/system.slice/docker-0123456789abcdef.scope",
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod11111111_2.slice",
        "/mine/left",
        "/mine/right",
    ] {
        machine.group(path, &[], 0);
    }
    for dir in ["/init.scope", "/system.slice", "/user.slice", "/kubepods.slice", "/mine"] {
        put(&machine.root, &format!("/sys/fs/cgroup{dir}/cgroup.events"), "populated 1\n");
    }
    machine.take();
    let expected =
        ["docker-0123456789ab", "left", "my", "pod-11111111", "redis-server", "right", "session-3", "web"];
    assert_eq!(machine.names(), expected);
    assert_eq!(machine.survey.hierarchy(), Some(Path::new("/sys/fs/cgroup")));
    let redis = machine.named("redis-server");
    assert_eq!((redis.kind, redis.unit.as_deref()), (Kind::Service, Some("redis-server.service")));
    assert_eq!(redis.group, Path::new("/system.slice/redis-server.service"));
    let dir = Path::new("/sys/fs/cgroup/system.slice/redis-server.service");
    assert_eq!(machine.survey.group_dir(redis).as_deref(), Some(dir));
    assert_eq!(machine.named("session-3").kind, Kind::Scope);
    assert_eq!(machine.named("pod-11111111").kind, Kind::Container);
    assert_eq!(machine.named("left").kind, Kind::Group);
}

#[test]
fn only_what_uses_cpu_time_is_looked_into() {
    let mut machine = Machine::unified();
    for (pid, command) in [(20, "redis-server"), (21, "redis-server"), (30, "cron")] {
        Proc::new(pid, 1, command).put(&machine.root);
    }
    machine.threads(&[20, 21], 0, 100);
    put(&machine.root, "/sys/fs/cgroup/system.slice/cgroup.events", "populated 1\n");
    for used_s in 0..4_u64 {
        machine.group("/system.slice/redis.service", &[20, 21], used_s * 1_000_000);
        // A third of the threshold.
        machine.group("/system.slice/cron.service", &[30], used_s * 3_333);
        machine.threads(&[20, 21], 0, 100 + 4000 * used_s);
        machine.take();
    }
    let redis = machine.named("redis");
    assert!((redis.load - 0.5).abs() < 1e-9 && redis.span == Duration::from_secs(2));
    let main = redis.main.as_ref().unwrap();
    assert_eq!((main.pid, main.command.as_str()), (20, "redis-server"));
    assert_eq!(redis.subject().executable, Some(Path::new("/usr/bin/redis-server")));
    let activity = redis.activity.unwrap();
    assert_eq!((activity.processes, activity.threads), (2, 2));
    assert_eq!(redis.switches_per_s(), Some(4000.0));
    let cron = machine.named("cron");
    assert!((cron.load - 0.003_333 / 2.0).abs() < 1e-6, "{}", cron.load);
    assert!(cron.activity.is_none() && cron.main.is_none());
    for _ in 0..Tracked::CALMS_DOWN {
        assert!(machine.named("redis").activity.is_some());
        machine.take();
    }
    assert!(machine.named("redis").activity.is_none());
}

#[test]
fn a_shared_group_has_a_workload_per_process_and_its_workers() {
    let mut machine = Machine::new("", "");
    for (pid, parent, command) in [
        (1, 0, "init"),
        (2, 0, "kthreadd"),
        (50, 1, "sh"),
        (60, 50, "redis-server"),
        (61, 50, "redis-server"),
        (70, 50, "nginx"),
        (71, 70, "nginx"),
    ] {
        Proc::new(pid, parent, command).put(&machine.root);
    }
    Proc { start: 99_990, ..Proc::new(80, 50, "sleep") }.put(&machine.root);
    machine.take();
    assert_eq!(machine.names(), ["nginx", "redis-server", "redis-server-2", "sh"]);
    assert!(machine.survey.hierarchy().is_none());
    let nginx = machine.named("nginx");
    assert_eq!((nginx.kind, nginx.group.as_path()), (Kind::Process, Path::new("/")));
    assert_eq!(nginx.key, Key::Process { pid: 70, start_ticks: 10 });
    assert_eq!(machine.survey.group_dir(nginx), None);
    let main = nginx.main.as_ref().unwrap();
    assert_eq!(main.executable.as_deref(), Some(Path::new("/usr/bin/nginx")));

    for (pid, parent) in [(70, 50), (71, 70)] {
        Proc { used: 30, ..Proc::new(pid, parent, "nginx") }.put(&machine.root);
    }
    machine.threads(&[70, 71], 0, 0);
    machine.take();
    let nginx = machine.named("nginx");
    assert!((nginx.load - 0.3).abs() < 1e-9, "600 ms in 2 s: {}", nginx.load);
    machine.threads(&[70, 71], 123_000_000, 500);
    machine.take();
    let nginx = machine.named("nginx");
    assert!((nginx.load - 0.123).abs() < 1e-9, "counted exactly from here on: {}", nginx.load);
    assert_eq!(nginx.switches_per_s(), Some(500.0));
    assert_eq!(nginx.activity.unwrap().processes, 2);
}

#[test]
fn a_young_process_that_does_something_is_a_candidate_but_not_looked_into() {
    let mut machine = Machine::new("", "");
    let young = Proc { used: 1, start: 99_950, ..Proc::new(60, 1, "redis-server") };
    young.put(&machine.root);
    machine.threads(&[60], 0, 0);
    machine.take();
    Proc { used: 41, ..young }.put(&machine.root);
    machine.take();
    let redis = machine.named("redis-server");
    assert!((redis.load - 0.2).abs() < 1e-9, "400 ms in 2 s: {}", redis.load);
    assert!(redis.main.as_ref().unwrap().executable.is_some() && redis.activity.is_none());
    // It has grown up.
    put(&machine.root, "/proc/uptime", "1001.00 1500.00\n");
    machine.take();
    assert_eq!(machine.named("redis-server").activity.unwrap().threads, 1);
}

#[test]
fn a_pid_used_again_and_another_program_are_other_workloads() {
    let mut machine = Machine::new("", "");
    Proc::new(60, 1, "sh").put(&machine.root);
    machine.take();
    Proc::new(60, 1, "redis-server").put(&machine.root);
    machine.take();
    assert_eq!(machine.names(), ["redis-server"]);
    assert!(machine.named("redis-server").span.is_zero(), "nothing is known of it yet");
    Proc { start: 500, ..Proc::new(60, 1, "redis-server") }.put(&machine.root);
    machine.take();
    assert_eq!(machine.names(), ["redis-server"]);
    assert!(machine.survey.get(&Key::Process { pid: 60, start_ticks: 10 }).is_none());
    assert!(machine.survey.get(&Key::Process { pid: 60, start_ticks: 500 }).is_some());
}

#[test]
fn the_daemons_own_group_is_shared_by_whoever_else_is_in_it() {
    let mut machine = Machine::new(UNIFIED, "0::/user.slice/user-0.slice/session-1.scope\n");
    put(&machine.root, "/sys/fs/cgroup/cgroup.controllers", "cpu\n");
    put(&machine.root, "/sys/fs/cgroup/user.slice/cgroup.events", "populated 1\n");
    Proc::new(60, 1, "redis-server").put(&machine.root);
    machine.group("/user.slice/user-0.slice/session-1.scope", &[60, 999], 0);
    machine.group("/user.slice/user-0.slice/session-2.scope", &[], 0);
    machine.take();
    assert_eq!(machine.names(), ["redis-server", "session-2"]);
    assert_eq!(machine.named("redis-server").group, Path::new("/user.slice/user-0.slice/session-1.scope"));
}

#[test]
fn version_1_is_walked_where_it_holds_processes() {
    let mut machine = Machine::new(VERSION_1, "3:cpuset:/\n2:cpuacct:/\n");
    Proc::new(60, 1, "redis-server").put(&machine.root);
    Proc::new(61, 1, "nginx").put(&machine.root);
    put(&machine.root, "/sys/fs/cgroup/cpuacct/cgroup.procs", "60\n999\n");
    put(&machine.root, "/sys/fs/cgroup/cpuset/cgroup.procs", "60\n999\n");
    put(&machine.root, "/sys/fs/cgroup/cpuacct/empty/cgroup.procs", "");
    machine.take();
    assert!(machine.survey.hierarchy().is_none(), "no group holds processes");
    assert_eq!(machine.names(), ["nginx", "redis-server"]);
    for (file, text) in [("cgroup.procs", "61\n"), ("tasks", "61\n"), ("cpuacct.usage", "0\n")] {
        put(&machine.root, &format!("/sys/fs/cgroup/cpuacct/docker/0123456789abcdef/{file}"), text);
    }
    machine.take();
    assert_eq!(machine.survey.hierarchy(), Some(Path::new("/sys/fs/cgroup/cpuacct")));
    assert_eq!(machine.names(), ["docker-0123456789ab", "empty", "redis-server"]);
    put(&machine.root, "/sys/fs/cgroup/cpuacct/docker/0123456789abcdef/cpuacct.usage", "500000000\n");
    machine.take();
    assert!((machine.named("docker-0123456789ab").load - 0.25).abs() < 1e-9);
}

#[test]
fn hybrid_machines_are_walked_where_systemd_has_its_units() {
    let mut machine = Machine::new(HYBRID, "2:cpuacct:/\n1:name=systemd:/init.scope\n0::/init.scope\n");
    put(&machine.root, "/sys/fs/cgroup/unified/cgroup.controllers", "\n");
    Proc::new(60, 1, "redis-server").put(&machine.root);
    let unit = "/sys/fs/cgroup/systemd/system.slice/redis.service";
    for file in ["cgroup.procs", "tasks"] {
        put(&machine.root, &format!("{unit}/{file}"), "60\n");
    }
    machine.take();
    assert_eq!(machine.survey.hierarchy(), Some(Path::new("/sys/fs/cgroup/systemd")), "version 2 is empty");
    // Nobody accounts the unit's CPU time: its processes are added up.
    machine.threads(&[60], 0, 0);
    Proc { used: 50, ..Proc::new(60, 1, "redis-server") }.put(&machine.root);
    machine.take();
    let redis = machine.named("redis");
    assert!((redis.load - 0.25).abs() < 1e-9, "{}", redis.load);
    assert_eq!(redis.main.as_ref().unwrap().pid, 60);
}

#[test]
fn what_a_rule_excludes_is_not_looked_into() {
    let mut machine = Machine::unified();
    put(&machine.root, "/sys/fs/cgroup/system.slice/cgroup.events", "populated 1\n");
    Proc::new(20, 1, "redis-server").put(&machine.root);
    Proc::new(30, 1, "java").put(&machine.root);
    machine.threads(&[20, 30], 0, 0);
    let mut asked = Vec::new();
    let mut take = |machine: &mut Machine, used_us: u64| {
        machine.group("/system.slice/redis.service", &[20], used_us);
        machine.group("/system.slice/app.service", &[30], used_us);
        machine.take_if(&mut |subject| {
            asked.push((subject.unit.unwrap().to_owned(), subject.executable.map(Path::to_owned)));
            subject.unit != Some("redis.service") && subject.executable != Some(Path::new("/usr/bin/java"))
        });
    };
    take(&mut machine, 0);
    assert_eq!(machine.names(), ["app"]);
    // Even reading its account would be an error now.
    fs::remove_file(machine.root.path("/sys/fs/cgroup/system.slice/redis.service/cpu.stat")).unwrap();
    take(&mut machine, 1_000_000);
    assert!(machine.names().is_empty(), "known by its executable now");
    let excluded: Vec<_> = machine.survey.excluded().map(|candidate| candidate.name.as_str()).collect();
    assert_eq!(excluded, ["app", "redis"]);
    take(&mut machine, 2_000_000);
    machine.survey.rules_changed();
    machine.take();
    assert_eq!(machine.names(), ["app", "redis"]);
    let expected = [
        ("app.service".to_owned(), None),
        ("redis.service".to_owned(), None),
        ("app.service".to_owned(), Some(PathBuf::from("/usr/bin/java"))),
    ];
    assert_eq!(asked, expected, "once for each");
}

#[test]
fn groups_that_churn_are_neither_opened_nor_kept() {
    let mut machine = Machine::unified();
    put(&machine.root, "/sys/fs/cgroup/system.slice/cgroup.events", "populated 1\n");
    machine.group("/system.slice/redis.service", &[20], 0);
    machine.take();
    for round in 0..50 {
        // Unreadable as long as they are young: a directory stands where the file should be.
        for job in 0..5 {
            let path = format!("/sys/fs/cgroup/system.slice/job-{round}-{job}.service");
            fs::create_dir_all(machine.root.path(&path).join("cpu.stat")).unwrap();
        }
        machine.survey.take_at(machine.now, &mut |_| true).unwrap();
        machine.now += Duration::from_millis(900);
        assert_eq!(machine.names(), ["redis"], "young groups are not looked into");
        for job in 0..5 {
            let path = format!("/sys/fs/cgroup/system.slice/job-{round}-{job}.service");
            fs::remove_dir_all(machine.root.path(path)).unwrap();
        }
        machine.survey.take_at(machine.now, &mut |_| true).unwrap();
        machine.now += Duration::from_millis(100);
    }
    assert_eq!((machine.survey.tracked.len(), machine.survey.walk.followed()), (1, 2));
    // One that stays is found when it is a second old.
    machine.group("/system.slice/late.service", &[], 0);
    machine.take();
    assert_eq!(machine.names(), ["redis"]);
    machine.take();
    assert_eq!(machine.names(), ["late", "redis"]);
}

#[test]
fn a_group_that_was_worth_engaging_is_looked_into_at_once_when_it_comes_back() {
    let mut machine = Machine::unified();
    put(&machine.root, "/sys/fs/cgroup/system.slice/cgroup.events", "populated 1\n");
    machine.group("/system.slice/redis.service", &[20], 0);
    machine.group("/system.slice/web.service", &[], 0);
    machine.take();
    machine.survey.expect(&Key::Group("/system.slice/redis.service".into()));
    for name in ["redis", "web"] {
        fs::remove_dir_all(machine.root.path(format!("/sys/fs/cgroup/system.slice/{name}.service"))).unwrap();
    }
    machine.take();
    assert!(machine.names().is_empty());
    machine.group("/system.slice/redis.service", &[20], 0);
    machine.group("/system.slice/web.service", &[], 0);
    machine.take();
    assert_eq!(machine.names(), ["redis"], "the other one is new");
}

#[test]
fn a_group_that_vanishes_or_starts_anew_is_no_error() {
    let mut machine = Machine::unified();
    put(&machine.root, "/sys/fs/cgroup/system.slice/cgroup.events", "populated 1\n");
    machine.group("/system.slice/redis.service", &[20], 5_000_000);
    machine.group("/system.slice/web.service", &[], 0);
    machine.take();
    machine.group("/system.slice/redis.service", &[20], 200_000);
    // Another one takes its place, so that the number of groups stays.
    fs::remove_dir_all(machine.root.path("/sys/fs/cgroup/system.slice/web.service")).unwrap();
    machine.group("/system.slice/new.service", &[], 0);
    machine.take();
    assert!((machine.named("redis").load - 0.1).abs() < 1e-9, "restarted: what it used since");
    assert_eq!(machine.names(), ["redis"]);
    machine.take();
    machine.take();
    assert_eq!(machine.names(), ["new", "redis"]);
    fs::remove_dir_all(machine.root.path("/sys/fs/cgroup/system.slice")).unwrap();
    machine.take();
    assert!(machine.names().is_empty());
}

#[test]
fn without_proc_the_error_names_the_file() {
    let (_dir, root) = fake();
    assert!(Survey::new(&root).unwrap_err().to_string().contains("/proc/self"));
}
