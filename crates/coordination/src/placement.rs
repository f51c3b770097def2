//! Placement of woken vCPUs on pCPUs: balance scheduling and its load-conscious form (§3.2.2 of the paper).

use serde::{Deserialize, Serialize};

use crate::native;

/// How woken vCPUs are placed. `enum placement_rule`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VcpuPlacement {
    /// Anywhere.
    #[default]
    Uncoordinated,
    /// Never beside another vCPU of the same VM, so that siblings can run at the same time.
    Balance,
    /// As [`Self::Balance`], unless all those pCPUs are overloaded.
    LoadConscious,
}

/// A pCPU as a candidate for placement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PcpuLoad {
    /// Sum of the weights of its vCPUs.
    pub load: u64,
    /// Whether another vCPU of the same VM runs or waits there.
    pub has_sibling: bool,
}

/// The load of a pCPU in quarters of the average of `pcpus`, rounded; `total` is the load of all. Below 2^50.
pub fn load_level(load: u64, total: u64, pcpus: u32) -> u64 {
    native::load_level(load, total, pcpus)
}

/// The pCPUs on which no sibling of a woken vCPU is. `struct placement`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Placement {
    apart: u32,
    apart_and_underloaded: u32,
}

impl Placement {
    /// Takes all pCPUs of the host into account.
    pub fn among(pcpus: &[PcpuLoad]) -> Self {
        let mut placement = Self::default();
        let total = pcpus.iter().fold(0_u64, |sum, pcpu| sum.saturating_add(pcpu.load));
        let count = u32::try_from(pcpus.len()).unwrap_or(u32::MAX);
        for pcpu in pcpus {
            native::placement_sees(&mut placement, pcpu.has_sibling, pcpu.load, total, count);
        }
        placement
    }

    /// Whether the woken vCPU may be put on a pCPU. Without a candidate every pCPU is allowed.
    pub fn allows(&self, rule: VcpuPlacement, pcpu: PcpuLoad) -> bool {
        native::placement_allows(self, rule, pcpu.has_sibling)
    }
}

/// From so many on a vCPU is expected to halt soon after it has woken a sibling; see [`halted_soon`]. `HALTS_SOON`.
pub const HALTS_SOON: u32 = 4;

/// How often of late a vCPU halted soon after it woke a sibling, after one time more. Once not is no proof, twice is.
pub fn halted_soon(before: u32, soon: bool) -> u32 {
    native::halted_soon(before, soon)
}

/// Moving average of a task's CPU bursts, the times between two waits, after one more of `ns`.
pub fn burst_average(before: u64, ns: u64) -> u64 {
    native::burst_average(before, ns)
}

/// How long the burst of a task is expected to be that has computed for `since` ns since it last waited. Never 0.
pub fn burst_now(average: u64, since: u64) -> u64 {
    native::burst_now(average, since)
}

/// Beside whom a task would run, on the other threads of its core: the less, the better. `enum beside`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Beside {
    /// They are idle.
    Nobody,
    /// A task that computes, if it waits; or one that waits, if it computes.
    OtherKind,
    /// A task that waits or computes as it does.
    OwnKind,
}

