//! The claims about Gleaner, each proven in virtual machines by checks with numbers.
//!
//! A claim is a module with one function from a [`Lab`] to its [`Checks`]; [`ALL`] lists them. `lab/README.md` says how
//! to add one.

mod check;
mod consolidation;
mod doctor;
mod guests;
mod haltpoll;
mod host;
mod journal;
pub mod kept;
mod kernels;
mod machines;
pub mod measure;
mod nested;
mod overcommit;
mod package;
mod packaged;
mod reversible;
mod run;
mod sched;
mod soak;

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

pub use check::{Check, Checks, Target};
pub use run::{only, run};

use crate::error::Result;
use crate::vm::{Cpus, Lab};

/// Where a claim is proven.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimHost {
    /// In machines that this program emulates.
    Emulated,
    /// In guests of a nested KVM host, in which this program runs and boots them.
    NestedHost,
    /// The same, where time is counted in instructions.
    CountedHost {
        /// The pCPUs that share the instructions.
        pcpus: Cpus,
        /// An instruction takes 2^n ns: [`VmSpec::counted`](crate::vm::VmSpec::counted).
        n: i8,
    },
    /// The same with 4 pCPUs, with guests that have the systemd image, and the Debian package.
    PackagedHost {
        /// An instruction takes 2^n ns.
        n: i8,
    },
}

impl ClaimHost {
    /// `n` where an instruction takes 2^n ns: the lower, the longer a second lasts. `None` where time is not counted.
    pub fn counted(self) -> Option<i8> {
        match self {
            Self::CountedHost { n, .. } | Self::PackagedHost { n } => Some(n),
            Self::Emulated | Self::NestedHost => None,
        }
    }
}

/// A claim about Gleaner.
#[derive(Debug, Clone, Copy)]
pub struct Claim {
    /// The name on the command line: words with hyphens.
    pub name: &'static str,
    /// The group that it belongs to, 1 to 8; 0 for the lab's own machines.
    pub group: u8,
    /// The claim, as a sentence.
    pub says: &'static str,
    /// Whether it is part of the five minutes in `make test`.
    pub quick: bool,
    /// Where it is proven.
    pub place: ClaimHost,
    /// Proves it.
    pub prove: fn(&Lab, &mut Checks) -> Result<()>,
}

/// Every claim, in the order of the table.
pub const ALL: &[Claim] = &[
    machines::BOOT,
    machines::FAULTS,
    nested::BOOT,
    doctor::TINY,
    doctor::TINY_MORE,
    doctor::SYSTEMD,
    haltpoll::CLAIM,
    consolidation::FINE,
    consolidation::COARSE,
    consolidation::PHASES,
    overcommit::CLAIM,
    reversible::CLAIM,
    kernels::BPF,
    package::CLAIM,
    package::REDIS_IN_KVM,
    host::AGREEMENT,
    host::CAUSES,
    host::OVERHEAD,
    host::CHURN,
    host::POLLING,
    host::JOINED,
    host::PACKAGE,
    sched::SAFETY,
    sched::FAIRNESS,
    sched::LATENCY,
    sched::HOLDERS,
    sched::TIMES,
    sched::SMALL,
    sched::PAIRS,
    sched::STRESS,
    sched::REPLAYED,
    sched::SYMBIOSIS,
];

/// The result of proving a claim.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The claim's name.
    pub name: String,
    /// The claim's group.
    pub group: u8,
    /// The claim, as a sentence.
    pub says: String,
    /// Its checks.
    pub checks: Vec<Check>,
    /// Why it could not be proven, if so.
    pub error: Option<String>,
    /// Time taken.
    pub took: Duration,
}

impl Outcome {
    /// Whether there were checks, and all of them hold.
    pub fn holds(&self) -> bool {
        self.error.is_none() && !self.checks.is_empty() && self.checks.iter().all(|check| check.holds)
    }
}

impl Claim {
    /// Proves the claim, emulated or in a nested host.
    pub fn outcome(&self, lab: &Lab) -> Outcome {
        let started = Instant::now();
        let mut checks = Checks::of(self.name);
        let proven = match self.place {
            ClaimHost::Emulated => (self.prove)(lab, &mut checks),
            _ if lab.is_nested() => (self.prove)(lab, &mut checks),
            _ => nested::inside(lab, self, &mut checks),
        };
        Outcome {
            name: self.name.to_owned(),
            group: self.group,
            says: self.says.to_owned(),
            checks: checks.into_inner(),
            error: proven.err().map(|error| error.to_string()),
            took: started.elapsed(),
        }
    }
}
