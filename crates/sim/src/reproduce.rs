//! The papers' numbers beside simulated ones. Which numbers the model was fitted to, and which it was not, is said of
//! each; only the latter are evidence.

mod asplos13;
mod atc14;
mod lab;

pub use lab::{BUSY_W, IDLE_W, Side, Timing, Trial};

use std::fmt;

use serde::Serialize;

/// A paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paper {
    /// *Gleaner: Mitigating the Blocked-Waiter Wakeup Problem for Virtualized Multicore Applications*.
    Atc14,
    /// *Demand-Based Coordinated Scheduling for SMP VMs*.
    Asplos13,
}

/// What the model owes to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Costs or a program's parameters were chosen so that it comes out.
    Fitted,
    /// Nothing: it comes out as it does.
    HeldOut,
}

impl fmt::Display for Basis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fitted => "fitted",
            Self::HeldOut => "held out",
        })
    }
}

/// A number that a paper states.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Number {
    /// Table, figure or section.
    pub place: &'static str,
    /// What it is, with its unit.
    pub what: String,
    /// The paper's.
    pub paper: f64,
    /// The simulated one; none where the simulation did not end.
    pub simulated: Option<f64>,
    /// What the model owes to it.
    pub basis: Basis,
}

impl Number {
    /// The simulated number's relative error.
    pub fn error(&self) -> Option<f64> {
        self.simulated.map(|s| s / self.paper - 1.0)
    }
}

/// Something that a paper says about who wins, grows or shrinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Direction {
    /// What, with its place.
    pub what: String,
    /// Whether the simulation agrees.
    pub holds: bool,
}

/// A paper's numbers and the simulated ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Reproduction {
    /// The numbers.
    pub numbers: Vec<Number>,
    /// The directions.
    pub directions: Vec<Direction>,
    /// What the paper states and the simulator does not model, with the reason.
    pub not_modelled: Vec<&'static str>,
}

impl Reproduction {
    fn number(&mut self, place: &'static str, what: &str, paper: f64, simulated: Option<f64>, basis: Basis) {
        self.numbers.push(Number { place, what: what.to_owned(), paper, simulated, basis });
    }

    fn direction(&mut self, what: impl Into<String>, holds: Option<bool>) {
        self.directions.push(Direction { what: what.into(), holds: holds.unwrap_or(false) });
    }

    /// How many of the numbers with this basis are within `share` of the paper's, and how many there are.
    pub fn within(&self, share: f64, basis: Basis) -> (usize, usize) {
        let all = || self.numbers.iter().filter(|n| n.basis == basis);
        let near = all().filter(|n| n.error().is_some_and(|e| e.abs() <= share));
        (near.count(), all().count())
    }
}

impl Paper {
    /// Simulates what the paper measured; `progress` is told what comes next.
    pub fn reproduce(self, progress: impl FnMut(&str)) -> Reproduction {
        match self {
            Self::Atc14 => atc14::reproduce(progress),
            Self::Asplos13 => asplos13::reproduce(progress),
        }
    }
}
