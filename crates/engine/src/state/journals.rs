//! The journals of the daemon's workloads.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use super::StateDir;

const ENDING: &str = ".journal";
/// Journals of workloads that are not engaged any more have so many bytes together, since `/run` is memory.
const MOST_ENDED: u64 = 16 << 20;

impl StateDir {
    fn journals(&self) -> PathBuf {
        self.path.join("journals")
    }

    /// The journal of one of the daemon's workloads.
    pub fn journal_of(&self, workload: &str) -> PathBuf {
        self.journals().join(format!("{workload}{ENDING}"))
    }

    /// The daemon's workloads that have a journal, in alphabetical order.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn workloads(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(self.journals()) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let name = |entry: fs::DirEntry| entry.file_name().to_str()?.strip_suffix(ENDING).map(str::to_owned);
        let mut names: Vec<_> = entries.flatten().filter_map(name).collect();
        names.sort();
        Ok(names)
    }

    /// Makes room for another journal: makes their directory, and removes the oldest journals of workloads that are not
    /// `engaged` any more while those take more than 16 MiB.
    ///
    /// # Errors
    /// The directory cannot be made or read, or a journal not be removed.
    pub fn make_room_for_journal(&self, engaged: impl Fn(&str) -> bool) -> io::Result<()> {
        fs::create_dir_all(self.journals())?;
        let mut ended: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        for name in self.workloads()?.into_iter().filter(|name| !engaged(name)) {
            let path = self.journal_of(&name);
            let about = fs::metadata(&path)?;
            ended.push((about.modified()?, about.len(), path));
        }
        ended.sort_by(|one, other| other.cmp(one));
        let mut bytes = 0;
        for (_, length, path) in ended {
            bytes += length;
            if bytes > MOST_ENDED {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn old_journals_make_room_and_those_of_engaged_workloads_stay() {
        let dir = tempfile::tempdir().unwrap();
        let state = StateDir::at(dir.path().join("gleaner")).unwrap();
        assert!(state.workloads().unwrap().is_empty());
        state.make_room_for_journal(|_| false).unwrap();
        for (age_s, name) in ["engaged", "oldest", "old", "new"].iter().rev().enumerate() {
            let file = fs::File::create(state.journal_of(name)).unwrap();
            file.set_len(6 << 20).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age_s as u64)).unwrap();
        }
        state.make_room_for_journal(|name| name == "engaged").unwrap();
        assert_eq!(state.workloads().unwrap(), ["engaged", "new", "old"]);
    }
}
