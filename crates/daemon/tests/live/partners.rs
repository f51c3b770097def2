//! Workloads that wake each other are placed together where idle vCPUs do not poll, until one of them ends.

use std::collections::BTreeSet;

use gleaner_control::WhyRequest;
use gleaner_proto::journal::Record;
use gleaner_testing::group::Slice;
use gleaner_testing::has_two_vcpus;
use gleaner_testing::placement::Placement;
use gleaner_testing::server::{Server, has_programs, redis_benchmark};
use nix::sys::signal::Signal;

use crate::common::{Gleanerd, Home, Machine};
use crate::stage::rules;

/// A server and its client outside of services, each by a rule of its own. redis-server is a link to redis-check-rdb.
const RULES: &str = "include = [{ executable = \"/usr/bin/redis-check-*\" }, { executable = \"/usr/bin/redis-benchmark\" }]\n\
                     retain = false\n";

/// The right to change a machine on which something can be placed on fewer vCPUs.
fn machine() -> Option<Machine> {
    Machine::take().filter(|_| has_two_vcpus() && has_programs(&["redis-server"]))
}

/// What the journal of a workload notes.
fn notes(daemon: &Gleanerd, workload: &str) -> Vec<String> {
    let asked = WhyRequest { workload: Some(workload.to_owned()), ..WhyRequest::default() };
    let records = daemon.client().why(&asked).unwrap().map(|reply| reply.unwrap().record);
    let note = |record| match record {
        Record::Note { text, .. } => Some(text),
        _ => None,
    };
    records.filter_map(note).collect()
}

/// Whether a workload is engaged, and the status says that it is placed together with this one.
fn is_with(daemon: &Gleanerd, workload: &str, other: &str) -> bool {
    let reason = daemon.engaged(workload).and_then(|workload| workload.reason);
    reason.is_some_and(|reason| reason.contains(&format!("together with {other}")))
}

fn assert_as_before(now: &Placement, before: &Placement) {
    for (tid, cpus) in &now.affinities {
        assert!(before.affinities.get(tid).is_none_or(|was| was == cpus), "{now:?}, before: {before:?}");
    }
    assert_eq!(now.sets, before.sets);
}

#[test]
fn a_server_and_its_client_are_one_workload() {
    let Some(machine) = machine() else { return };
    let home = Home::new(RULES);
    let server = Server::redis(home.path(), "redis", None);
    let mut client = redis_benchmark(&server, None);
    let (server_pid, client_pid) = (server.pid(), client.pid());
    let place = || Placement::read([], [server_pid, client_pid]);
    let before = place();
    let daemon = home.start();
    daemon.until("they are one", |daemon| is_with(daemon, "redis-server", "redis-benchmark"));
    assert!(is_with(&daemon, "redis-benchmark", "redis-server"));
    daemon.until_helped("redis-server");
    let used = || place().affinities.into_values().collect::<BTreeSet<_>>();
    daemon.until("both are on one vCPU", |_| used().len() == 1 && place() != before);
    let noted = notes(&daemon, "redis-server");
    let why = noted.iter().find(|note| note.contains("placed together with redis-benchmark"));
    assert!(why.is_some_and(|note| note.contains("% of the wake-ups of redis-server")), "{noted:?}");

    client.signal(Signal::SIGKILL);
    client.wait();
    daemon.until("they are released", |daemon| daemon.logged("redis-server: released: it has ended") == 1);
    assert_as_before(&Placement::read([], [server_pid]), &before);
    let programs = home.programs_in_memory();
    assert!(programs.iter().any(|program| program.contains(" + ")), "{programs:?}");

    // Another client is a partner again, also of a server that is on one vCPU meanwhile, and not once that is left alone.
    let client = redis_benchmark(&server, None);
    daemon.until("they are one again", |daemon| is_with(daemon, "redis-server", "redis-benchmark"));
    daemon.until_helped("redis-server");
    daemon.client().detach("redis-server").unwrap();
    daemon.until("the client is engaged alone", |daemon| {
        daemon.engaged("redis-benchmark").is_some_and(|_| daemon.engaged("redis-server").is_none())
            && !is_with(daemon, "redis-benchmark", "redis-server")
    });
    drop(client);
    daemon.stop();
    machine.assert_untouched();
    assert_as_before(&Placement::read([], [server_pid]), &before);
}

#[test]
fn a_service_and_two_clients_elsewhere_are_put_back_after_a_kill() {
    let Some(machine) = machine() else { return };
    let Some(slice) = Slice::new() else { return };
    let home = Home::new(&rules(&slice, "retain = false"));
    let (service, clients) = (slice.service("redis"), slice.service("client"));
    let server = Server::redis(home.path(), "redis", Some(&service));
    let client = redis_benchmark(&server, Some(&clients));
    let place = || Placement::read([&service, &clients], [server.pid(), client.pid()]);
    let before = place();
    let daemon = home.start();
    daemon.until("they are one", |daemon| is_with(daemon, "redis", "client"));
    daemon.until_helped("redis");
    daemon.until("both are on one vCPU", |_| {
        let now = place();
        now.sets.values().collect::<BTreeSet<_>>().len() == 1 && now.sets != before.sets
    });
    // A third one joins them, wherever they are.
    let more = slice.service("more");
    let another = redis_benchmark(&server, Some(&more));
    daemon.until("all are one", |daemon| is_with(daemon, "redis", "client, more"));
    assert!(is_with(&daemon, "more", "redis"));
    daemon.kill();
    assert_as_before(&place(), &before);
    drop((client, another, server));
    machine.assert_untouched();
}

#[test]
fn what_an_administrator_gives_one_of_them_is_theirs_and_the_other_is_put_back() {
    let Some(machine) = machine() else { return };
    let Some(slice) = Slice::new() else { return };
    let home = Home::new(&rules(&slice, "retain = false"));
    let (service, clients) = (slice.service("redis"), slice.service("client"));
    let server = Server::redis(home.path(), "redis", Some(&service));
    let client = redis_benchmark(&server, Some(&clients));
    let before = Placement::read([&service, &clients], [server.pid(), client.pid()]);
    let daemon = home.start();
    daemon.until("they are one", |daemon| is_with(daemon, "redis", "client"));
    daemon.until_helped("redis");
    let theirs = before.sets[&clients.cpus_file()].clone();
    daemon.until("its set is in the kernel", |_| clients.cpus() != theirs);
    std::fs::write(clients.cpus_file(), &theirs).unwrap();
    daemon.until_logged("its set of vCPUs is theirs until `gleaner resume`");
    let is_theirs = |daemon: &Gleanerd, name: &str| {
        let reason = daemon.engaged(name).and_then(|workload| workload.reason);
        reason.map(|reason| reason.contains("somebody else has changed its vCPUs"))
    };
    daemon.until("each is on its own", |daemon| is_theirs(daemon, "client") == Some(true));
    daemon.until("the other one is nobody's", |daemon| is_theirs(daemon, "redis") == Some(false));
    assert_eq!(clients.cpus(), theirs);
    daemon.stop();
    machine.assert_untouched();
    assert_as_before(&Placement::read([&service, &clients], [server.pid(), client.pid()]), &before);
}
