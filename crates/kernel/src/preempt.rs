//! The kernel's release and its preemption model, which determines what a yield thread can cost.

use std::fmt;

use serde::Serialize;

use crate::{KernelError, Root};

/// When the kernel preempts a running thread (kernel: kernel/Kconfig.preempt).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PreemptMode {
    /// Never in kernel mode.
    None,
    /// In kernel mode only at marked points.
    Voluntary,
    /// Anywhere, at once.
    Full,
    /// Anywhere, but a thread of a normal class gets the time until the next tick.
    Lazy,
    /// Real-time: anywhere, within most locks, too.
    Rt,
    /// Not known; [`Preemption::source`] says why.
    Unknown,
}

impl PreemptMode {
    fn from_word(word: &str) -> Option<Self> {
        match word {
            "none" => Some(Self::None),
            "voluntary" => Some(Self::Voluntary),
            "full" => Some(Self::Full),
            "lazy" => Some(Self::Lazy),
            _ => None,
        }
    }
}

impl fmt::Display for PreemptMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Voluntary => "voluntary",
            Self::Full => "full",
            Self::Lazy => "lazy",
            Self::Rt => "rt",
            Self::Unknown => "unknown",
        })
    }
}

/// The preemption model and how it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Preemption {
    /// The model.
    pub mode: PreemptMode,
    /// Where it was found, or for [`PreemptMode::Unknown`] why not.
    pub source: String,
}

impl Preemption {
    /// Tries, best first: the build flags, debugfs, the kernel's command line, the kernel's configuration under
    /// `/boot`. Never fails: unreadable sources are skipped.
    pub fn read(root: &Root) -> Self {
        const DEBUGFS: &str = "/sys/kernel/debug/sched/preempt";
        let version = root.read("/proc/sys/kernel/version").unwrap_or_default();
        let has_flag = |flag| version.split_ascii_whitespace().any(|word| word == flag);
        if has_flag("PREEMPT_RT") {
            return Self { mode: PreemptMode::Rt, source: "uname -v".to_owned() };
        }
        if let Some(mode) = root.read(DEBUGFS).ok().and_then(|text| in_parentheses(&text)) {
            return Self { mode, source: DEBUGFS.to_owned() };
        }
        let dynamic = has_flag("PREEMPT_DYNAMIC");
        if dynamic && let Some(mode) = from_command_line(root) {
            return Self { mode, source: "/proc/cmdline".to_owned() };
        }
        let release = root.read("/proc/sys/kernel/osrelease").unwrap_or_default();
        let config = format!("/boot/config-{release}");
        if let Some(mode) = root.read(&config).ok().and_then(|text| from_config(&text)) {
            return Self { mode, source: config };
        }
        let why = if dynamic {
            "it was chosen at boot (PREEMPT_DYNAMIC)"
        } else {
            "the kernel's build flags do not show it"
        };
        Self {
            mode: PreemptMode::Unknown,
            source: format!("{why}, {DEBUGFS} and {config} cannot be read; mounting debugfs would show it"),
        }
    }
}

/// `none voluntary (full) lazy`: the one in parentheses applies.
fn in_parentheses(text: &str) -> Option<PreemptMode> {
    let word = text.split_once('(')?.1.split_once(')')?.0;
    PreemptMode::from_word(word)
}

/// The last `preempt=` wins, as in the kernel.
fn from_command_line(root: &Root) -> Option<PreemptMode> {
    let text = root.read("/proc/cmdline").ok()?;
    text.split_ascii_whitespace()
        .filter_map(|word| PreemptMode::from_word(word.strip_prefix("preempt=")?))
        .next_back()
}

/// The model that the kernel was built with, or the default of a `PREEMPT_DYNAMIC` one.
fn from_config(text: &str) -> Option<PreemptMode> {
    let is_set = |option: &str| text.lines().any(|line| line.strip_suffix("=y") == Some(option));
    [
        ("CONFIG_PREEMPT_NONE", PreemptMode::None),
        ("CONFIG_PREEMPT_VOLUNTARY", PreemptMode::Voluntary),
        ("CONFIG_PREEMPT_LAZY", PreemptMode::Lazy),
        ("CONFIG_PREEMPT", PreemptMode::Full),
    ]
    .into_iter()
    .find_map(|(option, mode)| is_set(option).then_some(mode))
}

