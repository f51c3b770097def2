//! The account of a run, from which its summary is made.

use std::time::Duration;

use gleaner_policy::{Event, Evidence, Observation, Setting, Verdict};
use gleaner_proto::journal::Summary;

/// Collects what goes into the summary.
#[derive(Debug, Default)]
pub struct Account {
    summary: Summary,
    best: Option<(Setting, Evidence)>,
}

impl Account {
    /// An empty account; `fixed` is a setting held without proof.
    pub fn new(fixed: Option<Setting>) -> Self {
        Self { summary: Summary { fixed, ..Summary::default() }, best: None }
    }

    /// Adds one observation made under `in_force`.
    pub fn interval(&mut self, in_force: &Setting, o: &Observation) {
        self.summary.count(in_force, o.period);
        self.summary.workload_cpu += o.workload.cpu_time;
        let polled: Duration = o.vcpus.iter().map(|v| v.poll_time).sum();
        // A vCPU keeps polling by our limit until its first halt without it.
        if in_force.retention.is_on() || !o.settled {
            self.summary.retained += polled;
        } else {
            self.summary.polled_otherwise += polled;
        }
    }

    /// Adds the policy's decisions.
    pub fn events(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::TrialEnded { candidate, verdict: Verdict::Proven(e), .. } => {
                    self.summary.proven += 1;
                    if self.best.as_ref().is_none_or(|(_, best)| e.low > best.low) {
                        self.best = Some((candidate.clone(), *e));
                    }
                }
                Event::TrialEnded { .. } => self.summary.refuted += 1,
                Event::Consolidated { .. } => self.summary.consolidated += 1,
                Event::RolledBack { .. } => self.summary.rolled_back += 1,
                Event::Expanded { .. } | Event::MajorChange { .. } | Event::MadeRoom { .. } => {
                    self.summary.expanded += 1;
                }
                Event::WouldTry { candidate, why } => self.summary.would_try(candidate, *why),
                _ => {}
            }
        }
    }

    /// Nothing is controlled from here on; `why` is for the user.
    pub fn not_in_force(&mut self, why: String) {
        self.summary.not_in_force = Some(why);
    }

    /// The best evidence for a setting that was kept so far, as a sentence.
    pub fn evidence(&self) -> Option<String> {
        self.best.as_ref().map(|(setting, e)| sentence(setting, e))
    }

    /// The account, at the end of the run.
    pub fn close(self) -> Summary {
        let evidence = self.evidence();
        Summary { evidence, ..self.summary }
    }
}

fn sentence(setting: &Setting, e: &Evidence) -> String {
    format!(
        "{setting}: {} ({:.2} to {:.2}, {} {} of blocks)",
        e.signal.times(e.ratio),
        e.low,
        e.high,
        e.pairs,
        if e.pairs == 1 { "pair" } else { "pairs" }
    )
}
