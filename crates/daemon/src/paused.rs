//! A pause that somebody asked for. It is kept in a file, so that it outlives the daemon, but not the machine.

use std::fs;
use std::path::PathBuf;

use gleaner_engine::StateDir;
use tracing::warn;

/// A pause that somebody asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Paused {
    pub(crate) reason: Option<String>,
}

impl Paused {
    /// What was asked of an earlier daemon.
    pub(crate) fn load(state: &StateDir) -> Option<Self> {
        let text = fs::read_to_string(file(state)).ok()?;
        Some(Self { reason: Some(text).filter(|text| !text.is_empty()) })
    }

    /// Keeps it for the next daemon.
    pub(crate) fn save(&self, state: &StateDir) {
        let path = file(state);
        if let Err(error) = fs::write(&path, self.reason.as_deref().unwrap_or_default()) {
            warn!("the pause ends with this daemon, since {} cannot be written: {error}", path.display());
        }
    }

    /// It has ended.
    pub(crate) fn remove(state: &StateDir) {
        let path = file(state);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                warn!("the next daemon starts paused, since {} cannot be removed: {error}", path.display());
            }
            _ => {}
        }
    }
}

fn file(state: &StateDir) -> PathBuf {
    state.path().join("paused")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_kept_until_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path().join("gleaner")).unwrap();
        assert_eq!(Paused::load(&state), None);
        for reason in [None, Some("a measurement".to_owned())] {
            let paused = Paused { reason };
            paused.save(&state);
            assert_eq!(Paused::load(&state), Some(paused));
        }
        for _ in 0..2 {
            Paused::remove(&state);
            assert_eq!(Paused::load(&state), None);
        }
    }
}
