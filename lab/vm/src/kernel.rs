//! The kernels of the matrix: Debian's cloud kernels, unpacked into the cache with the modules that the lab loads.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::debian::{Apt, Suite};
use crate::error::{Error, Result};
use crate::tool;

/// Change it when the same packages would yield different files.
const RECIPE: &str = "kernel 1";
const META: &str = "linux-image-cloud-amd64";
/// Modules that images load, unless they are built in.
const MODULES: [&str; 10] = [
    "virtio_pci",
    "virtio_mmio",
    "virtio_console",
    "virtio_blk",
    "virtio_net",
    "tun",
    "squashfs",
    "overlay",
    "kvm-amd",
    "kvm-intel",
];

/// A kernel of the matrix: the newest that Debian offers in this line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, clap::ValueEnum)]
pub enum Kernel {
    /// Debian 12's.
    #[serde(rename = "6.1")]
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13's.
    #[serde(rename = "6.12")]
    #[value(name = "6.12")]
    V6_12,
    /// The newest that is backported to Debian 13: with `sched_ext` and lazy preemption.
    #[serde(rename = "7")]
    #[value(name = "7")]
    V7,
}

impl Kernel {
    /// Every kernel of the matrix.
    pub const ALL: [Self; 3] = [Self::V6_1, Self::V6_12, Self::V7];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7 => "7",
        }
    }

    fn suite(self) -> Suite {
        match self {
            Self::V6_1 => Suite::Bookworm,
            Self::V6_12 => Suite::Trixie,
            Self::V7 => Suite::TrixieBackports,
        }
    }

    /// Its name in the cache.
    pub fn artefact(self) -> String {
        format!("kernels/{}", self.name())
    }

    /// The kernel's files, fetched if they are not in the cache.
    pub fn open(self, cache: &Cache) -> Result<KernelFiles> {
        let recipe = format!("{RECIPE} {} {MODULES:?}", self.suite() as u8);
        let dir =
            cache.artefact(&self.artefact(), &recipe, |dir| build(&Apt::open(cache, self.suite())?, dir))?;
        KernelFiles::read(dir)
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A kernel in the cache.
#[derive(Debug, Clone)]
pub struct KernelFiles {
    dir: PathBuf,
    /// `uname -r`.
    pub release: String,
    depends: BTreeMap<String, Vec<String>>,
}

impl KernelFiles {
    fn read(dir: PathBuf) -> Result<Self> {
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(Error::file("read", path))
        };
        let release = read("release")?;
        let lines = read("depends")?;
        let entries = lines.lines().filter_map(|line| line.split_once(':'));
        let names = |needs: &str| needs.split_whitespace().map(str::to_owned).collect();
        let depends = entries.map(|(name, needs)| (name.to_owned(), names(needs))).collect();
        Ok(Self { dir, release, depends })
    }

    /// The kernel image for a boot loader.
    pub fn image(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// The files of these modules and their dependencies, in the order of loading. Built-in modules are left out.
    pub fn modules(&self, wanted: &[&str]) -> Vec<PathBuf> {
        let order = load_order(&self.depends, wanted);
        order.into_iter().map(|name| self.dir.join("modules").join(format!("{name}.ko"))).collect()
    }
}

/// Depth first: a module comes after its dependencies.
fn load_order(depends: &BTreeMap<String, Vec<String>>, wanted: &[&str]) -> Vec<String> {
    fn visit(depends: &BTreeMap<String, Vec<String>>, name: &str, order: &mut Vec<String>) {
        let name = name.replace('-', "_");
        if order.contains(&name) {
            return;
        }
        let Some(needs) = depends.get(&name) else { return };
        for need in needs {
            visit(depends, need, order);
        }
        order.push(name);
    }
    let mut order = Vec::new();
    for name in wanted {
        visit(depends, name, &mut order);
    }
    order
}

/// Unpacks the newest kernel of a suite, and keeps its image and the modules of [`MODULES`], uncompressed.
fn build(apt: &Apt, dir: &Path) -> Result<()> {
    let unpacked = tempfile::tempdir_in(dir).map_err(Error::file("make a folder in", dir))?;
    apt.unpack(&packages(apt)?, unpacked.path())?;
    let (release, tree) = release(unpacked.path())?;
    let image = [unpacked.path().join(format!("boot/vmlinuz-{release}")), tree.join("vmlinuz")];
    let image = image.iter().find(|path| path.exists());
    let image =
        image.ok_or_else(|| Error::Packages(format!("there is no image of Linux {release} in them")))?;
    copy(image, &dir.join("vmlinuz"))?;
    let modules = dir.join("modules");
    fs::create_dir(&modules).map_err(Error::file("make", &modules))?;
    let depends = keep_modules(&index(&tree), &modules)?;
    write(&dir.join("release"), &release)?;
    write(&dir.join("depends"), &depends)
}

/// The meta package depends on the image's package; newer kernels have image and modules in separate packages.
fn packages(apt: &Apt) -> Result<Vec<String>> {
    let first = apt.depends(META)?;
    let image = first.iter().find(|name| is_versioned(name, "linux-image-"));
    let image = image.ok_or_else(|| Error::Packages(format!("{META} needs no linux-image-VERSION")))?;
    let mut all = vec![image.clone()];
    let parts = apt.depends(image)?;
    all.extend(
        parts
            .into_iter()
            .filter(|name| is_versioned(name, "linux-binary-") || is_versioned(name, "linux-modules-")),
    );
    Ok(all)
}

fn is_versioned(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The release and the directory of its modules.
fn release(unpacked: &Path) -> Result<(String, PathBuf)> {
    for base in ["lib/modules", "usr/lib/modules"] {
        if let Some(entry) = fs::read_dir(unpacked.join(base)).ok().and_then(|mut dir| dir.next()?.ok()) {
            return Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    Err(Error::Packages("there are no modules in the kernel's packages".to_owned()))
}

/// The files of all modules, by name.
fn index(tree: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![tree.to_owned()];
    while let Some(dir) = dirs.pop() {
        for path in fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if path.is_dir() && !path.is_symlink() {
                dirs.push(path);
            } else if let Some((name, _)) = path.file_name().and_then(|name| name.to_str()?.split_once(".ko"))
            {
                found.insert(name.replace('-', "_"), path);
            }
        }
    }
    found
}

/// Keeps the wanted modules and their dependencies. Returns the lines of the file `depends`.
fn keep_modules(index: &BTreeMap<String, PathBuf>, into: &Path) -> Result<String> {
    let mut lines = Vec::new();
    let mut wanted: Vec<String> = MODULES.iter().map(|name| name.replace('-', "_")).collect();
    let mut next = 0;
    while let Some(name) = wanted.get(next).cloned() {
        next += 1;
        let Some(file) = index.get(&name) else { continue };
        let content = unpacked_module(file)?;
        let needs = module_depends(&content);
        let path = into.join(format!("{name}.ko"));
        fs::write(&path, &content).map_err(Error::file("write", path))?;
        lines.push(format!("{name}: {}\n", needs.join(" ")));
        for need in needs {
            if !wanted.contains(&need) {
                wanted.push(need);
            }
        }
    }
    Ok(lines.concat())
}

fn unpacked_module(file: &Path) -> Result<Vec<u8>> {
    match file.extension().and_then(|ending| ending.to_str()) {
        Some("xz") => Ok(tool::run(Command::new("xz").arg("-dc").arg(file))?.stdout),
        Some("zst") => Ok(tool::run(Command::new("zstd").arg("-dcq").arg(file))?.stdout),
        _ => fs::read(file).map_err(Error::file("read", file)),
    }
}

/// Dependencies of a module, from its section `.modinfo`: strings that end with NUL (kernel, `scripts/mod/modpost.c`).
fn module_depends(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|window| window == key) else { return Vec::new() };
    let value = module[at + key.len()..].split(|&byte| byte == 0).next().unwrap_or_default();
    let names = String::from_utf8_lossy(value);
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).map(drop).map_err(Error::file("copy", from))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::file("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_after_what_they_need() {
        let depends = [
            ("virtio", vec![]),
            ("virtio_ring", vec!["virtio"]),
            ("virtio_console", vec!["virtio", "virtio_ring"]),
            ("kvm_amd", vec!["kvm"]),
            ("kvm", vec![]),
        ];
        let depends = depends
            .into_iter()
            .map(|(name, needs)| (name.to_owned(), needs.into_iter().map(str::to_owned).collect()));
        let order = load_order(&depends.collect(), &["virtio_console", "built_in", "kvm-amd", "virtio"]);
        assert_eq!(order, ["virtio", "virtio_ring", "virtio_console", "kvm", "kvm_amd"]);
    }

    #[test]
    fn a_module_says_what_it_needs() {
        assert_eq!(module_depends(b"\x7fELF\0alias=x\0depends=virtio,a-b\0name=y\0"), ["virtio", "a_b"]);
        assert!(module_depends(b"\x7fELF\0depends=\0name=y\0").is_empty());
        assert!(module_depends(b"").is_empty());
    }

    #[test]
    fn only_versions_count_as_images() {
        assert!(is_versioned("linux-image-7.3.4-cloud", "linux-image-"));
        assert!(!is_versioned("linux-image-cloud", "linux-image-"));
    }
}
