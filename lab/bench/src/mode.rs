//! The modes: ways to run a command that are compared with each other.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use gleaner_kernel::lever::affinity::Affinity;
use gleaner_policy::{Fixed, Method};
use gleaner_proto::source_text::unknown;

/// Prefix of a user-defined mode.
const USER: &str = "user:";

/// One way to run a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// The command as it is.
    Default,
    /// `gleaner run`, with its adaptive policy.
    Gleaner,
    /// `gleaner run --strategy paper`: the ATC'14 paper's rules to the letter.
    Paper,
    /// The command as it is, on a machine on which `gleanerd` already runs.
    Daemon,
    /// `gleaner run --fixed SETTING`: the same machinery without decisions.
    Fixed(String),
    /// Idle vCPUs poll without limit: a setting, too, under the name of the boot option.
    IdlePoll,
    /// Between a user's own commands.
    User {
        /// The name, with its prefix `user:`.
        name: String,
        /// What applies and undoes it.
        commands: UserMode,
    },
}

/// A user-defined mode: shell commands that apply a setting and undo it.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserMode {
    /// Description for reports.
    #[serde(default)]
    pub about: String,
    /// Commands to run in order with `sh -c` before each sample.
    pub set: Vec<String>,
    /// Commands to run in order after it, even if the sample failed.
    pub unset: Vec<String>,
}

/// Why a mode cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModeError {
    /// No such mode.
    #[error("{}", unknown("mode", name, known.iter().map(String::as_str)))]
    Unknown {
        /// The given name.
        name: String,
        /// The names that exist.
        known: Vec<String>,
    },
    /// A user-defined mode outside of a scenario file.
    #[error("mode `{0}` needs set and unset commands, which only a scenario file can have")]
    NoCommands(String),
    /// The mode exists, but its value is invalid.
    #[error("mode {0}")]
    Value(String),
}

impl Mode {
    /// Name of [`Mode::Default`].
    pub const DEFAULT: &str = "default";
    /// Name of [`Mode::Gleaner`].
    pub const GLEANER: &str = "gleaner";
    /// Name of [`Mode::Paper`].
    pub const PAPER: &str = "paper";
    /// Name of [`Mode::Daemon`].
    pub const DAEMON: &str = "gleanerd";
    /// Name of [`Mode::IdlePoll`].
    pub const IDLEPOLL: &str = "idlepoll";

    /// The modes' names and descriptions, for messages and `gleaner bench list`.
    pub fn kinds() -> Vec<(String, &'static str)> {
        let limited = |method: Method| !matches!(method, Method::Halt | Method::QosPoll);
        let fixed = Method::ALL.into_iter().map(|method| {
            let name = if limited(method) { format!("{method}:US") } else { method.to_string() };
            (name, about_method(method))
        });
        let own = [
            (Self::DEFAULT.to_owned(), "the command as it is"),
            (Self::GLEANER.to_owned(), "under `gleaner run`, which decides by itself"),
            (Self::PAPER.to_owned(), "under `gleaner run --strategy paper`: the rules of the ATC'14 paper"),
            (Self::DAEMON.to_owned(), "the command as it is, on a machine on which gleanerd already runs"),
            (Self::IDLEPOLL.to_owned(), "idle vCPUs poll without bound, by a latency request of 0"),
            ("consolidate:N".to_owned(), "on the lowest N vCPUs only; joined with others by +"),
        ];
        let user =
            (format!("{USER}NAME"), "between the set and unset commands of the scenario's [user.NAME]");
        own.into_iter().chain(fixed).chain([user]).collect()
    }

