//! Journals and progress counters of `gleaner run`, and `gleaner replay` on a journal.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::Command;

use common::levers::{Levers, Machine};
use common::process::{GLEANER, Running, command, gleaner, text, until};
use gleaner_proto::journal::{self, Record};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::Signal;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

fn journal(path: &Path) -> Vec<Record> {
    journal::read(path).unwrap()
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_named_journal_is_written_and_explained() {
    let Some(_machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let args =
        ["run", "--quiet", "--objective", "efficiency", "--journal", path(&file), "--", "sleep", "0.2"];
    assert!(gleaner(&args).status.success());
    assert!(matches!(journal(&file).last(), Some(Record::End { .. })));
    let why = gleaner(&["why", path(&file)]);
    assert!(why.status.success(), "{}", text(&why.stderr));
    let story = text(&why.stdout);
    assert!(story.contains("`sleep 0.2` on vCPUs") && !story.contains("no end"), "{story}");
    assert!(story.contains("the objective is efficiency"), "{story}");
}

#[test]
fn the_users_own_counter_is_read() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (count, file) = (dir.path().join("count"), dir.path().join("journal"));
    let script = "i=0; while [ $i -lt 60 ]; do i=$((i+1)); echo $i >$0.new; mv $0.new $0; sleep 0.01; done";
    for counter in [format!("file:{}", count.display()), format!("cat {}", count.display())] {
        fs::write(&count, "0\n").unwrap();
        let args = ["run", "--quiet", "--journal", path(&file), "--progress", &counter];
        let output =
            Command::new(GLEANER).args(args).args(["--", "sh", "-c", script, path(&count)]).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
        let counted: f64 = journal(&file)
            .iter()
            .filter_map(|record| match record {
                Record::Observation { observation, .. } => observation.workload.counter,
                _ => None,
            })
            .sum();
        assert!(counted > 0.0 && counted <= 60.0, "{counter}: {counted} of 60 steps seen");
    }
    machine.assert_untouched();
}

#[test]
fn a_counter_or_journal_that_cannot_be_used_is_reported_once_and_the_command_is_helped() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let (fifo, fifo_counter) = (path(&fifo), format!("file:{}", path(&fifo)));
    for (option, hint) in [
        (["--progress", "file:/nonexistent/count"], "No such file"),
        (["--progress", "echo broken >&2; exit 3"], "exit status: 3 (broken)"),
        (["--progress", &fifo_counter], "a FIFO cannot be read again and again"),
        (["--progress", "yes"], "more than 64 KiB"),
        (["--journal", "/nonexistent/journal"], "No such file"),
        (["--journal", fifo], "nobody reads it"),
        (["--journal", "/dev/full"], "No space left"),
    ] {
        let log = dir.path().join("stderr");
        let script = format!("exec {GLEANER} run \"$@\" -- sh -c 'cat; exit 7' 2>{}", path(&log));
        let run = Running::start(Command::new("sh").args(["-c", &script, "sh", option[0], option[1]]));
        let printed = || fs::read_to_string(&log).unwrap_or_default();
        until(hint, || printed().contains(hint));
        assert_eq!(run.finish().status.code(), Some(7), "{option:?}: {}", printed());
        let printed = printed();
        assert_eq!(printed.matches(hint).count(), 1, "{option:?}: {printed}");
        assert!(printed.contains("own CPU"), "{option:?}: {printed}");
        assert!(!printed.lines().any(|line| !line.starts_with("gleaner: ")), "{option:?}: {printed}");
        machine.assert_untouched();
    }
}

#[test]
fn a_counter_that_hangs_does_not_hold_up_signals_or_the_end() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let asked = dir.path().join("asked");
    // Far longer than the counter's time limit, which the unit tests cover: a second of waiting would go unnoticed.
    let counter = format!("touch {}; sleep 1000", path(&asked));
    let started = |script: &str| {
        let _ = fs::remove_file(&asked);
        let mut run = command(&["run", "--quiet", "--progress", &counter, "--", "sh", "-c", script]);
        let run = Running::start(&mut run);
        until("the counter is asked", || asked.exists());
        run
    };
    let ends = started("cat; exit 7").finish();
    assert_eq!(ends.status.code(), Some(7), "{}", text(&ends.stderr));
    for (signal, status) in [(Signal::SIGTERM, 41), (Signal::SIGINT, 42)] {
        let mut run = started("trap 'exit 41' TERM; trap 'exit 42' INT; while :; do sleep 0.02; done");
        // The counter can be read before the traps are set: the signal then kills the shell.
        run.signal(signal);
        let code = run.wait().code();
        assert!(code == Some(status) || code == Some(128 + signal as i32), "{signal}: {code:?}");
    }
    machine.assert_untouched();
}

#[test]
fn a_journal_whose_reader_goes_away_is_reported_once() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let fifo = dir.path().join("fifo");
    mkfifo(&fifo, Mode::S_IRWXU).unwrap();
    let mut open = fs::OpenOptions::new();
    let reader = open.read(true).custom_flags(libc::O_NONBLOCK).open(&fifo).unwrap();
    let mut run =
        Running::start(&mut command(&["run", "--journal", path(&fifo), "--", "sh", "-c", "cat; exit 7"]));
    until("the machine is held", || Levers::read() != machine.before || run.has_ended());
    let mut polled = [PollFd::new(reader.as_fd(), PollFlags::POLLIN)];
    assert_eq!(poll(&mut polled, PollTimeout::from(20_000_u16)), Ok(1));
    drop(reader);
    let output = run.finish();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr).matches("the journal ends here").count(), 1, "{}", text(&output.stderr));
    machine.assert_untouched();
}

#[test]
fn a_file_size_limit_ends_the_journal_not_the_run() {
    let Some(machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    // The lease file fits into one block, the journal does not.
    let script = format!(
        "ulimit -f 1; exec {GLEANER} run --quiet --dry-run --journal {} -- sh -c 'sleep 2; exit 7'",
        path(&file)
    );
    let output = Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("the journal ends here: File too large"),
        "{}",
        text(&output.stderr)
    );
    machine.assert_untouched();
}

/// Writes the journal of a built-in workload that depends on wake-ups. What is tried depends on the machine.
fn of_this_machine(file: &Path, options: &[&str]) {
    let workload = ["--", GLEANER, "workload", "request-response", "--seconds", "1"];
    let output = gleaner(&[&["run", "--quiet", "--journal", path(file)], options, &workload].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn the_journal_of_a_real_run_replays_byte_for_byte() {
    let Some(_machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    for options in [&[][..], &["--strategy", "paper"], &["--dry-run"], &["--fixed", "halt"]] {
        of_this_machine(&file, options);
        let decisions = journal(&file).iter().filter(|r| matches!(r, Record::Decision { .. })).count();
        let output = gleaner(&["replay", path(&file)]);
        let printed = text(&output.stdout);
        assert!(output.status.success(), "{options:?}: {printed}");
        assert!(
            printed.contains(&format!("{decisions} decisions, each the same again")),
            "{options:?}: {printed}"
        );
    }
}
