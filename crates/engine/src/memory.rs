//! Stores what earlier runs showed of programs: a bounded folder with a file for each program.
//!
//! A file is replaced as a whole, so no reader sees half of one. It is not synced to disk: after a crash, lost
//! files are learned again and torn ones set aside.

mod program;

use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use gleaner_kernel::Root;
use gleaner_proto::memory::{ProgramMemory, VERSION};
use serde::Deserialize;

pub use program::{Memory, program_of_command, program_of_process};

/// Root's folder.
const ROOT_FOLDER: &str = "/var/lib/gleaner/memory";
/// Environment variable that overrides the folder; if empty, nothing is stored.
const FOLDER_VARIABLE: &str = "GLEANER_MEMORY";
/// The most files kept; the least recently used go first.
const MAX_FILES: usize = 256;
/// Upper bound of a file's length in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Suffix of files that cannot be used.
const UNUSABLE_SUFFIX: &str = "unusable";

/// Why stored knowledge cannot be read or written. A run continues without it.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// A file was not of this version and has been renamed.
    #[error("{} {reason}, so it is set aside as {} and what was known of the program is learned anew", path.display(), aside.display())]
    SetAside {
        /// The file that cannot be used.
        path: PathBuf,
        /// Path of the renamed file.
        aside: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The folder belongs to another user, who could thereby choose settings here.
    #[error("{} belongs to user {owner}: remove it, or name a folder of yours in {FOLDER_VARIABLE}", path.display())]
    Foreign {
        /// The folder in question.
        path: PathBuf,
        /// The owner's UID.
        owner: u32,
    },
    /// The folder or a file in it cannot be used.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// The file or folder in question.
        path: PathBuf,
        /// The kernel's error.
        r#source: io::Error,
    },
}

impl MemoryError {
    fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}

/// The folder; it need not exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryDir {
    path: PathBuf,
}

impl MemoryDir {
    /// The folder in `GLEANER_MEMORY`, else `/var/lib/gleaner/memory` under `root` for root, and for others
    /// `$XDG_STATE_HOME/gleaner/memory`, by default `~/.local/state/gleaner/memory`. `None` if the variable is
    /// empty, or there is no home directory.
    pub fn default_place(root: &Root) -> Option<Self> {
        let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
        place(root, nix::unistd::geteuid().is_root(), set).map(Self::at)
    }

    /// The folder `path`.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is known of the program and machine of `asked`; `None` if nothing is.
    ///
    /// # Errors
    /// Its file cannot be used, or the folder belongs to another user.
    pub fn load(&self, asked: &ProgramMemory) -> Result<Option<ProgramMemory>, MemoryError> {
        if !self.is_there()? {
            return Ok(None);
        }
        let found = read(&self.path.join(asked.file_name()))?;
        Ok(found.filter(|found| found.program == asked.program && found.machine == asked.machine))
    }

    /// Replaces what is known of a program, removing the least recently used files if there are too many.
    ///
    /// # Errors
    /// The folder cannot be created or written; nothing has changed then.
    pub fn save(&self, memory: &ProgramMemory) -> Result<(), MemoryError> {
        let io = |source| MemoryError::io(&self.path, source);
        // Which programs were run is private.
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(io)?;
        self.is_there()?;
        fs::set_permissions(&self.path, Permissions::from_mode(0o700)).map_err(io)?;
        let path = self.path.join(memory.file_name());
        let text = serde_json::to_vec_pretty(memory).map_err(|e| MemoryError::io(&path, e.into()))?;
        // Created with mode 0600.
        let mut file = tempfile::NamedTempFile::new_in(&self.path).map_err(io)?;
        file.write_all(&text).map_err(|source| MemoryError::io(&path, source))?;
        file.persist(&path).map_err(|error| MemoryError::io(&path, error.error))?;
        self.make_room(&path);
        Ok(())
    }

    /// What is known of all programs, most recently used first, and the errors of unusable files.
    ///
    /// # Errors
    /// The folder cannot be read, or belongs to another user.
    pub fn list(&self) -> Result<(Vec<ProgramMemory>, Vec<MemoryError>), MemoryError> {
        let (mut known, mut errors) = (Vec::new(), Vec::new());
        for path in self.files()? {
            match read(&path) {
                Ok(memory) => known.extend(memory),
                Err(error) => errors.push(error),
            }
        }
        known.sort_by(|a: &ProgramMemory, b| (b.used_unix_ms, &a.program).cmp(&(a.used_unix_ms, &b.program)));
        Ok((known, errors))
    }