    /// The mode called `name`. `user` has the user-defined ones, by name without prefix.
    ///
    /// # Errors
    /// If there is no such mode, or its value is out of range.
    pub fn parse(name: &str, user: &BTreeMap<String, UserMode>) -> Result<Self, ModeError> {
        match name {
            Self::DEFAULT => return Ok(Self::Default),
            Self::GLEANER => return Ok(Self::Gleaner),
            Self::PAPER => return Ok(Self::Paper),
            Self::DAEMON => return Ok(Self::Daemon),
            Self::IDLEPOLL => return Ok(Self::IdlePoll),
            _ => {}
        }
        let unknown = |known: Vec<String>| ModeError::Unknown { name: name.to_owned(), known };
        if let Some(own) = name.strip_prefix(USER) {
            let known = || user.keys().map(|own| format!("{USER}{own}")).collect();
            let commands = user.get(own).cloned().ok_or_else(|| unknown(known()))?;
            return Ok(Self::User { name: name.to_owned(), commands });
        }
        let kind = name.split_once(':').map_or(name, |(kind, _)| kind);
        if kind != "consolidate" && kind.parse::<Method>().is_err() {
            return Err(unknown(Self::kinds().into_iter().map(|(kind, _)| kind).collect()));
        }
        name.parse::<Fixed>().map_err(ModeError::Value)?;
        Ok(Self::Fixed(name.to_owned()))
    }

    /// The mode of this name on a command line, which can be used here.
    ///
    /// # Errors
    /// As [`Mode::parse`] and [`Mode::fits_here`]; user-defined modes are only in scenario files.
    pub fn here(name: &str) -> Result<Self, ModeError> {
        if name.starts_with(USER) {
            return Err(ModeError::NoCommands(name.to_owned()));
        }
        let mode = Self::parse(name, &BTreeMap::new())?;
        mode.fits_here()?;
        Ok(mode)
    }

    /// Checks that this process can use enough vCPUs for it.
    ///
    /// # Errors
    /// It cannot. An unknown number is not an error.
    pub fn fits_here(&self) -> Result<(), ModeError> {
        Affinity::of_caller().map_or(Ok(()), |allowed| self.fits(allowed.len()))
    }

    /// Checks that a machine with this many vCPUs supports it; the message of the error names both numbers.
    fn fits(&self, vcpus: usize) -> Result<(), ModeError> {
        let Some(setting) = self.setting() else { return Ok(()) };
        setting.parse::<Fixed>().and_then(|fixed| fixed.fits(vcpus)).map_err(ModeError::Value)
    }

    /// The name as given.
    pub fn name(&self) -> &str {
        match self {
            Self::Default => Self::DEFAULT,
            Self::Gleaner => Self::GLEANER,
            Self::Paper => Self::PAPER,
            Self::Daemon => Self::DAEMON,
            Self::IdlePoll => Self::IDLEPOLL,
            Self::Fixed(name) | Self::User { name, .. } => name,
        }
    }

    /// The setting of `gleaner run --fixed`, if it is one.
    pub fn setting(&self) -> Option<&str> {
        match self {
            Self::Fixed(setting) => Some(setting),
            Self::IdlePoll => Some(Method::QosPoll.name()),
            Self::Default | Self::Gleaner | Self::Paper | Self::Daemon | Self::User { .. } => None,
        }
    }

    /// The user-defined commands, if it is such a mode.
    pub fn user(&self) -> Option<&UserMode> {
        match self {
            Self::User { commands, .. } => Some(commands),
            _ => None,
        }
    }

    /// Description in a few words.
    pub fn about(&self) -> String {
        match (self, self.setting()) {
            (_, Some(setting)) => format!("under `gleaner run --fixed {setting}`"),
            (Self::Gleaner, _) => "under `gleaner run`, which decides by itself".to_owned(),
            (Self::Paper, _) => {
                "under `gleaner run --strategy paper`: the rules of the ATC'14 paper".to_owned()
            }
            (Self::Daemon, _) => "as it is, on a machine on which `gleanerd` already runs".to_owned(),
            (Self::User { commands, .. }, _) if commands.about.is_empty() => {
                "between the user's own commands".to_owned()
            }
            (Self::User { commands, .. }, _) => commands.about.clone(),
            _ => "the command as it is".to_owned(),
        }
    }

    /// The words to put before the command, with additional `options` for `gleaner run`; none if Gleaner is not
    /// involved.
    pub fn wrapper(&self, gleaner: &Path, options: &[OsString]) -> Vec<OsString> {
        let how = match (self, self.setting()) {
            (_, Some(setting)) => vec!["--fixed", setting],
            // Results must not depend on earlier runs.
            (Self::Gleaner, None) => vec!["--no-memory"],
            (Self::Paper, None) => vec!["--no-memory", "--strategy", "paper"],
            _ => return Vec::new(),
        };
        // Fail where Gleaner cannot control it: running without would be another mode.
        let words = ["run", "--quiet", "--require"].into_iter().chain(how).map(OsString::from);
        let before = std::iter::once(OsString::from(gleaner)).chain(words).chain(options.iter().cloned());
        before.chain([OsString::from("--")]).collect()
    }

