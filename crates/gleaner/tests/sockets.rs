//! A program that moves bytes by send and recv alone is judged by what goes through its sockets. On this machine, with its
//! real levers; as root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::time::Duration;

use common::levers::Machine;
use common::process::{GLEANER, gleaner, text};
use gleaner_policy::{Event, Evidence, Observation, Signal, Sockets};
use gleaner_proto::journal::{self, Record};

/// A hundred bytes to and fro between two processes, for four seconds. Perl is part of every Debian.
const PAIR: &str = "use Socket; socketpair(A, B, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die;
if (!fork) { close A; while (recv(B, $x, 100, 0), length $x) { send B, $x, 0 } exit }
close B; $end = time + 4;
while (time < $end) { send A, 'x' x 100, 0; recv A, $x, 100, 0 }
close A; wait";

/// What the journal of a run says.
#[derive(Debug, Default)]
struct Told {
    observations: Vec<Observation>,
    verdicts: Vec<(Duration, Evidence)>,
    notes: Vec<String>,
}

impl Told {
    fn sockets(&self) -> impl Iterator<Item = (Duration, Sockets)> {
        self.observations.iter().filter_map(|o| Some((o.at, o.workload.sockets?)))
    }
}

fn run(machine: &Machine, options: &[&str], command: &[&str]) -> Told {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let mut args = vec!["run", "--quiet", "--journal", file.to_str().unwrap()];
    args.extend(options);
    args.push("--");
    args.extend(command);
    let output = gleaner(&args);
    assert!(output.status.success(), "{}", text(&output.stderr));
    machine.assert_untouched();
    let mut told = Told::default();
    for record in journal::read(&file).unwrap() {
        match record {
            Record::Observation { observation, .. } => told.observations.push(*observation),
            Record::Decision { at, event: Event::TrialEnded { verdict, .. } } => {
                told.verdicts.extend(verdict.evidence().map(|evidence| (at, evidence)));
            }
            Record::Note { text, .. } => told.notes.push(text),
            _ => {}
        }
    }
    told
}

#[test]
fn what_only_sends_and_receives_is_judged_by_its_sockets() {
    let Some(machine) = Machine::take_with_haltpoll() else { return };
    let told = run(&machine, &["--method", "haltpoll"], &["perl", "-e", PAIR]);
    if told.notes.iter().any(|note| note.contains("traffic through sockets")) {
        // Where BPF cannot be had the reason is in the journal, and nothing is counted.
        assert_eq!(told.sockets().count(), 0, "{:?}", told.notes);
        return;
    }
    let counted: Vec<_> = told.sockets().collect();
    assert!(counted.len() > 5, "{told:?}");
    for (at, s) in &counted {
        // Each message has a hundred bytes, whoever sends it.
        assert_eq!(s.bytes, 100 * s.messages, "{at:?}");
    }
    assert!(counted.iter().any(|(_, s)| s.messages > 100), "{counted:?}");
    // While the programs are being loaded, a first trial may have to do with CPU time.
    let since = counted[0].0 + Duration::from_millis(500);
    let later: Vec<_> = told.verdicts.iter().filter(|(at, _)| *at > since).collect();
    assert!(!later.is_empty(), "{told:?}");
    let by_sockets = |e: &Evidence| matches!(e.signal, Signal::Sockets | Signal::Waiting);
    assert!(later.iter().all(|(_, e)| by_sockets(e)), "{later:?}");
}

#[test]
fn what_has_no_sockets_and_what_reads_and_writes_is_not_counted() {
    // Futexes; and pipes at a high rate of bytes.
    let Some(machine) = Machine::take() else { return };
    for command in [&["convoy", "--seconds", "1"], &["request-response", "--seconds", "1"]] {
        let told = run(&machine, &[], &[&[GLEANER, "workload"], &command[..]].concat());
        assert_eq!((told.sockets().count(), told.notes.len()), (0, 0), "{command:?}: {told:?}");
        assert!(told.verdicts.iter().all(|(_, e)| e.signal != Signal::Sockets), "{told:?}");
    }
}

#[test]
fn without_bpf_nothing_is_counted_and_nothing_is_said() {
    let Some(machine) = Machine::take() else { return };
    let told = run(&machine, &["--no-bpf"], &["perl", "-e", PAIR]);
    assert_eq!((told.sockets().count(), told.notes.len()), (0, 0), "{told:?}");
}
