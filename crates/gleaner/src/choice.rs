//! Which retention method a run uses, and what a wake-up costs here: from calibration.

use std::time::Duration;

use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_kernel::lever::{haltpoll, pm_qos};
use gleaner_policy::{ASSUMED_HALT_COST, CpuSet, Method};

use crate::cli::ControlArgs;

/// The outcome of calibration, as a run needs it.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// The method.
    pub(crate) method: Method,
    /// What a halt and the wake-up from it cost.
    pub(crate) wake_cost: Duration,
    /// What is missing on this machine, as sentences.
    pub(crate) limits: Vec<String>,
    qos_poll: bool,
}

impl Choice {
    /// The method that stands for `method` in trials, see [`gleaner_policy::PolicyConfig::trial_method`].
    pub(crate) fn trial_method(&self, method: Method) -> Method {
        if method == Method::Haltpoll && self.qos_poll { Method::QosPoll } else { method }
    }
}

pub(crate) fn for_run(_state: &StateDir, root: &Root, _allowed: &CpuSet, _args: &ControlArgs) -> Choice {
    let qos_poll = pm_qos::available(root).is_ok();
    let method = if haltpoll::available(root).is_ok() { Method::Haltpoll } else { Method::YieldIpiFree };
    Choice { method, wake_cost: ASSUMED_HALT_COST, limits: Vec::new(), qos_poll }
}
