//! Formats the warnings of a result as few sentences: one for all cells with the same warning.

use gleaner_proto::result::Warning;

/// The warnings for a result with this number of `rows`.
pub(super) fn sentences(warnings: &[Warning], rows: usize) -> Vec<String> {
    let mut sentences: Vec<String> =
        warnings.iter().filter(|warning| !is_merged(warning)).map(Warning::to_string).collect();
    sentences.extend(too_few_rounds(warnings, rows));
    sentences.extend(worst(warnings, |warning| match warning {
        Warning::Steal { share, .. } => Some(*share),
        _ => None,
    }));
    sentences.extend(worst(warnings, |warning| match warning {
        Warning::Neighbours { share, .. } => Some(*share),
        _ => None,
    }));
    sentences.extend(outliers(warnings));
    sentences
}

const fn is_merged(warning: &Warning) -> bool {
    matches!(
        warning,
        Warning::TooFewRounds { .. }
            | Warning::Steal { .. }
            | Warning::Neighbours { .. }
            | Warning::Outliers { .. }
    )
}

/// One sentence if all rows have the same number of rounds, else one for each that has too few.
fn too_few_rounds(warnings: &[Warning], rows: usize) -> Vec<String> {
    let few: Vec<(&Warning, usize)> = warnings
        .iter()
        .filter_map(|warning| match warning {
            Warning::TooFewRounds { rounds, .. } => Some((warning, *rounds)),
            _ => None,
        })
        .collect();
    match few.as_slice() {
        [(Warning::TooFewRounds { row, .. }, first), _, ..]
            if few.len() == rows && few.iter().all(|(_, rounds)| rounds == first) =>
        {
            vec![few[0].0.to_string().replacen(row.as_str(), "every row", 1)]
        }
        few => few.iter().map(|(warning, _)| warning.to_string()).collect(),
    }
}

/// The sentence for the cell with the largest share, and how many such cells there are.
fn worst(warnings: &[Warning], share: impl Fn(&Warning) -> Option<f64>) -> Option<String> {
    let shares = || warnings.iter().filter_map(|warning| Some((share(warning)?, warning)));
    let (_, worst) = shares().max_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(match shares().count() {
        1 => worst.to_string(),
        cells => format!("{worst} (the worst of {cells} such cells)"),
    })
}

fn outliers(warnings: &[Warning]) -> Option<String> {
    let place = |warning: &Warning| match warning {
        Warning::Outliers { row, mode, rounds, .. } => {
            let rounds: Vec<String> = rounds.iter().map(|round| (round + 1).to_string()).collect();
            Some(format!("{row}, {mode}: {}", rounds.join(", ")))
        }
        _ => None,
    };
    let places: Vec<String> = warnings.iter().filter_map(place).collect();
    (!places.is_empty()).then(|| {
        format!(
            "some values lie far from the others of their mode; they are kept in every number; check what else happened \
             in these rounds, or run more of them: {}",
            places.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use gleaner_proto::result::Metric;

    use super::*;

    fn few(row: &str, rounds: usize) -> Warning {
        Warning::TooFewRounds { row: row.into(), rounds, needed: 6 }
    }

    #[test]
    fn outliers_share_a_sentence() {
        let outliers = |row: &str, rounds: &[usize]| Warning::Outliers {
            row: row.into(),
            mode: "default".into(),
            metric: Metric::Throughput,
            rounds: rounds.to_vec(),
        };
        let found = sentences(&[outliers("a", &[0, 3]), few("a", 2), outliers("b", &[1])], 2);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[1].ends_with("a, default: 1, 4; b, default: 2"), "{found:?}");
    }

    #[test]
    fn few_rounds_of_every_row_are_reported_once() {
        let found = sentences(&[few("a", 1), few("b", 1)], 2);
        assert!(found.len() == 1 && found[0].starts_with("every row: 1 round is too few"), "{found:?}");
        let found = sentences(&[few("a", 1), few("b", 1)], 3);
        assert!(found.len() == 2 && found[1].starts_with("b: 1 round"), "{found:?}");
        assert_eq!(sentences(&[few("a", 5), few("b", 4)], 2).len(), 2, "an interrupted run");
    }

    #[test]
    fn of_the_disturbed_cells_the_worst_is_named() {
        let neighbours = |row: &str, share| Warning::Neighbours {
            row: row.into(),
            mode: "default".into(),
            share,
            round: 0,
        };
        let found = sentences(&[neighbours("a", 0.1), neighbours("b", 0.3), neighbours("c", 0.2)], 3);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("b, default: ") && found[0].ends_with("(the worst of 3 such cells)"));
        assert!(sentences(&[neighbours("a", 0.1)], 1)[0].ends_with("stop them and repeat"));
    }
}
