//! What a machine boots from: kernel, initramfs and sometimes a disk, assembled for each boot.
//!
//! The cache only keeps what takes time to build: kernels, busybox, the root file system of the systemd image. The rest
//! is an archive of a few megabytes, made in milliseconds, so that it cannot become stale.

pub mod systemd;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::archive::Archive;
use crate::cache::Cache;
use crate::debian::{Apt, Suite};
use crate::emulator;
use crate::error::{Error, Result};
use crate::kernel::{Kernel, KernelFiles};
use crate::payload::{self, Payload};
use crate::tool;
use crate::vm::VmSpec;

/// What is in a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Image {
    /// busybox, the binaries under test, nothing else.
    Tiny,
    /// Debian with systemd, redis and sysbench on a read-only disk under an overlay; with guests a KVM host, too.
    Systemd,
    /// A KVM host: busybox, QEMU and what its guests boot from.
    Host,
}

impl std::fmt::Display for Image {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Tiny => "tiny",
            Self::Systemd => "systemd",
            Self::Host => "host",
        })
    }
}

/// Files for booting a machine with QEMU.
#[derive(Debug)]
pub struct Media {
    /// The kernel image.
    pub kernel: PathBuf,
    /// The initramfs, as bytes.
    pub initramfs: Vec<u8>,
    /// A read-only disk, if needed.
    pub disk: Option<PathBuf>,
    /// Directory of QEMU; `None` in a nested host, which has its own.
    pub emulator: Option<PathBuf>,
}

const BUSYBOX: &str = "busybox";
/// First script in machines without systemd: mounts file systems and loads modules.
const SETUP: &str = include_str!("image/setup.sh");
/// busybox init's table of what to run next.
const INITTAB: &str = include_str!("image/inittab");
/// The console of `gleaner-lab shell`.
const CONSOLE: &str = include_str!("image/console.sh");
const VIRTIO: [&str; 4] = ["virtio_pci", "virtio_mmio", "virtio_console", "virtio_blk"];
/// The emulated processor is AMD's.
const KVM: &str = "kvm-amd";
/// Where a KVM host keeps its guests' boot files.
const GUEST: &str = "lab/guest";
/// The disk of a nested host whose guests have systemd.
pub(crate) const GUESTS_DISK: &str = "/dev/vda";

/// What is built from packages and kept.
#[derive(Debug, Clone)]
pub struct Store {
    cache: Cache,
    payload: Payload,
}

impl Store {
    /// The images in this cache, with these binaries.
    pub fn new(cache: Cache, payload: Payload) -> Self {
        Self { cache, payload }
    }

    pub(crate) fn prepare(&self, image: Image, kernel: Kernel) -> Result<()> {
        prepare(&self.cache, image, kernel)
    }

    /// What such a machine boots from.
    pub(crate) fn media(&self, spec: &VmSpec) -> Result<Media> {
        let busybox = busybox(&self.cache)?;
        let files = spec.kernel.open(&self.cache)?;
        let qemu = emulator::open(&self.cache)?;
        let emulator = if spec.is_host() { emulator::open_for_hosts(&self.cache)? } else { qemu.clone() };
        let mut media =
            Media { kernel: files.image(), initramfs: Vec::new(), disk: None, emulator: Some(emulator) };
        match spec.image {
            Image::Tiny => {
                media.initramfs = tiny(&busybox, &files, &[])?.finish()?;
                media.initramfs.extend(self.payload.with_libraries());
            }
            Image::Systemd => {
                media.initramfs = self.systemd(&busybox, &files, &qemu, &spec.guests)?;
                media.initramfs.extend(self.payload.alone());
                media.disk = Some(systemd::root(&self.cache)?);
            }
            Image::Host => {
                let for_guests: &[&str] =
                    if spec.systemd_guests { &[KVM, "squashfs", "tun"] } else { &[KVM] };
                let mut archive = tiny(&busybox, &files, for_guests)?;
                self.add_guests(&mut archive, &busybox, &qemu, &spec.guests)?;
                if spec.systemd_guests {
                    self.add_systemd_guests(&mut archive, &busybox, &spec.guests)?;
                    media.disk = Some(systemd::root(&self.cache)?);
                }
                media.initramfs = archive.finish()?;
                media.initramfs.extend(self.payload.with_libraries());
            }
        }
        Ok(media)
    }

    /// The systemd image, which boots guests if there are any.
    fn systemd(
        &self,
        busybox: &Path,
        kernel: &KernelFiles,
        qemu: &Path,
        guests: &[Kernel],
    ) -> Result<Vec<u8>> {
        if guests.is_empty() {
            return systemd::initramfs(busybox, kernel, &[])?.finish();
        }
        let mut archive = systemd::initramfs(busybox, kernel, &[KVM])?;
        self.add_guests(&mut archive, busybox, qemu, guests)?;
        archive.finish()
    }

    /// Adds QEMU, and the guests' boot files.
    fn add_guests(
        &self,
        archive: &mut Archive,
        busybox: &Path,
        qemu: &Path,
        guests: &[Kernel],
    ) -> Result<()> {
        emulator::archive(qemu, archive)?;
        for guest in guests {
            let files = guest.open(&self.cache)?;
            let dir = format!("{GUEST}/{guest}");
            archive.copy(&format!("{dir}/vmlinuz"), 0o644, &files.image())?;
            archive.file(&format!("{dir}/tiny.cpio"), 0o644, &tiny(busybox, &files, &[])?.finish()?)?;
        }
        archive.file(payload::NESTED, 0o644, self.payload.with_libraries())
    }

