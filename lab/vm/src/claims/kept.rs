//! Keeps the latest outcome of each claim beside the page that shows them, so that a run of one claim, on any machine,
//! leaves the others as they were.

use std::io::ErrorKind;
use std::path::Path;
use std::{fs, io};

use crate::claims::{ALL, Outcome};
use crate::error::{Error, Result};

/// The outcomes in `file` with the `new` ones in place of those of the same claims, in the order of the table. The file
/// is written anew; where there is none, all are new.
///
/// # Errors
/// The file cannot be read or written, or holds no outcomes; it is left as it was.
pub fn update(file: &Path, new: &[Outcome]) -> Result<Vec<Outcome>> {
    let no_outcomes = |error: serde_json::Error| Error::file("read", file)(io::Error::from(error));
    let old: Vec<Outcome> = match fs::read(file) {
        Ok(text) => serde_json::from_slice(&text).map_err(no_outcomes)?,
        Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(Error::file("read", file)(error)),
    };
    let latest = |name: &str| new.iter().chain(&old).find(|outcome| outcome.name == name);
    let all: Vec<Outcome> = ALL.iter().filter_map(|claim| latest(claim.name)).cloned().collect();
    let text = serde_json::to_string_pretty(&all).map_err(no_outcomes)?;
    fs::write(file, text + "\n").map_err(Error::file("write", file))?;
    Ok(all)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn outcome(claim: usize, error: Option<&str>) -> Outcome {
        Outcome {
            name: ALL[claim].name.to_owned(),
            group: 1,
            says: String::new(),
            checks: Vec::new(),
            error: error.map(str::to_owned),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn the_latest_outcome_of_each_claim_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lab.json");
        update(&file, &[outcome(1, Some("first"))]).unwrap();
        update(&file, &[outcome(0, None)]).unwrap();
        let kept = update(&file, &[outcome(1, Some("second"))]).unwrap();
        assert_eq!(kept.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), [ALL[0].name, ALL[1].name]);
        assert_eq!(kept[1].error.as_deref(), Some("second"));
        assert_eq!(update(&file, &[]).unwrap().len(), 2, "the file has both");
    }

    #[test]
    fn a_file_of_something_else_is_named_and_left_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lab.json");
        fs::write(&file, "{}").unwrap();
        let error = update(&file, &[outcome(0, None)]).unwrap_err().to_string();
        assert!(error.contains("lab.json") && error.contains("sequence"), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), "{}");
    }
}
