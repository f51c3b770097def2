//! The modes: ways to run a command that are compared with each other.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;

use gleaner_policy::{Fixed, Method};

use crate::servers;

/// Prefix of a user-defined mode.
const USER: &str = "user:";

/// One way to run a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    name: String,
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    /// Prefixed with the words of the harness for servers.
    Behind(servers::Mode),
    /// Between the user's own commands.
    Between(UserMode),
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
    #[error("unknown mode `{0}`")]
    Unknown(String),
    /// The mode exists, but its value is invalid.
    #[error("mode {0}")]
    Value(String),
}

impl Mode {
    /// The command as it is.
    pub const DEFAULT: &str = "default";
    /// Under `gleaner run`.
    pub const GLEANER: &str = "gleaner";
    /// Idle vCPUs poll without limit.
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
            (Self::IDLEPOLL.to_owned(), "idle vCPUs poll without bound, by a latency request of 0"),
            ("consolidate:N".to_owned(), "on the lowest N vCPUs only; joined with others by +"),
        ];
        let user =
            (format!("{USER}NAME"), "between the set and unset commands of the scenario's [user.NAME]");
        own.into_iter().chain(fixed).chain([user]).collect()
    }

    /// The mode called `name`; `user` looks up user-defined modes.
    ///
    /// # Errors
    /// If there is no such mode, or its value is out of range.
    pub fn parse<'u>(name: &str, user: impl FnOnce(&str) -> Option<&'u UserMode>) -> Result<Self, ModeError> {
        let unknown = || ModeError::Unknown(name.to_owned());
        let kind = if let Some(own) = name.strip_prefix(USER) {
            Kind::Between(user(own).cloned().ok_or_else(unknown)?)
        } else if name == Self::IDLEPOLL {
            Kind::Behind(servers::Mode::Fixed(Method::QosPoll.to_string()))
        } else {
            let mode: servers::Mode = name.parse().map_err(|_| unknown())?;
            if let servers::Mode::Fixed(setting) = &mode {
                setting.parse::<Fixed>().map_err(ModeError::Value)?;
            }
            Kind::Behind(mode)
        };
        Ok(Self { name: name.to_owned(), kind })
    }

    /// Checks that a machine with this many vCPUs supports it.
    ///
    /// # Errors
    /// It needs more vCPUs; the message names both numbers.
    pub fn fits(&self, vcpus: usize) -> Result<(), ModeError> {
        match &self.kind {
            Kind::Behind(servers::Mode::Fixed(setting)) => {
                setting.parse::<Fixed>().and_then(|fixed| fixed.fits(vcpus)).map_err(ModeError::Value)
            }
            Kind::Behind(_) | Kind::Between(_) => Ok(()),
        }
    }

    /// The command as it is.
    pub fn untouched() -> Self {
        Self { name: Self::DEFAULT.to_owned(), kind: Kind::Behind(servers::Mode::Default) }
    }

    /// Under `gleaner run`.
    pub fn gleaner() -> Self {
        Self { name: Self::GLEANER.to_owned(), kind: Kind::Behind(servers::Mode::Gleaner) }
    }

    /// Whether it is the command as it is.
    pub(super) fn is_untouched(&self) -> bool {
        self.kind == Kind::Behind(servers::Mode::Default)
    }

    /// The name as given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Description in a few words.
    pub fn about(&self) -> String {
        match &self.kind {
            Kind::Behind(servers::Mode::Default) => "the command as it is".to_owned(),
            Kind::Behind(servers::Mode::Gleaner) => "under `gleaner run`, which decides by itself".to_owned(),
            Kind::Behind(servers::Mode::Fixed(setting)) => format!("under `gleaner run --fixed {setting}`"),
            Kind::Between(user) if user.about.is_empty() => "between the user's own commands".to_owned(),
            Kind::Between(user) => user.about.clone(),
        }
    }

    /// The user-defined commands, if it is such a mode.
    pub fn user(&self) -> Option<&UserMode> {
        match &self.kind {
            Kind::Between(user) => Some(user),
            Kind::Behind(_) => None,
        }
    }

    /// Whether it runs Gleaner's adaptive policy.
    pub(super) fn is_adaptive(&self) -> bool {
        matches!(self.kind, Kind::Behind(servers::Mode::Gleaner))
    }

    /// The words to put before the command; none if Gleaner is not involved. Its journal goes to `journal`.
    pub(super) fn wrapper(&self, gleaner: &Path, journal: &Path) -> Vec<OsString> {
        match &self.kind {
            Kind::Behind(mode) => mode.wrapper_with(gleaner, &["--journal".into(), journal.into()]),
            Kind::Between(_) => Vec::new(),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.name)
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
        Mode::parse(name, |own| (own == "tuned").then_some(&tuned))
    }

    #[test]
    fn every_kind_of_mode_is_understood() {
        for name in
            ["default", "gleaner", "idlepoll", "consolidate:1", "haltpoll:200", "consolidate:2+haltpoll:50us"]
        {
            assert_eq!(parse(name).unwrap().name(), name);
        }
        assert_eq!(parse("user:tuned").unwrap().user().unwrap().set, ["true"]);
        for (name, _) in Mode::kinds() {
            parse(&name.replace("US", "200").replace("NAME", "tuned").replace(":N", ":1")).unwrap();
        }
    }

    #[test]
    fn what_is_wrong_with_a_mode_is_reported() {
        assert_eq!(parse("gleanr"), Err(ModeError::Unknown("gleanr".into())));
        assert_eq!(parse("user:other"), Err(ModeError::Unknown("user:other".into())));
        assert!(matches!(parse("consolidate:0"), Err(ModeError::Value(text)) if text.contains("1 or more")));
        assert!(matches!(parse("haltpoll"), Err(ModeError::Value(text)) if text.contains("needs a limit")));
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
        let words = |name: &str| {
            let words = parse(name).unwrap().wrapper(Path::new("/g"), Path::new("/j"));
            words.iter().map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words("default"), "");
        assert_eq!(words("user:tuned"), "");
        assert_eq!(words("gleaner"), "/g run --quiet --require --no-memory --journal /j --");
        assert_eq!(words("idlepoll"), "/g run --quiet --require --fixed qos-poll --journal /j --");
    }
}
