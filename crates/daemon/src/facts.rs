//! What is known of the machine before anything is controlled.

use std::time::Duration;

use gleaner_calibrate as calibrate;
use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_kernel::topology::Topology;
use gleaner_policy::{ASSUMED_HALT_COST, CpuSet, Method, VcpuPlace, assumed_waker_cost};

/// The machine, as measured.
#[derive(Debug, Clone)]
pub(crate) struct Facts {
    /// Its online vCPUs.
    pub(crate) vcpus: CpuSet,
    /// Where they sit.
    pub(crate) places: Vec<VcpuPlace>,
    /// The retention method; [`Method::Halt`] if none works here.
    pub(crate) method: Method,
    /// Cost of a halt and its wake-up.
    pub(crate) wake_cost: Duration,
    /// The waker's share of it, in CPU time.
    pub(crate) waker_cost: Duration,
    /// What this machine lacks, as sentences.
    pub(crate) limits: Vec<String>,
}

impl Facts {
    /// Measures what is not known since the boot. Call it before the lease book is open, which calibration needs.
    ///
    /// # Errors
    /// The online vCPUs cannot be read.
    pub(crate) fn measure(state: &StateDir, root: &Root) -> anyhow::Result<Self> {
        let topology = Topology::read(root)?;
        let (vcpus, places) = (topology.online.clone(), topology.places());
        Ok(match calibrate::in_use(state, root) {
            Ok(c) => Self {
                vcpus,
                places,
                method: of_the_machine(c.method, &c.available),
                wake_cost: c.halt_cost,
                waker_cost: c.waker_cost(),
                limits: c.doubt().into_iter().chain(c.absent).collect(),
            },
            Err(error) => Self {
                vcpus,
                places,
                method: Method::Halt,
                wake_cost: ASSUMED_HALT_COST,
                waker_cost: assumed_waker_cost(ASSUMED_HALT_COST),
                limits: vec![format!(
                    "the wake-up cost could not be measured ({error:#}), so nothing is retained"
                )],
            },
        })
    }

    /// Why no workload can gain anything here, as a sentence, if that is so.
    pub(crate) fn nothing_to_win(&self) -> Option<String> {
        /// About what a hand-off between two threads on one vCPU takes.
        const HAND_OFF: Duration = Duration::from_micros(3);
        let why = if self.method != Method::Halt {
            return None;
        } else if self.wake_cost <= HAND_OFF {
            let us = self.wake_cost.as_secs_f64() * 1e6;
            format!("waking a halted vCPU costs {us:.1} us, no more than a hand-off on one vCPU")
        } else if self.vcpus.len() < 2 {
            "it has one vCPU, and nothing keeps that from halting".to_owned()
        } else {
            return None;
        };
        Some(format!("there is nothing to win on this machine ({why}): only what is attached to is engaged"))
    }
}

/// The method to use where several workloads share the machine. Yield threads are not among them: they change the
/// scheduling policy of threads that belong to others, and compete with the workloads that are not engaged.
fn of_the_machine(chosen: Method, available: &[Method]) -> Method {
    let of_the_machine = [Method::Haltpoll, Method::QosPoll];
    if chosen == Method::Halt || of_the_machine.contains(&chosen) {
        return chosen;
    }
    of_the_machine.into_iter().find(|method| available.contains(method)).unwrap_or(Method::Halt)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_nothing_to_win_where_waking_is_as_cheap_as_a_hand_off_or_nothing_can_be_done() {
        let facts = |method, vcpus, us| Facts {
            vcpus: CpuSet::first(vcpus),
            places: Vec::new(),
            method,
            wake_cost: Duration::from_micros(us),
            waker_cost: assumed_waker_cost(ASSUMED_HALT_COST),
            limits: Vec::new(),
        };
        let sentence = facts(Method::Halt, 2, 2).nothing_to_win().unwrap();
        assert!(sentence.contains("costs 2.0 us"), "{sentence}");
        assert!(facts(Method::Halt, 1, 40).nothing_to_win().is_some());
        assert_eq!(facts(Method::Halt, 2, 40).nothing_to_win(), None, "fewer vCPUs can help");
        assert_eq!(facts(Method::Haltpoll, 1, 40).nothing_to_win(), None);
    }

    #[test]
    fn yield_threads_are_never_chosen() {
        let all = Method::ALL.to_vec();
        assert_eq!(of_the_machine(Method::YieldIpiFree, &all), Method::Haltpoll);
        assert_eq!(of_the_machine(Method::Yield, &[Method::Halt, Method::Yield]), Method::Halt);
        assert_eq!(of_the_machine(Method::QosPoll, &all), Method::QosPoll);
        assert_eq!(of_the_machine(Method::Halt, &all), Method::Halt);
    }
}
