//! One real cell, and the whole suite.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use gleaner_bench::servers::{Window, find, measure};
use gleaner_bench::suite::RowReport;
use gleaner_policy::{CpuSet, PolicyConfig};
use gleaner_proto::journal::{self, Record};
use gleaner_proto::result::{BenchResult, Ending, Metric};

mod common;
#[path = "common/stand_in.rs"]
mod stand_in;
use common::{installed, missing};

fn redis() -> bool {
    installed(&["redis-server", "redis-benchmark"])
}

fn bench() -> Command {
    Command::new(env!("CARGO_BIN_EXE_gleaner-bench"))
}

/// Pids of the processes with `text` on their command line.
fn processes_with(text: &str) -> Vec<PathBuf> {
    let commands =
        fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path().join("cmdline"));
    commands.filter(|file| fs::read(file).is_ok_and(|c| String::from_utf8_lossy(&c).contains(text))).collect()
}

/// Fails unless all processes with `text` on their command line disappear soon (ended ones have no command
/// line). Some are children of a server, and end after it.
#[track_caller]
fn assert_nothing_runs(text: &str) {
    let began = Instant::now();
    while let Some(left) = processes_with(text).first() {
        assert!(began.elapsed() < Duration::from_secs(60), "something still runs: {}", left.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_redis_cell_measures_and_leaves_nothing_running() {
    if !redis() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let row = find("redis-1").unwrap().remove(0);
    let window = Window { warmup: Duration::from_millis(100), length: Duration::from_millis(500) };
    let measured = measure(&row, state.path(), window, &[]).unwrap();
    let sample = measured.sample;
    // The client is known to work; how much it does in the window depends on the machine.
    assert!(sample.rate() > 0.0, "{sample:?}");
    assert!(sample.metrics[&Metric::WallS] >= window.length.as_secs_f64(), "{sample:?}");
    assert!(sample.metrics.contains_key(&Metric::HaltsPerS), "the machine's counters, too: {sample:?}");
    assert!(
        measured.commands[0].contains("redis-server") && measured.commands[1].contains("redis-benchmark")
    );
    assert_nothing_runs(&state.path().to_string_lossy());
    assert!(!state.path().join("redis/redis.sock").exists(), "the server has ended in order");
}

/// Data is prepared once per state directory: a database's second cell starts from the first's clean
/// shutdown.
#[test]
fn every_other_server_can_be_measured_twice() {
    for (name, programs) in [
        ("nginx-1", &["nginx", "wrk"][..]),
        ("proxy-1", &["nginx", "wrk"]),
        ("pgbench-1", &["pgbench", "psql"]),
        ("read-write-1", &["mariadbd", "mariadb-install-db", "sysbench"]),
        ("point-select-open-2000-1", &["mariadbd", "mariadb-install-db", "sysbench"]),
        ("memcached-1", &["memcached"]),
        ("python-pipe", &["/usr/bin/python3"]),
        ("python-threads-4", &["/usr/bin/python3"]),
        ("java-queue-1", &["java"]),
        ("go-http-1", &["go"]),
    ] {
        // Only `make bench` installs Go: half a gigabyte for two rows.
        let optional = programs == ["go"] && !missing(programs).is_empty();
        if optional || !installed(programs) {
            continue;
        }
        // Servers run as their own users and must be able to reach their data.
        let state = tempfile::tempdir().unwrap();
        fs::set_permissions(state.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let row = find(name).unwrap().remove(0);
        let window = Window { warmup: Duration::ZERO, length: Duration::from_millis(100) };
        for _ in 0..2 {
            let sample = measure(&row, state.path(), window, &[]).unwrap().sample;
            assert!(sample.rate() > 0.0, "{name}: {sample:?}");
            let has_latency = sample.metrics.contains_key(&Metric::MeanUs);
            assert_eq!(has_latency, name.contains("open"), "{name}: {sample:?}");
        }
        assert_nothing_runs(&state.path().to_string_lossy());
    }
}

#[test]
fn a_wrapped_server_is_stopped_by_its_own_pid() {
    if !redis() {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let row = find("redis-1-server-only").unwrap().remove(0);
    let window = Window { warmup: Duration::ZERO, length: Duration::from_millis(100) };
    // A parent between us and the server, like `gleaner run`, that forwards no signals.
    let wrapper = ["sh", "-c", "\"$@\"; true", "sh"].map(Into::into);
    let measured = measure(&row, state.path(), window, &wrapper).unwrap();
    assert!(measured.commands[0].starts_with("sh -c"), "{:?}", measured.commands);
    assert_nothing_runs(&state.path().to_string_lossy());
}

/// The journal of a run in which nothing happened.
fn journal() -> serde_json::Result<String> {
    let start = Record::Start {
        version: journal::VERSION,
        unix_ms: 0,
        workload: String::new(),
        vcpus: CpuSet::first(1),
        config: Box::new(PolicyConfig::default()),
        limits: Vec::new(),
    };
    Ok(serde_json::to_string(&start)? + "\n")
}

/// With the stand-in, every mode is the default one.
#[test]
fn the_suite_interleaves_modes_and_reports() {
    if !redis() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let gleaner = dir.path().join("gleaner");
    stand_in::plain_gleaner(&gleaner).unwrap();
    fs::write(dir.path().join("gleaner.journal"), journal().unwrap()).unwrap();
    let (json, markdown) = (dir.path().join("b.json"), dir.path().join("b.md"));
    let output = bench()
        .args(["servers", "--rounds", "1", "--window", "0.2", "--warmup", "0", "--rows", "redis-1"])
        .args(["--modes", "default,gleaner,consolidate:1"])
        .arg("--gleaner")
        .arg(&gleaner)
        .arg("--output")
        .arg(&json)
        .arg("--markdown")
        .arg(&markdown)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "one line per row in a pipe: {stderr}");
    let result = BenchResult::read(&json).unwrap();
    assert_eq!((result.failures.as_slice(), &result.ending), (&[][..], &Ending::Complete));
    let row = &result.rows[0];
    let report = RowReport::new(row).unwrap();
    assert_eq!(report.standings[0].best_static.as_deref(), Some("consolidate:1"));
    assert!(row.cells.iter().all(|cell| cell.summaries[&Metric::Throughput].median > 0.0), "{row:?}");
    let inside = "[inside `gleaner run --quiet --require --no-memory --journal $STATE/journal -- …`] ";
    let command = |mode| row.cell(mode).unwrap().command.as_str();
    assert!(command("gleaner").starts_with(inside), "{}", command("gleaner"));
    assert!(command("default").contains("$STATE/redis/redis.sock"), "{}", command("default"));
    let table = fs::read_to_string(&markdown).unwrap();
    assert!(table.contains("| redis-1 |") && table.contains("--rows redis-1"), "{table}");

    let more = |modes: &str| {
        bench()
            .args([
                "servers", "--rounds", "2", "--window", "0.2", "--warmup", "0", "--rows", "redis-8",
                "--update",
            ])
            .args(["--modes", modes])
            .args([OsStr::new("--gleaner"), gleaner.as_os_str(), OsStr::new("--output"), json.as_os_str()])
            .args([OsStr::new("--markdown"), markdown.as_os_str()])
            .output()
            .unwrap()
    };
    assert!(more("default,gleaner,consolidate:1").status.success());
    let both = BenchResult::read(&json).unwrap();
    let rows: Vec<_> = both.rows.iter().map(|row| (row.name.as_str(), row.rounds())).collect();
    assert_eq!(rows, [("redis-1", 1), ("redis-8", 2)]);
    assert!(fs::read_to_string(&markdown).unwrap().contains("Rounds: 1 to 2."));
    let refused = more("default,gleaner");
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && stderr.contains("in other modes"), "{stderr}");
}

#[test]
fn a_row_beside_another_is_measured_while_that_runs() {
    if !redis() || !installed(&["sysbench"]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (json, markdown) = (dir.path().join("b.json"), dir.path().join("b.md"));
    let output = bench()
        .args(["servers", "--rounds", "1", "--window", "0.5", "--warmup", "0.5", "--rows", "redis-1"])
        .args(["--beside", "cpu-1", "--modes", "default", "--output"])
        .arg(&json)
        .arg("--markdown")
        .arg(&markdown)
        .env("TMPDIR", dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let result = BenchResult::read(&json).unwrap();
    assert!(result.rows[0].co_runners[0].contains(" cell cpu-1 "), "{:?}", result.rows[0].co_runners);
    let busy = &result.rows[0].cells[0].summaries[&Metric::CpuBusyS];
    assert!(busy.median > 0.5, "the other one computes for the half second: {busy:?}");
    assert!(fs::read_to_string(&markdown).unwrap().contains("- beside redis-1, untouched: "));
    assert_nothing_runs(&dir.path().to_string_lossy());
}

#[test]
fn an_interrupted_suite_ends_its_cell_and_writes_what_it_has() {
    if !redis() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("b.json");
    let mut child = bench()
        .args(["servers", "--rounds", "1", "--window", "600", "--rows", "redis-1", "--modes", "default"])
        .env("TMPDIR", dir.path())
        .arg("--output")
        .arg(&json)
        .arg("--markdown")
        .arg(dir.path().join("b.md"))
        .spawn()
        .unwrap();
    let here = dir.path().to_string_lossy().into_owned();
    let client_runs = || {
        processes_with(&here)
            .iter()
            .any(|file| fs::read(file).is_ok_and(|command| command.starts_with(b"/usr/bin/redis-benchmark")))
    };
    let deadline = Instant::now() + Duration::from_secs(60);
    while !client_runs() {
        assert!(Instant::now() < deadline, "the client has not been started");
        std::thread::sleep(Duration::from_millis(10));
    }
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_nothing_runs(&here);
    let result = BenchResult::read(&json).unwrap();
    assert_eq!((result.failures.as_slice(), &result.ending), (&[][..], &Ending::Interrupted));
}

#[test]
fn a_missing_gleaner_is_named() {
    let output =
        bench().args(["servers", "--rows", "redis-1", "--gleaner", "/nonexistent/gleaner"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(stderr.contains("/nonexistent/gleaner") || stderr.contains("apt-get install redis"), "{stderr}");
}
