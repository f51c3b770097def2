//! The settings that Gleaner can change on this machine, in one test at a time.

use std::ops::Deref;

use gleaner_kernel::Root;
use gleaner_kernel::lever::haltpoll;
use gleaner_testing::levers;

pub(crate) use gleaner_testing::levers::{LEASES, LIMIT, Levers, groups, limit_is};

use super::process::gleaner;

/// The right to let Gleaner change this machine. Dropping it restores the machine, even after a panic.
pub(crate) struct Machine(levers::Machine);

impl Machine {
    /// Waits for this test's turn. `None`, with a message, unless run by root.
    pub(crate) fn take() -> Option<Self> {
        levers::Machine::take(|| drop(gleaner(&["restore"]))).map(Self)
    }

    /// As [`Machine::take`]; `None`, with a message, if the haltpoll governor's limit cannot be set.
    pub(crate) fn take_with_haltpoll() -> Option<Self> {
        Self::take()?.0.filter_available(haltpoll::available(&Root::system())).map(Self)
    }
}

impl Deref for Machine {
    type Target = levers::Machine;

    fn deref(&self) -> &levers::Machine {
        &self.0
    }
}
