//! The retention method of a run and the cost of a wake-up, from calibration.

use std::time::Duration;

use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_kernel::lever::haltpoll;
use gleaner_policy::{ASSUMED_HALT_COST, Method, Strategy};

use crate::options::ControlArgs;
use gleaner_calibrate as calibrate;

#[derive(Debug, Clone)]
pub(crate) struct MethodChoice {
    pub(crate) method: Method,
    /// Cost of a halt and its wake-up.
    pub(crate) wake_cost: Duration,
    /// The waker's share of `wake_cost`, in CPU time.
    pub(crate) waker_cost: Duration,
    /// What this machine lacks, as sentences.
    pub(crate) limits: Vec<String>,
}

impl MethodChoice {
    /// For when nothing was measured.
    fn assumed(method: Method, limit: Option<String>) -> Self {
        let limits = limit.into_iter().collect();
        Self { method, wake_cost: ASSUMED_HALT_COST, waker_cost: Duration::ZERO, limits }
    }
}

/// This boot's calibration, measured now (in a quarter of a second) if there is none or only a doubtful one.
pub(crate) fn for_run(state: &StateDir, root: &Root, args: &ControlArgs) -> MethodChoice {
    if args.fixed.is_some() {
        let assumed = MethodChoice::assumed(Method::Halt, None);
        // `--fixed` decides nothing, but estimates waiting from these costs as any run does.
        return calibrate::load(state, root).map_or(assumed.clone(), |c| MethodChoice {
            wake_cost: c.halt_cost,
            waker_cost: c.waker_cost(),
            ..assumed
        });
    }
    let calibration = if args.dry_run {
        // A measurement changes settings, which a dry run must not.
        let Some(known) = calibrate::load(state, root) else { return unmeasured(root) };
        Ok(known)
    } else {
        calibrate::in_use(state, root)
    };
    match calibration {
        Ok(c) => MethodChoice {
            method: c.method,
            wake_cost: c.halt_cost,
            waker_cost: c.waker_cost(),
            limits: c.doubt().into_iter().chain(c.absent).collect(),
        },
        Err(error) => {
            let then = match args.strategy() {
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
