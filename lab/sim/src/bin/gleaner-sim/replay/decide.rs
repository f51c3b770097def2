//! The engine's loop in recorded time.

use std::iter::Peekable;
use std::time::Duration;

use gleaner_engine::FIRST_SAMPLE;
use gleaner_policy::{CpuSet, Decision, Policy, PolicyConfig};
use gleaner_proto::trace_file::{Event, Reader, Reconstruction};

use super::DecidedEvent;

/// What the policy decides on the trace, up to `elapsed`.
pub(super) fn decide(
    reader: Reader<'_>,
    reconstruction: &mut Reconstruction,
    config: &PolicyConfig,
    vcpus: &CpuSet,
    elapsed: Duration,
) -> anyhow::Result<Vec<DecidedEvent>> {
    let mut policy = Policy::new(config.clone(), vcpus.clone())?;
    let mut recorded = Recorded { events: reader.peekable(), reconstruction, now: Duration::ZERO };
    let mut decision = Decision { next: FIRST_SAMPLE, ..Decision::default() };
    let mut decided = Vec::new();
    loop {
        recorded.wait(&decision, elapsed);
        let o = recorded.reconstruction.observe(recorded.now);
        if recorded.now >= elapsed {
            // The workload has ended: there is nothing left to decide.
            return Ok(decided);
        }
        decision = policy.step(&o);
        decided.extend(decision.events.drain(..).map(|event| DecidedEvent { at: o.at, event }));
    }
}

struct Recorded<'a> {
    events: Peekable<Reader<'a>>,
    reconstruction: &'a mut Reconstruction,
    now: Duration,
}

impl Recorded<'_> {
    /// Advances to the next sample, or only to the moment at which the watch matches; to `end` at the latest.
    fn wait(&mut self, decision: &Decision, end: Duration) {
        let due = (self.now + decision.next).min(end);
        let mut matched = 0;
        while self.now < due {
            let Some(watch) = decision.watch.filter(|watch| !watch.every.is_zero()) else {
                return self.pass(due);
            };
            self.pass((self.now + watch.every).min(due));
            matched = if watch.matches(self.reconstruction.runnable()) { matched + 1 } else { 0 };
            if matched >= watch.times {
                return;
            }
        }
    }

    fn pass(&mut self, until: Duration) {
        while let Some(event) = self.events.next_if(|e: &Event| Duration::from_nanos(e.at_ns) <= until) {
            self.reconstruction.event(&event);
        }
        self.now = until;
    }
}