    /// The same, with Gleaner's journal going to `journal`.
    pub fn wrapper_with_journal(&self, gleaner: &Path, journal: &Path) -> Vec<OsString> {
        self.wrapper(gleaner, &[OsString::from("--journal"), OsString::from(journal)])
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

const fn about_method(method: Method) -> &'static str {
    match method {
        Method::Halt => "under Gleaner's machinery, which changes nothing",
        Method::Haltpoll => "idle vCPUs poll up to so many µs (guest_halt_poll_ns)",
        Method::QosPoll => "the same as idlepoll",
        Method::Yield => "a yield thread of SCHED_IDLE per vCPU, up to so many µs",
        Method::YieldIpiFree => "a yield thread of nice 19 per vCPU, which needs no IPI",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(name: &str) -> Result<Mode, ModeError> {
        let tuned = UserMode { set: vec!["true".into()], ..UserMode::default() };
        Mode::parse(name, &BTreeMap::from([("tuned".to_owned(), tuned)]))
    }

    #[test]
    fn every_kind_of_mode_is_understood() {
        for name in [
            "default",
            "gleaner",
            "paper",
            "gleanerd",
            "idlepoll",
            "consolidate:1",
            "haltpoll:200",
            "consolidate:2+haltpoll:50us",
        ] {
            assert_eq!(parse(name).unwrap().to_string(), name);
        }
        assert_eq!(parse("user:tuned").unwrap().user().unwrap().set, ["true"]);
        for (name, _) in Mode::kinds() {
            parse(&name.replace("US", "200").replace("NAME", "tuned").replace(":N", ":1")).unwrap();
        }
    }

    #[test]
    fn what_is_wrong_with_a_mode_is_reported() {
        let error = parse("gleanr").unwrap_err().to_string();
        assert!(error.contains("unknown mode `gleanr`") && error.contains("qos-poll"), "{error}");
        let error = parse("user:other").unwrap_err().to_string();
        assert_eq!(error, "unknown mode `user:other`; did you mean `user:tuned`? (there are: user:tuned)");
        assert!(matches!(parse("consolidate:0"), Err(ModeError::Value(text)) if text.contains("1 or more")));
        assert!(matches!(parse("haltpoll"), Err(ModeError::Value(text)) if text.contains("needs a limit")));
        assert_eq!(Mode::here("user:tuned"), Err(ModeError::NoCommands("user:tuned".into())));
    }

    #[test]
    fn a_mode_that_needs_more_vcpus_than_there_are_does_not_fit() {
        let message = parse("consolidate:9").unwrap().fits(2).unwrap_err().to_string();
        assert!(message.contains("`consolidate:9` needs 9 vCPUs") && message.contains("only 2"), "{message}");
        for name in ["consolidate:2", "gleaner", "default", "haltpoll:50us+consolidate:1"] {
            assert_eq!(parse(name).unwrap().fits(2), Ok(()), "{name}");
        }
    }

    #[test]
    fn the_words_before_a_command() {
        let line = |words: Vec<OsString>| {
            words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let words =
            |name: &str| line(parse(name).unwrap().wrapper_with_journal(Path::new("/g"), Path::new("/j")));
        assert_eq!(words("default"), "");
        assert_eq!(words("gleanerd"), "");
        assert_eq!(words("user:tuned"), "");
        assert_eq!(words("gleaner"), "/g run --quiet --require --no-memory --journal /j --");
        assert_eq!(words("paper"), "/g run --quiet --require --no-memory --strategy paper --journal /j --");
        assert_eq!(words("idlepoll"), "/g run --quiet --require --fixed qos-poll --journal /j --");
        let plain = line(parse("consolidate:1").unwrap().wrapper(Path::new("/g"), &[]));
        assert_eq!(plain, "/g run --quiet --require --fixed consolidate:1 --");
    }
}
