//! Which retention method a run uses, and what a wake-up costs here: from calibration.

use std::time::Duration;

use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_kernel::lever::haltpoll;
use gleaner_policy::{ASSUMED_HALT_COST, Method, Strategy};

use crate::calibrate::{self, Depth};
use crate::cli::ControlArgs;

/// The outcome of calibration, as a run needs it.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    /// The method.
    pub(crate) method: Method,
    /// What a halt and the wake-up from it cost.
    pub(crate) wake_cost: Duration,
    /// The waker's share of it, in CPU time.
    pub(crate) waker_cost: Duration,
    /// What is missing on this machine, as sentences.
    pub(crate) limits: Vec<String>,
}

/// The calibration of this boot, made now (in a quarter of a second) where there is none yet.
pub(crate) fn for_run(state: &StateDir, root: &Root, args: &ControlArgs) -> Choice {
    let assumed =
        |method, limits| Choice { method, wake_cost: ASSUMED_HALT_COST, waker_cost: Duration::ZERO, limits };
    let unmeasured = |limits| assumed(Method::Halt, limits);
    if args.fixed.is_some() {
        return unmeasured(Vec::new());
    }
    let known = calibrate::load(state, root);
    if known.is_none() && args.dry_run {
        // Measuring turns knobs, which a dry run does not.
        return match haltpoll::available(root) {
            Ok(()) => assumed(
                Method::Haltpoll,
                vec!["the wake-up cost is assumed: `gleaner doctor` measures it".to_owned()],
            ),
            Err(error) => unmeasured(vec![error.to_string()]),
        };
    }
    match known.map_or_else(|| calibrate::calibrate(state, root, Depth::Quick), Ok) {
        Ok(c) => Choice {
            method: c.method,
            wake_cost: c.halt_cost,
            waker_cost: c.halt_cost.saturating_sub(c.costs.halt_cost()),
            limits: c.absent,
        },
        Err(error) => {
            let then = match args.strategy() {
                Strategy::Paper => format!("{} us are assumed", ASSUMED_HALT_COST.as_micros()),
                _ => "nothing is retained".to_owned(),
            };
            unmeasured(vec![format!("the wake-up cost could not be measured ({error:#}): {then}")])
        }
    }
}
