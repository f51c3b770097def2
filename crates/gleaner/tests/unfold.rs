//! A packed workload whose load rises gets its vCPUs back, and the journal says who told. On this machine, with its
//! real levers; as root.

#![allow(clippy::print_stderr, reason = "a test says what it skips and measures")]
#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::path::Path;

use common::levers::Machine;
use common::process::{GLEANER, Running, command, text, until};
use gleaner_policy::{CrowdSource, Event};
use gleaner_proto::journal::{self, Record};
use gleaner_trace::FastUnfold;

/// One pair of threads until the first line; eight that compute beside it until the end of the input.
fn load() -> String {
    format!(
        "{GLEANER} workload request-response --seconds 600 >&2 & calm=$!\n\
         read line\n\
         {GLEANER} workload compute --threads 8 --seconds 600 >&2 & busy=$!\n\
         cat\n\
         kill $calm $busy\n\
         wait"
    )
}

fn decisions(file: &Path) -> Vec<Event> {
    // The file may not be there yet.
    let records = journal::read(file).unwrap_or_default();
    let event = |record| match record {
        Record::Decision { event, .. } => Some(event),
        _ => None,
    };
    records.into_iter().filter_map(event).collect()
}

/// What the rise of the load did.
struct Rise {
    /// Who told of the crowd; none where an observation that was due anyway showed the change.
    told: Option<CrowdSource>,
    notes: Vec<String>,
    story: String,
}

/// Packs a pair, raises the load, and waits for the set to be unfolded. `None`, and a loud word, where that cannot be
/// done here.
fn rise(options: &[&str]) -> Option<Rise> {
    let machine = Machine::take()?;
    if std::thread::available_parallelism().unwrap().get() < 2 {
        eprintln!("SKIPPED: needs two vCPUs");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let mut gleaner = command(&["run", "--quiet", "--no-retain", "--journal", file.to_str().unwrap()]);
    let mut run = Running::start(gleaner.args(options).args(["--", "sh", "-c", &load()]));
    let mut seen = 0;
    until("the pair is packed", || {
        let packed = |e: &Event| matches!(e, Event::TrialEnded { kept, .. } if kept.active.len() == 1);
        seen = decisions(&file).iter().rposition(packed).map_or(0, |last| last + 1);
        seen > 0
    });
    run.tell("more");
    let mut told = None;
    until("the set is unfolded", || {
        let unfolded = decisions(&file).into_iter().skip(seen).find_map(|event| match event {
            Event::Unfolded { told, .. } => Some(told),
            Event::MajorChange { .. } => Some(None),
            _ => None,
        });
        told = unfolded.flatten();
        unfolded.is_some()
    });
    let output = run.finish();
    assert!(output.status.code().is_some(), "{}", text(&output.stderr));
    machine.assert_untouched();
    let notes = journal::read(&file).unwrap().into_iter().filter_map(|record| match record {
        Record::Note { text, .. } => Some(text),
        _ => None,
    });
    let story = text(&common::process::gleaner(&["why", file.to_str().unwrap()]).stdout);
    Some(Rise { told, notes: notes.collect(), story })
}

#[test]
fn the_kernel_tells_where_bpf_is_to_be_had() {
    // An observation may be due in the very millisecond, but not each time.
    for attempt in 1.. {
        let Some(Rise { told, notes, story }) = rise(&[]) else { return };
        let noted = |what: &str| notes.iter().any(|note| note.contains(what));
        if let Err(missing) = FastUnfold::load() {
            assert!(noted(&missing.to_string()) && told != Some(CrowdSource::RunQueues), "{notes:?}");
            return;
        }
        assert!(!noted("fast unfold"), "{notes:?}");
        if told == Some(CrowdSource::RunQueues) {
            assert!(story.contains(&CrowdSource::RunQueues.to_string()), "{story}");
            return;
        }
        assert!(attempt < 4, "never told by the run queues, last by {told:?}:\n{story}");
    }
}

#[test]
fn without_bpf_the_same_is_found_by_looking() {
    let Some(Rise { told, notes, story }) = rise(&["--no-bpf"]) else { return };
    assert!(told != Some(CrowdSource::RunQueues) && notes.is_empty(), "{told:?} {notes:?}");
    if let Some(source) = told {
        assert!(story.contains(&source.to_string()), "{story}");
    }
}
