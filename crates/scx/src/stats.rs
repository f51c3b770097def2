//! What the scheduler did.

use std::collections::BTreeMap;

use crate::skeleton::types::stat;

/// Each count of `enum stat`, by its name in JSON and in words.
const NAMES: [(stat, &str, &str); stat::STATS.0 as usize] = [
    (stat::STAT_RESCHED_DP, "resched_dp", "senders protected"),
    (stat::STAT_RESCHED_CO, "resched_co", "recipients coscheduled"),
    (stat::STAT_TLB_CO, "tlb_co", "shootdowns coscheduled"),
    (stat::STAT_URGENT_RUNS, "urgent_runs", "urgent vCPUs run first"),
    (stat::STAT_OVER_ALLOWANCE, "over_allowance", "urgent vCPUs over their allowance"),
    (stat::STAT_PROTECTED, "protected", "preemptions delayed"),
    (stat::STAT_CANCELLED, "cancelled", "urgency ended by spinning"),
    (stat::STAT_STOLEN, "stolen", "taken by idle pCPUs"),
    (stat::STAT_PULLED, "pulled", "taken because they were behind"),
    (stat::STAT_STACKED, "stacked", "put beside a sibling"),
    (stat::STAT_UNKNOWN_RECIPIENTS, "unknown_recipients", "unknown recipients"),
];

/// Counts since the scheduler started, of all pCPUs, in the order of `enum stat`.
#[derive(Debug, Clone, PartialEq, Eq)]
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

    /// The counts by name, for machines.
    pub fn by_name(&self) -> BTreeMap<&'static str, u64> {
        NAMES.iter().zip(self.0).map(|((_, name, _), count)| (*name, count)).collect()
    }

    /// What happened at all, in words.
    pub fn text(&self) -> String {
        let happened = NAMES.iter().zip(self.0).filter(|(_, count)| *count > 0);
        let words: Vec<String> = happened.map(|((.., words), count)| format!("{count} {words}")).collect();
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
    }
}
