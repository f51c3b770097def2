//! The papers' statements as rows, what a simulation gave for each, and the score.

use serde::{Deserialize, Serialize};

/// What a paper states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A number.
    Value,
    /// At least this number.
    Lower,
    /// At most this number.
    Upper,
    /// What wins, grows or shrinks.
    Direction,
}

/// What a row is worth as evidence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A cost or a program's parameter was chosen by it.
    Fitted,
    /// It was in view while the model was built.
    Development,
    /// No score had it when the model was last changed.
    Test,
    /// Nothing simulates it; the row says why.
    NotModelled,
}

impl State {
    /// All of them, in the order of the columns.
    pub const ALL: [Self; 4] = [Self::Fitted, Self::Development, Self::Test, Self::NotModelled];

    /// Heading of its column.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fitted => "fitted",
            Self::Development => "development",
            Self::Test => "test",
            Self::NotModelled => "not modelled",
        }
    }
}

/// A statement of a paper: a row of the data file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    /// Short name of the paper.
    pub paper: String,
    /// Section and a counter within it; unique in the paper.
    pub id: String,
    /// Section, table or figure.
    pub place: String,
    /// The statement in our words, with its configuration.
    pub says: String,
    /// Its kind.
    pub kind: Kind,
    /// The number; none for a direction.
    pub value: Option<f64>,
    /// Unit of the number.
    pub unit: Option<String>,
    /// What must hold for a direction.
    pub expects: Option<String>,
    /// What the row is worth.
    pub state: State,
    /// The row that states the same; this one then counts nowhere.
    pub repeats: Option<String>,
    /// The mechanism to switch off for the null model.
    pub off: Option<String>,
    /// The fitted program that it is about, if it is about one.
    pub program: Option<String>,
    /// Why it is not modelled, what was fitted by it, or how the simulated quantity differs from the text's.
    pub note: Option<String>,
}

/// The relative error up to which a number counts as reproduced.
pub const NEAR: f64 = 0.25;

/// What a simulation gave.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Found {
    /// A number, in the row's unit.
    Number(f64),
    /// Whether the direction holds.
    Holds(bool),
}

impl Statement {
    /// Whether `found` agrees with the statement. Numbers may deviate by [`NEAR`], in the unit in which the paper
    /// states them; bounds are one-sided and exact. What did not end does not agree.
    pub fn agrees(&self, found: Option<Found>) -> bool {
        match (self.kind, found, self.value) {
            (Kind::Value, Some(Found::Number(n)), Some(v)) => (n - v).abs() <= NEAR * v.abs(),
            (Kind::Lower, Some(Found::Number(n)), Some(v)) => n >= v,
            (Kind::Upper, Some(Found::Number(n)), Some(v)) => n <= v,
            (Kind::Direction, Some(Found::Holds(holds)), _) => holds,
            _ => false,
        }
    }

    /// Whether the row counts: it repeats no other.
    pub const fn counts(&self) -> bool {
        self.repeats.is_none()
    }
}

/// A statement and what the simulations gave for it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The statement.
    #[serde(flatten)]
    pub statement: Statement,
    /// As the model is; with the strategy `paper` where Gleaner takes part.
    pub simulated: Option<Found>,
    /// The same with the strategy `adaptive`; only where Gleaner takes part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<Found>,
    /// With the row's mechanism switched off.
    pub without: Option<Found>,
    /// With the program's fitted parameter replaced by the mean of those fitted in the other half of the
    /// programs; only rows about such a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchanged: Option<Found>,
}

impl Row {
    /// A row that nothing was simulated for.
    pub const fn new(statement: Statement) -> Self {
        Self { statement, simulated: None, adaptive: None, without: None, exchanged: None }
    }

    /// Whether the simulation agrees with the statement.
    pub fn reproduced(&self) -> bool {
        self.statement.agrees(self.simulated)
    }

    /// Whether it agrees without the mechanism, too, so that it is no evidence for it.
    pub fn passes_without(&self) -> bool {
        self.statement.agrees(self.without)
    }
}

/// How many rows agree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Score {
    /// Number of rows.
    pub rows: usize,
    /// Rows that the simulation reproduces.
    pub reproduced: usize,
    /// Those of them that pass without their mechanism, too.
    pub also_without: usize,
    /// Rows that the strategy `adaptive` reproduces where Gleaner takes part, and the model elsewhere.
    pub adaptive: usize,
}

