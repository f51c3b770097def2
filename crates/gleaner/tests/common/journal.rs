//! Reads the journal of a run in progress. A missing journal counts as empty.

use std::path::Path;
use std::time::Duration;

use gleaner_policy::{KnownLoad, Observation};
use gleaner_proto::journal::{self, Record};

/// Every observation, and whether it was the run's last one, on which nothing is decided.
pub(crate) fn observations(file: &Path) -> Vec<(Observation, bool)> {
    let observed = |record| match record {
        Record::Observation { observation, last, .. } => Some((*observation, last)),
        _ => None,
    };
    journal::read(file).unwrap_or_default().into_iter().filter_map(observed).collect()
}

/// What the run knew at its start.
pub(crate) fn known_at_start(file: &Path) -> Option<Vec<KnownLoad>> {
    journal::read(file).unwrap_or_default().into_iter().find_map(|record| match record {
        Record::Start { config, .. } => Some(config.known),
        _ => None,
    })
}

/// Observations in which waking idle vCPUs cost enough for the policy to act. There are none while other programs keep
/// every vCPU busy.
pub(crate) fn costly(file: &Path) -> Vec<Observation> {
    let records = journal::read(file).unwrap();
    let [Record::Start { config, vcpus, .. }, ..] = &records[..] else { panic!("no start: {records:?}") };
    let costly = |o: &Observation| {
        let m = o.measurement(vcpus);
        let lost = m.s_idle.min(m.s_work) as f64 * config.wake_cost.as_secs_f64();
        o.settled && o.period >= Duration::from_millis(10) && lost > 0.05 * o.period.as_secs_f64()
    };
    observations(file).into_iter().filter(|(o, last)| !last && costly(o)).map(|(o, _)| o).collect()
}
