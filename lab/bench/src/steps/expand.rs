//! How quickly a consolidated workload gets all its vCPUs back when its load rises, with the real engine and
//! its real controls.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use gleaner_policy::{Event, OverloadSource};
use gleaner_proto::journal::{self, Record};
use serde::{Deserialize, Serialize};

use super::analysis::{self, Resolution};
use super::load::{Plan, Recording};
use super::{Options, Step, StepsError, record};
use crate::mode::Mode;
use crate::stats;

/// One more rise per this many requested, since some find the workload not consolidated.
const RISES_PER_SPARE: u16 = 8;
/// Steps of the untouched run, which determines the best speed on all vCPUs.
const UNTOUCHED_STEPS: u16 = 10;

/// For steps that take a few milliseconds.
const FINE_RESOLUTION: Resolution = Resolution {
    plateau: Duration::from_millis(100),
    window: Duration::from_millis(10),
    grid: Duration::from_millis(1),
};

/// Low phases are long enough for the set to be consolidated again and, mostly, re-proven. Their lengths
/// vary, so that steps coincide with all activities of the policy.
pub fn plan(steps: u16) -> Plan {
    Plan {
        steps,
        low: (Duration::from_millis(150), Duration::from_millis(450)),
        high: Duration::from_millis(200),
        sample: Duration::from_millis(2),
        light: true,
        least: None,
    }
}

/// One rise of the load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rise {
    /// Number of vCPUs that the workload was allowed to use just before.
    pub allowed_before: usize,
    /// Milliseconds until servers had run on every vCPU; `None` if they never did.
    pub expanded_ms: Option<f64>,
    /// Milliseconds to the middle of the first 10 ms with at least 90 % of the best speed, if no 10 ms in the
    /// next 100 ms have less than 80 %. At least 5.
    pub reached_ms: Option<f64>,
}

/// What made consolidated sets expand, from the journal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reports {
    /// Overloads reported by the kernel's run queues.
    pub run_queues: u32,
    /// Overloads detected by counting runnable threads.
    pub counts: u32,
    /// Overloads detected by a regular observation.
    pub due: u32,
    /// Major changes (§5).
    pub major_changes: u32,
}

/// Results of all rises.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpandReport {
    /// Whether BPF was allowed.
    pub bpf: bool,
    /// Number of vCPUs of the machine.
    pub vcpus: usize,
    /// Every rise in order, including those that found the workload on all vCPUs.
    pub rises: Vec<Rise>,
    /// The larger of the median plateaus under Gleaner and untouched, in requests per second.
    pub best_per_s: f64,
    /// What made consolidated sets expand.
    pub reports: Reports,
}

/// Runs the load untouched for the best speed, then under Gleaner with an eighth more rises than requested.
///
/// # Errors
/// If a program cannot be started, a load fails, or a journal cannot be read.
pub fn run(options: &Options, bpf: bool, retain: bool) -> Result<ExpandReport, StepsError> {
    let untouched = record(&Mode::Default, &[], &load(UNTOUCHED_STEPS), options)?;
    let dir = tempfile::tempdir().map_err(|source| StepsError::Journal { source })?;
    let file = dir.path().join("journal");
    let mut words = vec!["--journal".into(), file.clone().into()];
    for (allowed, option) in [(bpf, "--no-bpf"), (retain, "--no-retain")] {
        if !allowed {
            words.push(option.into());
        }
    }
    let asked = options.steps + options.steps / RISES_PER_SPARE;
    let recording = record(&Mode::Gleaner, &words, &load(asked), options)?;
    Ok(ExpandReport::new(bpf, &untouched, &recording, reports(&file)?))
}

fn load(steps: u16) -> [String; 3] {
    ["--steps".to_owned(), steps.to_string(), "--expand".to_owned()]
}

fn reports(file: &Path) -> Result<Reports, StepsError> {
    let records =
        journal::read(file).map_err(|error| StepsError::Journal { source: io::Error::other(error) })?;
    let mut reports = Reports::default();
    for record in records {
        let Record::Decision { event, .. } = record else { continue };
        match event {
            Event::Expanded { source: Some(OverloadSource::RunQueues), .. } => reports.run_queues += 1,
            Event::Expanded { source: Some(OverloadSource::Counts), .. } => reports.counts += 1,
            Event::Expanded { source: None, .. } => reports.due += 1,
            Event::MajorChange { .. } => reports.major_changes += 1,
            _ => {}
        }
    }
    Ok(reports)
}

