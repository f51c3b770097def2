//! Fake trees for the tests of this crate.

use std::fs;
use std::os::unix::fs::symlink;

use gleaner_kernel::Root;

/// An empty tree, removed when the `TempDir` is dropped.
pub(crate) fn fake() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::at(dir.path());
    (dir, root)
}

/// Creates or replaces a file and its parent directories. Writes in place, since readers can keep the file open.
pub(crate) fn put(root: &Root, absolute: &str, text: &str) {
    let path = root.path(absolute);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A link; its target need not exist.
pub(crate) fn link(root: &Root, absolute: &str, target: &str) {
    let path = root.path(absolute);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let _ = fs::remove_file(&path);
    symlink(target, path).unwrap();
}

/// A process: `/proc/PID/stat` and `exe`, with one thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Proc {
    pub(crate) pid: u32,
    pub(crate) parent: u32,
    pub(crate) command: &'static str,
    /// In ticks.
    pub(crate) used: u64,
    /// In ticks.
    pub(crate) start: u64,
}

impl Proc {
    pub(crate) fn new(pid: u32, parent: u32, command: &'static str) -> Self {
        Self { pid, parent, command, used: 0, start: 10 }
    }

    pub(crate) fn put(self, root: &Root) {
        let Self { pid, parent, command, used, start } = self;
        // Without an executable, as the kernel shows its own threads.
        let flags = if command.starts_with('k') { 0x0020_0000 } else { 0x0040_0000 };
        let stat = format!(
            "{pid} ({command}) S {parent} 1 1 0 -1 {flags} 0 0 0 0 {used} 0 0 0 20 0 1 0 {start} 0 0\n"
        );
        put(root, &format!("/proc/{pid}/stat"), &stat);
        put(root, &format!("/proc/{pid}/task/{pid}/stat"), &stat);
        if flags & 0x0020_0000 == 0 {
            link(root, &format!("/proc/{pid}/exe"), &format!("/usr/bin/{command}"));
        }
    }
}
