//! The papers' numbers beside the simulated ones. For each number, the report states whether the model was
//! fitted to it; only the others are evidence.

mod asplos13;
mod atc14;
mod hp3c20;
mod lab;
mod tpds21;

pub use gleaner_report::reproduction::data::{
    Bar, Basis, Chart, Direction, Figure, Group, Number, Point, Quantity, Report, Reproduction, Score,
    Series, near, right,
};
pub use lab::{BUSY_W, IDLE_W, Side, Timing, Trial};

/// Seed of all random numbers in reproductions.
pub const SEED: u64 = 1;

/// A reproduced paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Paper {
    /// *Gleaner: Mitigating the Blocked-Waiter Wakeup Problem for Virtualized Multicore Applications*.
    Atc14,
    /// *Demand-Based Coordinated Scheduling for SMP VMs*.
    Asplos13,
    /// The study of idle polling and halt polling on SMT processors.
    Hp3c20,
    /// *Virtualization Overhead of Multithreading in X86: State of the Art & Remaining Challenges*.
    Tpds21,
}

impl Paper {
    /// All papers.
    pub const ALL: [Self; 4] = [Self::Atc14, Self::Asplos13, Self::Hp3c20, Self::Tpds21];

    /// Short name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Atc14 => "atc14",
            Self::Asplos13 => "asplos13",
            Self::Hp3c20 => "hp3c20",
            Self::Tpds21 => "tpds21",
        }
    }

    /// Title and venue.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Atc14 => {
                "Gleaner: Mitigating the Blocked-Waiter Wakeup Problem for Virtualized Multicore Applications (USENIX ATC 2014)"
            }
            Self::Asplos13 => "Demand-Based Coordinated Scheduling for SMP VMs (ASPLOS 2013)",
            Self::Hp3c20 => "IdlePoll and HaltPoll on SMT processors in clouds (HP3C 2020)",
            Self::Tpds21 => {
                "Virtualization Overhead of Multithreading in X86: State of the Art & Remaining Challenges (IEEE TPDS 2021)"
            }
        }
    }

    /// Simulates what the paper measured, optionally with its figures; `progress` gets what runs next.
    pub fn reproduce(self, figures: bool, mut progress: &mut dyn FnMut(&str)) -> Reproduction {
        let mut out = match self {
            Self::Atc14 => atc14::reproduce(&mut progress),
            Self::Asplos13 => asplos13::reproduce(&mut progress),
            Self::Hp3c20 => hp3c20::reproduce(progress),
            Self::Tpds21 => tpds21::reproduce(progress),
        };
        match self {
            // Their figures need separate runs.
            Self::Atc14 if figures => out.figures = atc14::figures(progress),
            Self::Asplos13 if figures => out.figures = asplos13::figures(progress),
            _ if !figures => out.figures.clear(),
            _ => {}
        }
        Reproduction { name: self.name(), title: self.title(), ..out }
    }
}
