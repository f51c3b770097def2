//! Machines that lack something, and a second daemon.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use gleaner_engine::StateDir;
use gleaner_testing::is_root;
use gleaner_testing::levers::Levers;
use gleaner_testing::placement::{field, threads};
use gleaner_testing::process::text;
use serde_json::{Value, json};

use crate::common::{GLEANERD, Gleanerd, Home, Machine, READY, restore};
use crate::stage::{Stage, rules};

#[test]
fn a_second_daemon_and_a_restore_beside_it_are_refused() {
    let Some(stage) = Stage::set("") else { return };
    let daemon = stage.home.start();
    daemon.until_helped("redis");
    let pid = format!("another gleaner (pid {}) already controls this machine", daemon.pid());
    let second = stage.home.command("").output().unwrap();
    let restore = restore();
    for refused in [second, restore] {
        assert_eq!(refused.status.code(), Some(1));
        assert!(text(&refused.stderr).contains(&pid), "{}", text(&refused.stderr));
    }
    assert!(daemon.engaged("redis").is_some(), "the first one has its socket and its workload");
    daemon.stop();
    stage.assert_untouched();
}

/// Bind mounts of the daemon's own: nothing is mounted outside.
fn in_own_mounts(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-ec"]).arg(script).arg(GLEANERD);
    command
}

#[test]
fn a_read_only_etc_and_no_d_bus_keep_nothing_from_being_helped() {
    let Some(stage) = Stage::set("") else { return };
    let etc = stage.home.path().join("etc");
    fs::create_dir_all(etc.join("gleaner")).unwrap();
    fs::write(etc.join("gleaner/gleaner.toml"), rules(&stage.slice, "")).unwrap();
    let script = format!(
        "cp /etc/passwd /etc/group '{etc}'\n\
         mount --bind '{etc}' /etc\n\
         mount -o remount,bind,ro /etc\n\
         ! touch /etc/gleaner/x 2>/dev/null\n\
         for dir in /run/dbus /run/systemd; do [ ! -d $dir ] || mount -t tmpfs none $dir; done\n\
         exec \"$0\" \"$@\"",
        etc = etc.display()
    );
    let mut command = in_own_mounts(&script);
    stage.home.environment(&mut command);
    let daemon = Gleanerd::start(&mut command, stage.home.socket());
    daemon.until_logged(READY);
    daemon.until_helped("redis");
    daemon.stop();
    stage.assert_untouched();
}

/// This boot's calibration, as if waking cost next to nothing and no method were faster.
fn calibration_without_costs() -> Value {
    let state = StateDir::default_place().unwrap();
    let mut calibration: Value =
        serde_json::from_str(&fs::read_to_string(state.calibration()).unwrap()).unwrap();
    calibration["halt_cost"] = json!({ "secs": 0, "nanos": 1800 });
    calibration["method"] = json!("halt");
    calibration["disturbed"] = json!(0.0);
    calibration
}

fn wakeups(pid: u32) -> u64 {
    let of_thread = |tid| field(tid, "voluntary_ctxt_switches").and_then(|text| text.parse::<u64>().ok());
    threads(pid).into_iter().filter_map(of_thread).sum()
}

#[test]
fn where_there_is_nothing_to_win_it_says_so_once_and_sleeps() {
    const TIME: Duration = Duration::from_secs(6);
    let Some(stage) = Stage::set("") else { return };
    // The first daemon after a boot measures.
    stage.home.start().stop();
    let calibration = stage.home.path().join("calibration.json");
    fs::write(&calibration, calibration_without_costs().to_string()).unwrap();
    let script = format!(
        "mount -t tmpfs -o mode=755 none /run/gleaner\n\
         cp '{}' /run/gleaner\n\
         exec \"$0\" \"$@\"",
        calibration.display()
    );
    let mut command = in_own_mounts(&script);
    command.arg("--config").arg(stage.home.config());
    stage.home.environment(&mut command);
    let daemon = Gleanerd::start(&mut command, stage.home.socket());
    daemon.until_logged("nothing to win");
    // While redis works as hard as it can. It starts awake, to find what runs already.
    daemon.until("it has looked around", |daemon| daemon.status().uptime_ms > 6000);
    let (before, begin) = (wakeups(daemon.pid()), Instant::now());
    daemon.until("it has slept", |_| begin.elapsed() >= TIME);
    let per_s = (wakeups(daemon.pid()) - before) as f64 / begin.elapsed().as_secs_f64();
    eprintln!("\n{per_s:.2} wake-ups per second");
    assert!(per_s <= 2.0, "{per_s:.2} wake-ups per second: {}", daemon.log());
    assert!(stage.is_untouched());
    let log = daemon.stop();
    assert_eq!(log.matches("nothing to win").count(), 1, "{log}");
    assert!(!log.contains("redis: engaged"), "{log}");
    stage.assert_untouched();
}

#[test]
fn only_root_controls_a_machine() {
    if !is_root() {
        return;
    }
    let before = Levers::read();
    let home = Home::new("");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", GLEANERD]);
    home.environment(&mut command);
    let output = command.output().unwrap();
    let printed = text(&output.stderr);
    assert!(!output.status.success() && printed.contains("start gleanerd as root"), "{printed}");
    assert_eq!(Levers::read(), before);
    drop(Machine::take());
}
