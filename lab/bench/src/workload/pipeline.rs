//! `pipeline`: items pass through stages, as in PARSEC's dedup and ferret. This is the synthetic kind; the
//! other one is [`dedup`](super::dedup).
//!
//! Synchronisation: a bounded [`Queue`] between two stages, with a mutex and a condition variable for either
//! side. A stage works about 5 us on an item and the queues are short, so stages mostly wake each other up.
//! Self-check: every stage verifies the item's checksum; at the end, the items must be in order, and for
//! every 64th the whole computation is repeated and compared.

use super::amount::{WorkMeter, operations_per_clock};
use super::dedup;
use super::queue::Queue;
use super::spec::{Granularity, Spec, Threads, Variant};
use super::work::{check, mix, rounds, run_threads, uneven};
use super::{Amount, Kind, Outcome, Settings, WorkloadError};

pub(super) const SPEC: Spec = Spec {
    name: "pipeline",
    about: "items pass stages through short queues with a mutex and condition variables, by default three of 5 us \
            each; one operation is one item, for dedup one chunk of the input",
    variants: &[
        Variant {
            kind: Some(Kind::Synthetic),
            threads: Threads::fixed("stages, one thread each", 3, 2),
            granularity: Some(Granularity::up_to_1_ms("a stage's computation for an item", 5)),
            imbalance: Some("from the first stage to the last"),
        },
        dedup::VARIANT,
    ],
};

const QUEUE_LENGTH: usize = 2;
/// The computation of one in this many items is repeated.
const ITEMS_PER_REPETITION: u64 = 64;

/// Runs the kind in the settings.
pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    if settings.kind == Some(Kind::Dedup) {
        return dedup::run(SPEC.name, amount, settings.threads);
    }
    synthetic(amount, settings)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Item {
    sequence: u64,
    value: u64,
    checksum: u64,
}

impl Item {
    fn new(sequence: u64) -> Self {
        Self::sealed(sequence, sequence)
    }

    fn sealed(sequence: u64, value: u64) -> Self {
        Self { sequence, value, checksum: sequence.rotate_left(32) ^ value }
    }

    /// One stage's work on the item, `rounds` rounds of [`mix`], if it arrived intact.
    fn process(self, rounds: u32) -> Result<Self, WorkloadError> {
        check(
            SPEC.name,
            "checksum of an item",
            Self::sealed(self.sequence, self.value).checksum,
            self.checksum,
        )?;
        Ok(Self::sealed(self.sequence, mix(self.value, rounds)))
    }

    /// The last stage's check of item number `sequence`, which has passed through stages with these rounds.
    fn check(self, sequence: u64, stages: &[u32]) -> Result<(), WorkloadError> {
        check(SPEC.name, "order of the items", sequence, self.sequence)?;
        if sequence.is_multiple_of(ITEMS_PER_REPETITION) {
            let value = stages.iter().fold(sequence, |value, rounds| mix(value, *rounds));
            check(SPEC.name, "value of an item", value, self.value)?;
        }
        Ok(())
    }
}

/// Closes a stage's queues however the stage ends, so that its neighbours end, too.
struct Closing<'q>(&'q [Queue<Item>]);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(Queue::close);
    }
}

fn synthetic(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let stages: Vec<u32> = (0..settings.threads)
        .map(|stage| rounds(uneven(settings.granularity, settings.imbalance, stage, settings.threads)))
        .collect();
    let last = stages.len() - 1;
    // Queue i leads from stage i to stage i + 1.
    let queues: Vec<Queue<Item>> = (0..last).map(|_| Queue::new(QUEUE_LENGTH)).collect();
    let (counts, elapsed) = run_threads(SPEC.name, stages.len(), |stage, start| {
        let _closing = Closing(&queues[stage.saturating_sub(1)..(stage + 1).min(queues.len())]);
        if stage == 0 {
            let meter = amount.whole().since(start, operations_per_clock(settings.granularity));
            feed(&meter, stages[0], &queues[0])
        } else if let Some(next) = queues.get(stage) {
            pass_on(&queues[stage - 1], stages[stage], next)
        } else {
            collect(&queues[stage - 1], &stages)
        }
    })?;
    let (fed, collected) = (counts[0], counts[last]);
    check(SPEC.name, "number of items", fed, collected)?;
    Ok(Outcome { operations: collected, elapsed, checks: collected * stages.len() as u64 })
}

/// The first stage: makes items until the meter ends it.
fn feed(meter: &WorkMeter, rounds: u32, next: &Queue<Item>) -> Result<u64, WorkloadError> {
    let mut count = 0;
    while meter.more(count) && next.push(Item::new(count).process(rounds)?) {
        count += 1;
    }
    Ok(count)
}

/// A middle stage.
fn pass_on(previous: &Queue<Item>, rounds: u32, next: &Queue<Item>) -> Result<u64, WorkloadError> {
    let mut count = 0;
    while let Some(item) = previous.pop() {
        if !next.push(item.process(rounds)?) {
            break;
        }
        count += 1;
    }
    Ok(count)
}

/// The last stage: checks the results.
fn collect(previous: &Queue<Item>, stages: &[u32]) -> Result<u64, WorkloadError> {
    let rounds = stages.last().copied().unwrap_or(0);
    let mut count = 0;
    while let Some(item) = previous.pop() {
        item.process(rounds)?.check(count, stages)?;
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUNDS: u32 = 100;

    #[test]
    fn notices_a_changed_item() {
        let item = Item::new(9);
        assert!(item.process(ROUNDS).is_ok());
        assert!(Item { value: item.value ^ 1, ..item }.process(ROUNDS).is_err());
        assert!(Item { checksum: 0, ..item }.process(ROUNDS).is_err());
    }

    #[test]
    fn notices_a_lost_item_and_a_skipped_stage() {
        let item = Item::new(ITEMS_PER_REPETITION).process(ROUNDS).unwrap();
        assert!(item.check(ITEMS_PER_REPETITION, &[ROUNDS]).is_ok());
        assert!(item.check(ITEMS_PER_REPETITION - 1, &[ROUNDS]).is_err());
        assert!(item.check(ITEMS_PER_REPETITION, &[ROUNDS, ROUNDS]).is_err());
    }
}
