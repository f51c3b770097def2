//! The interleaved runner: every round has all modes of a row in shuffled order, so that changes of the
//! machine (a neighbour, the clock frequency, the page cache) affect all modes alike.

use std::io::IsTerminal;

use gleaner_print::say;
use gleaner_proto::result::Failure;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::stats::Rng;

mod interrupt;

pub(crate) use interrupt::arrival;
pub use interrupt::{interrupted, interrupted_by, status, watch};

/// What to measure: every mode of every row, at most `rounds` times.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Names of the rows, measured one after the other.
    pub rows: Vec<String>,
    /// Names of the modes, interleaved within a row.
    pub modes: Vec<String>,
    /// Maximum number of measurements of each mode per row.
    pub rounds: usize,
    /// Rounds to discard before the measured ones.
    pub warmup_rounds: usize,
    /// Seed of the order of modes within each round.
    pub seed: u64,
}

/// One measurement of a [`Plan`], as indices into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Index of the row.
    pub row: usize,
    /// Number of the round, from 0; `None` during warm-up.
    pub round: Option<usize>,
    /// Position within the round, from 0.
    pub position: usize,
    /// Index of the mode.
    pub mode: usize,
}

/// The measurements of one row: `samples[mode][round]`, `None` if the cell failed or the run ended before it.
#[derive(Debug, Clone)]
pub struct RowSamples<T> {
    /// By mode, then by round.
    pub samples: Vec<Vec<Option<T>>>,
}

/// Why a cell was not measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The error message.
    pub message: String,
    /// Whether later cells would also fail or be wrong.
    pub ends_run: bool,
}

/// Everything that a run measured.
#[derive(Debug)]
pub struct Outcome<T> {
    /// By row, in the order of the plan. Rows that were not started are all `None`.
    pub rows: Vec<RowSamples<T>>,
    /// Failed cells, in the order of the run.
    pub failures: Vec<Failure>,
    /// Whether a signal, or a [`Problem`] that ends the run, ended it early.
    pub interrupted: bool,
}

impl Plan {
    /// The cells of `row` in the order of their measurement, warm-up first.
    pub fn order(&self, row: usize) -> Vec<Cell> {
        let mut rng = Rng::new(self.seed ^ (row as u64).wrapping_mul(0x9e37_79b9));
        let mut modes: Vec<usize> = (0..self.modes.len()).collect();
        let mut cells = Vec::with_capacity((self.warmup_rounds + self.rounds) * modes.len());
        for round in 0..self.warmup_rounds + self.rounds {
            let round = round.checked_sub(self.warmup_rounds);
            rng.shuffle(&mut modes);
            let cell = |(position, &mode)| Cell { row, round, position, mode };
            cells.extend(modes.iter().enumerate().map(cell));
        }
        cells
    }

    /// Measures every cell with `measure`. `enough` checks a row after each complete round and can end it
    /// early; `finished` turns a finished row into a line to print, if any. Failed cells are recorded and the
    /// run continues, unless the problem ends it; a signal (see [`watch`]) ends it with the measurements so
    /// far.
    pub fn run<T>(
        &self,
        mut measure: impl FnMut(Cell) -> Result<T, Problem>,
        mut enough: impl FnMut(usize, &RowSamples<T>) -> bool,
        mut finished: impl FnMut(usize, &RowSamples<T>) -> Option<String>,
    ) -> Outcome<T> {
        let mut outcome = Outcome { rows: Vec::new(), failures: Vec::new(), interrupted: false };
        let progress = Progress::new(self.rows.len() * self.cells_per_row());
        for (row, name) in self.rows.iter().enumerate() {
            let empty = || (0..self.rounds).map(|_| None).collect();
            let samples: Vec<Vec<Option<T>>> = (0..self.modes.len()).map(|_| empty()).collect();
            let mut samples = RowSamples { samples };
            for (index, cell) in self.order(row).into_iter().enumerate() {
                outcome.interrupted |= interrupted();
                if outcome.interrupted {
                    break;
                }
                let starts_round = cell.position == 0 && cell.round.is_some_and(|round| round > 0);
                if starts_round && enough(row, &samples) {
                    progress.skip(self.cells_per_row() - index);
                    break;
                }
                progress.start(name, &self.modes[cell.mode], cell.round);
                match (measure(cell), cell.round) {
                    (Ok(sample), Some(round)) => samples.samples[cell.mode][round] = Some(sample),
                    (Ok(_), None) => {}
                    (Err(_), _) if interrupted() => {}
                    (Err(problem), _) => {
                        outcome.interrupted |= problem.ends_run;
                        let failure = self.failure(cell, problem.message);
                        progress.line(&failure.to_string());
                        outcome.failures.push(failure);
                    }
                }
                progress.end();
            }
            if samples.samples.iter().flatten().any(Option::is_some)
                && let Some(line) = finished(row, &samples)
            {
                progress.line(&line);
            }
            outcome.rows.push(samples);
        }
        outcome.interrupted |= interrupted();
        progress.0.finish_and_clear();
        outcome
    }

    fn cells_per_row(&self) -> usize {
        self.modes.len() * (self.warmup_rounds + self.rounds)
    }

    fn failure(&self, cell: Cell, message: String) -> Failure {
        let (row, mode) = (self.rows[cell.row].clone(), self.modes[cell.mode].clone());
        Failure { row, mode, round: cell.round, message }
    }
}

fn round_name(round: Option<usize>) -> String {
    round.map_or_else(|| String::from("warm-up"), |round| format!("round {}", round + 1))
}

/// A progress bar on a terminal; in a pipe, only the lines.
struct Progress(ProgressBar);

impl Progress {
    fn new(cells: usize) -> Self {
        let visible = std::io::stderr().is_terminal();
        let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(cells as u64), target);
        let style = ProgressStyle::with_template("{pos}/{len} {wide_bar} {msg}  {eta} left");
        Self(style.map_or(bar.clone(), |style| bar.with_style(style)))
    }

    fn start(&self, row: &str, mode: &str, round: Option<usize>) {
        self.0.set_message(format!("{row}, {mode}, {}", round_name(round)));
    }

    /// Removes cells that need not be measured.
    fn skip(&self, cells: usize) {
        self.0.set_length(self.0.length().unwrap_or_default().saturating_sub(cells as u64));
    }

    fn end(&self) {
        self.0.inc(1);
    }

    fn line(&self, text: &str) {
        if self.0.is_hidden() { say!("{text}") } else { self.0.println(text) }
    }
}
