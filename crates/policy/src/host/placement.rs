//! Placement of woken vCPUs on pCPUs: balance scheduling and its load-conscious form (§3.2.2 of the paper).

use serde::{Deserialize, Serialize};

/// How woken vCPUs are placed.
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

/// Returns whether the woken vCPU may be put on a pCPU, by index. Without a candidate every pCPU is allowed.
pub fn affinity(rule: VcpuPlacement, pcpus: &[PcpuLoad]) -> impl Fn(usize) -> bool {
    let total: u128 = pcpus.iter().map(|p| u128::from(p.load)).sum();
    let count = pcpus.len() as u128;
    // Underloaded: at most the average load.
    let underloaded = move |p: &PcpuLoad| u128::from(p.load) * count <= total;
    let apart = pcpus.iter().any(|p| !p.has_sibling);
    let restrict = match rule {
        VcpuPlacement::Uncoordinated => false,
        VcpuPlacement::Balance => apart,
        VcpuPlacement::LoadConscious => pcpus.iter().any(|p| !p.has_sibling && underloaded(p)),
    };
    let siblings: Vec<bool> = pcpus.iter().map(|p| p.has_sibling).collect();
    move |pcpu| !restrict || !siblings.get(pcpu).copied().unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The situation of the paper's Figure 6: two 1-vCPU VMs make pCPUs 0 and 1 heavy, siblings are on 2 and 3.
    const FIGURE_6: [PcpuLoad; 4] = [
        PcpuLoad { load: 1024, has_sibling: false },
        PcpuLoad { load: 1024, has_sibling: false },
        PcpuLoad { load: 256, has_sibling: true },
        PcpuLoad { load: 256, has_sibling: true },
    ];

    fn allowed(rule: VcpuPlacement, pcpus: &[PcpuLoad]) -> Vec<usize> {
        let may = affinity(rule, pcpus);
        (0..pcpus.len()).filter(|p| may(*p)).collect()
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
}
