//! The arithmetic of fair scheduling, shared by hypervisor and guest: CFS as in Linux 2.6.23-6.5
//! (kernel/sched/fair.c), and an EEVDF-like rule as of 6.6.

use serde::{Deserialize, Serialize};

use crate::ids::Ns;

/// The weight of an entity with nice 0 (the kernel's `NICE_0_LOAD`).
pub const NICE_0: u64 = 1024;

/// How the next entity is picked, and when a woken one preempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Smallest virtual run time first.
    Cfs,
    /// Earliest virtual deadline first.
    Eevdf,
}

/// Parameters of a fair scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fair {
    /// Scheduling rule.
    pub rule: Rule,
    /// Period in which every entity on a runqueue should run once (`sched_latency_ns`).
    pub latency: Ns,
    /// The shortest slice (`sched_min_granularity_ns`; for EEVDF the slice itself, `base_slice_ns`).
    pub min_granularity: Ns,
    /// How far the current entity must be ahead for a woken one to preempt it
    /// (`sched_wakeup_granularity_ns`).
    pub wakeup_granularity: Ns,
}

/// Scheduler state of an entity: a vCPU on the host, or a thread in a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entity {
    /// Weighted run time, in ns.
    pub vruntime: Ns,
    /// EEVDF: virtual time by which its request should be served.
    pub deadline: Ns,
    /// Load weight; [`NICE_0`] is normal.
    pub weight: u64,
}

impl Default for Entity {
    fn default() -> Self {
        Self { vruntime: 0, deadline: 0, weight: NICE_0 }
    }
}

impl Fair {
    /// CFS with the kernel's defaults for 8 or more CPUs: latency 24 ms (ASPLOS'13 §4.1.1), granularity 3 ms,
    /// wake-up granularity 4 ms.
    pub const CFS: Self = Self {
        rule: Rule::Cfs,
        latency: 24_000_000,
        min_granularity: 3_000_000,
        wakeup_granularity: 4_000_000,
    };
    /// EEVDF with the kernel's default slice for 8 or more CPUs.
    pub const EEVDF: Self =
        Self { rule: Rule::Eevdf, latency: 24_000_000, min_granularity: 2_800_000, wakeup_granularity: 0 };

    /// Charges `entity` for `ns` of run time.
    pub fn charge(&self, entity: &mut Entity, ns: Ns) {
        entity.vruntime += scaled(ns, entity.weight);
        if self.rule == Rule::Eevdf && entity.vruntime >= entity.deadline {
            entity.deadline = entity.vruntime + scaled(self.min_granularity, entity.weight);
        }
    }

    /// Places a woken `entity` on a runqueue; sleepers get limited credit below its minimum, `floor`.
    pub fn place(&self, entity: &mut Entity, floor: Ns) {
        let credit = match self.rule {
            Rule::Cfs => self.latency / 2,
            Rule::Eevdf => self.min_granularity,
        };
        entity.vruntime = entity.vruntime.max(floor.saturating_sub(credit));
        entity.deadline = entity.vruntime + scaled(self.min_granularity, entity.weight);
    }

    /// Makes `entity` yield. CFS skips it once, behind `last`, the largest virtual run time of the others;
    /// EEVDF forfeits the rest of its request (`yield_task_fair` as of Linux 6.17).
    pub fn give_way(&self, entity: &mut Entity, last: Ns) {
        match self.rule {
            Rule::Cfs => entity.vruntime = entity.vruntime.max(last + 1),
            Rule::Eevdf => {
                entity.vruntime = entity.vruntime.max(entity.deadline);
                entity.deadline = entity.vruntime + scaled(self.min_granularity, entity.weight);
            }
        }
    }

    /// How long `entity` can run if `total` is the weight of the whole runqueue, including itself.
    pub fn slice(&self, entity: &Entity, total: u64) -> Ns {
        match self.rule {
            Rule::Cfs => (self.latency * entity.weight / total.max(1)).max(self.min_granularity),
            Rule::Eevdf => self.min_granularity,
        }
    }

    /// Period in which each of `count` entities on a runqueue should run once (kernel: `__sched_period`).
    pub fn period(&self, count: u64) -> Ns {
        self.latency.max(count * self.min_granularity)
    }

