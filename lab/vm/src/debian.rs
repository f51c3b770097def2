//! Unpacks Debian's packages without installing them, using apt with its own configuration and `dpkg -x`.
//!
//! Lists, state and downloads are kept in the cache; the machine's own package system is not touched. The archive is
//! the one that the machine's sources name for Debian's own packages (`apt-get indextargets`: origin and label Debian,
//! component main), such as a mirror nearby, or the one in `GLEANER_LAB_MIRROR`. apt checks signatures and checksums
//! with Debian's keyring.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::tool;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// A Debian release, by the name of its directory in the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Suite {
    Bookworm,
    Trixie,
    TrixieBackports,
    /// The sources of [`Self::Trixie`].
    TrixieSources,
}

impl Suite {
    fn name(self) -> &'static str {
        match self {
            Self::Bookworm => "bookworm",
            Self::Trixie | Self::TrixieSources => "trixie",
            Self::TrixieBackports => "trixie-backports",
        }
    }

    /// Whether it has packages or sources: the first word of a line in apt's `sources.list`.
    fn kind(self) -> &'static str {
        if self == Self::TrixieSources { "deb-src" } else { "deb" }
    }

    /// Name of the directory in which apt keeps its lists and downloads for this suite.
    fn directory(self) -> String {
        if self == Self::TrixieSources { format!("{}-sources", self.name()) } else { self.name().to_owned() }
    }
}

/// One suite, as seen by an apt with its own configuration.
pub(crate) struct Apt {
    suite: Suite,
    mirror: String,
    dir: PathBuf,
}

impl Apt {
    /// Opens the suite with its newest lists, which are fetched once per process.
    pub(crate) fn open(cache: &Cache, suite: Suite) -> Result<Self> {
        static FRESH: Mutex<BTreeSet<(PathBuf, Suite)>> = Mutex::new(BTreeSet::new());
        let dir = cache.scratch("apt")?.join(suite.directory());
        let apt = Self { suite, mirror: mirror()?, dir };
        let mut fresh = FRESH.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (apt.dir.clone(), suite);
        if !fresh.contains(&key) {
            apt.configure()?;
            apt.fetch(apt.get().arg("update"))?;
            fresh.insert(key);
        }
        Ok(apt)
    }

    fn configure(&self) -> Result<()> {
        for sub in ["lists/partial", "archives/partial"] {
            let path = self.dir.join(sub);
            fs::create_dir_all(&path).map_err(Error::file("make", path))?;
        }
        let Self { suite, mirror, .. } = self;
        let source = format!("{} [signed-by={KEYRING}] {mirror} {} main\n", suite.kind(), suite.name());
        for (name, text) in [("sources.list", source), ("status", String::new()), ("apt.conf", self.conf())] {
            let path = self.dir.join(name);
            fs::write(&path, text).map_err(Error::file("write", path))?;
        }
        Ok(())
    }

    /// Configuration that redirects everything apt would read or write on the machine to our own directory.
    fn conf(&self) -> String {
        let dir = self.dir.display();
        format!(
            "Dir::Etc::SourceList \"{dir}/sources.list\";\nDir::Etc::SourceParts \"/dev/null\";\n\
             Dir::Etc::Preferences \"/dev/null\";\nDir::Etc::PreferencesParts \"/dev/null\";\n\
             Dir::State::Lists \"{dir}/lists\";\nDir::State::Status \"{dir}/status\";\n\
             Dir::State::Extended_States \"{dir}/extended\";\nDir::Cache \"{dir}\";\n\
             Dir::Cache::Archives \"{dir}/archives\";\nDir::Log \"{dir}\";\n\
             Acquire::Languages \"none\";\nAcquire::Retries \"3\";\n\
             Acquire::IndexTargets::deb::DEP-11::DefaultEnabled \"false\";\n\
             Acquire::IndexTargets::deb::CNF::DefaultEnabled \"false\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\n\
             APT::Install-Recommends \"false\";\nAPT::Install-Suggests \"false\";\n\
             APT::Sandbox::User \"root\";\nAPT::Update::Error-Mode \"any\";\nDebug::NoLocking \"true\";\n"
        )
    }

    fn tool(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.dir.join("apt.conf")).env("LC_ALL", "C").arg("-q");
        command
    }

    fn get(&self) -> Command {
        self.tool("apt-get")
    }

    fn fetch(&self, command: &mut Command) -> Result<()> {
        match tool::run(command) {
            Err(Error::Tool { stderr, .. }) => Err(Error::NoPackages {
                suite: self.suite.name().to_owned(),
                mirror: self.mirror.clone(),
                detail: stderr,
            }),
            other => other.map(drop),
        }
    }

    /// Dependencies of a package's newest version, without alternatives.
    pub(crate) fn depends(&self, package: &str) -> Result<Vec<String>> {
        let shown = tool::output(self.tool("apt-cache").args(["show", "--no-all-versions", package]))?;
        Ok(depends(&shown))
    }

    /// Downloads only these packages, and unpacks them into a directory.
    pub(crate) fn unpack(&self, packages: &[String], into: &Path) -> Result<()> {
        self.downloaded(|debs| {
            let mut command = self.get();
            command.arg("download").args(packages).current_dir(debs);
            self.fetch(&mut command)?;
            extract(debs, into)
        })
    }

    /// Downloads these packages with all their dependencies, and unpacks them into a directory. Nothing is configured:
    /// no package script runs. dpkg there takes them for installed, so that it can install further ones.
    pub(crate) fn unpack_closure(&self, packages: &[&str], into: &Path) -> Result<()> {
        self.downloaded(|debs| {
            let mut command = self.get();
            let archives = format!("Dir::Cache::Archives={}", debs.display());
            command.args(["-y", "--download-only", "-o", &archives, "install"]).args(packages);
            self.fetch(&mut command)?;
            extract(debs, into)?;
            register(debs, into)
        })
    }

    /// Downloads a package's source, and unpacks it into a directory that does not exist yet, with Debian's patches.
    pub(crate) fn unpack_source(&self, package: &str, into: &Path) -> Result<()> {
        self.downloaded(|debs| {
            let mut command = self.get();
            command.args(["source", "--download-only", package]).current_dir(debs);
            self.fetch(&mut command)?;
            let description = files(debs, "dsc")?.pop();
            let description = description
                .ok_or_else(|| Error::Packages(format!("the source of {package} has no description")))?;
            // apt has checked the signature.
            let mut unpack = Command::new("dpkg-source");
            tool::run(unpack.args(["--no-check", "-x"]).arg(description).arg(into)).map(drop)
        })
    }

    /// Passes `take` a temporary directory for packages.
    fn downloaded(&self, take: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
        let debs = tempfile::tempdir_in(&self.dir).map_err(Error::file("make a folder in", &self.dir))?;
        let partial = debs.path().join("partial");
        fs::create_dir(&partial).map_err(Error::file("make", partial))?;
        take(debs.path())
    }
}

