//! What one run learns about a program takes effect early in the next. Uses this machine's real levers; needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]
#![allow(clippy::print_stderr, reason = "a test says what it measures")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use common::journal::{costly, known_at_start, observations};
use common::levers::Machine;
use common::memory;
use common::process::{GLEANER, Running, command, text, until};
use gleaner_engine::MemoryDir;
use gleaner_policy::{Event, Method, Observation};
use gleaner_proto::journal::{self, Record};
use gleaner_proto::memory::ProgramMemory;
use gleaner_testing::skipped;
use nix::sys::signal::Signal;

/// Enough samples to recognise the load; half a minute if nothing happens.
const SAMPLES: usize = 60;

/// A directory for one test's memory and journals.
struct TestDir {
    dir: tempfile::TempDir,
}

impl TestDir {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn memory(&self) -> PathBuf {
        self.dir.path().join("memory")
    }

    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    fn gleaner(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("GLEANER_MEMORY", self.memory());
        command
    }

    /// A run of a ping-pong for `seconds`.
    fn run(&self, seconds: &str, options: &[&str]) -> Command {
        let journal = self.journal();
        let mut run =
            self.gleaner(&["run", "--quiet", "--method", "haltpoll", "--journal", journal.to_str().unwrap()]);
        run.args(options).args(["--", GLEANER, "workload", "request-response", "--seconds", seconds]);
        run
    }

    fn forget(&self, args: &[&str]) -> Output {
        self.gleaner(&["forget"]).args(args).output().unwrap()
    }

    fn known(&self) -> Vec<ProgramMemory> {
        MemoryDir::at(self.memory()).list().unwrap().0
    }

    /// Stores that polling pays for the product under every load, as if an earlier run had proven it.
    fn seed(&self) -> ProgramMemory {
        memory::seed(&self.memory(), &memory::product(), Method::Haltpoll, memory::polling())
    }
}

fn records(file: &Path) -> Vec<Record> {
    // The file need not exist yet.
    journal::read(file).unwrap_or_default()
}

fn events(file: &Path) -> Vec<(Duration, Event)> {
    let event = |record| match record {
        Record::Decision { at, event, .. } => Some((at, event)),
        _ => None,
    };
    records(file).into_iter().filter_map(event).collect()
}

fn notes(file: &Path) -> Vec<String> {
    let note = |record| match record {
        Record::Note { text, .. } => Some(text),
        _ => None,
    };
    records(file).into_iter().filter_map(note).collect()
}

/// When the known retention first took effect.
fn resumed(file: &Path) -> Option<Duration> {
    events(file).into_iter().find_map(|(at, event)| match event {
        Event::Resumed { setting, known: Some(_) } if setting.retention.is_on() => Some(at),
        _ => None,
    })
}

/// Observations on which the policy could have resumed the known retention and did not: wake-ups cost enough, and
/// neither steal nor a quota, which can rule out polling, had taken any time yet.
fn missed(file: &Path) -> Vec<Observation> {
    let resumed = resumed(file).unwrap_or(Duration::MAX);
    let taken = |o: &Observation| o.throttled > 0.0 || o.vcpus.iter().any(|vcpu| !vcpu.steal.is_zero());
    let first_taken = observations(file).into_iter().find(|(o, _)| taken(o)).map(|(o, _)| o.at);
    let until = resumed.min(first_taken.unwrap_or(Duration::MAX));
    costly(file).into_iter().filter(|o| o.at < until).collect()
}

#[test]
fn a_known_program_has_its_setting_at_the_first_sample_that_shows_its_load() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let Some(pair) = memory::pair() else { return skipped("needs two vCPUs") };
    let place = TestDir::new();
    let seeded = memory::seed(&place.memory(), &pair[0], Method::Haltpoll, memory::polling());
    let file = place.journal();
    // The search for a smaller active set would come before retention.
    let args = ["run", "--quiet", "--method", "haltpoll", "--no-consolidate", "--journal"];
    let run = Running::start(place.gleaner(&args).arg(&file).arg("--").args(&pair));
    // If other programs keep every vCPU busy, there is nothing to retain.
    let samples = || observations(&file).len();
    until("the known setting is in force", || resumed(&file).is_some() || samples() >= SAMPLES);
    run.signal(Signal::SIGTERM);
    let output = run.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(known_at_start(&file), Some(memory::loads(&seeded)));
    let missed = missed(&file);
    assert!(missed.is_empty(), "{missed:?}\n{:?}", events(&file));
    let begun = costly(&file).first().map(|o| o.at.saturating_sub(o.period));
    if let (Some(begun), Some(resumed)) = (begun, resumed(&file)) {
        let ms = resumed.saturating_sub(begun).as_secs_f64() * 1e3;
        eprintln!("the known setting is in force {ms:.1} ms after the start of the hand-offs");
    }
    let story = text(&command(&["why", file.to_str().unwrap()]).output().unwrap().stdout);
    let explained = story.contains("known from an earlier run of the program");
    assert_eq!(explained, resumed(&file).is_some(), "{story}");
    let [program] = &place.known()[..] else { panic!("{:?}", place.known()) };
    assert_eq!((&program.program, program.runs), (&seeded.program, 2));
    machine.assert_untouched();
}

