//! Two processes that wake each other are placed together where idle vCPUs do not poll, until one of them ends.

use std::collections::BTreeSet;

use gleaner_control::WhyRequest;
use gleaner_proto::journal::Record;
use gleaner_testing::has_two_vcpus;
use gleaner_testing::placement::Placement;
use gleaner_testing::server::{Server, has_programs, redis_benchmark};
use nix::sys::signal::Signal;

use crate::common::{Gleanerd, Home, Machine};

/// Servers outside of services; redis-server is a link to redis-check-rdb.
const RULES: &str = "include = [{ executable = \"/usr/bin/redis-*\" }]\nretain = false\n";

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

fn reason(daemon: &Gleanerd, workload: &str) -> String {
    daemon.engaged(workload).and_then(|workload| workload.reason).unwrap_or_default()
}

#[test]
fn a_server_and_its_client_are_one_workload() {
    let machine = Machine::take().filter(|_| has_two_vcpus() && has_programs(&["redis-server"]));
    let Some(machine) = machine else { return };
    let home = Home::new(RULES);
    let server = Server::redis(home.path(), "redis", None);
    let mut client = redis_benchmark(&server, None);
    let place = || Placement::read([], [server.pid(), client.pid()]);
    let before = place();
    let daemon = home.start();
    daemon.until("they are one", |daemon| {
        reason(daemon, "redis-server").contains("together with redis-benchmark")
    });
    assert!(daemon.engaged("redis-benchmark").is_none());
    daemon.until_helped("redis-server");
    let used = || place().affinities.into_values().collect::<BTreeSet<_>>();
    daemon.until("both are on one vCPU", |_| used().len() == 1 && place() != before);
    let noted = notes(&daemon, "redis-server");
    let why = noted.iter().find(|note| note.contains("placed together with redis-benchmark"));
    assert!(why.is_some_and(|note| note.contains("% of the wake-ups of redis-server")), "{noted:?}");

    client.signal(Signal::SIGKILL);
    client.wait();
    daemon.until("the server is as before", |_| {
        Placement::read([], [server.pid()])
            .affinities
            .iter()
            .all(|(tid, cpus)| before.affinities[tid] == *cpus)
    });
    let programs = home.programs_in_memory();
    assert!(programs.iter().any(|program| program.contains(" + ")), "{programs:?}");

    // A client of the same program is a partner again, and on its own once the first is left alone.
    client = redis_benchmark(&server, None);
    daemon.until("they are one again", |daemon| reason(daemon, "redis-server").contains("together with"));
    daemon.client().detach("redis-server").unwrap();
    daemon.until("the client is engaged alone", |daemon| {
        daemon.engaged("redis-benchmark").is_some_and(|_| daemon.engaged("redis-server").is_none())
    });
    drop(client);
    daemon.stop();
    machine.assert_untouched();
    let after = Placement::read([], [server.pid()]);
    assert!(after.affinities.iter().all(|(tid, cpus)| before.affinities[tid] == *cpus), "{after:?}");
}
