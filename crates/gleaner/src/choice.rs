//! Which retention method a run uses, and what a wake-up costs here: from calibration.

use std::time::Duration;

use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_kernel::lever::pm_qos;
use gleaner_policy::{ASSUMED_HALT_COST, Method};

use crate::calibrate::{self, Depth};
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
    /// Whether polling by a latency request works: the only method that ends at once when it is switched off.
    qos_poll: bool,
}

impl Choice {
    /// The method that stands for `method` in trials, see [`gleaner_policy::PolicyConfig::trial_method`].
    pub(crate) fn trial_method(&self, method: Method) -> Method {
        if method == Method::Haltpoll && self.qos_poll { Method::QosPoll } else { method }
    }
}

/// The calibration of this boot, made now (in a quarter of a second) where there is none yet.
pub(crate) fn for_run(state: &StateDir, root: &Root, args: &ControlArgs) -> Choice {
    let qos_poll = pm_qos::available(root).is_ok();
    let unmeasured = |limits| Choice { method: Method::Halt, wake_cost: ASSUMED_HALT_COST, limits, qos_poll };
    if args.fixed.is_some() {
        return unmeasured(Vec::new());
    }
    let made =
        calibrate::load(state, root).map_or_else(|| calibrate::calibrate(state, root, Depth::Quick), Ok);
    match made {
        Ok(c) => Choice { method: c.method, wake_cost: c.halt_cost, limits: c.absent, qos_poll },
        Err(error) => unmeasured(vec![format!(
            "the wake-up cost could not be measured ({error:#}): nothing is retained"
        )]),
    }
}
