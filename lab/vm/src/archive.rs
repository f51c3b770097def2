//! Builds initramfs archives (cpio, format newc) in memory. Archives can be concatenated: later files win.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use cpio::newc::{Builder, ModeFileType};

use crate::error::{Error, Result};
use crate::tool;

/// Alignment that the kernel expects between archives (kernel, `init/initramfs.c`).
const ALIGN: usize = 4;

/// An archive under construction.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    bytes: Vec<u8>,
    inodes: u32,
    names: BTreeSet<String>,
}

impl Archive {
    /// Adds a file, and the directories above it.
    pub(crate) fn file(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.entry(name, ModeFileType::Regular, mode, content)
    }

    /// Adds a file of this machine.
    pub(crate) fn copy(&mut self, name: &str, mode: u32, from: &Path) -> Result<()> {
        self.file(name, mode, &fs::read(from).map_err(Error::file("read", from))?)
    }

    /// Adds a symbolic link.
    pub(crate) fn link(&mut self, name: &str, to: &str) -> Result<()> {
        self.entry(name, ModeFileType::Symlink, 0o777, to.as_bytes())
    }

    /// Adds an empty directory.
    pub(crate) fn dir(&mut self, name: &str) -> Result<()> {
        self.entry(name, ModeFileType::Directory, 0o755, &[])
    }

    /// Adds a program of this machine as `name`, and the libraries that it is linked with under their own paths.
    pub(crate) fn program(&mut self, name: &str, from: &Path) -> Result<()> {
        self.copy(name, 0o755, from)?;
        self.libraries(from)
    }

    /// Adds the libraries that a program of this machine is linked with.
    pub(crate) fn libraries(&mut self, of: &Path) -> Result<()> {
        for path in linked(&tool::output(Command::new("ldd").arg(of))?) {
            self.copy(path.trim_start_matches('/'), 0o755, Path::new(path.as_str()))?;
        }
        Ok(())
    }

    fn entry(&mut self, name: &str, kind: ModeFileType, mode: u32, content: &[u8]) -> Result<()> {
        if let Some((parent, _)) = name.rsplit_once('/')
            && !self.names.contains(parent)
        {
            self.dir(parent)?;
        }
        if !self.names.insert(name.to_owned()) {
            return Ok(());
        }
        self.inodes += 1;
        let system = || Error::system::<std::io::Error>(format!("archive {name}"));
        let length =
            u32::try_from(content.len()).map_err(|_| system()(std::io::ErrorKind::FileTooLarge.into()))?;
        let entry = Builder::new(name).ino(self.inodes).mode(mode).set_mode_file_type(kind);
        let mut writer = entry.write(&mut self.bytes, length);
        writer.write_all(content).map_err(system())?;
        writer.finish().map(drop).map_err(system())
    }

    /// Closes the archive, padded so that another can follow.
    pub(crate) fn finish(self) -> Result<Vec<u8>> {
        let closed = cpio::newc::trailer(self.bytes);
        let mut bytes = closed.map_err(Error::system::<std::io::Error>("close an archive"))?;
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        Ok(bytes)
    }
}

/// The files in the output of `ldd`: after the arrow, or the loader, which has none.
pub(crate) fn linked(said: &str) -> Vec<String> {
    let path = |line: &str| {
        let line = line.trim();
        let target = line.split_once("=> ").map_or(line, |(_, target)| target);
        target.starts_with('/').then(|| target.split_whitespace().next().map(str::to_owned)).flatten()
    };
    said.lines().filter_map(path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_unpacks_to_what_went_in() {
        let mut archive = Archive::default();
        archive.file("a/b/file", 0o644, b"hello").unwrap();
        archive.link("a/link", "b/file").unwrap();
        archive.file("a/b/file", 0o644, b"ignored").unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len() % ALIGN, 0);
        let mut found = Vec::new();
        let mut rest = &bytes[..];
        loop {
            let mut reader = cpio::newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                break;
            }
            let mut content = String::new();
            std::io::Read::read_to_string(&mut reader, &mut content).unwrap();
            let kind = reader.entry().mode() & 0o170_000;
            found.push((reader.entry().name().to_owned(), kind, content));
            rest = reader.finish().unwrap();
        }
        let entry = |name: &str, kind, content: &str| (name.to_owned(), kind, content.to_owned());
        assert_eq!(
            found,
            [
                entry("a", 0o040_000, ""),
                entry("a/b", 0o040_000, ""),
                entry("a/b/file", 0o100_000, "hello"),
                entry("a/link", 0o120_000, "b/file"),
            ]
        );
    }

    #[test]
    fn libraries_are_what_ldd_names() {
        let said = "\tlinux-vdso.so.1 (0x1)\n\tlibz.so.1 => /lib/x/libz.so.1 (0x2)\n\t/lib64/ld.so.2 (0x3)\n";
        assert_eq!(linked(said), ["/lib/x/libz.so.1", "/lib64/ld.so.2"]);
    }
}
