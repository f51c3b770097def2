//! What is known of the machine before anything is controlled.

use std::time::Duration;

use gleaner_calibrate as calibrate;
use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_kernel::topology::Topology;
use gleaner_policy::{ASSUMED_HALT_COST, CpuSet, Method, VcpuPlace};

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
                waker_cost: Duration::ZERO,
                limits: vec![format!(
                    "the wake-up cost could not be measured ({error:#}), so nothing is retained"
                )],
            },
        })
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
    fn yield_threads_are_never_chosen() {
        let all = Method::ALL.to_vec();
        assert_eq!(of_the_machine(Method::YieldIpiFree, &all), Method::Haltpoll);
        assert_eq!(of_the_machine(Method::Yield, &[Method::Halt, Method::Yield]), Method::Halt);
        assert_eq!(of_the_machine(Method::QosPoll, &all), Method::QosPoll);
        assert_eq!(of_the_machine(Method::Halt, &all), Method::Halt);
    }
}