    /// Whether the tick preempts `own`, which has run for `ran` of its `slice`, in favour of `least` (kernel:
    /// `check_preempt_tick`; EEVDF: its request is served).
    pub fn slice_ended(&self, ran: Ns, slice: Ns, own: &Entity, least: &Entity) -> bool {
        match self.rule {
            Rule::Cfs => {
                ran > slice
                    || ran >= self.min_granularity && own.vruntime > least.vruntime.saturating_add(slice)
            }
            Rule::Eevdf => ran >= self.min_granularity,
        }
    }

    /// Whether `woken` preempts `current`.
    pub fn preempts(&self, woken: &Entity, current: &Entity) -> bool {
        match self.rule {
            Rule::Cfs => current.vruntime > woken.vruntime + scaled(self.wakeup_granularity, woken.weight),
            Rule::Eevdf => woken.vruntime < current.vruntime && woken.deadline < current.deadline,
        }
    }

    /// Sort key: the entity with the smallest one runs next.
    pub fn key(&self, entity: &Entity) -> Ns {
        match self.rule {
            Rule::Cfs => entity.vruntime,
            Rule::Eevdf => entity.deadline,
        }
    }
}

fn scaled(ns: Ns, weight: u64) -> Ns {
    if weight == NICE_0 { ns } else { ns * NICE_0 / weight.max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_heavier_entity_gets_on_more_slowly_and_longer_slices() {
        let fair = Fair::CFS;
        let mut heavy = Entity { weight: 2 * NICE_0, ..Entity::default() };
        fair.charge(&mut heavy, 10_000);
        assert_eq!(heavy.vruntime, 5_000);
        assert_eq!(fair.slice(&heavy, 3 * NICE_0), 16_000_000);
        assert_eq!(fair.slice(&Entity::default(), 100 * NICE_0), 3_000_000, "not below the granularity");
    }

    #[test]
    fn a_sleeper_has_credit_and_preempts_but_not_for_ever() {
        let fair = Fair::CFS;
        let mut sleeper = Entity::default();
        fair.place(&mut sleeper, 1_000_000_000);
        assert_eq!(sleeper.vruntime, 988_000_000);
        let at = |vruntime| Entity { vruntime, ..Entity::default() };
        assert!(fair.preempts(&sleeper, &at(1_000_000_000)));
        assert!(!fair.preempts(&sleeper, &at(990_000_000)), "within the wake-up granularity");
    }

    #[test]
    fn a_yielding_task_comes_after_the_others_by_either_rule() {
        for fair in [Fair::CFS, Fair::EEVDF] {
            let mut own = Entity::default();
            fair.place(&mut own, 10_000_000);
            let other = own;
            fair.give_way(&mut own, other.vruntime);
            assert!(fair.key(&own) > fair.key(&other), "{fair:?}");
        }
    }

    #[test]
    fn the_tick_ends_a_slice_that_is_over_or_delays_a_waiting_task_but_not_below_the_granularity() {
        let fair = Fair::CFS;
        let at = |vruntime| Entity { vruntime, ..Entity::default() };
        let ms = 1_000_000;
        let ended = |ran: Ns, behind: Ns| {
            fair.slice_ended(ran * ms, 12 * ms, &at(100 * ms), &at((100 - behind) * ms))
        };
        assert!(ended(13, 0), "its slice is over");
        assert!(!ended(12, 12));
        assert!(ended(4, 13), "the waiting task is behind by more than a slice");
        assert!(!ended(2, 13), "below the granularity");
        assert_eq!((fair.period(2), fair.period(10)), (24 * ms, 30 * ms));
    }

    #[test]
    fn with_eevdf_the_earlier_deadline_preempts() {
        let fair = Fair::EEVDF;
        let (mut current, mut woken) = (Entity::default(), Entity::default());
        fair.place(&mut current, 10_000_000);
        fair.charge(&mut current, 1_000_000);
        fair.place(&mut woken, 10_000_000);
        assert!(!fair.preempts(&woken, &current), "same deadline");
        fair.charge(&mut current, 2_000_000);
        assert!(
            fair.preempts(&woken, &current),
            "the current one's request was served, its next is due later"
        );
    }
}
