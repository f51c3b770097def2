//! A packed workload whose load rises gets its vCPUs back, and the journal says which sensor reported it. On this machine, with its
//! real levers; as root.

#![allow(clippy::print_stderr, reason = "a test says what it skips and measures")]
#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::path::Path;

use common::journal::{costly, observations};
use common::levers::Machine;
use common::process::{GLEANER, Running, command, text, until};
use common::{memory, skipped};
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_policy::{Event, Method, OverloadSource};
use gleaner_proto::journal::{self, Record};
use gleaner_trace::OverloadSensor;

/// So many looks are enough to see what the load is; they take half a minute where nothing happens.
const LOOKS: usize = 60;

/// The pair that its arguments start until the first line; eight that compute beside it until the end of the input. These are there
/// before, stopped, so that a line and the rise of the load are one.
fn load() -> String {
    format!(
        "{GLEANER} workload compute --threads 8 --seconds 600 >&2 & busy=$!\n\
         kill -STOP $busy\n\
         \"$@\" & calm=$!\n\
         read line\n\
         kill -CONT $busy\n\
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
    /// Which sensor reported the overload; none where an observation that was due anyway showed the change.
    source: Option<OverloadSource>,
    notes: Vec<String>,
    story: String,
}

/// The vCPUs that are active after this decision, where it says so.
fn active_after(event: &Event, all: usize) -> Option<usize> {
    match event {
        Event::Resumed { setting, .. } => Some(setting.active.len()),
        Event::TrialEnded { kept, .. } => Some(kept.active.len()),
        Event::RolledBack { active, .. } => Some(active.len()),
        Event::Expanded { .. } | Event::MajorChange { .. } => Some(all),
        _ => None,
    }
}

/// Packs a pair of which one vCPU is known to be enough, raises the load, and waits for the set to be whole again.
/// `None`, and a loud word, where that cannot be done here.
fn rise(options: &[&str]) -> Option<Rise> {
    let machine = Machine::take()?;
    let all = Affinity::of_caller().unwrap().len();
    let Some(pair) = memory::pair() else {
        skipped("needs two vCPUs");
        return None;
    };
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("journal");
    let place = dir.path().join("memory");
    let shell = fs::canonicalize("/bin/sh").unwrap();
    memory::seed(&place, shell.to_str().unwrap(), Method::Halt, memory::packing());
    let mut gleaner = command(&["run", "--quiet", "--no-retain", "--journal", file.to_str().unwrap()]);
    let gleaner = gleaner.env("GLEANER_MEMORY", &place).args(options).arg("--");
    let mut run = Running::start(gleaner.arg(shell).args(["-c", &load(), "sh"]).args(&pair));
    let (mut seen, mut packed) = (0, false);
    until("the pair is packed", || {
        let decisions = decisions(&file);
        seen = decisions.len();
        packed = decisions.iter().rev().find_map(|event| active_after(event, all)) == Some(1);
        packed || observations(&file).len() >= LOOKS
    });
    if !packed {
        eprintln!("others keep every vCPU busy: there is nothing to pack");
        let costly = costly(&file);
        assert!(costly.is_empty(), "{costly:?}");
        return None;
    }
    run.tell("more");
    let mut whole = None;
    until("every vCPU is active", || {
        let mut later = decisions(&file).into_iter().skip(seen);
        whole = later.find(|event| active_after(event, all) == Some(all));
        whole.is_some()
    });
    let output = run.finish();
    assert!(output.status.code().is_some(), "{}", text(&output.stderr));
    machine.assert_untouched();
    // A trial that was under way may have been the first to show that one vCPU is not enough.
    let source = match whole {
        Some(Event::Expanded { source, .. }) => source,
        _ => None,
    };
    let notes = journal::read(&file).unwrap().into_iter().filter_map(|record| match record {
        Record::Note { text, .. } => Some(text),
        _ => None,
    });
    let story = text(&common::process::gleaner(&["why", file.to_str().unwrap()]).stdout);
    Some(Rise { source, notes: notes.collect(), story })
}

#[test]
fn the_sensor_that_reported_it_is_in_the_story_and_a_kernel_without_bpf_is_noted() {
    let Some(Rise { source: reported, notes, story }) = rise(&[]) else { return };
    let noted = |what: &str| notes.iter().any(|note| note.contains(what));
    match OverloadSensor::load() {
        Ok(_) => assert!(
            !noted("fast expansion") && reported != Some(OverloadSource::Counts),
            "{reported:?} {notes:?}"
        ),
        Err(missing) => {
            assert!(noted(&missing.to_string()) && reported != Some(OverloadSource::RunQueues), "{notes:?}");
        }
    }
    if let Some(source) = reported {
        assert!(story.contains(&source.to_string()), "{story}");
    }
    eprintln!("every vCPU active again, reported by {reported:?}");
}

#[test]
fn without_bpf_the_same_is_found_by_looking() {
    let Some(Rise { source: reported, notes, story }) = rise(&["--no-bpf"]) else { return };
    assert!(reported != Some(OverloadSource::RunQueues) && notes.is_empty(), "{reported:?} {notes:?}");
    if let Some(source) = reported {
        assert!(story.contains(&source.to_string()), "{story}");
    }
}
