//! The retention method of a run and the cost of a wake-up, from calibration.

use std::time::Duration;

use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_kernel::lever::haltpoll;
use gleaner_policy::{ASSUMED_HALT_COST, Method, Strategy, assumed_waker_cost};

use crate::{in_use, load};

/// How idle vCPUs are retained, and what that saves.
#[derive(Debug, Clone)]
pub struct MethodChoice {
    /// The retention method.
    pub method: Method,
    /// Cost of a halt and its wake-up.
    pub wake_cost: Duration,
    /// The waker's share of `wake_cost`, in CPU time.
    pub waker_cost: Duration,
    /// What this machine lacks, as sentences.
    pub limits: Vec<String>,
}

impl MethodChoice {
    /// For when nothing was measured.
    fn assumed(method: Method, limit: Option<String>) -> Self {
        let limits = limit.into_iter().collect();
        let wake_cost = ASSUMED_HALT_COST;
        Self { method, wake_cost, waker_cost: assumed_waker_cost(wake_cost), limits }
    }
}

/// The choice by this boot's calibration, which is measured now (in a quarter of a second) if there is none or only a
/// doubtful one. A dry run changes nothing, so it measures nothing.
pub fn for_run(state: &StateDir, root: &Root, strategy: Strategy, dry_run: bool) -> MethodChoice {
    if strategy == Strategy::Fixed {
        let assumed = MethodChoice::assumed(Method::Halt, None);
        // A fixed setting decides nothing, but waiting is estimated from these costs as in any run.
        return load(state, root).map_or(assumed.clone(), |c| MethodChoice {
            wake_cost: c.halt_cost,
            waker_cost: c.waker_cost(),
            ..assumed
        });
    }
    let calibration = if dry_run {
        // A measurement changes settings, which a dry run must not.
        let Some(known) = load(state, root) else { return unmeasured(root) };
        Ok(known)
    } else {
        in_use(state, root)
    };
    match calibration {
        Ok(c) => MethodChoice {
            method: c.method,
            wake_cost: c.halt_cost,
            waker_cost: c.waker_cost(),
            limits: c.doubt().into_iter().chain(c.absent).collect(),
        },
        Err(error) => {
            let then = match strategy {
                Strategy::Paper => format!("{} us are assumed", ASSUMED_HALT_COST.as_micros()),
                _ => "nothing is retained".to_owned(),
            };
            let why = format!("the wake-up cost could not be measured ({error:#}): {then}");
            MethodChoice::assumed(Method::Halt, Some(why))
        }
    }
}

/// For a dry run without a calibration from this boot.
fn unmeasured(root: &Root) -> MethodChoice {
    match haltpoll::available(root) {
        Ok(()) => {
            let why = "the wake-up cost is assumed: `gleaner doctor` measures it".to_owned();
            MethodChoice::assumed(Method::Haltpoll, Some(why))
        }
        Err(error) => MethodChoice::assumed(Method::Halt, Some(error.to_string())),
    }
}
