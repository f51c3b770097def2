//! `gleaner run` on this machine must leave both the command and the machine as they would be without it.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::journal::observations;
use common::levers::{LEASES, Levers, Machine, limit_is};
use common::process::{GLEANER, Running, command, gleaner, text, until, until_runs};
use common::threads;
use gleaner_policy::{Event, Method, Mode as How, Strategy};
use gleaner_proto::journal::{self, Record};
use gleaner_testing::is_root;
use nix::sys::signal::Signal;

/// The user and group `nobody`.
const NOBODY: u32 = 65534;

fn journal(path: &Path) -> Vec<Record> {
    journal::read(path).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn the_status_of_the_command_is_passed_on() {
    let Some(machine) = Machine::take() else { return };
    for (script, status) in
        [("exit 0", 0), ("exit 7", 7), ("exit 255", 255), ("kill -KILL $$", 137), ("kill -TERM $$", 143)]
    {
        let output = gleaner(&["run", "--quiet", "--", "sh", "-c", script]);
        assert_eq!(output.status.code(), Some(status), "{script}: {}", text(&output.stderr));
    }
    machine.assert_untouched();
}

#[test]
fn what_cannot_be_run_is_reported_as_env_does() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    fs::write(&plain, "#!/bin/sh\n").unwrap();
    let missing = dir.path().join("missing");
    for (program, status) in [
        (path(&missing), 127),
        ("gleaner-no-such-program", 127),
        (path(dir.path()), 126),
        (path(&plain), 126),
    ] {
        let output = gleaner(&["run", "--", program]);
        assert_eq!(output.status.code(), Some(status), "{program}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(program), "{}", text(&output.stderr));
        machine.assert_untouched();
    }
}

#[test]
fn where_another_gleaner_holds_the_machine_the_command_runs_without_help_unless_help_is_required() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let ran = dir.path().join("ran");
    let first = Running::start(&mut command(&["run", "--quiet", "--", "cat"]));
    until("the first holds the machine", || Levers::read() != machine.before);
    let holder = format!("pid {}", first.pid());
    let own = std::process::id().to_string();
    for (args, status) in [
        (&["run", "--require", "--", "touch", path(&ran)][..], 125),
        (&["attach", "--pid", &own], 1),
        (&["restore"], 1),
        (&["run", "--quiet", "--", "sh", "-c", "exit 7"], 7),
        (&["run", "--", "/nonexistent/command"], 127),
    ] {
        let output = gleaner(args);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(&holder), "{args:?}: {}", text(&output.stderr));
        assert_eq!(
            text(&output.stderr).contains("runs without Gleaner"),
            status > 1 && status != 125,
            "{args:?}"
        );
    }
    assert!(!ran.exists(), "the refused command ran");
    // The command handles its own signals.
    let script = "trap 'exit 41' TERM; echo ready; while :; do sleep 0.02; done";
    let mut second = Running::start(&mut command(&["run", "--", "sh", "-c", script]));
    assert_eq!(second.line(), "ready");
    second.signal(Signal::SIGTERM);
    assert_eq!(second.wait().code(), Some(41));
    assert!(first.finish().status.success());
    machine.assert_untouched();
}

#[test]
fn the_status_of_the_command_survives_a_broken_stderr() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
    let closed = || {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        Stdio::from(writer)
    };
    let counter = format!("file:{}", dir.path().join("none").display());
    for options in [&[][..], &["--quiet"], &["--journal", "/dev/full"], &["--progress", &counter]] {
        for stderr in [full(), closed()] {
            let mut run = command(&["run"]);
            let status =
                run.args(options).args(["--", "sh", "-c", "exit 3"]).stderr(stderr).status().unwrap();
            assert_eq!(status.code(), Some(3), "{options:?}");
        }
    }
    machine.assert_untouched();
}

