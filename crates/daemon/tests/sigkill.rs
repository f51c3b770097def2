//! After SIGKILL at any instant of a daemon with three engaged workloads, `gleanerd --restore` (what the unit's
//! `ExecStopPost` runs) returns the machine and the workloads to exactly their earlier state.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "a test says what it measures")]

mod common;

use std::fmt::Debug;
use std::str::FromStr;
use std::time::Duration;

use common::random::Random;
use common::{Gleanerd, Home, Machine, restore};
use gleaner_control::{AttachReply, AttachRequest, Replies};
use gleaner_testing::group::{Service, Slice};
use gleaner_testing::levers::{LEASES, Levers};
use gleaner_testing::placement::Placement;
use gleaner_testing::process::{Running, text};
use gleaner_testing::server::{Load, Server, has_programs, redis_benchmark};
use nix::sys::signal::Signal;

/// How many kills, unless this variable says it.
const KILLS: (&str, u32) = ("GLEANER_SIGKILLS", 25);
/// So that a failure can be repeated, unless this variable says another number.
const SEED: (&str, u64) = ("GLEANER_SEED", 0x5eed_0123_4567_89ab);
/// Longest time from the third engagement to SIGKILL: resuming what is known, trials, and what they have proven.
const SPAN: Duration = Duration::from_millis(1500);

/// Two services, and a process that is in no group of its own.
struct Workloads {
    redis: Server,
    memcached: Server,
    plain: Server,
    services: [Service; 2],
    _clients: (Running, Load, Load),
}

impl Workloads {
    fn start(home: &Home, slice: &Slice) -> Self {
        let services = [slice.service("redis"), slice.service("memcached")];
        let redis = Server::redis(home.path(), "redis", Some(&services[0]));
        let memcached = Server::memcached(home.path(), "memcached", Some(&services[1]));
        let plain = Server::redis(home.path(), "plain", None);
        let clients = (
            redis_benchmark(&redis, Some(&services[0])),
            memcached.load(Duration::from_micros(100)),
            plain.load(Duration::from_micros(200)),
        );
        Self { redis, memcached, plain, services, _clients: clients }
    }

    fn placement(&self) -> Placement {
        let servers = [&self.redis, &self.memcached, &self.plain];
        Placement::read(&self.services, servers.map(Server::pid))
    }

    /// Engages all three, whatever the machine does besides.
    fn attach(&self, daemon: &Gleanerd) -> Vec<Replies<AttachReply>> {
        let groups = self.services.iter().map(|service| AttachRequest {
            cgroup: Some(service.path.to_str().unwrap().to_owned()),
            ..AttachRequest::default()
        });
        let process = AttachRequest { pid: Some(self.plain.pid()), ..AttachRequest::default() };
        let attach = |asked: AttachRequest| {
            let mut replies = daemon.client().attach(&asked).unwrap();
            replies.next().unwrap().unwrap();
            replies
        };
        groups.chain([process]).map(attach).collect()
    }
}

fn from_environment<T: FromStr<Err: Debug>>((name, default): (&str, T)) -> T {
    std::env::var(name).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn after_sigkill_of_a_daemon_with_three_workloads_everything_is_put_back() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    if !has_programs(&["redis-server", "memcached"]) {
        return;
    }
    let Some(slice) = Slice::new() else { return };
    // Nothing but what the test attaches to.
    let home = Home::new("include = [{ group = \"/none-of-this-name\" }]\n");
    let workloads = Workloads::start(&home, &slice);
    let before = workloads.placement();
    let mut random = Random::new(from_environment(SEED));
    let (mut leased, mut retained, mut placed) = (0, 0, 0);
    let kills: u32 = from_environment(KILLS);
    for kill in 0..kills {
        let daemon = home.start();
        let attached = workloads.attach(&daemon);
        assert_eq!(attached.len(), 3);
        let instant = SPAN.mul_f64(random.share());
        std::thread::sleep(instant);
        daemon.signal(Signal::SIGKILL);
        let (_, log) = daemon.wait();
        leased += u32::from(std::fs::metadata(LEASES).is_ok_and(|file| file.len() > 100));
        retained += u32::from(Levers::read() != machine.before);
        placed += u32::from(workloads.placement() != before);
        let output = restore();
        let what = format!("kill {kill}, after {instant:?}: {}\n{log}", text(&output.stderr));
        assert!(output.status.success(), "{what}");
        machine.assert_untouched();
        assert_eq!(workloads.placement(), before, "{what}");
    }
    eprintln!(
        "\nof {kills} kills {leased} found leases, {retained} a changed parameter, {placed} a changed set or affinity; \
         {kills} exact restores"
    );
    assert!(leased > 0 && retained > 0, "no kill hit a moment that mattered");
}
