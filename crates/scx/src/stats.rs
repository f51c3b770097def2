//! What the scheduler did.

use std::collections::BTreeMap;

use gleaner_scx_control::Stat;

use crate::skeleton::types::stat;

/// Each count of `enum stat`: its name in JSON, in words, its unit, and what it says.
const NAMES: [(stat, &str, &str, &str, &str); stat::STATS.0 as usize] = [
    (
        stat::STAT_RESCHED_DP,
        "resched_dp",
        "senders protected",
        "interrupts",
        "Reschedule interrupts whose sender is not preempted for a while (Resched-DP)",
    ),
    (
        stat::STAT_RESCHED_CO,
        "resched_co",
        "recipients coscheduled",
        "interrupts",
        "Reschedule interrupts whose recipient runs first for a while (Resched-Co)",
    ),
    (
        stat::STAT_TLB_CO,
        "tlb_co",
        "shootdowns coscheduled",
        "interrupts",
        "TLB shootdowns whose recipient runs first until it has acknowledged (TLB-Co)",
    ),
    (
        stat::STAT_URGENT_RUNS,
        "urgent_runs",
        "urgent vCPUs run first",
        "runs",
        "Urgent vCPUs that ran before the fair order",
    ),
    (
        stat::STAT_OVER_ALLOWANCE,
        "over_allowance",
        "urgent vCPUs over their allowance",
        "decisions",
        "Urgent vCPUs that had to wait, being ahead by more than the allowance",
    ),
    (
        stat::STAT_PROTECTED,
        "protected",
        "preemptions delayed",
        "preemptions",
        "Preemptions of a protected sender that were delayed",
    ),
    (
        stat::STAT_CANCELLED,
        "cancelled",
        "urgency ended by spinning",
        "pause-loop exits",
        "Urgency that ended because the vCPU only spun",
    ),
    (
        stat::STAT_YIELDS,
        "yields",
        "directed yields",
        "yields",
        "vCPUs that gave their pCPU away because they wait for a preempted one",
    ),
    (
        stat::STAT_STOLEN,
        "stolen",
        "taken by idle pCPUs",
        "tasks",
        "Tasks that an idle pCPU took from another one",
    ),
    (
        stat::STAT_PULLED,
        "pulled",
        "taken because they were behind",
        "tasks",
        "Tasks that a pCPU took from another one because they were behind in virtual time",
    ),
    (
        stat::STAT_STACKED,
        "stacked",
        "put beside a sibling",
        "wake-ups",
        "Woken vCPUs that were put beside another one of their VM",
    ),
    (
        stat::STAT_FOLLOWED,
        "followed",
        "put on their waker's pCPU",
        "wake-ups",
        "Woken vCPUs that were put on the pCPU of the sibling that woke them, which was about to halt",
    ),
    (
        stat::STAT_ALIKE,
        "alike",
        "put beside their own kind",
        "wake-ups",
        "Woken vCPUs that were put on an idle thread of a core that runs a task of the same kind: one that waits, or computes, too",
    ),
    (
        stat::STAT_UNKNOWN_RECIPIENTS,
        "unknown_recipients",
        "unknown recipients",
        "interrupts",
        "Interrupts between vCPUs whose recipient is not known",
    ),
];

/// Counts since the scheduler started, of all pCPUs, in the order of `enum stat`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats([u64; NAMES.len()]);

impl Stats {
    /// Sums up what `of` gives for each pCPU.
    pub(crate) fn read<E>(mut of: impl FnMut(u32) -> Result<Vec<u64>, E>) -> Result<Self, E> {
        let mut counts = [0; NAMES.len()];
        for (count, (which, ..)) in counts.iter_mut().zip(NAMES) {
            *count = of(which.0)?.iter().sum();
        }
        Ok(Self(counts))
    }

    /// The counts that another process gave; counts that are not known here are left out.
    pub fn of(described: &[Stat]) -> Self {
        let count = |name| described.iter().find(|one| one.name == name).map_or(0, |one| one.count);
        Self(NAMES.map(|(_, name, ..)| count(name)))
    }

    /// The counts by name, for machines.
    pub fn by_name(&self) -> BTreeMap<&'static str, u64> {
        NAMES.iter().zip(self.0).map(|((_, name, ..), count)| (*name, count)).collect()
    }

    /// The counts, each with what it says.
    pub fn described(&self) -> Vec<Stat> {
        let described =
            |((_, name, _, unit, description), count): (&(stat, &str, &str, &str, &str), u64)| Stat {
                name: (*name).to_owned(),
                unit: (*unit).to_owned(),
                description: (*description).to_owned(),
                count,
            };
        NAMES.iter().zip(self.0).map(described).collect()
    }

    /// What happened at all, in words.
    pub fn text(&self) -> String {
        let happened = NAMES.iter().zip(self.0).filter(|(_, count)| *count > 0);
        let words: Vec<String> =
            happened.map(|((_, _, words, ..), count)| format!("{count} {words}")).collect();
        if words.is_empty() { "nothing yet".to_owned() } else { words.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_summed_over_pcpus_and_named() {
        let stats = Stats::read(|which| {
            Ok::<_, ()>(if which == stat::STAT_PULLED.0 { vec![3, 4] } else { vec![0, 0] })
        });
        let stats = stats.unwrap();
        assert_eq!(stats.text(), "7 taken because they were behind");
        assert_eq!(stats.by_name()["pulled"], 7);
        assert_eq!(stats.by_name().len(), NAMES.len());
        let described = stats.described();
        assert!(described.iter().all(|one| stats.by_name()[one.name.as_str()] == one.count));
        assert_eq!(Stats::of(&described), stats);
        let unlike: std::collections::BTreeSet<_> = described.iter().map(|one| &one.description).collect();
        assert_eq!(unlike.len(), NAMES.len(), "each says something of its own");
    }
}
