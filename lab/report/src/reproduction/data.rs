//! The output of `gleaner sim reproduce --json`: the papers' statements beside what was simulated, and their figures
//! as simulated.

use serde::Serialize;

pub use super::score::{Exchange, Found, Kind, NEAR, Row, Score, State, Statement};

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

/// A paper's figure, as simulated or as measured in the lab.
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

/// A paper's statements beside what was simulated.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Reproduction {
    /// Short name of the paper, e.g. `atc14`.
    pub name: &'static str,
    /// Title and place of publication.
    pub title: &'static str,
    /// Every statement of the paper's text, in its order.
    pub rows: Vec<Row>,
    /// Its figures.
    pub figures: Vec<Figure>,
}

impl Reproduction {
    /// The rows in this state.
    pub fn state(&self, state: State) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.statement.state == state)
    }
}

/// The reproductions of several papers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The version of Gleaner.
    pub version: String,
    /// Reproductions by paper.
    pub papers: Vec<Reproduction>,
}
