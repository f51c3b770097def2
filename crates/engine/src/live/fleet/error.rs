//! What can fail in a fleet, and whom it concerns.

use gleaner_policy::WorkloadId;

use crate::lease::LeaseError;
use crate::live::LiveError;

/// What failed, by whom it concerns.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// Somebody else changed the CPU set of this workload, and owns it now: call [`Fleet::abandon_set`](super::Fleet::abandon_set).
    #[error("{theirs}")]
    SetTaken {
        /// Whose set.
        id: WorkloadId,
        /// The target and its present value.
        theirs: LeaseError,
    },
    /// Somebody else changed what retains idle vCPUs, and owns it now: call [`Fleet::abandon_retention`](super::Fleet::abandon_retention).
    #[error("{theirs}")]
    RetentionTaken {
        /// The target and its present value.
        theirs: LeaseError,
    },
    /// The workload has ended: call [`Fleet::leave`](super::Fleet::leave).
    #[error("workload {id} has ended")]
    Ended {
        /// The workload.
        id: WorkloadId,
    },
    /// A sensor or lever of this workload failed. The others are not affected.
    #[error("{error}")]
    Member {
        /// The workload.
        id: WorkloadId,
        /// What failed.
        error: LiveError,
    },
    /// A sensor or lever of the machine failed.
    #[error("{0}")]
    Machine(LiveError),
}

impl FleetError {
    /// An error of the workload `id`, which has `ended` or not.
    pub(super) fn of_member(id: WorkloadId, error: LiveError, ended: bool) -> Self {
        match error {
            LiveError::Lease(theirs @ LeaseError::Theirs { .. }) => Self::SetTaken { id, theirs },
            error if error.is_gone() && ended => Self::Ended { id },
            error => Self::Member { id, error },
        }
    }

    /// An error of what retains idle vCPUs.
    pub(super) fn of_retention(error: LiveError) -> Self {
        match error {
            LiveError::Lease(theirs @ LeaseError::Theirs { .. }) => Self::RetentionTaken { theirs },
            error => Self::Machine(error),
        }
    }
}

impl From<FleetError> for LiveError {
    /// Where there is one workload, it does not matter whom an error concerns.
    fn from(error: FleetError) -> Self {
        match error {
            FleetError::SetTaken { theirs, .. } | FleetError::RetentionTaken { theirs } => theirs.into(),
            FleetError::Ended { .. } => Self::Ended,
            FleetError::Member { error, .. } | FleetError::Machine(error) => error,
        }
    }
}
