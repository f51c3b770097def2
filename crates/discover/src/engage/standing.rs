//! How a workload stands, in sentences for the user.

use std::fmt;
use std::time::Duration;

/// Why a workload is released; its text is the reason as a clause.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Release {
    /// It ended, or a rule excludes it now.
    Gone,
    /// Waking cost it too little for so long, and nothing is in force for it.
    NothingToWin {
        /// How long it cost too little.
        after: Duration,
    },
    /// It used next to no CPU time for so long.
    Idle {
        /// How long it has been idle.
        after: Duration,
    },
    /// Nothing paid for it, and another one can gain much more.
    Displaced,
    /// More are engaged than the configuration allows.
    TooMany {
        /// The most that are allowed.
        most: usize,
    },
}

/// How a workload stands at this time, and why; its text is the reason as a clause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Standing {
    /// It is engaged.
    Engaged {
        /// What waking can cost it, in vCPUs.
        lost: f64,
    },
    /// It uses too little CPU time.
    Idle {
        /// CPU time per time, in vCPUs.
        load: f64,
    },
    /// Waking costs it too little.
    Cheap {
        /// What waking can cost it, in vCPUs.
        lost: f64,
    },
    /// Waking costs enough, but was not seen to for long enough yet.
    Watched {
        /// What waking can cost it, in vCPUs.
        lost: f64,
    },
    /// It was engaged in vain.
    Away {
        /// For how long it is still left alone.
        remaining: Duration,
    },
    /// As many as allowed are engaged.
    Full {
        /// What waking can cost it, in vCPUs.
        lost: f64,
        /// The most that are allowed.
        most: usize,
    },
}

/// A share of one vCPU, as a number that a reader can use.
struct Share(f64);

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        write!(f, "{percent:.*} % of a vCPU", usize::from(percent < 9.95))
    }
}

impl fmt::Display for Release {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("it ended, or a rule excludes it now"),
            Self::NothingToWin { after } => {
                write!(f, "waking has cost it next to nothing for {} s", after.as_secs())
            }
            Self::Idle { after } => write!(f, "it has been idle for {} s", after.as_secs()),
            Self::Displaced => f.write_str("nothing that was tried paid, and another one can gain more"),
            Self::TooMany { most } => write!(f, "the configuration allows only {most} workloads"),
        }
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Engaged { lost } => write!(f, "waking can cost it {}", Share(*lost)),
            Self::Idle { load } => write!(f, "it uses {}, too little to matter", Share(*load)),
            Self::Cheap { lost } => write!(f, "waking costs it {}, too little to matter", Share(*lost)),
            Self::Watched { lost } => {
                write!(
                    f,
                    "waking can cost it {}: if that lasts until the next survey, it is engaged",
                    Share(*lost)
                )
            }
            Self::Away { remaining } => {
                let seconds = remaining.as_secs_f64().ceil();
                write!(f, "nothing that was tried paid, so it is left alone for {seconds:.0} s more")
            }
            Self::Full { lost, most } => write!(
                f,
                "waking can cost it {}, but {most} workloads are engaged, the most that the \
                 configuration allows",
                Share(*lost)
            ),
        }
    }
}
