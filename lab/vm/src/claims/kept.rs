//! Keeps the latest outcome of each claim in the cache, so that the page can combine several runs.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache::Cache;
use crate::claims::{ALL, Outcome};
use crate::error::{Error, Result};

const DIR: &str = "outcomes";

/// Keeps an outcome, replacing the claim's previous one.
pub fn keep(cache: &Cache, outcome: &Outcome) -> Result<()> {
    let path = file(&cache.scratch(DIR)?, &outcome.name);
    let text = serde_json::to_string(outcome)
        .map_err(|error| Error::Protocol { who: path.display().to_string(), what: error.to_string() })?;
    fs::write(&path, text).map_err(Error::file("write", path))
}

/// The latest outcome of each claim, in the order of the table. Those that cannot be read count as not proven.
pub fn all(cache: &Cache) -> Result<Vec<Outcome>> {
    let dir = cache.scratch(DIR)?;
    let read = |name: &str| serde_json::from_slice(&fs::read(file(&dir, name)).ok()?).ok();
    Ok(ALL.iter().filter_map(|claim| read(claim.name)).collect())
}

fn file(dir: &Path, name: &str) -> PathBuf {
    dir.join(format!("{name}.json"))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_latest_outcome_of_each_claim_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path()).unwrap();
        let outcome = |claim: usize, error: Option<&str>| Outcome {
            name: ALL[claim].name.to_owned(),
            group: 1,
            says: String::new(),
            checks: Vec::new(),
            error: error.map(str::to_owned),
            took: Duration::ZERO,
        };
        for outcome in [outcome(1, Some("first")), outcome(0, None), outcome(1, Some("second"))] {
            keep(&cache, &outcome).unwrap();
        }
        let kept = all(&cache).unwrap();
        assert_eq!(kept.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), [ALL[0].name, ALL[1].name]);
        assert_eq!(kept[1].error.as_deref(), Some("second"));
    }
}
