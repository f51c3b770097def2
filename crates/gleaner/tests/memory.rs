//! What one run learns of a program is in force at once in the next. On this machine, with its real levers; as root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use common::levers::Machine;
use common::process::{GLEANER, Running, command, text, until};
use gleaner_engine::MemoryDir;
use gleaner_policy::{Event, Observation, Verdict};
use gleaner_proto::journal::{self, Record};
use gleaner_proto::memory::ProgramMemory;
use nix::sys::signal::Signal;

/// A folder for the memory and the journals of one test.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn memory(&self) -> PathBuf {
        self.dir.path().join("memory")
    }

    fn journal(&self) -> PathBuf {
        self.dir.path().join("journal")
    }

    /// Gleaner with this memory.
    fn gleaner(&self, args: &[&str]) -> Command {
        let mut command = command(args);
        command.env("GLEANER_MEMORY", self.memory());
        command
    }

    /// A run of a ping-pong for this long.
    fn run(&self, seconds: &str, options: &[&str]) -> Command {
        let journal = self.journal();
        let mut run = self.gleaner(&["run", "--quiet", "--journal", journal.to_str().unwrap()]);
        run.args(options).args(["--", GLEANER, "workload", "request-response", "--seconds", seconds]);
        run
    }

    fn forget(&self, args: &[&str]) -> Output {
        self.gleaner(&["forget"]).args(args).output().unwrap()
    }

    fn known(&self) -> Vec<ProgramMemory> {
        MemoryDir::at(self.memory()).list().unwrap().0
    }

    /// A run that lasts until it has proven retention on every vCPU.
    #[track_caller]
    fn learn(&self) {
        let run = Running::start(&mut self.run("60", &[]));
        until("retention is proven", || events(&self.journal()).iter().any(|(_, e)| is_proof(e)));
        run.signal(Signal::SIGTERM);
        let output = run.finish();
        assert!(output.status.success(), "{}", text(&output.stderr));
    }
}

fn is_proof(event: &Event) -> bool {
    let Event::TrialEnded { verdict: Verdict::Proven(_), kept, candidate, .. } = event else { return false };
    kept == candidate && kept.retention.is_on()
}

fn records(file: &Path) -> Vec<Record> {
    // The file may not be there yet.
    journal::read(file).unwrap_or_default()
}