#[test]
fn a_program_is_known_until_it_is_forgotten() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let place = TestDir::new();
    let seeded = place.seed();
    let file = place.journal();
    let output = place.run("0.3", &[]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(known_at_start(&file), Some(memory::loads(&seeded)));
    assert_eq!(place.known()[0].runs, 2);

    let output = place.run("0.3", &["--no-memory"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!((known_at_start(&file), resumed(&file)), (Some(Vec::new()), None));
    assert_eq!(place.known()[0].runs, 2, "nothing is written");

    let list = text(&place.forget(&["--list"]).stdout);
    assert!(list.contains(GLEANER) && list.contains("2 runs") && list.contains("% load"), "{list}");
    let unknown = place.forget(&["redis"]);
    let printed = text(&unknown.stderr);
    assert!(
        unknown.status.code() == Some(1) && printed.contains("`redis` has no stored results; stored are: /"),
        "{printed}"
    );
    let forgotten = place.forget(&["gleaner"]);
    assert!(forgotten.status.success(), "{}", text(&forgotten.stderr));
    assert_eq!(text(&forgotten.stdout), "forgetting 1 program\n");
    assert_eq!(text(&place.forget(&["--list"]).stdout), "nothing is known\n");
    assert_eq!(text(&place.forget(&[]).stdout), "forgetting 0 programs\n");

    let output = place.run("0.3", &[]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!((known_at_start(&file), resumed(&file)), (Some(Vec::new()), None));
    machine.assert_untouched();
}

#[test]
fn what_proves_nothing_keeps_nothing() {
    let Some(machine) = Machine::take() else { return };
    let place = TestDir::new();
    for options in
        [&["--no-memory"] as &[&str], &["--fixed", "consolidate:1"], &["--dry-run"], &["--strategy", "paper"]]
    {
        let output = place.run("0.5", options).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert!(!place.memory().exists(), "{options:?}");
    }
    machine.assert_untouched();
}

#[test]
fn a_damaged_memory_is_said_once_and_learned_anew() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let place = TestDir::new();
    let file = place.memory().join(place.seed().file_name());
    fs::write(&file, "{").unwrap();
    let journal = place.journal();
    let journal = journal.to_str().unwrap();
    for said in [1, 0] {
        let run = ["run", "--method", "haltpoll", "--journal", journal, "--", GLEANER, "workload"];
        let load = ["request-response", "--seconds", "0.3"];
        let output = place.gleaner(&run).args(load).output().unwrap();
        assert!(output.status.success());
        let printed = text(&output.stderr);
        assert_eq!(
            printed.lines().filter(|line| line.contains("is set aside as")).count(),
            said,
            "{printed}"
        );
        let noted = notes(Path::new(journal)).iter().filter(|note| note.contains("is set aside as")).count();
        assert_eq!(noted, said);
    }
    assert!(file.with_extension("unusable").exists());
    machine.assert_untouched();
}

#[test]
fn where_nothing_can_be_kept_the_journal_says_so_once_and_the_run_goes_on() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let place = TestDir::new();
    fs::create_dir(place.memory()).unwrap();
    // Each run that knows something writes, since uses are counted. Tested without room for one more file, and on a
    // read-only file system.
    let seeded = place.dir.path().join("seeded");
    memory::seed(&seeded, &memory::product(), Method::Haltpoll, memory::polling());
    let known = "mount -t tmpfs -o size=64k none \"$GLEANER_MEMORY\" && chmod 700 \"$GLEANER_MEMORY\" && \
                 cp \"$0\"/* \"$GLEANER_MEMORY\"";
    let full = "{ cat /dev/zero >\"$GLEANER_MEMORY\"/full 2>/dev/null || :; }";
    let read_only = "mount -o remount,ro \"$GLEANER_MEMORY\"";
    for (then, reason) in [(full, "No space left on device"), (read_only, "Read-only file system")] {
        let _ = fs::remove_file(place.journal());
        let inner = place.run("0.3", &[]);
        let script = format!("{known} && {then} && exec \"$@\"");
        let mut outer = Command::new("unshare");
        outer.args(["-m", "sh", "-c", &script]).arg(&seeded).arg(inner.get_program()).args(inner.get_args());
        let output = outer.env("GLEANER_MEMORY", place.memory()).output().unwrap();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
        let noted: Vec<_> =
            notes(&place.journal()).into_iter().filter(|note| note.contains("is not kept")).collect();
        assert!(matches!(&noted[..], [one] if one.contains(reason)), "{noted:?}");
        let ended = matches!(records(&place.journal()).last(), Some(Record::End { .. }));
        assert!(ended, "the journal has no end");
    }
    machine.assert_untouched();
}