#[test]
fn too_few_descriptors_are_not_reported_as_the_commands_failure() {
    let Some(machine) = Machine::take() else { return };
    // The first run measures this boot's wake-up costs, for which it opens descriptors.
    assert!(gleaner(&["run", "--quiet", "--", "true"]).status.success());
    for limit in 4..20 {
        let script = format!("ulimit -n {limit}; exec {GLEANER} run $0 -- sh -c 'exit 7'");
        let output = Command::new("sh").args(["-c", &script, "--quiet"]).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{limit}: {}", text(&output.stderr));
        let required = Command::new("sh").args(["-c", &script, "--require"]).output().unwrap();
        let (status, printed) = (required.status.code(), text(&required.stderr));
        assert!(status == Some(7) || status == Some(125), "{limit}: {status:?} {printed}");
        assert!(status == Some(7) || printed.contains("Too many open files"), "{limit}: {printed}");
        machine.assert_untouched();
    }
}

#[test]
fn an_unusable_state_directory_leaves_the_command_without_help() {
    // Ordinary users choose the directory; root must not be affected.
    let dir = tempfile::tempdir().unwrap();
    let own = dir.path().join("gleaner");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(GLEANER, &own).unwrap();
    let as_user = |args: &[&str]| {
        let mut command = Command::new(if nix::unistd::geteuid().is_root() { "setpriv" } else { "env" });
        if nix::unistd::geteuid().is_root() {
            let ids = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()];
            command.args(ids);
        }
        // A file in place of the directory.
        command.arg(&own).args(args).env("XDG_RUNTIME_DIR", &own).current_dir("/").output().unwrap()
    };
    let output = as_user(&["run", "--", "sh", "-c", "exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("runs without Gleaner: cannot use"), "{}", text(&output.stderr));
    let refused = as_user(&["run", "--require", "--", "sh", "-c", "exit 7"]);
    assert_eq!(refused.status.code(), Some(125), "{}", text(&refused.stderr));
}

#[test]
fn a_missing_sys_leaves_the_command_without_help() {
    if !is_root() {
        return;
    }
    let Some(machine) = Machine::take() else { return };
    for (option, status) in [("--quiet", 7), ("--require", 125)] {
        let script = format!("mount -t tmpfs none /sys && exec {GLEANER} run {option} -- sh -c 'exit 7'");
        let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
        assert_eq!(output.status.code(), Some(status), "{}", text(&output.stderr));
        assert!(text(&output.stderr).contains("/sys"), "{}", text(&output.stderr));
    }
    machine.assert_untouched();
}

#[test]
fn input_and_output_pass_untouched() {
    let Some(machine) = Machine::take() else { return };
    let mut word = 1_u32;
    let data: Vec<u8> = std::iter::repeat_with(|| {
        word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        word.to_be_bytes()[0]
    })
    .take(1 << 20)
    .collect();
    let mut cat = Running::start(&mut command(&["run", "--quiet", "--", "cat"]));
    let mut stdin = cat.take_stdin();
    let sent = data.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&sent));
    let output = cat.finish();
    writer.join().unwrap().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(output.stdout.len(), data.len());
    assert!(output.stdout == data, "the bytes are not the same");
    machine.assert_untouched();
}

#[test]
fn the_command_gets_the_signal_mask_of_gleaners_caller() {
    let Some(_machine) = Machine::take() else { return };
    let masks = |status: &[u8]| {
        let lines = text(status);
        let kept = lines.lines().filter(|line| line.starts_with("SigBlk") || line.starts_with("SigIgn"));
        kept.map(str::to_owned).collect::<Vec<_>>()
    };
    let plain = Command::new("cat").arg("/proc/self/status").output().unwrap();
    let under = gleaner(&["run", "--quiet", "--", "cat", "/proc/self/status"]);
    assert_eq!(masks(&under.stdout), masks(&plain.stdout));
    assert_eq!(masks(&under.stdout)[0], "SigBlk:\t0000000000000000");
}

