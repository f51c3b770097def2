//! The build cache: artefacts are complete or absent, and have checksums.
//!
//! An artefact is a directory. It is built under a temporary name, together with a manifest of its recipe and the
//! checksum of each file, and gets its own name by one `rename`. What a killed build leaves has a temporary name; the
//! next build removes it. A changed recipe causes a new build.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use gleaner_print::say;
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};

/// Free space needed before building anything, in MiB: the largest image unpacked, packed and downloaded.
pub const NEEDED_MIB: u64 = 4096;
const MANIFEST: &str = "MANIFEST";
const PARTIAL: &str = ".partial-";

/// A cache directory.
#[derive(Debug, Clone)]
pub struct Cache {
    root: PathBuf,
    needed_mib: u64,
}

/// Artefacts whose checksums this process has verified.
static VERIFIED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

impl Cache {
    /// The cache of this checkout, `cache/lab`, or the one named by `GLEANER_LAB_CACHE`.
    pub fn open() -> Result<Self> {
        let named = std::env::var_os("GLEANER_LAB_CACHE").map(PathBuf::from);
        let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cache/lab");
        Self::at(&named.unwrap_or_else(own))
    }

    /// A cache in `root`, which is created if it does not exist.
    pub fn at(root: &Path) -> Result<Self> {
        fs::create_dir_all(root).map_err(Error::file("make", root))?;
        let root = root.canonicalize().map_err(Error::file("find", root))?;
        Ok(Self { root, needed_mib: NEEDED_MIB })
    }

    /// A directory for disposable files such as package lists.
    pub fn scratch(&self, name: &str) -> Result<PathBuf> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(Error::file("make", &path))?;
        Ok(path)
    }

    /// The artefact with this name (which can contain slashes) and recipe, built if necessary. One build runs at a
    /// time.
    pub fn artefact(
        &self,
        name: &str,
        recipe: &str,
        build: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let _turn = self.turn()?;
        let path = self.root.join(name);
        if is_whole(&path, recipe) {
            return Ok(path);
        }
        let parent = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent).map_err(Error::file("make", parent))?;
        clean(parent)?;
        enough(&self.root, free_mib(&self.root)?, self.needed_mib)?;
        say!("lab: building {name}");
        let partial = tempfile::Builder::new()
            .prefix(PARTIAL)
            .tempdir_in(parent)
            .map_err(Error::file("make a folder in", parent))?;
        build(partial.path())?;
        let manifest = manifest(partial.path(), recipe)?;
        let file = partial.path().join(MANIFEST);
        fs::write(&file, manifest).map_err(Error::file("write", &file))?;
        if path.exists() {
            fs::remove_dir_all(&path).map_err(Error::file("remove", &path))?;
        }
        fs::rename(partial.keep(), &path).map_err(Error::file("rename to", &path))?;
        Ok(path)
    }

    /// Removes an artefact, so that it is rebuilt from the newest packages when next needed.
    pub fn remove(&self, name: &str) -> Result<()> {
        let _turn = self.turn()?;
        let path = self.root.join(name);
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file("remove", path)(error)),
            _ => Ok(()),
        }
    }

    fn turn(&self) -> Result<Flock<File>> {
        let path = self.root.join("lock");
        let file = File::create(&path).map_err(Error::file("open", &path))?;
        Flock::lock(file, FlockArg::LockExclusive)
            .map_err(|(_, errno)| Error::file("lock", path)(errno.into()))
    }
}

/// Removes what killed builds have left. The caller must hold the lock, so that no other build runs.
fn clean(parent: &Path) -> Result<()> {
    for entry in fs::read_dir(parent).map_err(Error::file("read", parent))?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(PARTIAL) {
            fs::remove_dir_all(entry.path()).map_err(Error::file("remove", entry.path()))?;
        }
    }
    Ok(())
}

fn free_mib(path: &Path) -> Result<u64> {
    let stat = nix::sys::statvfs::statvfs(path)
        .map_err(Error::system(format!("get the free space of {}", path.display())))?;
    Ok(stat.blocks_available() * stat.fragment_size() / (1024 * 1024))
}

fn enough(path: &Path, free_mib: u64, needed_mib: u64) -> Result<()> {
    if free_mib >= needed_mib {
        return Ok(());
    }
    Err(Error::NoRoom { path: path.to_owned(), free_mib, needed_mib })
}