    /// Adds what guests with systemd boot from; their disk is the host's own.
    fn add_systemd_guests(&self, archive: &mut Archive, busybox: &Path, guests: &[Kernel]) -> Result<()> {
        for guest in guests {
            let kernel = guest.open(&self.cache)?;
            let initramfs = systemd::initramfs(busybox, &kernel, &["virtio_net"])?.finish()?;
            archive.file(&format!("{GUEST}/{guest}/systemd.cpio"), 0o644, &initramfs)?;
        }
        Ok(())
    }
}

/// Builds everything that an image needs from packages.
pub fn prepare(cache: &Cache, image: Image, kernel: Kernel) -> Result<()> {
    kernel.open(cache)?;
    busybox(cache)?;
    emulator::open(cache)?;
    match image {
        Image::Tiny => Ok(()),
        Image::Systemd => systemd::root(cache).map(drop),
        Image::Host => emulator::open_for_hosts(cache).map(drop),
    }
}

/// Names of the cache's artefacts for these images and kernels.
pub fn artefacts(images: &[Image], kernels: &[Kernel]) -> Vec<String> {
    let mut names: Vec<String> = kernels.iter().map(|kernel| kernel.artefact()).collect();
    names.extend([BUSYBOX.to_owned(), emulator::ARTEFACT.to_owned()]);
    if images.contains(&Image::Systemd) {
        names.push(systemd::ARTEFACT.to_owned());
    }
    if images.contains(&Image::Host) {
        names.push(emulator::FOR_HOSTS.to_owned());
    }
    names
}

pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// Whether this machine is a nested host with boot files for guests.
pub(crate) fn is_nested_host() -> bool {
    Path::new("/").join(GUEST).is_dir()
}

/// The boot files of a guest in this nested host.
pub(crate) fn nested_media(image: Image, kernel: Kernel) -> Result<Media> {
    let dir = Path::new("/").join(GUEST).join(kernel.name());
    let read = |path: PathBuf| fs::read(&path).map_err(Error::file("read", path));
    let mut initramfs = read(dir.join(format!("{image}.cpio")))?;
    initramfs.extend(read(Path::new("/").join(payload::NESTED))?);
    let disk = (image == Image::Systemd).then(|| PathBuf::from(GUESTS_DISK));
    Ok(Media { kernel: dir.join("vmlinuz"), initramfs, disk, emulator: None })
}

/// Debian 13's static busybox.
fn busybox(cache: &Cache) -> Result<PathBuf> {
    let dir = cache.artefact(BUSYBOX, "busybox 1", |dir| {
        let unpacked = tempfile::tempdir_in(dir).map_err(Error::file("make a folder in", dir))?;
        Apt::open(cache, Suite::Trixie)?.unpack(&["busybox-static".to_owned()], unpacked.path())?;
        let places = ["usr/bin/busybox", "bin/busybox"].map(|place| unpacked.path().join(place));
        let found = places.iter().find(|path| path.exists());
        let found = found.ok_or_else(|| Error::Packages("busybox-static has no busybox".to_owned()))?;
        fs::copy(found, dir.join(BUSYBOX)).map(drop).map_err(Error::file("copy", found))
    })?;
    Ok(dir.join(BUSYBOX))
}

/// Adds modules in the order of loading, and the file that lists them in that order.
fn modules(archive: &mut Archive, kernel: &KernelFiles, wanted: &[&str]) -> Result<()> {
    let mut order = Vec::new();
    for path in kernel.modules(wanted) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        archive.copy(&format!("lib/lab/{name}"), 0o644, &path)?;
        order.push(format!("/lib/lab/{name}\n"));
    }
    archive.file("lib/lab/order", 0o644, order.concat().as_bytes())
}

/// busybox, its applets' links, and the mount points.
fn base(busybox: &Path) -> Result<Archive> {
    let mut archive = Archive::default();
    archive.copy("bin/busybox", 0o755, busybox)?;
    let names = tool::output(Command::new(busybox).arg("--list"))?;
    for name in names.lines().filter(|name| *name != BUSYBOX) {
        archive.link(&format!("bin/{name}"), BUSYBOX)?;
    }
    for dir in ["dev", "proc", "sys", "run", "tmp", "root", "sbin", "usr/bin", "var"] {
        archive.dir(dir)?;
    }
    Ok(archive)
}

/// The tiny image, which can still be added to.
fn tiny(busybox: &Path, kernel: &KernelFiles, more_modules: &[&str]) -> Result<Archive> {
    let mut archive = base(busybox)?;
    modules(&mut archive, kernel, &[&VIRTIO, more_modules].concat())?;
    archive.link("init", "bin/init")?;
    archive.file("etc/inittab", 0o644, INITTAB.as_bytes())?;
    archive.file("etc/setup", 0o755, SETUP.as_bytes())?;
    archive.file("etc/console", 0o755, CONSOLE.as_bytes())?;
    archive.file(
        "etc/passwd",
        0o644,
        b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n",
    )?;
    archive.file("etc/group", 0o644, b"root:x:0:\nnogroup:x:65534:\n")?;
    Ok(archive)
}
