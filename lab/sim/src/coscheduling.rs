//! Coscheduling: running the vCPUs of a VM at the same time (ASPLOS'13 §2).

/// How strictly a VM's vCPUs are coscheduled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Coscheduling {
    /// No coscheduling.
    #[default]
    None,
    /// A vCPU that is too far ahead of its slowest sibling waits.
    Relaxed {
        /// The allowed lead, in ns of run time.
        skew_ns: u64,
    },
    /// In turns: only one VM's vCPUs run at a time.
    Strict {
        /// Length of a turn, in ns.
        slot_ns: u64,
    },
}

/// Whose turn it is among `vms` VMs, and when it ends.
pub(crate) fn gang(now_ns: u64, slot_ns: u64, vms: usize) -> (usize, u64) {
    let slot = slot_ns.max(1);
    let turn = now_ns / slot;
    (usize::try_from(turn).unwrap_or(0) % vms.max(1), (turn + 1) * slot)
}

/// Whether a vCPU with `own_ns` of run time is so far ahead of the slowest of its runnable siblings, with
/// `slowest_ns`, that it must wait.
pub(crate) fn too_far_ahead(own_ns: u64, slowest_ns: u64, skew_ns: u64) -> bool {
    own_ns > slowest_ns.saturating_add(skew_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_go_round() {
        assert_eq!(gang(0, 10, 2), (0, 10));
        assert_eq!(gang(10, 10, 2), (1, 20));
        assert_eq!(gang(25, 10, 2), (0, 30));
    }

    #[test]
    fn skew_is_a_tolerance() {
        assert!(!too_far_ahead(15, 5, 10));
        assert!(too_far_ahead(16, 5, 10));
    }
}
