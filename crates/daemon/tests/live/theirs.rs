//! What somebody else writes while gleanerd holds it: it steps back, keeps their value, and holds the lever again
//! after `gleaner resume`.

use std::fs;
use std::path::Path;
use std::process::Command;

use gleaner_control::AttachRequest;
use gleaner_policy::{CpuSet, Method};
use gleaner_testing::levers::{LIMIT, limit_is};
use gleaner_testing::placement::{Placement, allowed, threads};
use gleaner_testing::process::{Running, until};
use gleaner_testing::server::has_programs;
use gleaner_testing::skipped;

use crate::common::{Gleanerd, Home, Machine};
use crate::stage::Stage;

/// A limit that only these tests set.
const THEIRS: &str = "77000";

fn retains(daemon: &Gleanerd) -> bool {
    daemon.status().machine.retention.method != Method::Halt
}

#[test]
fn a_haltpoll_parameter() {
    let Some(stage) = Stage::set("consolidate = false") else { return };
    let daemon = stage.home.start();
    daemon.until_helped("redis");
    if daemon.status().machine.method != Method::Haltpoll {
        return skipped("needs a machine on which haltpoll is the best method");
    }
    fs::write(LIMIT, THEIRS).unwrap();
    daemon.until("it steps back", |daemon| !retains(daemon));
    let status = daemon.status();
    let reason = status.mode_reason.unwrap_or_default();
    assert!(reason.contains(THEIRS) && reason.contains("gleaner resume"), "{reason}");
    assert!(limit_is(THEIRS));
    assert_eq!(daemon.logged("nothing is retained until `gleaner resume`"), 1, "{}", daemon.log());

    daemon.client().resume().unwrap();
    daemon.until("it retains again", |daemon| retains(daemon) && !limit_is(THEIRS));
    assert_eq!(daemon.status().mode_reason, None);
    daemon.stop();
    assert!(limit_is(THEIRS), "their value is gone");
    fs::write(LIMIT, stage.machine.limit_before().trim()).unwrap();
    stage.assert_untouched();
}

#[test]
fn the_cpu_set_of_a_group() {
    let Some(stage) = Stage::set("retain = false") else { return };
    let daemon = stage.home.start();
    let active = daemon.until_helped("redis").active.unwrap();
    let file = stage.redis.service.cpus_file();
    let theirs = stage.redis.before.sets[&file].clone();
    assert_ne!(active.to_string(), theirs);
    // The value from before it was changed is theirs, too, now that they have written it.
    daemon.until("its set is in the kernel", |_| stage.redis.service.cpus() != theirs);
    fs::write(&file, &theirs).unwrap();
    daemon.until_logged("its set of vCPUs is theirs until `gleaner resume`");
    assert_eq!(stage.redis.service.cpus(), theirs);
    assert!(daemon.engaged("redis").is_some_and(|redis| redis.active == redis.allowed));

    daemon.client().resume().unwrap();
    daemon.until("it takes the set up again", |_| stage.redis.service.cpus() != theirs);
    daemon.stop();
    stage.assert_untouched();
}

/// redis and a client as children of a shell: a workload without a group.
fn shell(home: &Home) -> Running {
    let script = "redis-server --port 0 --unixsocket \"$0\" --save '' --loglevel warning &\n\
                  until redis-cli -s \"$0\" ping >/dev/null 2>&1; do sleep 0.05; done\n\
                  redis-benchmark -s \"$0\" -c 1 -t get -l -q >/dev/null &\n\
                  echo ready; wait";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(home.path().join("redis.sock"));
    let mut shell = Running::start(&mut command);
    while shell.line() != "ready" {}
    shell
}

/// The shell and its children.
fn family(shell: &Running) -> Vec<u32> {
    let pid = shell.pid();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    std::iter::once(pid).chain(children).collect()
}

#[test]
fn the_affinity_of_a_thread() {
    let Some(machine) = Machine::take_with_haltpoll().filter(|_| has_programs(&["redis-server"])) else {
        return;
    };
    // Nothing but what the test attaches to.
    let home = Home::new("include = [{ group = \"/none-of-this-name\" }]\n");
    let shell = shell(&home);
    let family = family(&shell);
    let is_server = |pid: &&u32| {
        fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"))
            .is_ok_and(|comm| comm.trim() == "redis-server")
    };
    let server = *family.iter().find(is_server).unwrap();
    let placement = || Placement::read([], family.iter().copied());
    let before = placement();

    let daemon = home.start();
    let asked = AttachRequest {
        pid: Some(shell.pid()),
        retain: Some(false),
        memory: Some(false),
        ..AttachRequest::default()
    };
    let mut replies = daemon.client().attach(&asked).unwrap();
    let workload = replies.next().unwrap().unwrap().workload;
    let helped = daemon.until_helped(&workload);
    let (active, all) = (helped.active.unwrap(), helped.allowed.unwrap());
    daemon.until("the server is moved", |_| allowed(server) == Some(active.to_string()));
    let others: CpuSet = all.iter().filter(|cpu| !active.contains(*cpu)).collect();
    let taskset = Command::new("taskset").args(["-pc", &others.to_string(), &server.to_string()]).output();
    assert!(taskset.unwrap().status.success());

    let threads: Vec<u32> = threads(server).into_iter().filter(|tid| *tid != server).collect();
    daemon.until_logged("its set of vCPUs is theirs until `gleaner resume`");
    daemon.until("the other threads are put back", |_| {
        threads.iter().all(|tid| allowed(*tid).as_ref() == before.affinities.get(tid))
    });
    assert_eq!(allowed(server), Some(others.to_string()), "their affinity is gone");

    daemon.client().resume().unwrap();
    let client = *family.iter().find(|pid| **pid != server && **pid != shell.pid()).unwrap();
    until("it places the other threads again", || allowed(client).as_ref() != before.affinities.get(&client));
    assert_eq!(allowed(server), Some(others.to_string()));
    replies.hang_up().unwrap().now();
    assert!(replies.last().unwrap().unwrap().summary.is_some());
    daemon.stop();
    let mut expected = before;
    expected.affinities.insert(server, others.to_string());
    assert_eq!(placement(), expected);
    machine.assert_untouched();
}
