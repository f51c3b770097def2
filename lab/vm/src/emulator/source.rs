//! The QEMU that emulates KVM hosts: Debian 13's source with the patches in `lab/vm/qemu`, each of which says what it
//! repairs. Without them such a host panics or hangs within minutes of starting VMs and loading BPF programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use crate::cache::Cache;
use crate::debian::{Apt, Suite};
use crate::error::{Error, Result};
use crate::image::QEMU;
use crate::tool;

/// Name in the cache.
pub(crate) const ARTEFACT: &str = "qemu-for-hosts";
const PATCHES: [(&str, &str); 8] = [
    ("1-stale-code.patch", include_str!("../../qemu/1-stale-code.patch")),
    ("2-interrupt-twice.patch", include_str!("../../qemu/2-interrupt-twice.patch")),
    ("3-lost-interrupt.patch", include_str!("../../qemu/3-lost-interrupt.patch")),
    ("4-foreign-flags.patch", include_str!("../../qemu/4-foreign-flags.patch")),
    ("5-long-turns.patch", include_str!("../../qemu/5-long-turns.patch")),
    ("6-part-of-a-ns.patch", include_str!("../../qemu/6-part-of-a-ns.patch")),
    ("7-long-pauses.patch", include_str!("../../qemu/7-long-pauses.patch")),
    ("8-pause-filter.patch", include_str!("../../qemu/8-pause-filter.patch")),
];
/// Everything else is left out: only the lab's machines are emulated.
const OPTIONS: [&str; 7] = [
    "--target-list=x86_64-softmmu",
    "--without-default-features",
    "--enable-system",
    "--enable-tcg",
    "--disable-tools",
    "--disable-docs",
    "--disable-install-blobs",
];
/// What Debian 12 does not have, or only too old.
const BUILDER: &str = "meson";

/// The directory, built if it is not in the cache: five minutes on two processors.
pub(crate) fn open(cache: &Cache) -> Result<PathBuf> {
    let patches: String = PATCHES.iter().map(|(_, text)| *text).collect();
    let recipe = format!("qemu for hosts 1 {} {patches}", OPTIONS.join(" "));
    // One artefact is built at a time, so this one comes before.
    let firmware = super::open(cache)?;
    cache.artefact(ARTEFACT, &recipe, |dir| {
        build(&Apt::open(cache, Suite::Trixie)?, &Apt::open(cache, Suite::TrixieSources)?, &firmware, dir)
    })
}

fn build(packages: &Apt, sources: &Apt, firmware: &Path, dir: &Path) -> Result<()> {
    let temporary = tempfile::tempdir_in(dir).map_err(Error::file("make a folder in", dir))?;
    let (tree, tools) = (temporary.path().join("qemu"), temporary.path().join("tools"));
    sources.unpack_source("qemu", &tree)?;
    for (name, text) in PATCHES {
        let path = temporary.path().join(name);
        fs::write(&path, text).map_err(Error::file("write", &path))?;
        tool::run(Command::new("patch").args(["-p1", "--silent", "-i"]).arg(path).current_dir(&tree))?;
    }
    packages.unpack(&[BUILDER.to_owned()], &tools)?;
    let place = tree.join("build");
    fs::create_dir(&place).map_err(Error::file("make", &place))?;
    let run = |command: &mut Command| {
        let modules = tools.join("usr/lib/python3/dist-packages");
        tool::run(command.env("PYTHONPATH", modules).current_dir(&place).stdin(Stdio::null())).map(drop)
    };
    run(Command::new("../configure").args(OPTIONS))?;
    let threads = thread::available_parallelism().map_or(1, std::num::NonZero::get);
    run(Command::new("ninja").args(["-j", &threads.to_string(), QEMU]))?;
    let program = place.join(QEMU);
    tool::run(Command::new("strip").arg(&program))?;
    let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
    let mut list = Command::new(loader);
    super::collect(dir, &program, loader, list.arg("--list").arg(&program))?;
    super::add_firmware(&[firmware.join("share")], dir)
}
