//! `gleanerd --restore`: puts back what a killed daemon left changed.

use gleaner_engine::{StateDir, UndoResult};
use gleaner_kernel::Root;
use tracing::{info, warn};

/// True if nothing is left.
///
/// # Errors
/// Somebody else controls the machine now, or the lease file is malformed.
pub(crate) fn run() -> anyhow::Result<bool> {
    let outcomes = gleaner_engine::restore(&StateDir::default_place()?, &Root::system())?;
    let mut restored = true;
    for outcome in outcomes {
        if outcome.undone == UndoResult::Failed {
            restored = false;
            warn!("could not be put back: {}", outcome.detail);
        } else {
            info!("{}", outcome.detail);
        }
    }
    Ok(restored)
}
