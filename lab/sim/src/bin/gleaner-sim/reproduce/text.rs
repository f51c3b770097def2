//! The report for a terminal.

use std::fmt::Write as _;

use gleaner_sim::reproduce::{Exchange, Found, Kind, Report, Reproduction, Row, Score, State};

/// Longest statement in a line.
const STATEMENT: usize = 84;

pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    for paper in &report.papers {
        out += &of_paper(paper);
        out += "\n";
    }
    let rows: Vec<&Row> = report.papers.iter().flat_map(|p| &p.rows).collect();
    if report.papers.len() > 1 {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "All {} papers", report.papers.len());
        out += &scores(&rows);
    }
    let Exchange { rows, own, other } = Exchange::of(rows);
    if rows > 0 {
        let _ = writeln!(
            out,
            "\nCross-validation: of {rows} rows about programs with a fitted parameter, {own} are reproduced with their own and \
             {other} with the mean of those fitted in the other half of the programs."
        );
    }
    out
}

fn of_paper(r: &Reproduction) -> String {
    let mut out = format!("{}\n", r.title);
    for state in State::ALL {
        let rows: Vec<&Row> = r.state(state).filter(|row| row.statement.counts()).collect();
        if rows.is_empty() {
            continue;
        }
        if state == State::NotModelled {
            let _ = writeln!(out, "\n{}: {} rows, with their reasons in rows.csv", state.name(), rows.len());
            continue;
        }
        let _ = writeln!(
            out,
            "\n{:<96}{:>10}{:>11}{:>11}{:>11}",
            state.name(),
            "paper",
            "simulated",
            "adaptive",
            "without"
        );
        out.extend(rows.iter().map(|row| line(row)));
    }
    out + "\n" + &scores(&r.rows.iter().collect::<Vec<_>>())
}

/// A line of the score: its name and its number for a state.
type Line = (&'static str, fn(Score) -> usize);

/// The four columns.
fn scores(rows: &[&Row]) -> String {
    let counted = rows.iter().filter(|row| row.statement.counts()).count();
    let of = |state: State| Score::of(rows.iter().copied().filter(|row| row.statement.state == state));
    let all = State::ALL.map(of);
    let mut out =
        format!("{counted} statements ({} more repeat one of them)\n{:<42}", rows.len() - counted, "");
    for state in State::ALL {
        let _ = write!(out, "{:>15}", state.name());
    }
    let lines: [Line; 5] = [
        ("rows", |s| s.rows),
        ("reproduced", |s| s.reproduced),
        ("  of these without their mechanism, too", |s| s.also_without),
        ("  of these evidence", Score::evidence),
        ("reproduced with strategy adaptive", |s| s.adaptive),
    ];
    for (name, of) in lines {
        let _ = write!(out, "\n{name:<42}");
        for (state, score) in State::ALL.into_iter().zip(all) {
            let cell = if state == State::NotModelled && name != "rows" {
                "-".to_owned()
            } else {
                of(score).to_string()
            };
            let _ = write!(out, "{cell:>15}");
        }
    }
    let share = |count: usize, rows: usize| 100.0 * count as f64 / rows.max(1) as f64;
    let _ = write!(out, "\n{:<42}", "evidence, % of the rows");
    for (state, score) in State::ALL.into_iter().zip(all) {
        let cell = if state == State::NotModelled {
            "-".to_owned()
        } else {
            format!("{:.0}", share(score.evidence(), score.rows))
        };
        let _ = write!(out, "{cell:>15}");
    }
    let evidence: usize = all.iter().map(|s| s.evidence()).sum();
    let _ = writeln!(
        out,
        "\n{evidence} of {counted} statements ({:.0} %) are evidence.",
        share(evidence, counted)
    );
    out
}

fn line(row: &Row) -> String {
    let s = &row.statement;
    let mut says: String = s.says.chars().take(STATEMENT).collect();
    if says.len() < s.says.len() {
        says += "…";
    }
    let mark = match (row.reproduced(), row.passes_without()) {
        (false, _) => "NO",
        (true, true) => "(yes)",
        (true, false) => "yes",
    };
    let paper = match (s.kind, s.value) {
        (Kind::Lower, Some(v)) => format!(">= {v}"),
        (Kind::Upper, Some(v)) => format!("<= {v}"),
        (_, Some(v)) => v.to_string(),
        (_, None) => String::new(),
    };
    let adaptive = row.adaptive.map_or_else(String::new, |found| shown(Some(found)));
    format!(
        "  {mark:<7}{says:<87}{paper:>10}{:>11}{adaptive:>11}{:>11}\n",
        shown(row.simulated),
        shown(row.without)
    )
}

fn shown(found: Option<Found>) -> String {
    match found {
        None => "-".to_owned(),
        Some(Found::Holds(true)) => "yes".to_owned(),
        Some(Found::Holds(false)) => "no".to_owned(),
        Some(Found::Number(n)) => format!("{n:.2}"),
    }
}