#[test]
fn signals_reach_the_command_and_its_answer_comes_back() {
    let Some(machine) = Machine::take() else { return };
    let script = "trap 'exit 41' TERM; trap 'exit 42' INT; trap 'exit 43' USR1; echo ready; \
                  while :; do sleep 0.02; done";
    for (signal, status) in [(Signal::SIGTERM, 41), (Signal::SIGINT, 42), (Signal::SIGUSR1, 43)] {
        let mut shell = Running::start(&mut command(&["run", "--quiet", "--", "sh", "-c", script]));
        assert_eq!(shell.line(), "ready");
        shell.signal(signal);
        assert_eq!(shell.wait().code(), Some(status), "{signal}");
    }
    machine.assert_untouched();
}

#[test]
fn the_summary_goes_to_stderr_unless_quiet() {
    let Some(_machine) = Machine::take() else { return };
    let quiet = gleaner(&["run", "--quiet", "--", "echo", "out"]);
    assert_eq!((text(&quiet.stdout), text(&quiet.stderr)), ("out\n".to_owned(), String::new()));
    let loud = gleaner(&["run", "--", "echo", "out"]);
    let summary = text(&loud.stderr);
    assert_eq!(text(&loud.stdout), "out\n");
    assert!(summary.contains("own CPU"), "{summary}");
    assert!(summary.lines().all(|line| line.starts_with("gleaner: ")), "{summary}");
}

#[test]
fn signals_that_end_a_process_end_the_command_and_leave_no_lever() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let signals = [
        Signal::SIGALRM,
        Signal::SIGVTALRM,
        Signal::SIGPROF,
        Signal::SIGUSR1,
        Signal::SIGXCPU,
        Signal::SIGXFSZ,
        Signal::SIGIO,
        Signal::SIGPWR,
        Signal::SIGABRT,
        Signal::SIGSEGV,
    ];
    for signal in signals {
        let mut run =
            Running::start(&mut command(&["run", "--quiet", "--fixed", "haltpoll:200us", "--", "cat"]));
        until("the limit is in force", || limit_is("200000"));
        run.signal(signal);
        assert_eq!(run.wait().code(), Some(128 + signal as i32), "{signal}");
        machine.assert_untouched();
    }
}