impl ExpandReport {
    fn new(bpf: bool, untouched: &Recording, recording: &Recording, reports: Reports) -> Self {
        let plateau = |recording: &Recording| {
            let steps = analysis::analyse_through(FINE_RESOLUTION, recording);
            let rates: Vec<f64> = steps.iter().filter(|s| s.pairs > 1).map(|s| s.plateau_per_s).collect();
            stats::median(&rates).unwrap_or_default()
        };
        let best_per_s = plateau(untouched).max(plateau(recording));
        let vcpus = untouched.phases.first().map_or(0, |phase| phase.allowed_before);
        let times: Vec<Step> = analysis::analyse_against(FINE_RESOLUTION, recording, best_per_s);
        let phases = recording.phases.iter().skip(1).zip(times).filter(|(phase, _)| phase.pairs > 1);
        let rises = phases
            .map(|(phase, step)| Rise {
                allowed_before: phase.allowed_before,
                expanded_ms: phase.all_ran_ns.map(|at| at.saturating_sub(phase.at_ns) as f64 / 1e6),
                reached_ms: step.reached_ms,
            })
            .collect();
        Self { bpf, vcpus, rises, best_per_s, reports }
    }

    /// The rises that found the workload on fewer vCPUs.
    pub fn consolidated(&self) -> impl Iterator<Item = &Rise> {
        self.rises.iter().filter(|rise| rise.allowed_before < self.vcpus)
    }

    /// The time within which this share of the consolidated rises had all vCPUs, in milliseconds; `None` if
    /// they never had.
    pub fn expanded_ms(&self, share: f64) -> Option<f64> {
        quantile(self.consolidated().map(|rise| rise.expanded_ms), share)
    }

    /// The same for 90 % of the best speed.
    pub fn reached_ms(&self, share: f64) -> Option<f64> {
        quantile(self.consolidated().map(|rise| rise.reached_ms), share)
    }
}

/// Nearest rank; what never happened is longer than any time.
fn quantile(times: impl Iterator<Item = Option<f64>>, share: f64) -> Option<f64> {
    let mut times: Vec<f64> = times.map(|time| time.unwrap_or(f64::INFINITY)).collect();
    times.sort_by(f64::total_cmp);
    let rank = stats::nearest_rank(times.len(), share)?;
    times.get(rank).copied().filter(|time| time.is_finite())
}

impl fmt::Display for ExpandReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (consolidated, all) = (self.consolidated().count(), self.rises.len());
        let how = if self.bpf { "with BPF" } else { "without BPF" };
        writeln!(
            f,
            "from the rise of the load (1 -> 16 pairs), {how}; {consolidated} of {all} rises found it consolidated"
        )?;
        let ms = |time: Option<f64>| time.map_or_else(|| "never".to_owned(), |ms| format!("{ms:.2} ms"));
        writeln!(
            f,
            "  all {} vCPUs run it: median {}, 90 % {}, 99 % {}, all {}",
            self.vcpus,
            ms(self.expanded_ms(0.5)),
            ms(self.expanded_ms(0.9)),
            ms(self.expanded_ms(0.99)),
            ms(self.expanded_ms(1.0))
        )?;
        writeln!(
            f,
            "  90 % of the best speed ({:.0}/s): median {}, 90 % {}",
            self.best_per_s,
            ms(self.reached_ms(0.5)),
            ms(self.reached_ms(0.9))
        )?;
        let Reports { run_queues, counts, due, major_changes } = self.reports;
        writeln!(
            f,
            "  overloads reported by the run queues {run_queues}, found by counting {counts}, seen when due {due}; major changes \
             {major_changes}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rises: Vec<Rise>) -> ExpandReport {
        ExpandReport { bpf: true, vcpus: 2, rises, best_per_s: 1000.0, reports: Reports::default() }
    }

    fn rise(expanded_ms: Option<f64>, reached_ms: Option<f64>) -> Rise {
        Rise { allowed_before: 1, expanded_ms, reached_ms }
    }

    #[test]
    fn only_rises_that_found_the_load_consolidated_count() {
        let spread = Rise { allowed_before: 2, ..rise(Some(0.1), Some(5.0)) };
        let report = report(vec![spread, rise(Some(1.5), Some(12.0)), spread]);
        assert_eq!((report.consolidated().count(), report.expanded_ms(0.5)), (1, Some(1.5)));
        let text = report.to_string();
        assert!(text.contains("1 of 3 rises") && text.contains("vCPUs run it: median 1.50 ms"), "{text}");
    }

    #[test]
    fn late_rises_are_in_the_tail_and_what_never_came_is_named() {
        let of = |expanded: Option<f64>, reached, late: usize| {
            let mut rises = vec![rise(expanded, reached); 200 - late];
            rises.extend(vec![rise(Some(30.0), Some(400.0)); late]);
            report(rises).to_string()
        };
        let (few, more) = (of(Some(2.0), Some(20.5), 2), of(Some(2.0), Some(20.5), 3));
        assert!(few.contains(": median 2.00 ms, 90 % 2.00 ms, 99 % 2.00 ms, all 30.00 ms\n"), "{few}");
        assert!(few.contains("90 % of the best speed (1000/s): median 20.50 ms, 90 % 20.50 ms\n"), "{few}");
        assert!(more.contains(", 99 % 30.00 ms, all 30.00 ms\n"), "{more}");
        let never = "vCPUs run it: median never, 90 % never, 99 % never, all never\n";
        assert!(of(None, None, 0).contains(never));
        assert!(report(Vec::new()).to_string().contains(never), "nothing was measured");
    }
}
