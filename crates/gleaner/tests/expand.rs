//! When the load of a consolidated workload rises, it gets its vCPUs back, and the journal names the sensor that
//! reported the overload. Uses this machine's real levers; needs root.

#![allow(clippy::print_stderr, reason = "a test says what it measures")]
#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::path::Path;

use common::journal::{costly, observations};
use common::levers::Machine;
use common::memory;
use common::process::{GLEANER, Running, command, text, until};
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_policy::{Event, Method, OverloadSource};
use gleaner_proto::journal::{self, Record};
use gleaner_testing::skipped;
use gleaner_trace::OverloadSensor;

/// Enough samples to recognise the load; half a minute if nothing happens.
const SAMPLES: usize = 60;

/// A script that runs the pair in its arguments until the first line of input, then also eight computing threads until
/// the end of its input. Those are started before, and stopped, so that the load rises at the line.
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
    // The file need not exist yet.
    let records = journal::read(file).unwrap_or_default();
    let event = |record| match record {
        Record::Decision { event, .. } => Some(event),
        _ => None,
    };
    records.into_iter().filter_map(event).collect()
}

/// What the rise of the load caused.
struct Rise {
    /// The sensor that reported the overload; `None` if a regular observation showed the change first.
    source: Option<OverloadSource>,
    notes: Vec<String>,
    story: String,
}

/// The number of active vCPUs after this decision, if it changes them.
fn active_after(event: &Event, all: usize) -> Option<usize> {
    match event {
        Event::Resumed { setting, .. } => Some(setting.active.len()),
        Event::TrialEnded { kept, .. } => Some(kept.active.len()),
        Event::RolledBack { active, .. } => Some(active.len()),
        Event::Expanded { .. } | Event::MajorChange { .. } => Some(all),
        _ => None,
    }
}

/// Consolidates a pair that is known to fit on one vCPU, raises the load, and waits until every vCPU is active again.
/// `None`, with a message, if that is not possible here.
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
    memory::seed(&place, shell.to_str().unwrap(), Method::Halt, memory::consolidated());
    let mut gleaner = command(&["run", "--quiet", "--no-retain", "--journal", file.to_str().unwrap()]);
    let gleaner = gleaner.env("GLEANER_MEMORY", &place).args(options).arg("--");
    let mut run = Running::start(gleaner.arg(shell).args(["-c", &load(), "sh"]).args(&pair));
    let (mut seen, mut consolidated) = (0, false);
    until("the pair is consolidated", || {
        let decisions = decisions(&file);
        seen = decisions.len();
        consolidated = decisions.iter().rev().find_map(|event| active_after(event, all)) == Some(1);
        consolidated || observations(&file).len() >= SAMPLES
    });
    if !consolidated {
        eprintln!("others keep every vCPU busy: there is nothing to consolidate");
        let costly = costly(&file);
        assert!(costly.is_empty(), "{costly:?}");
        return None;
    }
    run.send("more");
    let mut whole = None;
    until("every vCPU is active", || {
        let mut later = decisions(&file).into_iter().skip(seen);
        whole = later.find(|event| active_after(event, all) == Some(all));
        whole.is_some()
    });
    let output = run.finish();
    assert!(output.status.code().is_some(), "{}", text(&output.stderr));
    machine.assert_untouched();
    // A trial in progress could have been the first to show that one vCPU is not enough.
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
fn without_bpf_the_same_is_found_by_sampling() {
    let Some(Rise { source: reported, notes, story }) = rise(&["--no-bpf"]) else { return };
    assert!(reported != Some(OverloadSource::RunQueues) && notes.is_empty(), "{reported:?} {notes:?}");
    if let Some(source) = reported {
        assert!(story.contains(&source.to_string()), "{story}");
    }
}