#[test]
fn wrong_usage_is_reported_with_a_hint() {
    for (args, hint) in [
        (&["--method", "warp"][..], "possible values: halt, haltpoll"),
        (&["--progress", " "], "name a command that prints a number"),
        (&["--progress", "file:"], "needs a path"),
        (&["--fixed", "consolidate:0"], "1 or more"),
        (&["--fixed", "consolidate:999"], "`consolidate:999` needs 999 vCPUs"),
        (&["--fixed", "haltpoll"], "needs a limit"),
        (&["--fixed", "haltpoll:200ms"], "not a limit such as 200us"),
        (&["--dry-run", "--fixed", "halt"], "cannot be used with"),
        (&["--strategy", "paper", "--fixed", "halt"], "cannot be used with"),
        (&["--strategy", "paper", "--dry-run"], "cannot be used with"),
        (&["--strategy", "gleaner"], "possible values: adaptive, paper"),
        (&["--objective", "speed"], "possible values: latency, balanced, efficiency"),
        (&["--objective", "latency", "--fixed", "halt"], "cannot be used with"),
    ] {
        let output = Command::new(GLEANER).arg("run").args(args).args(["--", "true"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(text(&output.stderr).contains(hint), "{args:?}: {}", text(&output.stderr));
    }
    assert_eq!(gleaner(&["run"]).status.code(), Some(2), "no command");
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_it_would_try() {
    let Some(machine) = Machine::take() else { return };
    // The first real run measures this boot's wake-up costs, which changes settings.
    assert!(gleaner(&["run", "--quiet", "--", "true"]).status.success());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let workload = [GLEANER, "workload", "request-response", "--seconds", "600"];
    let args = [&["run", "--dry-run", "--journal", path(&file), "--"][..], &workload].concat();
    let run = Running::start(&mut command(&args));
    let mut samples = 0;
    until("it has been sampled often enough", || {
        assert_eq!(Levers::read(), machine.before);
        samples += 1;
        samples > 20 && observations(&file).len() > 10
    });
    run.signal(Signal::SIGTERM);
    let output = run.finish();
    let printed = text(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("watched in a dry run") && !printed.contains("proven"), "{printed}");
    // Whether anything is worth trying depends on the machine; the engine's tests have a scripted case.
    let would = |record: &Record| matches!(record, Record::Decision { event: Event::WouldTry { .. }, .. });
    assert_eq!(journal(&file).iter().any(would), printed.contains("would have tried vCPUs"), "{printed}");
    machine.assert_untouched();
}

#[test]
fn a_fixed_setting_is_in_force_during_the_run_only() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let run = Running::start(&mut command(&["run", "--quiet", "--fixed", "haltpoll:200us", "--", "cat"]));
    until("the limit is in force", || limit_is("200000"));
    assert!(Path::new(LEASES).exists());
    assert!(run.finish().status.success());
    machine.assert_untouched();
}

#[test]
fn a_fixed_setting_is_held_as_asked_and_not_called_unproven() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let output = gleaner(&["run", "--fixed", "haltpoll:200us", "--", "sleep", "0.2"]);
    let printed = text(&output.stderr);
    assert!(output.status.success() && printed.contains("held as asked, not proven: vCPUs"), "{printed}");
    assert!(!printed.contains("proved itself"), "{printed}");
    machine.assert_untouched();
}

#[test]
fn a_fixed_setting_that_read_only_sysfs_refuses_is_reported_at_once() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let script = "mount -o remount,bind,ro /sys && exec \"$0\" run --fixed haltpoll:200us --journal \"$1\" -- \
                  sh -c 'cat; exit 7'";
    let mut run =
        Running::start(Command::new("unshare").args(["-m", "sh", "-c", script, GLEANER, path(&file)]));
    until("the journal says that it was refused", || {
        run.has_ended()
            || fs::read_to_string(&file).is_ok_and(|journal| journal.contains("is mounted read-only"))
    });
    assert!(!run.has_ended(), "the command did not run on");
    let output = run.finish();
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{printed}");
    assert!(
        printed.lines().next().unwrap().contains("is mounted read-only; run on the machine itself"),
        "{printed}"
    );
    assert!(printed.contains("haltpoll:200us, as asked for, was not in force: "), "{printed}");
    let Some(Record::End { summary, .. }) = journal(&file).pop() else { panic!("the journal has no end") };
    assert!(summary.not_in_force.unwrap().contains("read-only"));
    machine.assert_untouched();
}

#[test]
fn the_papers_strategy_retains_with_yield_threads_tries_nothing_and_is_undone() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let workload = [GLEANER, "workload", "request-response", "--seconds", "600"];
    let args = [&["run", "--strategy", "paper", "--journal", path(&file), "--"][..], &workload].concat();
    let run = Running::start(&mut command(&args));
    until("its yield threads have had time", || {
        let seen = observations(&file);
        seen.len() > 3 && seen.iter().any(|(o, _)| o.vcpus.iter().any(|vcpu| !vcpu.poll_time.is_zero()))
    });
    run.signal(Signal::SIGTERM);
    let output = run.finish();
    let printed = text(&output.stderr);
    assert!(output.status.success(), "{printed}");
    assert!(printed.contains("by the paper's rules") && !printed.contains("proven"), "{printed}");
    machine.assert_untouched();
    let records = journal(&file);
    let Record::Start { config, .. } = &records[0] else { panic!("{:?}", records[0]) };
    assert_eq!((&config.mode, config.method), (&How::Paper, Method::Yield));
    let mut seen = 0;
    for record in &records {
        match record {
            Record::Observation { in_force, .. } => {
                assert_eq!(in_force.retention.method, Method::Yield);
                seen += 1;
            }
            Record::Decision { event, .. } => assert!(
                matches!(
                    event,
                    Event::Consolidated { .. } | Event::RolledBack { .. } | Event::MajorChange { .. }
                ),
                "{event:?}"
            ),
            _ => {}
        }
    }
    assert!(seen > 3, "{seen} observations");
    let Some(Record::End { summary, .. }) = records.last() else { panic!("{:?}", records.last()) };
    assert!(summary.strategy == Strategy::Paper && summary.proven + summary.refuted == 0, "{summary:?}");
    assert!(summary.retained > Duration::ZERO, "the yield threads did nothing: {summary:?}");
}

