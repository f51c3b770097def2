//! What the claims about Debian packages share: the package that `make deb` has built, and a guest's installed programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use crate::claims::{Checks, Target};
use crate::error::{Error, Result};
use crate::image;
use crate::tool;
use crate::vm::{Guest, Output, Step};

/// What apt is run with: no questions.
pub(super) const APT: &str = "DEBIAN_FRONTEND=noninteractive apt-get -y -q";
/// Longer than a step takes here.
const TIMEOUT: Duration = Duration::from_secs(180);
/// The highest exposure that `systemd-analyze security` may find, from 0 to 10.
const MOST_EXPOSED: f64 = 3.0;

/// Where a nested host with systemd's image for its guests has the package for them, as [`newest`] finds it.
pub(super) fn in_host(name: &str) -> PathBuf {
    PathBuf::from(format!("/root/{name}.deb"))
}

/// The newest package of this name that `make deb` has built; in a nested host, the one that was copied there.
///
/// # Errors
/// If there is none, or a source of the product is newer.
pub(super) fn newest(name: &str) -> Result<PathBuf> {
    if image::is_nested_host() {
        return Ok(in_host(name));
    }
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let dir = tree.join("target/debian");
    let built = fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let wanted = |path: &PathBuf| {
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        file.starts_with(&format!("{name}_")) && file.ends_with(".deb")
    };
    let package = built.filter(wanted).max_by_key(changed_at);
    let package = package
        .ok_or_else(|| Error::NoBinary { path: dir.join(format!("{name}_*.deb (`make deb` builds it)")) })?;
    let sources = [newest_source(&tree.join("crates"))?, newest_source(&tree.join("packaging"))?];
    match sources.into_iter().flatten().max_by_key(changed_at) {
        Some(source_file) if changed_at(&source_file) > changed_at(&package) => {
            Err(Error::StalePackage { package, source_file })
        }
        _ => Ok(package),
    }
}

/// When a file was last written.
fn changed_at(path: &PathBuf) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// The file under `dir` that was written last, of those that a program is built from.
fn newest_source(dir: &Path) -> Result<Option<PathBuf>> {
    let mut newest: Option<PathBuf> = None;
    for entry in fs::read_dir(dir).map_err(Error::file("list", dir))? {
        let path = entry.map_err(Error::file("list", dir))?.path();
        let name = path.file_name().unwrap_or_default();
        if ["tests", "tests.rs", "snapshots", "benches", "examples", "testing"]
            .iter()
            .any(|unused| name == *unused)
        {
            continue;
        }
        let found = if path.is_dir() { newest_source(&path)? } else { Some(path) };
        newest = newest.into_iter().chain(found).max_by_key(changed_at);
    }
    Ok(newest)
}

/// The version of a package.
pub(super) fn version(deb: &Path) -> Result<String> {
    let text = tool::output(Command::new("dpkg-deb").arg("--field").arg(deb).arg("Version"))?;
    Ok(text.trim().to_owned())
}

/// Installs a package without the network, and checks that this starts nothing.
pub(super) fn install(guest: &Guest, checks: &mut Checks, name: &str, deb: &str, unit: &str) -> Result<()> {
    let output = run(guest, &format!("{APT} install {deb}"))?;
    let said = output.text() + &output.errors();
    let line = said.lines().find(|line| line.starts_with(&format!("Setting up {name} "))).unwrap_or(&said);
    checks.that("apt installs it without the network", output.success(), line);
    let state = shell(guest, &format!("systemctl is-enabled {unit}; systemctl is-active {unit}; true"))?;
    checks.equal("it is neither enabled nor started", &state.as_str(), &"disabled\ninactive");
    Ok(())
}

/// Checks that systemd finds the unit closed enough.
pub(super) fn security(guest: &Guest, checks: &mut Checks, unit: &str) -> Result<()> {
    let text = shell(guest, &format!("systemd-analyze security {unit}.service --no-pager | tail -n 1"))?;
    let found = text.split(": ").nth(1).and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    checks.values("systemd-analyze security", found.as_slice(), "of 10", Target::AtMost(MOST_EXPOSED));
    Ok(())
}

/// Asks a listener of the guest for metrics.
pub(super) fn scrape(guest: &Guest, port: u16) -> Result<Output> {
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} && printf \"GET /metrics HTTP/1.1\\r\\nHost: lab\\r\\n\
         Accept: application/openmetrics-text\\r\\nConnection: close\\r\\n\\r\\n\" >&3 && cat <&3"
    );
    run(guest, &format!("bash -c '{script}'"))
}

/// Whether a scrape was answered, in whole.
pub(super) fn is_whole(scraped: &Output) -> bool {
    let text = scraped.text();
    text.starts_with("HTTP/1.1 200") && text.trim_end().ends_with("# EOF")
}

/// Runs a shell script with the installed programs alone, those of the lab not among them.
pub(super) fn run(guest: &Guest, script: &str) -> Result<Output> {
    guest.run(step(script))
}

/// Runs such a script, which must succeed. Returns what it prints.
pub(super) fn shell(guest: &Guest, script: &str) -> Result<String> {
    guest.succeed(step(script)).map(|text| text.trim().to_owned())
}

/// A shell command that prints the process of a unit's service; 0 if there is none.
pub(super) fn main_pid(unit: &str) -> String {
    format!("systemctl show -p MainPID --value {unit}")
}

/// A shell command that waits until systemd is about to start a unit's service again, which it does after five seconds.
pub(super) fn about_to_restart(unit: &str) -> String {
    format!("until [ $(systemctl show -p SubState --value {unit}) = auto-restart ]; do sleep 0.1; done")
}

fn step(script: &str) -> Step {
    Step::shell(script).env("PATH", "/usr/sbin:/usr/bin").timeout(TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_source_is_none_of_the_tests() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str, seconds| {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = fs::File::create(&path).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
            path
        };
        at("a/src/lib.rs", 10);
        let newest = at("a/src/deep/main.rs", 20);
        at("a/tests/all.rs", 30);
        at("a/src/deep/tests.rs", 40);
        assert_eq!(newest_source(dir.path()).unwrap(), Some(newest));
    }
}
