//! The systemd image: Debian 13 from its packages, unpacked but not configured, on a compressed read-only disk. An
//! initramfs overlays it in memory, adds the binaries under test and the agent's unit, and switches to it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::archive::Archive;
use crate::cache::Cache;
use crate::debian::{Apt, Suite};
use crate::error::{Error, Result};
use crate::image::{VIRTIO, base, modules};
use crate::kernel::KernelFiles;
use crate::tool;

/// Change it when the same packages would yield a different disk.
const RECIPE: &str = "systemd 2";
const DISK: &str = "root.squashfs";
/// Name in the cache.
pub const ARTEFACT: &str = "images/systemd";
/// Its packages, to which dependencies are added: what Debian calls essential, which no package names among its dependencies, an
/// init system, servers, and the libraries of the binaries under test.
const PACKAGES: &[&str] = &[
    "base-files",
    "base-passwd",
    "bash",
    "bsdutils",
    "coreutils",
    "dash",
    "debianutils",
    "diffutils",
    "dpkg",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "init-system-helpers",
    "libc-bin",
    "mawk",
    "ncurses-base",
    "perl-base",
    "sed",
    "sysvinit-utils",
    "tar",
    "util-linux",
    "mount",
    "login",
    "procps",
    "iproute2",
    "kmod",
    "systemd",
    "systemd-sysv",
    "udev",
    "dbus",
    "apt",
    "redis-server",
    "redis-tools",
    "sysbench",
    "libelf1t64",
    "zlib1g",
    "libgcc-s1",
    "libc6",
];
const INIT: &str = include_str!("systemd-init.sh");
const UNIT: &str = include_str!("gleaner-lab.service");
const SHELL_UNIT: &str = include_str!("gleaner-lab-shell.service");

/// The disk, built if it is not in the cache.
pub(crate) fn root(cache: &Cache) -> Result<PathBuf> {
    let recipe = format!("{RECIPE} {PACKAGES:?}");
    let dir = cache.artefact(ARTEFACT, &recipe, |dir| build(&Apt::open(cache, Suite::Trixie)?, dir))?;
    Ok(dir.join(DISK))
}

fn build(apt: &Apt, dir: &Path) -> Result<()> {
    let tree = tempfile::tempdir_in(dir).map_err(Error::file("make a folder in", dir))?;
    // The temporary directory is closed to others, which this one must not be.
    let root = &tree.path().join("root");
    merge_usr(root)?;
    apt.unpack_closure(PACKAGES, root)?;
    configure(root)?;
    let mut pack = Command::new("mksquashfs");
    pack.arg(root).arg(dir.join(DISK));
    // Unpacks fast under emulation, and takes half the time of the highest level to pack.
    pack.args([
        "-comp",
        "zstd",
        "-Xcompression-level",
        "9",
        "-all-root",
        "-noappend",
        "-quiet",
        "-no-progress",
    ]);
    pack.arg("-e").args(DOCS.map(|path| root.join(path)));
    tool::run(&mut pack).map(drop)
}

/// Files that a machine does not need.
const DOCS: [&str; 5] = ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache"];

/// Directories since the merge of `/usr`; some packages still have files in the old ones.
fn merge_usr(root: &Path) -> Result<()> {
    for name in ["bin", "sbin", "lib", "lib64"] {
        let path = root.join("usr").join(name);
        fs::create_dir_all(&path).map_err(Error::file("make", path))?;
        let link = root.join(name);
        std::os::unix::fs::symlink(format!("usr/{name}"), &link).map_err(Error::file("make", link))?;
    }
    Ok(())
}

/// Does what the packages' own scripts would, as far as these machines need it.
fn configure(root: &Path) -> Result<()> {
    let copies = [
        ("usr/share/base-passwd/passwd.master", "etc/passwd"),
        ("usr/share/base-passwd/group.master", "etc/group"),
    ];
    for (from, to) in copies {
        fs::copy(root.join(from), root.join(to)).map_err(Error::file("copy", from))?;
    }
    let files = [
        ("etc/hostname", "lab\n"),
        ("etc/hosts", "127.0.0.1 localhost lab\n"),
        ("etc/fstab", ""),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n"),
        ("etc/shadow", "root:*:20000:0:99999:7:::\n"),
        ("etc/environment", "PATH=/lab/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin\n"),
        // The same in all machines, which never meet. Without one systemd would enable every unit.
        ("etc/machine-id", "676c65616e65722d6c61622d6d616368\n"),
    ];
    for (name, text) in files {
        let path = root.join(name);
        fs::write(&path, text).map_err(Error::file("write", path))?;
    }
    let links = [("usr/bin/sh", "dash"), ("usr/bin/awk", "mawk")];
    for (name, to) in links {
        let path = root.join(name);
        if !path.exists() {
            let _ = fs::remove_file(&path);
            std::os::unix::fs::symlink(to, &path).map_err(Error::file("make", path))?;
        }
    }
    Ok(())
}

/// The initramfs that mounts the disk and switches to it. What is added to it in `/lab` is there afterwards, too.
pub(super) fn initramfs(busybox: &Path, kernel: &KernelFiles, more_modules: &[&str]) -> Result<Archive> {
    let mut archive: Archive = base(busybox)?;
    modules(&mut archive, kernel, &[&VIRTIO[..], &["squashfs", "overlay"], more_modules].concat())?;
    archive.file("init", 0o755, INIT.as_bytes())?;
    archive.file("lab/units/gleaner-lab.service", 0o644, UNIT.as_bytes())?;
    archive.file("lab/units/gleaner-lab-shell.service", 0o644, SHELL_UNIT.as_bytes())?;
    Ok(archive)
}