#[test]
fn commands_that_end_before_the_first_sample_leave_nothing() {
    let Some(machine) = Machine::take() else { return };
    for _ in 0..20 {
        let output = gleaner(&["run", "--quiet", "--", "true"]);
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        machine.assert_untouched();
    }
}

#[test]
fn a_daemon_that_forks_away_lives_on_in_the_callers_group() {
    let Some(machine) = Machine::take() else { return };
    let script = "sleep 600 >/dev/null 2>&1 & echo $!; exit 0";
    let mut run = Running::start(&mut command(&["run", "--quiet", "--", "sh", "-c", script]));
    let daemon = run.line();
    assert!(run.wait().success());
    machine.assert_untouched();
    let group = |pid: &str| fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    // It is a shell until it executes `sleep`.
    until_runs(&daemon, "sleep");
    assert_eq!(group(&daemon), group("self"));
}

#[test]
fn five_thousand_threads_run_and_end_as_without_gleaner() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let gleaner = [GLEANER, "run", "--quiet", "--journal", path(&file), "--fixed", "consolidate:1", "--"];
    let mut run = Running::start(&mut threads::command(&gleaner, 5000, None));
    threads::wait_for(&mut run, "ready");
    run.send("once more");
    threads::wait_for(&mut run, "round");
    let output = run.finish();
    assert_eq!(output.status.code(), Some(threads::STATUS), "{}", text(&output.stderr));
    let records = journal(&file);
    let notes = records.iter().filter(|record| matches!(record, Record::Note { .. })).collect::<Vec<_>>();
    assert!(notes.is_empty(), "{notes:?}");
    let Some(Record::End { summary, .. }) = records.last() else { panic!("{:?}", records.last()) };
    eprintln!("5000 threads: Gleaner used {:?} of {:?}", summary.engine_cpu, summary.elapsed);
    // Costlier samples are rarer: each costs at most 1/170 of the time to the next, up to the longest interval.
    for pair in observations(&file).windows(2) {
        let [(before, _), (next, last)] = pair else { unreachable!() };
        let soonest = (before.cost * 170).min(Duration::from_secs(10));
        assert!(*last || next.period >= soonest, "{:?} after {:?}", next.period, before.cost);
    }
    machine.assert_untouched();
}

#[test]
fn without_root_the_command_runs_and_what_is_missing_is_reported() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (state, own) = (dir.path().join("state"), dir.path().join("gleaner"));
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let bench = dir.path().join("gleaner-bench");
    fs::copy(GLEANER, &own).unwrap();
    fs::copy(format!("{GLEANER}-bench"), &bench).unwrap();
    fs::create_dir(&state).unwrap();
    chown(&state, Some(NOBODY), Some(NOBODY)).unwrap();
    let as_nobody = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".to_owned()]);
        command.arg(&own).args(args).env("XDG_RUNTIME_DIR", &state).current_dir("/").output().unwrap()
    };
    let script = "id -u; exit 7";
    let output = as_nobody(&["run", "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), format!("{NOBODY}\n"));
    let story = text(&as_nobody(&["why"]).stdout);
    assert!(story.contains("not available: no control group for the command"), "{story}");
    assert!(story.contains("run as root"), "{story}");
    let busy = as_nobody(&[
        "run",
        "--quiet",
        "--fixed",
        "consolidate:1",
        "--",
        bench.to_str().unwrap(),
        "workload",
        "pipeline",
        "--seconds",
        "0.3",
    ]);
    assert!(busy.status.success(), "{}", text(&busy.stderr));
    assert!(!state.join("gleaner/leases").exists());
    machine.assert_untouched();
}
