//! A program that moves bytes only by send and recv is judged by its socket traffic. Uses this machine's real levers;
//! needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::path::Path;
use std::time::Duration;

use common::levers::Machine;
use common::process::{self, GLEANER, Running, text, until};
use gleaner_policy::{Event, Evidence, Observation, Signal, Sockets};
use gleaner_proto::journal::{self, Record};

/// Passes a hundred bytes back and forth between two processes until the first line of input, then prints how many
/// messages were sent. Perl is part of every Debian.
const PAIR: &str = "use Socket; socketpair(A, B, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die;
if (!fork) { close A; while (recv(B, $x, 100, 0), length $x) { send B, $x, 0 } exit }
close B; vec($in, 0, 1) = 1;
while (++$n % 100 || !select($line = $in, undef, undef, 0)) { send A, 'x' x 100, 0; recv A, $x, 100, 0 }
close A; wait; print 2 * ($n - 1), qq(\\n)";

/// The contents of a run's journal.
#[derive(Debug, Default)]
struct Contents {
    observations: Vec<Observation>,
    verdicts: Vec<(Duration, Evidence)>,
    notes: Vec<String>,
}

impl Contents {
    fn sockets(&self) -> impl Iterator<Item = (Duration, Sockets)> {
        self.observations.iter().filter_map(|o| Some((o.at, o.workload.sockets?)))
    }
}

/// The journal so far; empty if it does not exist yet.
fn contents(file: &Path) -> Contents {
    let mut seen = Contents::default();
    for record in journal::read(file).unwrap_or_default() {
        match record {
            Record::Observation { observation, .. } => seen.observations.push(*observation),
            Record::Decision { at, event: Event::TrialEnded { verdict, .. }, .. } => {
                seen.verdicts.extend(verdict.evidence().map(|evidence| (at, evidence)));
            }
            Record::Note { text, .. } => seen.notes.push(text),
            _ => {}
        }
    }
    seen
}

/// Runs `command` until the journal has `enough`, and ends it with a line of input. Returns its output and the journal.
fn run(
    machine: &Machine,
    options: &[&str],
    command: &[&str],
    enough: impl Fn(&Contents) -> bool,
) -> (String, Contents) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let args = [&["run", "--quiet", "--journal", file.to_str().unwrap()], options, &["--"], command].concat();
    let mut run = Running::start(&mut process::command(&args));
    until("the journal has enough", || enough(&contents(&file)));
    run.send("enough");
    let output = run.finish();
    assert!(output.status.success(), "{}", text(&output.stderr));
    machine.assert_untouched();
    (text(&output.stdout), contents(&file))
}

fn is_missing(note: &str) -> bool {
    note.contains("traffic through sockets")
}

#[test]
fn what_only_sends_and_receives_is_counted_by_its_sockets() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let enough =
        |seen: &Contents| seen.notes.iter().any(|note| is_missing(note)) || seen.sockets().count() > 5;
    let (printed, seen) = run(&machine, &["--method", "haltpoll"], &["perl", "-e", PAIR], enough);
    if seen.notes.iter().any(|note| is_missing(note)) {
        // Without BPF the reason is in the journal, and nothing is counted.
        assert_eq!(seen.sockets().count(), 0, "{:?}", seen.notes);
        return;
    }
    let sum = |of: fn(Sockets) -> u64| seen.sockets().map(|(_, sockets)| of(sockets)).sum::<u64>();
    let (messages, bytes) = (sum(|sockets| sockets.messages), sum(|sockets| sockets.bytes));
    // At most what the programs counted themselves; messages from before the sensor started are missing.
    let sent: u64 = printed.trim().parse().unwrap();
    assert!(messages > 0 && messages <= sent, "{messages} of {sent}: {seen:?}");
    // Each message has a hundred bytes. At the start and the end of counting, each program can have one that is counted
    // in part.
    assert!(bytes.abs_diff(100 * messages) <= 400, "{messages} messages of {bytes} bytes");
}

#[test]
fn what_has_no_sockets_and_what_reads_and_writes_is_not_counted() {
    // Futexes; and pipes, with many bytes read and written.
    let Some(machine) = Machine::take() else { return };
    for command in [&["convoy"], &["request-response"]] {
        let workload = [&[GLEANER, "workload"], &command[..], &["--seconds", "1"]].concat();
        let (_, seen) = run(&machine, &[], &workload, |seen| !seen.observations.is_empty());
        assert_eq!((seen.sockets().count(), seen.notes.len()), (0, 0), "{command:?}: {seen:?}");
        assert!(seen.verdicts.iter().all(|(_, e)| e.signal != Signal::Sockets), "{seen:?}");
    }
}

#[test]
fn without_bpf_nothing_is_counted_and_nothing_is_said() {
    let Some(machine) = Machine::take() else { return };
    let enough = |seen: &Contents| seen.observations.len() > 20;
    let (_, seen) = run(&machine, &["--no-bpf"], &["perl", "-e", PAIR], enough);
    assert_eq!((seen.sockets().count(), seen.notes.len()), (0, 0), "{seen:?}");
}