impl Score {
    /// The score of these rows; those that repeat another are left out.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        rows.into_iter().filter(|row| row.statement.counts()).fold(Self::default(), |sum, row| {
            let reproduced = row.reproduced();
            let adaptive = row.adaptive.map_or(reproduced, |found| row.statement.agrees(Some(found)));
            Self {
                rows: sum.rows + 1,
                reproduced: sum.reproduced + usize::from(reproduced),
                also_without: sum.also_without + usize::from(reproduced && row.passes_without()),
                adaptive: sum.adaptive + usize::from(adaptive),
            }
        })
    }

    /// Rows that the simulation reproduces and that fail without their mechanism.
    pub const fn evidence(self) -> usize {
        self.reproduced - self.also_without
    }
}

/// The cross-validation: rows about a program with a fitted parameter, with its own and with the other half's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Exchange {
    /// Number of rows.
    pub rows: usize,
    /// Rows reproduced with the program's own parameter.
    pub own: usize,
    /// Rows reproduced with that of the other half of the programs.
    pub other: usize,
}

impl Exchange {
    /// Counts these rows, as far as they are about such a program.
    pub fn of<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Self {
        let about = |row: &&Row| row.statement.counts() && row.exchanged.is_some();
        rows.into_iter().filter(about).fold(Self::default(), |sum, row| Self {
            rows: sum.rows + 1,
            own: sum.own + usize::from(row.reproduced()),
            other: sum.other + usize::from(row.statement.agrees(row.exchanged)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: Kind, value: f64, simulated: Option<Found>, without: Option<Found>) -> Row {
        let statement = Statement {
            paper: "first".to_owned(),
            id: "1-01".to_owned(),
            place: "§1".to_owned(),
            says: "something".to_owned(),
            kind,
            value: (kind != Kind::Direction).then_some(value),
            unit: None,
            expects: None,
            state: State::Test,
            repeats: None,
            off: None,
            program: None,
            note: None,
        };
        Row { simulated, without, ..Row::new(statement) }
    }

    fn number(kind: Kind, value: f64, simulated: f64) -> bool {
        row(kind, value, Some(Found::Number(simulated)), None).reproduced()
    }

    #[test]
    fn numbers_may_deviate_by_a_quarter_and_bounds_to_one_side_only() {
        for (kind, value, simulated, agrees) in [
            (Kind::Value, 2.0, 2.5, true),
            (Kind::Value, 2.0, 2.51, false),
            (Kind::Value, -20.0, -16.0, true),
            (Kind::Value, -20.0, -14.0, false),
            (Kind::Lower, 5.6, 5.6, true),
            (Kind::Lower, 5.6, 5.59, false),
            (Kind::Lower, 5.6, 500.0, true),
            (Kind::Upper, 75.0, 75.1, false),
            (Kind::Upper, 75.0, 0.0, true),
            (Kind::Value, 2.0, f64::NAN, false),
        ] {
            assert_eq!(number(kind, value, simulated), agrees, "{kind:?} {value}: {simulated}");
        }
        assert!(!row(Kind::Upper, 75.0, None, None).reproduced(), "what did not end");
        assert!(!row(Kind::Direction, 0.0, Some(Found::Number(1.0)), None).reproduced());
    }

    #[test]
    fn the_score_counts_every_row_once_and_what_needs_no_mechanism_apart() {
        let yes = Some(Found::Holds(true));
        let no = Some(Found::Holds(false));
        let mut rows = vec![
            row(Kind::Direction, 0.0, yes, no),
            row(Kind::Direction, 0.0, yes, yes),
            row(Kind::Direction, 0.0, no, yes),
            row(Kind::Direction, 0.0, None, None),
            row(Kind::Direction, 0.0, yes, no),
        ];
        rows[0].adaptive = no;
        rows[0].exchanged = no;
        rows[4].statement.repeats = Some("1-01".to_owned());
        let score = Score::of(&rows);
        assert_eq!(score, Score { rows: 4, reproduced: 2, also_without: 1, adaptive: 1 });
        assert_eq!(score.evidence(), 1);
        assert_eq!(Exchange::of(&rows), Exchange { rows: 1, own: 1, other: 0 });
    }
}
