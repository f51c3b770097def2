//! What the targets share: a directory in memory, the file that is parsed, and a fake `/proc` and `/sys`.

use std::fs;
use std::path::{Component, Path, PathBuf};
use std::sync::LazyLock;

use gleaner_kernel::Root;
use tempfile::TempDir;

/// This process's directory, in memory where that is possible.
static SCRATCH: LazyLock<TempDir> = LazyLock::new(|| {
    let shm = Path::new("/dev/shm");
    let made = if shm.is_dir() { TempDir::new_in(shm) } else { TempDir::new() };
    made.expect("a directory for files to parse")
});

/// The path `name` in the directory of this process.
pub fn scratch(name: &str) -> PathBuf {
    SCRATCH.path().join(name)
}

/// A file with these bytes; it replaces the one of the last call with this name.
pub fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = scratch(name);
    fs::write(&path, bytes).expect("room for a file");
    path
}

/// What a line starts with that names the file of the lines after it.
const HEADING: &str = "=== ";
/// The most files of a tree.
const MOST_FILES: usize = 64;

/// A fake tree, removed on drop.
pub struct Tree {
    dir: TempDir,
    files: Vec<(PathBuf, String)>,
}

impl Tree {
    /// The tree that `bytes` describe: `=== /proc/stat` and then the lines of that file, and so on. `/proc/self` leads to
    /// `/proc/1`. `None` if it is no text.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut files: Vec<(PathBuf, String)> = Vec::new();
        for line in text.split_inclusive('\n') {
            if let Some(path) = line.strip_prefix(HEADING) {
                if files.len() == MOST_FILES {
                    break;
                }
                files.push((inside(path.trim_end()), String::new()));
            } else if let Some((_, text)) = files.last_mut() {
                text.push_str(line);
            }
        }
        let dir = TempDir::new_in(SCRATCH.path()).ok()?;
        fs::create_dir_all(dir.path().join("proc/1")).ok()?;
        std::os::unix::fs::symlink("1", dir.path().join("proc/self")).ok()?;
        let tree = Self { dir, files };
        for (path, text) in &tree.files {
            let path = tree.dir.path().join(path);
            // What is a file and a directory at once, or has a name that is too long, is left out.
            let _ = path.parent().map(fs::create_dir_all);
            let _ = fs::write(path, text);
        }
        Some(tree)
    }

    /// The root of the tree.
    pub fn root(&self) -> Root {
        Root::at(self.dir.path())
    }

    /// Halves each number of each file, so that counters run backwards or vanish before they are read again.
    pub fn change(&self) {
        for (path, text) in &self.files {
            let _ = fs::write(self.dir.path().join(path), text.replace(['5', '7', '9'], "3"));
        }
    }
}

/// The path below the root of a tree, whatever it is.
fn inside(path: &str) -> PathBuf {
    Path::new(path).components().filter(|part| matches!(part, Component::Normal(_))).collect()
}