impl Beside {
    /// Beside whom, by the bursts of both (HP3C'20, §5: symbiotic job scheduling). `other` 0: the other thread is idle.
    pub fn of(own: u64, other: u64) -> Self {
        native::runs_beside(own, other)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: [VcpuPlacement; 3] =
        [VcpuPlacement::Uncoordinated, VcpuPlacement::Balance, VcpuPlacement::LoadConscious];

    /// The situation of the paper's Figure 6: two 1-vCPU VMs make pCPUs 0 and 1 heavy, siblings are on 2 and 3.
    const FIGURE_6: [PcpuLoad; 4] = [
        PcpuLoad { load: 1024, has_sibling: false },
        PcpuLoad { load: 1024, has_sibling: false },
        PcpuLoad { load: 256, has_sibling: true },
        PcpuLoad { load: 256, has_sibling: true },
    ];

    #[test]
    fn whoever_halts_soon_after_waking_another_is_known_after_four_times_and_one_exception_changes_nothing() {
        let after =
            |before, times: &[bool]| times.iter().fold(before, |before, soon| halted_soon(before, *soon));
        assert!(after(0, &[true; 3]) < HALTS_SOON);
        assert_eq!(after(0, &[true; 4]), HALTS_SOON);
        let known = after(0, &[true; 100]);
        assert!(after(known, &[false]) >= HALTS_SOON);
        assert!(after(known, &[false, false]) < HALTS_SOON);
        assert_eq!(after(known, &[false; 5]), 0);
    }

    const WAITS: u64 = 20_000;
    const COMPUTES: u64 = 5_000_000;

    #[test]
    fn whoever_computes_for_long_is_known_at_once_and_whoever_waits_after_a_few_times() {
        let after =
            |before, bursts: &[u64]| bursts.iter().fold(before, |before, ns| burst_average(before, *ns));
        let waiting = after(0, &[WAITS; 20]);
        assert_eq!(Beside::of(burst_now(waiting, 0), burst_now(WAITS, 0)), Beside::OwnKind);
        assert_eq!(Beside::of(burst_now(waiting, COMPUTES), burst_now(WAITS, 0)), Beside::OtherKind);
        let computing = after(0, &[COMPUTES; 20]);
        assert_eq!(Beside::of(burst_now(after(computing, &[WAITS]), 0), COMPUTES), Beside::OwnKind);
        // However long it has computed.
        let computing = after(0, &[u64::MAX; 20]);
        assert_eq!(Beside::of(burst_now(after(computing, &[WAITS; 20]), 0), COMPUTES), Beside::OtherKind);
        assert!(burst_now(0, 0) > 0);
    }

    #[test]
    fn bursts_that_differ_by_less_than_a_factor_of_four_are_of_one_kind() {
        for own in [1, 3, WAITS, u64::MAX] {
            assert_eq!(Beside::of(own, 0), Beside::Nobody);
            assert_eq!(Beside::of(own, own), Beside::OwnKind);
        }
        for (least, most) in [(1, 3), (20_000, 79_999)] {
            assert_eq!([Beside::of(least, most), Beside::of(most, least)], [Beside::OwnKind; 2]);
            assert_eq!([Beside::of(least, most + 1), Beside::of(most + 1, least)], [Beside::OtherKind; 2]);
        }
        // All that wait, and all that compute.
        for alike in
            [[burst_now(1, 0), burst_now(90_000, 0)], [burst_now(0, 6_000_000), burst_now(0, u64::MAX)]]
        {
            assert_eq!(Beside::of(alike[0], alike[1]), Beside::OwnKind);
        }
    }

    #[test]
    fn loads_that_differ_by_less_than_an_eighth_of_the_average_from_it_are_alike() {
        let level = |load| load_level(load, 4000, 4);
        assert_eq!([875, 1000, 1124].map(level), [4; 3]);
        assert_eq!([874, 1125, 0, 4000].map(level), [3, 5, 0, 16]);
        assert_eq!(load_level(0, 0, 4), 0);
    }

    fn allowed(rule: VcpuPlacement, pcpus: &[PcpuLoad]) -> Vec<usize> {
        let placement = Placement::among(pcpus);
        (0..pcpus.len()).filter(|p| placement.allows(rule, pcpus[*p])).collect()
    }

    #[test]
    fn figure_6_balance_goes_to_the_overloaded_pcpus_and_load_conscious_stacks() {
        assert_eq!(allowed(VcpuPlacement::Balance, &FIGURE_6), [0, 1]);
        assert_eq!(allowed(VcpuPlacement::LoadConscious, &FIGURE_6), [0, 1, 2, 3]);
        assert_eq!(allowed(VcpuPlacement::Uncoordinated, &FIGURE_6), [0, 1, 2, 3]);
    }

    #[test]
    fn an_underloaded_pcpu_without_sibling_is_enough_to_stay_apart() {
        let mut pcpus = FIGURE_6;
        pcpus[0].load = 100;
        assert_eq!(allowed(VcpuPlacement::LoadConscious, &pcpus), [0, 1]);
    }

    #[test]
    fn siblings_everywhere_leave_everything_allowed() {
        let pcpus = [PcpuLoad { load: 1, has_sibling: true }; 3];
        assert_eq!(allowed(VcpuPlacement::Balance, &pcpus), [0, 1, 2]);
    }

    proptest! {
        #[test]
        fn an_average_burst_is_between_those_that_it_has_seen(bursts in prop::collection::vec(0_u64..10_000_000, 1..50)) {
            let average = bursts.iter().fold(bursts[0], |before, ns| burst_average(before, *ns));
            let (least, most) = (bursts.iter().min().unwrap(), bursts.iter().max().unwrap());
            // Rounding takes less than 1 ns each time, of which three quarters stay the next time.
            prop_assert!(average + 4 >= *least && average <= most + 4, "{average}");
        }

        #[test]
        fn a_vcpu_is_placed_somewhere_and_beside_a_sibling_only_where_the_rule_has_no_better_place(
            pcpus in prop::collection::vec((0_u64..1 << 40, any::<bool>()), 1..20),
        ) {
            let pcpus: Vec<PcpuLoad> =
                pcpus.into_iter().map(|(load, has_sibling)| PcpuLoad { load, has_sibling }).collect();
            let total: u64 = pcpus.iter().map(|p| p.load).sum();
            let apart = |p: &&PcpuLoad| !p.has_sibling;
            let underloaded = |p: &PcpuLoad| p.load * pcpus.len() as u64 <= total;
            let better = [false, pcpus.iter().any(|p| apart(&p)), pcpus.iter().filter(apart).any(underloaded)];
            for (rule, better) in RULES.into_iter().zip(better) {
                let allowed = allowed(rule, &pcpus);
                let expected: Vec<usize> = (0..pcpus.len()).filter(|p| !better || !pcpus[*p].has_sibling).collect();
                prop_assert_eq!(&allowed, &expected);
                prop_assert!(!allowed.is_empty());
            }
        }
    }
}
