//! Debian 13's QEMU, from packages. With Debian 12's, guests often crash under emulation, above all nested ones. A KVM host
//! is emulated by the same QEMU [repaired](source).
//!
//! It is in one directory with its own loader and libraries, so that it runs on any machine and in the host's
//! initramfs, whatever libraries are there.

mod source;

pub(crate) use source::{ARTEFACT as FOR_HOSTS, open as open_for_hosts};

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::archive::Archive;
use crate::cache::Cache;
use crate::debian::{Apt, Suite};
use crate::error::{Error, Result};
use crate::image::QEMU;
use crate::payload::BIN;
use crate::tool;

/// Change it when the same packages would yield different files.
const RECIPE: &str = "qemu 1";
/// Name in the cache.
pub(crate) const ARTEFACT: &str = "qemu";
/// Firmware of our machines: the outer one is a PC, the inner one a microvm with a kernel.
const FIRMWARE: [&str; 4] = ["bios-256k.bin", "bios-microvm.bin", "linuxboot_dma.bin", "kvmvapic.bin"];
const FIRMWARE_DIRS: [&str; 2] = ["usr/share/qemu", "usr/share/seabios"];
const LOADER: &str = "ld.so";

/// The directory, built if it is not in the cache.
pub(crate) fn open(cache: &Cache) -> Result<PathBuf> {
    cache.artefact(ARTEFACT, RECIPE, |dir| build(&Apt::open(cache, Suite::Trixie)?, dir))
}

/// The command of the QEMU in `dir`.
pub(crate) fn command(dir: &Path) -> Command {
    let mut words = command_words(&dir.to_string_lossy()).into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command.args(words);
    command
}

fn command_words(dir: &str) -> Vec<String> {
    let at = |name: &str| format!("{dir}/{name}");
    vec![at(LOADER), "--library-path".to_owned(), at("lib"), at(QEMU), "-L".to_owned(), at("share")]
}

/// Adds QEMU to an initramfs, under its usual name, among the binaries under test.
pub(crate) fn archive(dir: &Path, archive: &mut Archive) -> Result<()> {
    let place = "lab/qemu";
    for sub in ["", "lib", "share"] {
        for entry in fs::read_dir(dir.join(sub)).map_err(Error::file("read", dir))?.flatten() {
            let path = entry.path();
            if path.is_file() {
                let name = path.strip_prefix(dir).unwrap_or(&path);
                archive.copy(&format!("{place}/{}", name.display()), 0o755, &path)?;
            }
        }
    }
    let script = format!("#!/bin/sh\nexec {} \"$@\"\n", command_words(&format!("/{place}")).join(" "));
    archive.file(&format!("{BIN}/{QEMU}"), 0o755, script.as_bytes())
}

fn build(apt: &Apt, dir: &Path) -> Result<()> {
    let tree = tempfile::tempdir_in(dir).map_err(Error::file("make a folder in", dir))?;
    let tree = tree.path();
    apt.unpack_closure(&["qemu-system-x86"], tree)?;
    let libraries = tree.join("usr/lib/x86_64-linux-gnu");
    let loader = libraries.join("ld-linux-x86-64.so.2");
    let program = tree.join("usr/bin").join(QEMU);
    let mut list = Command::new(&loader);
    list.arg("--library-path").arg(&libraries).arg("--list").arg(&program);
    collect(dir, &program, &loader, &mut list)?;
    add_firmware(&FIRMWARE_DIRS.map(|place| tree.join(place)), dir)
}

/// Copies the program and its loader, and the libraries that `list` prints.
fn collect(dir: &Path, program: &Path, loader: &Path, list: &mut Command) -> Result<()> {
    let libraries = dir.join("lib");
    fs::create_dir(&libraries).map_err(Error::file("make", &libraries))?;
    copy(loader, &dir.join(LOADER))?;
    copy(program, &dir.join(QEMU))?;
    for path in crate::archive::linked(&tool::output(list)?) {
        let path = Path::new(&path);
        copy(path, &libraries.join(path.file_name().unwrap_or_default()))?;
    }
    Ok(())
}

/// Copies our machines' firmware, each file from one of these directories.
fn add_firmware(places: &[PathBuf], dir: &Path) -> Result<()> {
    let share = dir.join("share");
    fs::create_dir(&share).map_err(Error::file("make", &share))?;
    for name in FIRMWARE {
        let found = places.iter().map(|place| place.join(name)).find(|path| path.exists());
        let found = found.ok_or_else(|| Error::Packages(format!("QEMU's packages have no {name}")))?;
        copy(&found, &share.join(name))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).map_err(Error::file("copy", from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_runs_by_its_own_loader_with_its_own_libraries() {
        let words = command_words("/q").join(" ");
        assert_eq!(words, format!("/q/ld.so --library-path /q/lib /q/{QEMU} -L /q/share"));
    }
}