/// Unpacks every package in a directory, in the order of their names. `base-files`, which creates the directories,
/// comes early enough, since the others' files follow its links whether or not these exist yet.
fn extract(debs: &Path, into: &Path) -> Result<()> {
    for file in files(debs, "deb")? {
        tool::run(Command::new("dpkg").arg("-x").arg(file).arg(into))?;
    }
    Ok(())
}

/// The files in a directory whose names have this ending, in the order of their names.
fn files(debs: &Path, wanted: &str) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(debs).map_err(Error::file("read", debs))?.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == wanted));
    files.sort();
    Ok(files)
}

/// Writes the records by which dpkg takes every package in a directory for installed.
fn register(debs: &Path, into: &Path) -> Result<()> {
    let dir = into.join("var/lib/dpkg");
    let lists = dir.join("info");
    fs::create_dir_all(&lists).map_err(Error::file("make", &lists))?;
    let mut status = String::new();
    for file in files(debs, "deb")? {
        let control = tool::output(Command::new("dpkg-deb").arg("--field").arg(&file))?;
        let field = |name: &str| {
            control.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap_or_default()
        };
        let name = match field("Multi-Arch") {
            "same" => format!("{}:{}", field("Package"), field("Architecture")),
            _ => field("Package").to_owned(),
        };
        let list = lists.join(format!("{name}.list"));
        fs::write(&list, "/.\n").map_err(Error::file("write", list))?;
        status += control.trim_end();
        status += "\nStatus: install ok installed\n\n";
    }
    let path = dir.join("status");
    fs::write(&path, status).map_err(Error::file("write", path))
}

/// The archive of Debian's own packages.
fn mirror() -> Result<String> {
    if let Ok(named) = std::env::var("GLEANER_LAB_MIRROR") {
        return Ok(named);
    }
    let format = "$(REPO_URI)\t$(ORIGIN)\t$(LABEL)\t$(COMPONENT)\t$(CREATED_BY)";
    let mut command = Command::new("apt-get");
    let targets = tool::output(command.args(["indextargets", "--format", format]))?;
    first_debian(&targets).ok_or(Error::NoMirror)
}

/// The first of apt's targets that is an archive of Debian itself.
fn first_debian(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let (uri, kind) = line.split_once('\t')?;
        (kind == "Debian\tDebian\tmain\tPackages").then(|| uri.trim_end_matches('/').to_owned())
    })
}

/// The `Depends` in a package's description, without versions and alternatives.
fn depends(shown: &str) -> Vec<String> {
    let line = shown.lines().find_map(|line| line.strip_prefix("Depends:")).unwrap_or_default();
    let wanted = line.split(',').filter(|wish| !wish.contains('|'));
    wanted.filter_map(|wish| wish.split_whitespace().next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_is_the_first_of_debian_itself() {
        let targets = "http://a/ports/\tOther\tOther\tmain\tPackages\n\
                       http://b/debian-security/\tDebian\tDebian-Security\tmain\tPackages\n\
                       http://c/debian/\tDebian\tDebian\tmain\tTranslations\n\
                       http://c/debian/\tDebian\tDebian\tmain\tPackages\n";
        assert_eq!(first_debian(targets).as_deref(), Some("http://c/debian"));
        assert_eq!(first_debian(""), None);
    }

    #[test]
    fn dependencies_are_names_alone() {
        let shown =
            "Package: linux-image-cloud-amd64\nDepends: linux-image-7.3 (= 7.3-1), kmod, a | b\nSize: 1\n";
        assert_eq!(depends(shown), ["linux-image-7.3", "kmod"]);
        assert!(depends("Package: x\n").is_empty());
    }

    #[test]
    fn an_unreachable_archive_is_reported_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let apt = Apt {
            suite: Suite::Trixie,
            mirror: "http://127.0.0.1:9/debian".to_owned(),
            dir: dir.path().join("trixie"),
        };
        apt.configure().unwrap();
        let said = apt.fetch(apt.get().args(["-o", "Acquire::Retries=0", "update"])).unwrap_err().to_string();
        assert!(
            said.starts_with("cannot fetch Debian's packages of trixie from http://127.0.0.1:9"),
            "{said}"
        );
        assert!(said.contains("needs the network once"), "{said}");
    }
}
