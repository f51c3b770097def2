//! The loop on machines that fail.

mod accounts;
mod faults;
mod learning;

use std::time::Duration;

use gleaner_policy::{CpuSet, Fixed, Mode, Observation, PolicyConfig, Watch, WorkloadInterval};
use gleaner_proto::journal::{self, Record};

use super::*;

/// A machine whose levers fail `failures` times, from the first change on.
#[derive(Debug)]
struct Broken {
    now: Duration,
    failures: u32,
}

#[derive(Debug, thiserror::Error)]
#[error("the lever broke, {0} times to go")]
struct Broke(u32);

impl Machine for Broken {
    type Error = Broke;

    fn now(&self) -> Duration {
        self.now
    }

    fn allowed(&self) -> CpuSet {
        CpuSet::first(2)
    }

    fn observe(&mut self) -> Result<Observation, Broke> {
        Ok(Observation {
            at: self.now,
            period: Duration::from_millis(20),
            vcpus: Vec::new(),
            workload: WorkloadInterval::default(),
            runnable: 0,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost: Duration::ZERO,
        })
    }

    fn reset_poll_limits(&mut self) -> Result<(), Broke> {
        Ok(())
    }

    fn apply(&mut self, _: &Setting) -> Result<Vec<String>, Broke> {
        match self.failures.checked_sub(1) {
            Some(left) => {
                self.failures = left;
                Err(Broke(left))
            }
            None => Ok(vec!["a note".to_owned()]),
        }
    }
}

impl Wait for Broken {
    fn wait(&mut self, next: Duration, _: Option<Watch>) -> Result<Wake, Broke> {
        self.now += next;
        Ok(if self.now < Duration::from_secs(5) { Wake::Observe } else { Wake::Ended })
    }
}

fn notes(failures: u32) -> Vec<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let fixed = "haltpoll:50us".parse::<Fixed>().unwrap().on(&CpuSet::first(2)).unwrap();
    let config = PolicyConfig { mode: Mode::Fixed(fixed), ..PolicyConfig::default() };
    let mut machine = Broken { now: Duration::ZERO, failures };
    let mut policy = Policy::new(config.clone(), machine.allowed()).unwrap();
    let mut journal = Journal::create(file.path(), false, |_| ()).unwrap();
    journal.write(&Record::Start {
        version: journal::VERSION,
        unix_ms: 0,
        workload: String::new(),
        vcpus: machine.allowed(),
        config: Box::new(config),
        limits: Vec::new(),
    });
    run(&mut machine, &mut policy, &mut journal);
    journal.flush();
    let note = |record| match record {
        Record::Note { text, .. } => Some(text),
        _ => None,
    };
    journal::read(file.path()).unwrap().into_iter().filter_map(note).collect()
}

#[test]
fn a_release_that_fails_is_noted_each_time() {
    let notes = notes(3);
    assert!(notes[0].contains("2 times to go; Gleaner releases its setting"), "{notes:?}");
    assert!(notes[1].contains("could not be put back in force: the lever broke, 1 times to go"), "{notes:?}");
    assert!(notes[2].contains("could not be put back in force: the lever broke, 0 times to go"), "{notes:?}");
}

#[test]
fn what_a_release_says_is_noted_too() {
    assert_eq!(notes(1)[1..], ["a note", "a note"]);
}
