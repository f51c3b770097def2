//! Shared by the tests with real servers.

use std::path::PathBuf;

/// Whether these programs are installed. If not, the test is skipped.
pub(crate) fn installed(programs: &[&str]) -> bool {
    let missing = missing(programs);
    if !missing.is_empty() {
        gleaner_testing::skipped(format_args!(
            "{missing:?} are not installed; `scripts/setup test` installs them"
        ));
    }
    missing.is_empty()
}

/// The programs that are not installed.
pub(crate) fn missing<'a>(programs: &[&'a str]) -> Vec<&'a str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs: Vec<PathBuf> = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]).collect();
    programs.iter().filter(|p| !dirs.iter().any(|dir| dir.join(p).is_file())).copied().collect()
}
