//! Configurations that are wrong, at the start and at a reload, and rules that contradict each other.

use std::fs;

use gleaner_control::{ClientError, Error, Mode, State};
use gleaner_testing::process::text;
use nix::sys::signal::Signal;

use crate::common::{Gleanerd, Home, Machine, READY};
use crate::stage::{Redis, Stage, rules};

/// The third line is wrong.
const WRONG: &str = "memory = true\n# the next one is wrong\nobjektive = \"latency\"\n";

#[test]
fn a_wrong_configuration_at_the_start_is_named_by_file_and_line() {
    let Some(machine) = Machine::take() else { return };
    let home = Home::new(WRONG);
    let output = home.command("").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stderr);
    assert!(printed.contains(&format!("{}:3", home.config().display())), "{printed}");
    assert!(printed.contains("`objective`"), "the key that is meant: {printed}");
    assert!(!home.socket().exists());

    home.configure("include = [{ unit = \"a.service\" }]\nexclude = [{ unit = \"a.service\" }]\n");
    let output = home.command("").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let printed = text(&output.stderr);
    assert!(printed.contains(&format!("{}:2", home.config().display())), "{printed}");
    machine.assert_untouched();
}

#[test]
fn quiet_hours_are_those_of_the_local_time() {
    let Some(machine) = Machine::take() else { return };
    // Seven hours ahead: an hour around it is another one everywhere else.
    let local = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(7)));
    let (from, to) = (local.hour(), (local.hour() + 1) % 24);
    let home = Home::new(&format!("quiet-hours = [\"{from:02}:00-{to:02}:01\"]\n"));
    let daemon = Gleanerd::start(home.command("").env("TZ", "<+07>-7"), home.socket());
    daemon.until_logged(READY);
    daemon.until("it is quiet", |daemon| daemon.status().mode == Mode::QuietHours);
    daemon.stop();
    machine.assert_untouched();
}

#[test]
fn at_a_reload_the_old_one_stays_until_a_usable_one_is_there() {
    let Some(stage) = Stage::set("") else { return };
    let daemon = stage.home.start();
    daemon.until_helped("redis");
    let place = format!("{}:3", stage.home.config().display());
    stage.home.configure(WRONG);
    daemon.signal(Signal::SIGHUP);
    daemon.until_logged("the configuration stays as it was");
    assert_eq!(daemon.logged(&place), 1, "{}", daemon.log());
    match daemon.client().reload() {
        Err(ClientError::Refused(Error::InvalidConfiguration { reason })) => {
            assert!(reason.contains(&place), "{reason}");
        }
        other => panic!("{other:?}"),
    }
    assert!(daemon.engaged("redis").is_some(), "the old configuration stays");

    stage.home.configure("exclude = [{ unit = \"redis.service\" }]\n");
    daemon.signal(Signal::SIGHUP);
    daemon.until_logged("redis: released: the configuration excludes it");
    assert!(stage.is_untouched());
    stage.home.configure(&rules(&stage.slice, ""));
    let files = daemon.client().reload().unwrap();
    assert_eq!(files, [stage.home.config().to_str().unwrap()]);
    daemon.until("it is engaged again", |daemon| daemon.logged("redis: engaged") == 2);
    daemon.stop();
    stage.assert_untouched();
}

#[test]
fn of_contradictory_rules_in_different_files_exclude_wins_with_a_warning() {
    let Some(mut stage) = Stage::set("") else { return };
    // Two clients without pause would leave no vCPU idle, and so nothing to win.
    stage.redis.client.signal(Signal::SIGTERM);
    stage.redis.client.wait();
    let drop_ins = stage.home.config().with_file_name("gleaner.toml.d");
    fs::create_dir(&drop_ins).unwrap();
    fs::write(drop_ins.join("10-include.toml"), "include = [{ unit = \"redis.service\" }]\n").unwrap();
    fs::write(drop_ins.join("20-exclude.toml"), "exclude = [{ unit = \"redis.service\" }]\n").unwrap();
    let other = Redis::start(&stage.home, &stage.slice, "other");
    let daemon = stage.home.start();
    daemon.until_logged("other: engaged");
    let redis = daemon.status().workloads.into_iter().find(|w| w.name == "redis").unwrap();
    let why = redis.reason.unwrap();
    assert!(
        why.starts_with(r#"exclude { unit = "redis.service" } ("#) && why.contains("20-exclude.toml:1"),
        "{why}"
    );
    assert_eq!(redis.state, State::LeftAlone);
    let log = daemon.stop();
    assert!(!log.contains("redis: engaged"), "{log}");
    assert!(log.contains("20-exclude.toml:1") && log.contains("exclude wins"), "{log}");
    stage.assert_untouched();
    assert_eq!(other.placement(), other.before);
}

#[test]
fn a_used_address_for_metrics_is_reported_and_services_are_helped_all_the_same() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let Some(stage) = Stage::set(&format!("[metrics]\nlisten = \"{address}\"")) else { return };
    let daemon = stage.home.start();
    let why = format!("metrics over TCP: cannot listen on {address} for metrics");
    assert!(daemon.log().contains(&why), "{}", daemon.log());
    let limits = daemon.status().limits;
    assert!(limits.iter().any(|limit| limit.contains(&why)), "{limits:?}");
    daemon.until_helped("redis");
    daemon.stop();
    stage.assert_untouched();
}
