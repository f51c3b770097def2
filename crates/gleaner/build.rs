//! Reads the commit for `gleaner --version` from `.git`, without running git. Outside a checkout the version names
//! none.

use std::fs;
use std::path::{Path, PathBuf};

/// Digits of the commit hash in the version.
const DIGITS: usize = 12;

fn main() {
    // Without this, Cargo reruns the script on any change in the package.
    println!("cargo:rerun-if-changed=build.rs");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let commit = git_dir(&root).and_then(|git| commit(&git));
    let shown = commit.map(|commit| format!(" ({})", &commit[..DIGITS])).unwrap_or_default();
    println!("cargo:rustc-env=GLEANER_COMMIT={shown}");
}

/// `.git` is a directory, or, in a linked work tree, a file that names one.
fn git_dir(root: &Path) -> Option<PathBuf> {
    let git = root.join(".git");
    if git.is_dir() {
        return Some(git);
    }
    let text = fs::read_to_string(git).ok()?;
    Some(root.join(text.strip_prefix("gitdir:")?.trim()))
}

fn commit(git: &Path) -> Option<String> {
    let head = watched(&git.join("HEAD"))?;
    let Some(name) = head.strip_prefix("ref:").map(str::trim) else { return hash(head.trim()) };
    // Linked work trees share the main one's branches.
    let shared = fs::read_to_string(git.join("commondir")).map_or(git.to_owned(), |dir| git.join(dir.trim()));
    if let Some(text) = watched(&shared.join(name)) {
        return hash(text.trim());
    }
    // A packed branch gets its own file at the next commit.
    watch(shared.join(name).parent()?);
    let packed = watched(&shared.join("packed-refs"))?;
    hash(packed.lines().find_map(|line| line.strip_suffix(name))?.trim())
}

/// Reads a file and makes Cargo watch it. Cargo would take a missing file as changed in every build.
fn watched(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    watch(path);
    Some(text)
}

fn watch(path: &Path) {
    if path.exists() {
        println!("cargo:rerun-if-changed={}", path.display());
    }
}

fn hash(text: &str) -> Option<String> {
    (text.len() >= DIGITS && text.bytes().all(|b| b.is_ascii_hexdigit())).then(|| text.to_owned())
}
