//! What Gleaner observed while the program measured itself: sums over a journal's observations.

use std::path::Path;
use std::time::Duration;

use gleaner_policy::{Block, Observation, Setting};
use gleaner_proto::journal::{self, Record};
use serde::{Deserialize, Serialize};

use super::shares;
use crate::experiment::not_in_force;

/// Minimum share of a part that observations must cover for it to be compared.
const MIN_COVERAGE: f64 = 0.9;

/// Part of a journal to evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    Whole,
    /// This long before its end.
    Last(Duration),
    /// From a time, in milliseconds since the Unix epoch, for this long.
    From(u64, Duration),
}

/// Sums over a part of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The setting in force.
    pub setting: Setting,
    /// Length of the part, by the journal's clock.
    pub length: Duration,
    /// Its observations combined into one block, whose period is the time that they cover.
    pub seen: Block,
    /// Mean CPU time of one observation.
    pub cost: Duration,
}

/// Evaluates a part of the journal of a fixed setting.
///
/// # Errors
/// A sentence: there is no such journal, the setting was not in force, or too little was observed.
pub(super) fn read(path: &Path, part: Part) -> Result<Interval, String> {
    let records = journal::read(path).map_err(|error| format!("Gleaner took no part: {error}"))?;
    of(&records, part)
}

fn of(records: &[Record], part: Part) -> Result<Interval, String> {
    if let Some(why) = not_in_force(records) {
        return Err(format!("the setting was not in force: {why}"));
    }
    let Some(Record::Start { unix_ms, config, .. }) = records.first() else {
        return Err("the journal has no start".to_owned());
    };
    let end = records.iter().rev().find_map(|record| match record {
        Record::End { at, .. } => Some(*at),
        _ => None,
    });
    let end = end.ok_or("the journal has no end")?;
    let (from, to) = match part {
        Part::Whole => (Duration::ZERO, end),
        Part::Last(length) => (end.saturating_sub(length), end),
        Part::From(began, length) => {
            let from = Duration::from_millis(began.saturating_sub(*unix_ms));
            (from, from + length)
        }
    };
    // A process takes its counters along when it ends: its activity since the last sample is missing.
    let ended = records.iter().find_map(|record| match record {
        Record::Observation { observation, last: true, .. } => {
            Some(observation.at.saturating_sub(observation.period))
        }
        _ => None,
    });
    let (seen_to, length) = (ended.map_or(to, |ended| to.min(ended)), to.saturating_sub(from));
    let gleaner_policy::Mode::Fixed(setting) = &config.mode else {
        return Err("the journal is not that of a fixed setting".to_owned());
    };
    let (mut sum, mut costs) = (None::<Block>, Vec::new());
    for record in records {
        let Record::Observation { in_force, observation, .. } = record else { continue };
        let share = share_within(observation, from, seen_to);
        if share > 0.0 && in_force == setting {
            let block = block(observation, setting, config.waker_cost, share);
            sum = Some(sum.map_or(block, |sum| and(&sum, &block)));
            costs.push(observation.cost);
        }
    }
    let to_be_seen = seen_to.saturating_sub(from).as_secs_f64().max(1e-9);
    let covered = sum.map_or(0.0, |sum| sum.period.as_secs_f64() / to_be_seen);
    let seen = sum.filter(|_| covered >= MIN_COVERAGE).ok_or_else(|| {
        format!("{:.0} % of the time in which the program measured itself was observed", 100.0 * covered)
    })?;
    let number = u32::try_from(costs.len()).unwrap_or(u32::MAX).max(1);
    let cost = costs.iter().sum::<Duration>() / number;
    Ok(Interval { setting: setting.clone(), length, seen, cost })
}

/// Share of an observation's interval that lies between two times.
fn share_within(o: &Observation, from: Duration, to: Duration) -> f64 {
    let within = o.at.min(to).saturating_sub(o.at.saturating_sub(o.period).max(from));
    within.as_secs_f64() / o.period.as_secs_f64().max(1e-9)
}

/// A part of an observation as a block of a trial, like the guard's blocks.
fn block(o: &Observation, setting: &Setting, waker_cost: Duration, share: f64) -> Block {
    let active = || o.vcpus.iter().filter(|vcpu| setting.active.contains(vcpu.cpu));
    let halts: u64 = active().map(|vcpu| vcpu.halts).sum();
    let wake_ups = halts.min(o.workload.switches) as f64;
    Block {
        period: o.period.mul_f64(share),
        workload: shares::part(o.workload, share),
        waking: waker_cost.mul_f64(wake_ups * share),
        polled: active().map(|vcpu| vcpu.poll_time).sum::<Duration>().mul_f64(share),
    }
}

fn and(a: &Block, b: &Block) -> Block {
    Block {
        period: a.period + b.period,
        workload: shares::sum(a.workload, b.workload),
        waking: a.waking + b.waking,
        polled: a.polled + b.polled,
    }
}

