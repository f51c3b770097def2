//! Directed yield: which vCPU a spinning one yields to (kernel: `kvm_vcpu_on_spin`).

use serde::Deserialize;

/// How the target is chosen at a pause-loop exit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectedYield {
    /// Pause-loop exits are not used.
    #[default]
    Off,
    /// The next preempted vCPU of the VM, in turn.
    RoundRobin,
    /// A preempted vCPU with a pending interrupt first: others are waiting for it.
    IpiAware,
}

/// A vCPU as a candidate for a directed yield.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Spinner {
    /// Whether it is runnable but not running.
    pub(crate) preempted: bool,
    /// Whether an interrupt is pending.
    pub(crate) interrupted: bool,
    /// Whether it is spinning, too.
    pub(crate) spins: bool,
}

/// The index of the vCPU to yield to, searching from `start` on; `None` if no vCPU would profit.
pub(crate) fn yield_target(rule: DirectedYield, vcpus: &[Spinner], start: usize) -> Option<usize> {
    let in_turn = || (0..vcpus.len()).map(move |i| (start + i) % vcpus.len());
    let eligible = |i: &usize| vcpus[*i].preempted && (!vcpus[*i].spins || vcpus[*i].interrupted);
    match rule {
        DirectedYield::Off => None,
        DirectedYield::RoundRobin => in_turn().find(eligible),
        DirectedYield::IpiAware => {
            in_turn().filter(eligible).find(|i| vcpus[*i].interrupted).or_else(|| in_turn().find(eligible))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interrupted_one_is_let_run_first_where_interrupts_are_seen() {
        let running = Spinner { preempted: false, interrupted: false, spins: false };
        let preempted = Spinner { preempted: true, ..running };
        let vcpus = [running, preempted, Spinner { interrupted: true, ..preempted }, preempted];
        assert_eq!(yield_target(DirectedYield::RoundRobin, &vcpus, 1), Some(1));
        assert_eq!(yield_target(DirectedYield::RoundRobin, &vcpus, 3), Some(3));
        assert_eq!(yield_target(DirectedYield::IpiAware, &vcpus, 1), Some(2));
        assert_eq!(yield_target(DirectedYield::Off, &vcpus, 1), None);
        assert_eq!(yield_target(DirectedYield::IpiAware, &[running; 2], 0), None);
    }

    #[test]
    fn a_preempted_spinner_is_not_worth_it() {
        let spinner = Spinner { preempted: true, interrupted: false, spins: true };
        assert_eq!(yield_target(DirectedYield::RoundRobin, &[spinner; 2], 0), None);
    }
}
