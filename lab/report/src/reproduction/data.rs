//! The output of `gleaner sim reproduce --json`: the papers' numbers beside simulated ones, which of these were
//! fitted, and the papers' figures as simulated.

use std::fmt;

use serde::Serialize;

/// Whether the model was fitted to a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Costs or a program's parameters were chosen to reproduce it.
    Fitted,
    /// Not fitted.
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

/// A number stated by a paper.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Number {
    /// Table, figure or section.
    pub place: &'static str,
    /// The quantity, with its unit.
    pub what: String,
    /// The paper's value.
    pub paper: f64,
    /// The simulated value; `None` if the simulation did not end.
    pub simulated: Option<f64>,
    /// The value simulated under `gleaner run --strategy paper`, if Gleaner takes part; `simulated` is the
    /// adaptive strategy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy_paper: Option<f64>,
    /// Whether the model was fitted to it.
    pub basis: Basis,
}

impl Number {
    /// The relative error of the simulated value.
    pub fn error(&self) -> Option<f64> {
        self.simulated.map(|s| s / self.paper - 1.0)
    }

    /// The relative error under the strategy `paper`.
    pub fn strategy_paper_error(&self) -> Option<f64> {
        self.strategy_paper.map(|s| s / self.paper - 1.0)
    }
}

/// A statement of a paper about what wins, grows or shrinks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Direction {
    /// The statement, with its place in the paper.
    pub what: String,
    /// Whether the simulation agrees.
    pub holds: bool,
    /// Whether it agrees under `gleaner run --strategy paper`, if Gleaner takes part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy_paper: Option<bool>,
}

/// The kind of a figure's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Quantity {
    /// A plain number, such as events per second.
    Plain,
    /// A multiple of another value.
    Factor,
    /// A share of one; can exceed one or be negative.
    Share,
}

/// A labelled value, with a range if it summarises several.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bar {
    /// Meaning of the value.
    pub label: String,
    /// Number of the series, from 0: bars of a series have the same style.
    pub series: usize,
    /// The value; `None` if the simulation did not end.
    pub value: Option<f64>,
    /// Lower and upper end of the values summarised.
    pub range: Option<(f64, f64)>,
}

/// Bars shown together.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Group {
    /// Heading of the group; can be empty.
    pub label: String,
    /// Bars in display order.
    pub bars: Vec<Bar>,
}

/// A line of points.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Series {
    /// Meaning of the line.
    pub label: String,
    /// Points in ascending order of x.
    pub points: Vec<(f64, f64)>,
}

/// A labelled point.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Meaning of the point.
    pub label: String,
    /// Horizontal coordinate.
    pub x: f64,
    /// Vertical coordinate.
    pub y: f64,
}

/// The form of a figure.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Chart {
    /// Bars that start from a reference.
    Bars {
        /// The value at which bars start.
        reference: f64,
        /// Groups in display order.
        groups: Vec<Group>,
    },
    /// Lines over a logarithmic axis.
    Lines {
        /// Label of the horizontal axis.
        across: &'static str,
        /// Lines in display order.
        series: Vec<Series>,
    },
    /// Labelled points.
    Points {
        /// Label of the horizontal axis.
        across: &'static str,
        /// Points in display order.
        points: Vec<Point>,
    },
}

/// A paper's figure, as simulated.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// Name of the figure in the paper, e.g. `Figure 4a`.
    pub place: &'static str,
    /// Title of the figure.
    pub title: String,
    /// How to read it, and how it differs from the paper's.
    pub caption: String,
    /// Label of the values.
    pub value: &'static str,
    /// The kind of its values.
    pub quantity: Quantity,
    /// The data.
    pub chart: Chart,
}

/// A paper's numbers beside the simulated ones.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Reproduction {
    /// Short name of the paper, e.g. `atc14`.
    pub name: &'static str,
    /// Title and place of publication.
    pub title: &'static str,
    /// Numbers that the paper states.
    pub numbers: Vec<Number>,
    /// Statements without numbers.
    pub directions: Vec<Direction>,
    /// What the paper states and the simulator does not model, with the reason.
    pub not_modelled: Vec<&'static str>,
    /// Figures, as simulated.
    pub figures: Vec<Figure>,
}

impl Reproduction {
    /// Adds a number that the model was, or was not, fitted to.
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

    /// Adds a number that depends on Gleaner, with the strategies `adaptive` and `paper`.
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

    /// Adds a direction; `None` (not simulated) counts as not holding.
    pub fn direction(&mut self, what: impl Into<String>, holds: Option<bool>) {
        self.directions.push(Direction {
            what: what.into(),
            holds: holds.unwrap_or(false),
            strategy_paper: None,
        });
    }

    /// Adds a direction that depends on Gleaner, with the strategies `adaptive` and `paper`.
    pub fn direction_by_strategy(&mut self, what: impl Into<String>, holds: [Option<bool>; 2]) {
        let [holds, strategy_paper] = holds.map(|holds| holds.unwrap_or(false));
        self.directions.push(Direction { what: what.into(), holds, strategy_paper: Some(strategy_paper) });
    }
}

/// The reproductions of several papers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The version of Gleaner.
    pub version: String,
    /// The random seed.
    pub seed: u64,
    /// Reproductions by paper.
    pub papers: Vec<Reproduction>,
}

/// A count out of a total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Number reproduced.
    pub right: usize,
    /// Total number.
    pub all: usize,
}

impl Score {
    fn of(right: impl Iterator<Item = bool>) -> Self {
        right.fold(Self::default(), |s, r| Self { right: s.right + usize::from(r), all: s.all + 1 })
    }

    /// The share reproduced, 0..=1; 1 if the total is 0.
    pub fn share(self) -> f64 {
        if self.all == 0 { 1.0 } else { self.right as f64 / self.all as f64 }
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{} of {}", self.right, self.all))
    }
}

/// The relative error up to which a number counts as reproduced.
pub const NEAR: f64 = 0.25;

/// The numbers with this basis, and those of them within [`NEAR`].
pub fn near<'a>(papers: impl IntoIterator<Item = &'a Reproduction>, basis: Basis) -> Score {
    let numbers = papers.into_iter().flat_map(|p| &p.numbers).filter(|n| n.basis == basis);
    Score::of(numbers.map(|n| n.error().is_some_and(|e| e.abs() <= NEAR)))
}

/// The directions, and those of them that the simulation confirms.
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