/// The running kernel's release and build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KernelVersion {
    /// First number of the release.
    pub major: u32,
    /// Second number of the release.
    pub minor: u32,
    /// Third number; 0 if the release has only two.
    pub patch: u32,
    /// `uname -r`.
    pub release: String,
    /// `uname -v`.
    pub version: String,
}

impl KernelVersion {
    /// Reads `/proc/sys/kernel/{osrelease,version}`.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        const RELEASE: &str = "/proc/sys/kernel/osrelease";
        let release = root.read(RELEASE)?;
        let version = root.read("/proc/sys/kernel/version")?;
        let numbers = parse_release(&release)
            .ok_or_else(|| KernelError::parse(root.path(RELEASE), "a release such as 6.12.1", &release))?;
        let [major, minor, patch] = numbers;
        Ok(Self { major, minor, patch, release, version })
    }

    /// Whether this is `major.minor` or later.
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

/// Accepts `6.18.44-fc-v657`, `6.1`, `7.2-rc1+`.
fn parse_release(release: &str) -> Option<[u32; 3]> {
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    let mut numbers = release[..end].trim_end_matches('.').split('.').map(str::parse);
    let major = numbers.next()?.ok()?;
    let minor = numbers.next()?.ok()?;
    let patch = numbers.next().unwrap_or(Ok(0)).ok()?;
    Some([major, minor, patch])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake, put};

    #[test]
    fn sources_are_asked_best_first() {
        let (_dir, root) = fake();
        put(&root, "/proc/sys/kernel/osrelease", "6.12.1\n");
        put(&root, "/proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian\n");
        let unknown = Preemption::read(&root);
        assert_eq!(unknown.mode, PreemptMode::Unknown);
        assert!(unknown.source.contains("PREEMPT_DYNAMIC") && unknown.source.contains("/boot/config-6.12.1"));
        put(&root, "/boot/config-6.12.1", "# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_VOLUNTARY=y\n");
        assert_eq!(Preemption::read(&root).mode, PreemptMode::Voluntary);
        put(&root, "/proc/cmdline", "ro preempt=full quiet preempt=none\n");
        assert_eq!(Preemption::read(&root).mode, PreemptMode::None);
        put(&root, "/sys/kernel/debug/sched/preempt", "none voluntary full (lazy)\n");
        assert_eq!(Preemption::read(&root).mode, PreemptMode::Lazy);
        put(&root, "/proc/sys/kernel/version", "#1 SMP PREEMPT_RT Debian\n");
        assert_eq!(Preemption::read(&root).mode, PreemptMode::Rt);
    }

    #[test]
    fn a_static_kernel_ignores_the_command_line() {
        let (_dir, root) = fake();
        put(&root, "/proc/sys/kernel/osrelease", "6.1.0\n");
        put(&root, "/proc/sys/kernel/version", "#1 SMP\n");
        put(&root, "/proc/cmdline", "preempt=full\n");
        assert_eq!(Preemption::read(&root).mode, PreemptMode::Unknown);
        put(&root, "/boot/config-6.1.0", "CONFIG_PREEMPT_BUILD=y\nCONFIG_PREEMPT=y\n");
        assert_eq!(Preemption::read(&root).mode, PreemptMode::Full);
    }

    #[test]
    fn nothing_readable_is_unknown() {
        let (_dir, root) = fake();
        assert_eq!(Preemption::read(&root).mode, PreemptMode::Unknown);
        put(&root, "/sys/kernel/debug/sched/preempt", "garbled\n");
        assert_eq!(Preemption::read(&root).mode, PreemptMode::Unknown);
    }

    #[test]
    fn releases_are_understood() {
        assert_eq!(parse_release("6.18.44-fc-v657"), Some([6, 18, 44]));
        assert_eq!(parse_release("7.2-rc1+"), Some([7, 2, 0]));
        assert_eq!(parse_release("6.1.0.x"), Some([6, 1, 0]));
        for garbled in ["", "six", "6", "6.", "..1"] {
            assert_eq!(parse_release(garbled), None, "{garbled}");
        }
        let version = KernelVersion::read(&Root::system()).unwrap();
        assert!(version.at_least(3, 0) && !version.at_least(version.major + 1, 0));
    }
}
