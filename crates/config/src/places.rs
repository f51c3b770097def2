//! Which files make the configuration, in which order, and their text.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::problem::Problem;

/// Name of the main file; its drop-ins are in the directory with `.d` after it.
const NAME: &str = "gleaner.toml";
const SUFFIX: &[u8] = b".toml";
/// The largest file that is read, in bytes.
const MAX_SIZE: u64 = 1 << 20;
/// A link to it disables a drop-in.
const NULL: &str = "/dev/null";

/// Where the configuration is looked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// What is in these directories, if anything is.
    Default(Vec<PathBuf>),
    /// What was named, which must exist.
    Named(PathBuf),
}

impl Places {
    /// `/usr/lib/gleaner`, then `/etc/gleaner`, both below `root`, which is `/` outside tests. They need not exist.
    pub fn system(root: &Path) -> Self {
        Self(Kind::Default(["usr/lib/gleaner", "etc/gleaner"].map(|dir| root.join(dir)).into()))
    }

    /// One directory alone, in place of `/etc/gleaner`, or one file alone.
    pub fn named(path: impl Into<PathBuf>) -> Self {
        Self(Kind::Named(path.into()))
    }

    /// The files that exist, the one with the last word last.
    pub(crate) fn files(&self, problems: &mut Vec<Problem>) -> Vec<PathBuf> {
        match &self.0 {
            Kind::Default(dirs) => files_in(dirs, problems),
            Kind::Named(path) if path.is_dir() => {
                let files = files_in(std::slice::from_ref(path), problems);
                if files.is_empty() && problems.is_empty() {
                    let message =
                        format!("has no {NAME}, and no {NAME}.d with files: name another directory");
                    problems.push(Problem::of_file(path, &message));
                }
                files
            }
            // If it does not exist, reading it says so.
            Kind::Named(path) => vec![path.clone()],
        }
    }
}

fn files_in(dirs: &[PathBuf], problems: &mut Vec<Problem>) -> Vec<PathBuf> {
    let drop_ins: Vec<Vec<OsString>> = dirs.iter().map(|dir| drop_ins(dir, problems)).collect();
    let mut files = Vec::new();
    for (i, dir) in dirs.iter().enumerate() {
        let main = dir.join(NAME);
        let is_missing = |error: io::Error| error.kind() == io::ErrorKind::NotFound;
        // Where that cannot be known, reading it says why.
        if !main.symlink_metadata().is_err_and(is_missing) {
            files.push(main);
        }
        let is_masked = |name: &&OsString| drop_ins[i + 1..].iter().any(|later| later.contains(name));
        let names = drop_ins[i].iter().filter(|name| !is_masked(name));
        files.extend(names.map(|name| drop_in_dir(dir).join(name)));
    }
    files
}

fn drop_in_dir(dir: &Path) -> PathBuf {
    dir.join(format!("{NAME}.d"))
}

/// The names of a directory's drop-ins, in order.
fn drop_ins(dir: &Path, problems: &mut Vec<Problem>) -> Vec<OsString> {
    let path = drop_in_dir(dir);
    let names = fs::read_dir(&path).and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
    let mut names: Vec<OsString> = names.unwrap_or_else(|error: io::Error| {
        if error.kind() != io::ErrorKind::NotFound {
            problems.push(Problem::of_file(&path, &unreadable(&error)));
        }
        Vec::new()
    });
    // An editor's hidden files are none of ours.
    names.retain(|name| name.as_bytes().ends_with(SUFFIX) && !name.as_bytes().starts_with(b"."));
    names.sort();
    names
}

/// Reads a file.
///
/// # Errors
/// It cannot be read, is not a regular file, is too long, not UTF-8, or anybody could have written it.
pub(crate) fn read(path: &Path) -> Result<String, Problem> {
    let wrong = |message: &str| Problem::of_file(path, message);
    // Does not wait for the other side of a pipe.
    let opened = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(|error| wrong(&unreadable(&error)))?;
    let metadata = file.metadata().map_err(|error| wrong(&unreadable(&error)))?;
    if metadata.is_dir() {
        return Err(wrong("is a directory: put the file in its place, or remove it"));
    }
    if !metadata.is_file() {
        let is_null = fs::canonicalize(path).is_ok_and(|path| path.as_os_str() == OsStr::new(NULL));
        return if is_null {
            Ok(String::new())
        } else {
            Err(wrong(&format!(
                "is not a regular file: put a file in its place, or a link to {NULL} to disable it"
            )))
        };
    }
    if metadata.permissions().mode() & 0o002 != 0 {
        return Err(wrong(
            "anybody can write it, and it can name commands that the daemon runs as root: chmod o-w",
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_SIZE + 1).read_to_end(&mut bytes).map_err(|error| wrong(&unreadable(&error)))?;
    if bytes.len() as u64 > MAX_SIZE {
        return Err(wrong("is longer than 1 MiB: this is not a configuration of Gleaner"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let end = error.utf8_error().valid_up_to();
        let valid = String::from_utf8_lossy(&error.as_bytes()[..end]);
        let line = 1 + valid.matches('\n').count();
        let column = 1 + valid.chars().rev().take_while(|char| *char != '\n').count();
        let byte = error.as_bytes()[end];
        let message = format!("the byte 0x{byte:02x} is not UTF-8: save the file as UTF-8");
        Problem { position: Some((line, column)), ..wrong(&message) }
    })
}

fn unreadable(error: &io::Error) -> String {
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => ": create it, or name another one",
        io::ErrorKind::PermissionDenied => ": become root",
        _ => "",
    };
    format!("cannot be read: {error}{remedy}")
}