    /// Removes what is known of one program on one machine.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub fn forget(&self, memory: &ProgramMemory) -> Result<(), MemoryError> {
        remove(&self.path.join(memory.file_name()))
    }

    /// Removes everything, including files set aside.
    ///
    /// # Errors
    /// A file cannot be removed.
    pub fn forget_all(&self) -> Result<(), MemoryError> {
        if !self.is_there()? {
            return Ok(());
        }
        self.entries()?.iter().filter(|path| is_ours(path)).try_for_each(|path| remove(path))
    }

    /// Whether the folder exists; fails if it belongs to another user.
    fn is_there(&self) -> Result<bool, MemoryError> {
        match fs::metadata(&self.path) {
            Ok(found) if found.uid() == nix::unistd::geteuid().as_raw() => Ok(true),
            Ok(found) => Err(MemoryError::Foreign { path: self.path.clone(), owner: found.uid() }),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(MemoryError::io(&self.path, error)),
        }
    }

    /// The files of programs.
    fn files(&self) -> Result<Vec<PathBuf>, MemoryError> {
        let entries = if self.is_there()? { self.entries()? } else { Vec::new() };
        Ok(entries.into_iter().filter(|path| path.extension().is_some_and(|e| e == "json")).collect())
    }

    fn entries(&self) -> Result<Vec<PathBuf>, MemoryError> {
        let io = |source| MemoryError::io(&self.path, source);
        let entries = fs::read_dir(&self.path).map_err(io)?;
        let mut paths =
            entries.map(|entry| entry.map(|e| e.path())).collect::<io::Result<Vec<_>>>().map_err(io)?;
        paths.sort();
        Ok(paths)
    }

    /// Removes the files written longest ago while there are too many. Each use writes, so these are the least
    /// recently used; `kept` stays.
    fn make_room(&self, kept: &Path) {
        let mut files: Vec<(SystemTime, PathBuf)> = self
            .entries()
            .unwrap_or_default()
            .into_iter()
            .filter(|path| is_ours(path) && path != kept)
            .filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path)))
            .collect();
        files.sort();
        let too_many = (files.len() + 1).saturating_sub(MAX_FILES);
        for (_, path) in files.into_iter().take(too_many) {
            // Best effort: there are others to remove.
            let _ = fs::remove_file(path);
        }
    }
}

/// The folder of root or another user, whose environment is `set`.
fn place(root: &Root, is_root: bool, set: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if let Some(path) = set(FOLDER_VARIABLE) {
        return (!path.as_os_str().is_empty()).then_some(path);
    }
    if is_root {
        return Some(root.path(ROOT_FOLDER));
    }
    // XDG Base Directory Specification: a relative path must be ignored.
    let absolute = |name| set(name).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
    Some(state?.join("gleaner/memory"))
}

/// Whether Gleaner wrote the file or set it aside; the user might have named a shared folder.
fn is_ours(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("p-") && (name.ends_with(".json") || name.ends_with(UNUSABLE_SUFFIX))
}

fn remove(path: &Path) -> Result<(), MemoryError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(MemoryError::io(path, error)),
        _ => Ok(()),
    }
}

/// Reads the file at `path`, setting it aside if it cannot be used; `None` if there is none.
fn read(path: &Path) -> Result<Option<ProgramMemory>, MemoryError> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(MemoryError::io(path, error)),
    };
    let mut text = Vec::new();
    file.take(MAX_FILE_BYTES).read_to_end(&mut text).map_err(|error| MemoryError::io(path, error))?;
    match parse(&text) {
        Ok(memory) => Ok(Some(memory)),
        Err(reason) => {
            let aside = path.with_extension(UNUSABLE_SUFFIX);
            fs::rename(path, &aside).map_err(|error| MemoryError::io(path, error))?;
            Err(MemoryError::SetAside { path: path.to_owned(), aside, reason })
        }
    }
}

fn parse(text: &[u8]) -> Result<ProgramMemory, String> {
    #[derive(Deserialize)]
    struct Version {
        version: u32,
    }
    let damaged = |error: serde_json::Error| format!("is damaged ({error})");
    match serde_json::from_slice::<Version>(text).map_err(damaged)?.version {
        VERSION => serde_json::from_slice(text).map_err(damaged),
        other => Err(format!("is of version {other}, and this program reads version {VERSION}")),
    }
}

#[cfg(test)]
mod tests;