/// Whether the artefact exists, is undamaged, and was built from `recipe`. Files are verified once per process.
fn is_whole(path: &Path, recipe: &str) -> bool {
    let Ok(kept) = fs::read_to_string(path.join(MANIFEST)) else { return false };
    if kept.split_once('\n').is_none_or(|(first, _)| first != recipe_line(recipe)) {
        return false;
    }
    let mut verified = VERIFIED.lock().unwrap_or_else(PoisonError::into_inner);
    if verified.contains(path) {
        return true;
    }
    let whole = manifest(path, recipe).is_ok_and(|now| now == kept);
    if whole {
        verified.insert(path.to_owned());
    } else {
        say!("lab: {} is damaged", path.display());
    }
    whole
}

fn recipe_line(recipe: &str) -> String {
    format!("recipe {}", hex(&Sha256::digest(recipe)))
}

/// The recipe and each file's checksum, sorted by name.
fn manifest(dir: &Path, recipe: &str) -> Result<String> {
    let mut lines = vec![recipe_line(recipe)];
    let mut entries: Vec<_> =
        fs::read_dir(dir).map_err(Error::file("read", dir))?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let mut next = 0;
    while let Some(path) = entries.get(next).cloned() {
        next += 1;
        if path.is_dir() {
            let below = fs::read_dir(&path).map_err(Error::file("read", &path))?;
            let mut below: Vec<_> = below.flatten().map(|entry| entry.path()).collect();
            below.sort();
            entries.extend(below);
        } else if path.file_name().is_none_or(|name| name != MANIFEST) {
            let name = path.strip_prefix(dir).unwrap_or(&path);
            lines.push(format!("{}  {}", checksum(&path)?, name.display()));
        }
    }
    Ok(lines.join("\n") + "\n")
}

fn checksum(path: &Path) -> Result<String> {
    let mut file = File::open(path).map_err(Error::file("open", path))?;
    let mut digest = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        let read = file.read(&mut block).map_err(Error::file("read", path))?;
        if read == 0 {
            return Ok(hex(&digest.finalize()));
        }
        digest.update(&block[..read]);
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(content: &'static str) -> impl FnOnce(&Path) -> Result<()> {
        move |dir| {
            fs::create_dir(dir.join("sub")).unwrap();
            fs::write(dir.join("sub/file"), content).unwrap();
            Ok(())
        }
    }

    fn content(path: &Path) -> String {
        fs::read_to_string(path.join("sub/file")).unwrap()
    }

    /// Its artefacts are a few bytes, however much this machine has free.
    fn cache(root: &Path) -> Cache {
        Cache { needed_mib: 0, ..Cache::at(root).unwrap() }
    }

    fn never(_: &Path) -> Result<()> {
        panic!("nothing is to be built")
    }

    #[test]
    fn what_is_there_is_not_built_again_and_a_new_recipe_is() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        let path = cache.artefact("images/a", "1", write("old")).unwrap();
        assert_eq!(content(&path), "old");
        cache.artefact("images/a", "1", never).unwrap();
        assert_eq!(content(&cache.artefact("images/a", "2", write("new")).unwrap()), "new");
        cache.remove("images/a").unwrap();
        assert_eq!(content(&cache.artefact("images/a", "2", write("newest")).unwrap()), "newest");
    }

    #[test]
    fn a_half_built_artefact_never_counts() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        let failed = cache.artefact("a", "1", |dir| {
            write("half")(dir)?;
            Err(Error::NoMirror)
        });
        assert!(matches!(failed, Err(Error::NoMirror)));
        assert!(!dir.path().join("a").exists());
        // A killed build leaves its directory.
        fs::create_dir_all(dir.path().join(format!("{PARTIAL}x/sub"))).unwrap();
        assert_eq!(content(&cache.artefact("a", "1", write("whole")).unwrap()), "whole");
        assert!(!dir.path().join(format!("{PARTIAL}x")).exists());
    }

    #[test]
    fn a_damaged_artefact_is_built_again() {
        let dir = tempfile::tempdir().unwrap();
        let cache = cache(dir.path());
        let path = cache.artefact("a", "1", write("good")).unwrap();
        fs::write(path.join("sub/file"), "evil").unwrap();
        assert_eq!(content(&cache.artefact("a", "1", write("good")).unwrap()), "good");
    }

    #[test]
    fn too_little_room_is_reported_with_what_is_needed() {
        enough(Path::new("/c"), NEEDED_MIB, NEEDED_MIB).unwrap();
        let said = enough(Path::new("/c"), 100, NEEDED_MIB).unwrap_err().to_string();
        assert!(said.starts_with("/c has 100 MiB free; building images needs 4096"), "{said}");
        let dir = tempfile::tempdir().unwrap();
        let full = Cache { needed_mib: u64::MAX, ..cache(dir.path()) };
        assert!(matches!(full.artefact("a", "1", never), Err(Error::NoRoom { .. })));
        assert!(!dir.path().join("a").exists());
    }
}
