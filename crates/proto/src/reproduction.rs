//! What `gleaner sim reproduce --json` prints: the papers' numbers beside simulated ones, with what the model owes to each,
//! and the papers' figures as simulated.

use std::fmt;

use serde::Serialize;

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
    /// The simulated one under `gleaner run --strategy paper`, where Gleaner takes part; `simulated` is the adaptive
    /// strategy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy_paper: Option<f64>,
    /// What the model owes to it.
    pub basis: Basis,
}

impl Number {
    /// The simulated number's relative error.
    pub fn error(&self) -> Option<f64> {
        self.simulated.map(|s| s / self.paper - 1.0)
    }

    /// The same under the strategy `paper`.
    pub fn strategy_paper_error(&self) -> Option<f64> {
        self.strategy_paper.map(|s| s / self.paper - 1.0)
    }
}

/// Something that a paper says about who wins, grows or shrinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Direction {
    /// What, with its place.
    pub what: String,
    /// Whether the simulation agrees.
    pub holds: bool,
    /// Whether it agrees under `gleaner run --strategy paper`, where Gleaner takes part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy_paper: Option<bool>,
}

/// What a figure's values count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// A plain number, such as events per second.
    Plain,
    /// Times another value.
    Factor,
    /// A share of one; more than one and less than zero are possible.
    Share,
}

/// A value at a label, with its range where it stands for several.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bar {
    /// What it stands for.
    pub label: String,
    /// Its series, from 0: bars of a series look alike.
    pub series: usize,
    /// The value; none where the simulation did not end.
    pub value: Option<f64>,
    /// The lower and upper end of what it stands for.
    pub range: Option<(f64, f64)>,
}

/// Bars that belong together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// What they have in common; empty for no heading.
    pub label: String,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// Values over something.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// What it stands for.
    pub label: String,
    /// Its points, in rising order.
    pub points: Vec<(f64, f64)>,
}

/// A point with a name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// What it stands for.
    pub label: String,
    /// Across.
    pub x: f64,
    /// Up.
    pub y: f64,
}

/// How a figure shows its values.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Chart {
    /// Bars from a reference on.
    Bars {
        /// Where they begin.
        reference: f64,
        /// The bars.
        groups: Vec<Group>,
    },
    /// Lines over an axis with equal ratios.
    Lines {
        /// What is across.
        across: &'static str,
        /// The lines.
        series: Vec<Series>,
    },
    /// Named points.
    Points {
        /// What is across.
        across: &'static str,
        /// The points.
        points: Vec<Point>,
    },
}

/// A paper's figure, as simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// The paper's number of it, e.g. `Figure 4a`.
    pub place: &'static str,
    /// What it shows.
    pub title: String,
    /// How to read it, and what is different from the paper's.
    pub caption: String,
    /// What its values are.
    pub value: &'static str,
    /// What they count.
    pub quantity: Quantity,
    /// The values.
    pub chart: Chart,
}

/// A paper's numbers and the simulated ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Reproduction {
    /// The paper, in short, e.g. `atc14`.
    pub name: &'static str,
    /// Its title and where it was published.
    pub title: &'static str,
    /// The numbers.
    pub numbers: Vec<Number>,
    /// The directions.
    pub directions: Vec<Direction>,
    /// What the paper states and the simulator does not model, with the reason.
    pub not_modelled: Vec<&'static str>,
    /// The figures.
    pub figures: Vec<Figure>,
}

impl Reproduction {
    /// Adds a number.
    pub fn number(
        &mut self,
        place: &'static str,
        what: &str,
        paper: f64,
        simulated: Option<f64>,
        basis: Basis,
    ) {
        self.number_by_strategy(place, what, paper, [simulated, None], basis);
    }

    /// Adds a number that Gleaner takes part in: with the strategies `adaptive` and `paper`.
    pub fn number_by_strategy(
        &mut self,
        place: &'static str,
        what: &str,
        paper: f64,
        [simulated, strategy_paper]: [Option<f64>; 2],
        basis: Basis,
    ) {
        self.numbers.push(Number { place, what: what.to_owned(), paper, simulated, strategy_paper, basis });
    }

    /// Adds a direction; what could not be simulated does not hold.
    pub fn direction(&mut self, what: impl Into<String>, holds: Option<bool>) {
        self.directions.push(Direction {
            what: what.into(),
            holds: holds.unwrap_or(false),
            strategy_paper: None,
        });
    }

    /// Adds a direction that Gleaner takes part in: with the strategies `adaptive` and `paper`.
    pub fn direction_by_strategy(&mut self, what: impl Into<String>, holds: [Option<bool>; 2]) {
        let [holds, strategy_paper] = holds.map(|holds| holds.unwrap_or(false));
        self.directions.push(Direction { what: what.into(), holds, strategy_paper: Some(strategy_paper) });
    }
}

/// What several papers' reproductions come to.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The version of Gleaner.
    pub version: String,
    /// What decided everything random.
    pub seed: u64,
    /// The papers.
    pub papers: Vec<Reproduction>,
}

/// How many of how many.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// So many are right.
    pub right: usize,
    /// So many there are.
    pub all: usize,
}

impl Score {
    fn of(right: impl Iterator<Item = bool>) -> Self {
        right.fold(Self::default(), |s, r| Self { right: s.right + usize::from(r), all: s.all + 1 })
    }

    /// The share that is right, from 0 to 1; of nothing, all is.
    pub fn share(self) -> f64 {
        if self.all == 0 { 1.0 } else { self.right as f64 / self.all as f64 }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} of {}", self.right, self.all))
    }
}

/// A number counts as reproduced within this share of the paper's.
pub const NEAR: f64 = 0.25;

/// Of the numbers with this basis, those within [`NEAR`] of the papers'.
pub fn near<'a>(papers: impl IntoIterator<Item = &'a Reproduction>, basis: Basis) -> Score {
    let numbers = papers.into_iter().flat_map(|p| &p.numbers).filter(|n| n.basis == basis);
    Score::of(numbers.map(|n| n.error().is_some_and(|e| e.abs() <= NEAR)))
}

/// Of the directions, those that the simulation shares.
pub fn right<'a>(papers: impl IntoIterator<Item = &'a Reproduction>) -> Score {
    Score::of(papers.into_iter().flat_map(|p| &p.directions).map(|d| d.holds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_count_by_basis_and_what_did_not_end_is_wrong() {
        let mut paper = Reproduction::default();
        paper.number("§1", "exact", 2.0, Some(2.0), Basis::HeldOut);
        paper.number("§1", "a quarter more", 2.0, Some(2.5), Basis::HeldOut);
        paper.number("§1", "too far", 2.0, Some(2.51), Basis::HeldOut);
        paper.number("§1", "did not end", 2.0, None, Basis::HeldOut);
        paper.number("§1", "fitted", 2.0, Some(2.0), Basis::Fitted);
        paper.direction("grows", Some(true));
        paper.direction("did not end", None);
        assert_eq!(near([&paper], Basis::HeldOut), Score { right: 2, all: 4 });
        assert_eq!(near([&paper, &paper], Basis::Fitted), Score { right: 2, all: 2 });
        assert_eq!(right([&paper]).to_string(), "1 of 2");
        assert!((right([&paper]).share() - 0.5).abs() < 1e-9);
    }
}
