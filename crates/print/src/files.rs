//! Files named on the command line: an output must not be an input or another output.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::Usage;

/// More links than the kernel follows.
const MAX_LINKS: usize = 40;

/// The file that a path leads to, through any links.
#[derive(Debug, PartialEq, Eq)]
enum File {
    /// A regular file, by device and inode.
    There(u64, u64),
    /// Not created yet: its directory, by device and inode, and its name.
    New(u64, u64, OsString),
}

impl File {
    /// `None` if nothing can be overwritten: a device, a pipe, a directory, or an invalid path, which fails
    /// later.
    fn at(path: &Path) -> Option<Self> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            if let Ok(file) = fs::metadata(&path) {
                return file.is_file().then(|| Self::There(file.dev(), file.ino()));
            }
            let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let Ok(target) = fs::read_link(&path) else {
                let place = fs::metadata(dir).ok()?;
                return Some(Self::New(place.dev(), place.ino(), path.file_name()?.to_owned()));
            };
            // A link to a file that does not exist yet.
            path = dir.join(target);
        }
        None
    }
}

/// Rejects an output that is one of the inputs or another output, even through links.
///
/// # Errors
/// Names the path that would be overwritten.
pub fn distinct<'p>(inputs: &[&Path], outputs: impl IntoIterator<Item = &'p PathBuf>) -> Result<(), Usage> {
    let read: Vec<File> = inputs.iter().filter_map(|path| File::at(path)).collect();
    let mut written = Vec::new();
    for path in outputs {
        let Some(file) = File::at(path) else { continue };
        if read.contains(&file) {
            let path = path.display();
            return Err(Usage(format!(
                "{path} is what is read, and would be overwritten: name another output"
            )));
        }
        if written.contains(&file) {
            let path = path.display();
            return Err(Usage(format!("{path} is named for two outputs: name another file for one of them")));
        }
        written.push(file);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn an_output_that_is_an_input_or_another_output_is_refused_also_through_links() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("in"), "x").unwrap();
        fs::hard_link(at("in"), at("hard")).unwrap();
        symlink("in", at("soft")).unwrap();
        symlink("new", at("dangling")).unwrap();
        symlink(".", at("dir")).unwrap();
        let check = |outputs: &[PathBuf]| distinct(&[&at("in")], outputs).map_err(|e| e.to_string());
        for same in ["in", "hard", "soft", "./in", "dir/in"] {
            let error = check(&[at(same)]).unwrap_err();
            assert!(error.contains("is what is read") && error.contains(same), "{error}");
        }
        for same in ["new", "dangling", "dir/new", "dir/dangling"] {
            let error = check(&[at("new"), at(same)]).unwrap_err();
            assert!(error.contains("is named for two outputs"), "{same}: {error}");
        }
        assert_eq!(check(&[at("new"), at("other"), at("dir/third")]), Ok(()));
        let nowhere = PathBuf::from("/dev/null");
        assert_eq!(check(&[nowhere.clone(), nowhere]), Ok(()), "nothing is overwritten there");
    }
}
