//! Every number and direction that the papers' text states, beside what the scenarios of those papers give when they
//! are simulated.
//!
//! The statements are the rows of `lab/sim/papers/rows.csv`, the machines are the files `lab/sim/scenarios/PAPER-….toml`,
//! and the modules here compute each row's quantity from runs of those files. Each row also runs with its mechanism
//! switched off ([`Off`]).

mod asplos13;
mod atc14;
mod exchange;
mod figures;
mod hp3c20;
pub mod lab;
mod measure;
mod off;
mod rows;
mod runs;
mod tpds21;

pub use gleaner_report::reproduction::data::{
    Bar, Chart, Exchange, Figure, Found, Group, Kind, Point, Quantity, Report, Reproduction, Row, Score,
    Series, State, Statement,
};
pub use off::Off;
pub use runs::{FILES, ReproduceError};

use measure::{Measure, Strategy, View};
use runs::Runs;

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

    /// Short name on the command line and in the rows.
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

    /// How the row called `id` is measured; `None` if it is not.
    fn measure(self, id: &str) -> Option<Measure> {
        match self {
            Self::Atc14 => atc14::measure(id),
            Self::Asplos13 => asplos13::measure(id),
            Self::Hp3c20 => hp3c20::measure(id),
            Self::Tpds21 => tpds21::measure(id),
        }
    }

    fn figures(self, view: &View<'_>) -> Vec<Figure> {
        match self {
            Self::Atc14 => atc14::figures(view),
            Self::Asplos13 => asplos13::figures(view),
            Self::Hp3c20 => hp3c20::figures(view),
            Self::Tpds21 => tpds21::figures(view),
        }
    }
}

/// A row with what there is to compute for it.
struct Job {
    paper: Paper,
    row: Row,
    measure: Option<Measure>,
    off: Option<Off>,
}

impl Job {
    fn new(paper: Paper, statement: Statement) -> Self {
        let simulated = statement.state != State::NotModelled && statement.counts();
        let measure = simulated.then(|| paper.measure(&statement.id)).flatten();
        let off = statement.off.as_ref().and_then(|off| off.parse().ok());
        Self { paper, row: Row::new(statement), measure, off }
    }

    /// Computes the row from the runs that are there.
    fn compute(&mut self, runs: &Runs) {
        let Some(measure) = &self.measure else { return };
        let model = View::new(runs);
        self.row.simulated = measure(&model);
        self.row.without = self.off.and_then(|off| measure(&View { off: Some(off), ..model }));
        let adaptive = View { strategy: Strategy::Adaptive, ..model };
        self.row.adaptive = (self.off == Some(Off::Gleaner)).then(|| measure(&adaptive)).flatten();
        let half = self.row.statement.program.as_deref().and_then(exchange::without_program);
        self.row.exchanged = half.and_then(|half| measure(&View { grains: Some(half), ..model }));
    }
}

/// Simulates what the papers measured, optionally with their figures; `progress` gets how many runs are done and how
/// many are known to be needed.
///
/// # Errors
/// A scenario file is not valid, or a row is.
pub fn reproduce(
    papers: &[Paper],
    figures: bool,
    progress: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Reproduction>, ReproduceError> {
    let runs = Runs::new()?;
    let mut jobs: Vec<Job> = Vec::new();
    for statement in rows::all()? {
        if let Some(paper) = papers.iter().find(|paper| paper.name() == statement.paper) {
            jobs.push(Job::new(*paper, statement));
        }
    }
    // A measure asks for runs; those that are not there are simulated, until nothing is missing any more.
    loop {
        for job in &mut jobs {
            job.compute(&runs);
        }
        let drawn: Vec<Vec<Figure>> = if figures {
            papers.iter().map(|paper| paper.figures(&View::new(&runs))).collect()
        } else {
            papers.iter().map(|_| Vec::new()).collect()
        };
        if runs.simulate_wanted(progress)? == 0 {
            let mut of = |paper: Paper| -> Vec<Row> {
                jobs.extract_if(.., |job| job.paper == paper).map(|job| job.row).collect()
            };
            let paper = |(paper, figures): (&Paper, Vec<Figure>)| Reproduction {
                name: paper.name(),
                title: paper.title(),
                rows: of(*paper),
                figures,
            };
            return Ok(papers.iter().zip(drawn).map(paper).collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_rows_that_are_modelled_have_a_measure_and_a_mechanism_to_switch_off() {
        for statement in rows::all().unwrap() {
            let paper = Paper::ALL.into_iter().find(|p| p.name() == statement.paper).unwrap();
            let modelled = statement.state != State::NotModelled && statement.counts();
            let row = format!("{} {}", statement.paper, statement.id);
            assert_eq!(paper.measure(&statement.id).is_some(), modelled, "{row}");
            let off = statement.off.as_ref().map(|off| off.parse::<Off>());
            assert!(off.is_some() == modelled && !matches!(off, Some(Err(_))), "{row}: {off:?}");
        }
    }
}