impl Interval {
    /// What a block of this length contains on average. A signal's minimum amount refers to such a block.
    pub(super) fn block(&self, length: Duration) -> Block {
        let share = length.as_secs_f64() / self.seen.period.as_secs_f64().max(1e-9);
        Block {
            period: length,
            workload: shares::part(self.seen.workload, share),
            waking: self.seen.waking.mul_f64(share),
            polled: self.seen.polled.mul_f64(share),
        }
    }
}

#[cfg(test)]
mod tests {
    use gleaner_policy::{CpuId, CpuSet, Mode, PolicyConfig, VcpuInterval, WorkloadInterval};
    use gleaner_proto::journal::{SettingTime, Summary};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// An observation of 100 ms that ends at `at_ms`, with this many hand-offs.
    fn observation(at_ms: u32, switches: u64) -> Record {
        let vcpu = VcpuInterval {
            cpu: CpuId(0),
            halts: 1000,
            halt_time: 40 * MS,
            polls: 0,
            poll_time: 10 * MS,
            steal: Duration::ZERO,
        };
        let observation = Observation {
            at: at_ms * MS,
            period: 100 * MS,
            vcpus: vec![vcpu],
            workload: WorkloadInterval { switches, moved_bytes: Some(switches * 10), ..Default::default() },
            runnable: 1,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost: MS,
        };
        let in_force = Setting::untouched(&CpuSet::first(1));
        Record::Observation { in_force, observation: Box::new(observation), skipped: 0, last: false }
    }

    fn journal() -> Vec<Record> {
        let setting = Setting::untouched(&CpuSet::first(1));
        let config = PolicyConfig {
            mode: Mode::Fixed(setting.clone()),
            waker_cost: Duration::from_micros(5),
            ..PolicyConfig::default()
        };
        let start = Record::Start {
            version: journal::VERSION,
            unix_ms: 5_000,
            workload: String::new(),
            vcpus: CpuSet::first(1),
            config: Box::new(config),
            limits: Vec::new(),
        };
        let (at, elapsed) = (400 * MS, 400 * MS);
        let settings = vec![SettingTime { setting, time: elapsed }];
        let end = Record::End { at, summary: Summary { elapsed, settings, ..Summary::default() } };
        vec![
            start,
            observation(100, 1),
            observation(200, 100),
            observation(300, 200),
            observation(400, 1000),
            end,
        ]
    }

    #[test]
    fn observations_within_the_part_are_summed_and_others_count_by_their_share() {
        let whole = of(&journal(), Part::Whole).unwrap();
        assert_eq!((whole.seen.workload.switches, whole.seen.period), (1301, 400 * MS));
        assert_eq!((whole.length, whole.cost), (400 * MS, MS));
        // Half of the second, the third, half of the last.
        let part = of(&journal(), Part::From(5_150, 200 * MS)).unwrap();
        assert_eq!((part.seen.workload.switches, part.seen.period), (750, 200 * MS));
        assert_eq!((part.seen.polled, part.seen.workload.moved_bytes), (20 * MS, Some(7500)));
        // At most as many wake-ups as hand-offs: 50 + 200 + 500.
        assert_eq!(part.seen.waking, Duration::from_micros(750 * 5));
        let last = of(&journal(), Part::Last(50 * MS)).unwrap();
        assert_eq!((last.seen.workload.switches, last.length), (500, 50 * MS));
    }

    #[test]
    fn what_a_process_did_last_is_left_out_and_its_time_too() {
        let mut records = journal();
        if let Record::Observation { last, .. } = &mut records[4] {
            *last = true;
        }
        let whole = of(&records, Part::Whole).unwrap();
        assert_eq!((whole.seen.workload.switches, whole.seen.period), (301, 300 * MS));
        assert_eq!(whole.length, 400 * MS, "the program itself took all of it");
    }

    #[test]
    fn a_block_has_its_share() {
        let whole = of(&journal(), Part::Whole).unwrap();
        let block = whole.block(40 * MS);
        assert_eq!((block.period, block.workload.switches, block.polled), (40 * MS, 130, 4 * MS));
    }

    #[test]
    fn what_cannot_be_used_is_said() {
        let later = of(&journal(), Part::From(9_000, 100 * MS)).unwrap_err();
        assert!(later.starts_with("0 % of the time"), "{later}");
        let half = of(&journal(), Part::From(5_350, 100 * MS)).unwrap_err();
        assert!(half.starts_with("50 % of the time"), "{half}");
        let mut lost = journal();
        if let Some(Record::End { summary, .. }) = lost.last_mut() {
            summary.settings.clear();
        }
        assert!(of(&lost, Part::Whole).unwrap_err().contains("not in force"));
        assert!(of(&journal()[..3], Part::Whole).unwrap_err().contains("no end"));
        assert!(read(Path::new("/no/journal"), Part::Whole).unwrap_err().contains("took no part"));
    }
}
