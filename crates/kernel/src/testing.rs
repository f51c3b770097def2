//! Fake `/proc` and `/sys` trees for the tests of this crate.

use std::fs;

use crate::Root;

/// An empty tree, removed when the `TempDir` is dropped.
pub(crate) fn fake() -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    let root = Root::at(dir.path());
    (dir, root)
}

/// Creates or replaces a file and its parent directories. Writes in place, since readers keep the file open.
pub(crate) fn put(root: &Root, absolute: &str, text: &str) {
    let path = root.path(absolute);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