fn events(file: &Path) -> Vec<(Duration, Event)> {
    let event = |record| match record {
        Record::Decision { at, event } => Some((at, event)),
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

/// When the known retention was in force first.
fn resumed(file: &Path) -> Option<Duration> {
    events(file).into_iter().find_map(|(at, event)| match event {
        Event::Resumed { setting, known: Some(_) } if setting.retention.is_on() => Some(at),
        _ => None,
    })
}

/// The start of the first interval in which the program hands work over.
fn busy_from(file: &Path) -> Duration {
    let busy = |o: &Observation| o.workload.switches as f64 > 1000.0 * o.period.as_secs_f64();
    let start = records(file).into_iter().find_map(|record| match record {
        Record::Observation { observation: o, .. } if busy(&o) => Some(o.at.saturating_sub(o.period)),
        _ => None,
    });
    start.unwrap()
}

#[test]
fn a_known_program_has_its_setting_within_100_ms_until_it_is_forgotten() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let place = Place::new();
    place.learn();
    let [program] = &place.known()[..] else { panic!("{:?}", place.known()) };
    assert_eq!(
        (Path::new(&program.program), program.runs),
        (fs::canonicalize(GLEANER).unwrap().as_path(), 1)
    );

    let output = place.run("1", &[]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let file = place.journal();
    let at = resumed(&file).unwrap_or_else(|| panic!("{program:?}\n{:?}", events(&file)));
    let after = at.saturating_sub(busy_from(&file));
    assert!(after <= Duration::from_millis(100), "{after:?}");
    let story = text(&command(&["why", file.to_str().unwrap()]).output().unwrap().stdout);
    assert!(story.contains("known from an earlier run of the program"), "{story}");
    assert_eq!(place.known()[0].runs, 2);

    let output = place.run("1", &["--no-memory"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(resumed(&file), None);
    assert_eq!(place.known()[0].runs, 2, "nothing is written");

    let list = text(&place.forget(&["--list"]).stdout);
    assert!(list.contains(GLEANER) && list.contains("2 runs") && list.contains("% load"), "{list}");
    let unknown = place.forget(&["redis"]);
    let told = text(&unknown.stderr);
    assert!(unknown.status.code() == Some(1) && told.contains("`redis` is not known; what is: /"), "{told}");
    let forgotten = place.forget(&["gleaner"]);
    assert!(forgotten.status.success(), "{}", text(&forgotten.stderr));
    assert_eq!(text(&forgotten.stdout), "forgetting 1 program\n");
    assert_eq!(text(&place.forget(&["--list"]).stdout), "nothing is known\n");
    assert_eq!(text(&place.forget(&[]).stdout), "forgetting 0 programs\n");

    let output = place.run("1", &[]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(resumed(&file), None);
    machine.assert_untouched();
}

#[test]
fn what_proves_nothing_keeps_nothing() {
    let Some(machine) = Machine::take() else { return };
    let place = Place::new();
    for options in
        [&["--no-memory"] as &[&str], &["--fixed", "pack:1"], &["--dry-run"], &["--strategy", "paper"]]
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
    let place = Place::new();
    place.learn();
    let [program] = &place.known()[..] else { panic!("{:?}", place.known()) };
    let file = place.memory().join(program.file_name());
    fs::write(&file, "{").unwrap();
    let journal = place.journal();
    let journal = journal.to_str().unwrap();
    for said in [1, 0] {
        let run =
            ["run", "--journal", journal, "--", GLEANER, "workload", "request-response", "--seconds", "0.3"];
        let output = place.gleaner(&run).output().unwrap();
        assert!(output.status.success());
        let told = text(&output.stderr);
        assert_eq!(told.lines().filter(|line| line.contains("is set aside as")).count(), said, "{told}");
        let noted = notes(Path::new(journal)).iter().filter(|note| note.contains("is set aside as")).count();
        assert_eq!(noted, said);
    }
    assert!(file.with_extension("unusable").exists());
    machine.assert_untouched();
}

#[test]
fn where_nothing_can_be_kept_the_journal_says_so_once_and_the_run_goes_on() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let place = Place::new();
    fs::create_dir(place.memory()).unwrap();
    // Without room for one more file, and without the right to make one.
    let full = "mount -t tmpfs -o size=8k none \"$GLEANER_MEMORY\" && chmod 700 \"$GLEANER_MEMORY\" && \
                { cat /dev/zero >\"$GLEANER_MEMORY\"/full 2>/dev/null || :; } && exec \"$@\"";
    let read_only = "mount -t tmpfs -o ro none \"$GLEANER_MEMORY\" && exec \"$@\"";
    for (script, reason) in [(full, "No space left on device"), (read_only, "Read-only file system")] {
        let _ = fs::remove_file(place.journal());
        let inner = place.run("60", &[]);
        let mut outer = Command::new("unshare");
        outer.args(["-m", "sh", "-c", script, "sh"]).arg(inner.get_program()).args(inner.get_args());
        let run = Running::start(outer.env("GLEANER_MEMORY", place.memory()));
        until("retention is proven", || events(&place.journal()).iter().any(|(_, e)| is_proof(e)));
        run.signal(Signal::SIGTERM);
        let output = run.finish();
        assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
        let noted: Vec<_> =
            notes(&place.journal()).into_iter().filter(|note| note.contains("is not kept")).collect();
        assert!(matches!(&noted[..], [one] if one.contains(reason)), "{noted:?}");
        let ended = matches!(records(&place.journal()).last(), Some(Record::End { .. }));
        assert!(ended, "the journal has no end");
    }
    machine.assert_untouched();
}
