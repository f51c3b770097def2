//! The binaries under test. They change with each build, so they are not part of an image, but in an archive that is
//! added at boot.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use crate::archive::Archive;
use crate::error::{Error, Result};
use crate::tool;

/// Directory of the binaries in a guest.
pub const BIN: &str = "lab/bin";
/// The payload inside a nested host, for its guests.
pub const NESTED: &str = "lab/guest/payload.cpio";

/// The binaries under test, stripped.
#[derive(Debug, Clone)]
pub struct Payload {
    with_libraries: Vec<u8>,
    alone: Vec<u8>,
}

impl Payload {
    /// `gleaner`, `gleaner-bench` (which has the workloads), `gleaner-host` and `scx_gleaner` (for a nested host) and
    /// `gleaner-lab` (which is also
    /// the agent), from the same build as this program. Under cargo they are built if they are older than their sources.
    pub fn find() -> Result<Self> {
        let dir = build_dir()?;
        let names = ["gleaner", "gleaner-bench", "gleaner-host", "scx_gleaner", "gleaner-lab"];
        let paths = names.map(|name| dir.join(name));
        if let (Some(cargo), true) = (std::env::var_os("CARGO"), paths.iter().any(|path| is_stale(path))) {
            build(&cargo, &dir)?;
        }
        Self::of(&paths)
    }

    fn of(binaries: &[PathBuf]) -> Result<Self> {
        let stripped = tempfile::tempdir().map_err(Error::system("make a temporary folder"))?;
        let (mut with_libraries, mut alone) = (Archive::default(), Archive::default());
        for path in binaries {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !path.exists() {
                return Err(Error::NoBinary { path: path.clone() });
            }
            let small = stripped.path().join(&name);
            // Debugging information is ten times as large as the rest, and would be in the guest's memory.
            tool::run(Command::new("strip").arg("-o").arg(&small).arg(path))?;
            with_libraries.program(&format!("{BIN}/{name}"), &small)?;
            alone.copy(&format!("{BIN}/{name}"), 0o755, &small)?;
        }
        Ok(Self { with_libraries: with_libraries.finish()?, alone: alone.finish()? })
    }

    /// The archive with all libraries, for an image without any.
    pub(crate) fn with_libraries(&self) -> &[u8] {
        &self.with_libraries
    }

    /// The archive without libraries, for an image that has Debian's.
    pub(crate) fn alone(&self) -> &[u8] {
        &self.alone
    }
}

/// The directory of this build's programs: this program's own, or for a test the one above.
fn build_dir() -> Result<PathBuf> {
    let own = std::env::current_exe().map_err(Error::system("find this program's own file"))?;
    let dir = own.parent().unwrap_or(Path::new("/"));
    let above = if dir.ends_with("deps") { dir.parent() } else { None };
    Ok(above.unwrap_or(dir).to_owned())
}

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new("/"))
}

/// Whether a binary is missing, or older than a source of the workspace.
fn is_stale(binary: &Path) -> bool {
    let Ok(built) = fs::metadata(binary).and_then(|meta| meta.modified()) else { return true };
    let mut dirs = vec![workspace().join("crates"), workspace().join("lab")];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                // Tests are not part of the binary.
                dirs.extend((!path.ends_with("tests")).then_some(path));
            } else if changed(&path).is_some_and(|changed| changed > built) {
                return true;
            }
        }
    }
    false
}

fn changed(path: &Path) -> Option<SystemTime> {
    let is_source =
        path.extension().is_some_and(|ending| ["rs", "c", "h", "toml"].iter().any(|e| ending == *e));
    is_source.then(|| fs::metadata(path).ok()?.modified().ok()).flatten()
}

fn build(cargo: &std::ffi::OsStr, dir: &Path) -> Result<()> {
    let mut command = Command::new(cargo);
    command.args([
        "build",
        "--quiet",
        "--locked",
        "-p",
        "gleaner",
        "-p",
        "gleaner-bench",
        "-p",
        "gleaner-host",
        "-p",
        "gleaner-scx",
        "-p",
        "gleaner-lab",
    ]);
    if dir.ends_with("release") {
        command.arg("--release");
    }
    tool::run(command.current_dir(workspace())).map(drop)
}
