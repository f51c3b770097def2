//! How a cell is started: plainly, under Gleaner, or under one of its fixed settings.

use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::str::FromStr;

use gleaner_policy::Method;

use super::error::ServersError;

/// A way to start a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mode {
    /// The command as it is.
    Default,
    /// `gleaner run`, with its adaptive policy.
    Gleaner,
    /// `gleaner run --fixed SETTING`: the same machinery without decisions.
    Fixed(String),
}

impl Mode {
    /// The modes that are compared by default.
    pub fn standard() -> Vec<Self> {
        let fixed = ["haltpoll:200us", "qos-poll", "consolidate:1"].map(|s| Self::Fixed(s.to_owned()));
        [Self::Default, Self::Gleaner].into_iter().chain(fixed).collect()
    }

    /// The words to put before the command; none in the default mode.
    pub fn wrapper(&self, gleaner: &Path) -> Vec<OsString> {
        self.wrapper_with(gleaner, &[])
    }

    /// The same, with additional options for `gleaner run`.
    pub fn wrapper_with(&self, gleaner: &Path, options: &[OsString]) -> Vec<OsString> {
        let fixed: &[&str] = match self {
            Self::Default => return Vec::new(),
            // Results must not depend on earlier runs.
            Self::Gleaner => &["--no-memory"],
            Self::Fixed(setting) => &["--fixed", setting],
        };
        // Fail where Gleaner cannot control it: running without would be another mode.
        let words = ["run", "--quiet", "--require"].iter().chain(fixed).map(OsString::from);
        let before = std::iter::once(gleaner.into()).chain(words).chain(options.iter().cloned());
        before.chain([OsString::from("--")]).collect()
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Default => "default",
            Self::Gleaner => "gleaner",
            Self::Fixed(setting) => setting,
        })
    }
}

impl FromStr for Mode {
    type Err = ServersError;

    /// Parses `default`, `gleaner`, or a setting for `gleaner run --fixed`. Checks only the kind of setting;
    /// its value is up to Gleaner.
    fn from_str(name: &str) -> Result<Self, ServersError> {
        match name {
            "default" => return Ok(Self::Default),
            "gleaner" => return Ok(Self::Gleaner),
            _ => {}
        }
        let kind = name.split_once(':').map_or(name, |(kind, _)| kind);
        if kind == "consolidate" || kind.parse::<Method>().is_ok() {
            return Ok(Self::Fixed(name.to_owned()));
        }
        let known = ["default", "gleaner", "consolidate:N"].into_iter().chain(Method::ALL.map(Method::name));
        Err(ServersError::Unknown {
            what: "mode",
            name: name.to_owned(),
            known: known.collect::<Vec<_>>().join(", "),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_modes_are_inverse() {
        for mode in Mode::standard() {
            assert_eq!(mode.to_string().parse::<Mode>().unwrap(), mode);
        }
        let error = "gleanr".parse::<Mode>().unwrap_err().to_string();
        assert!(error.contains("unknown mode `gleanr`") && error.contains("qos-poll"), "{error}");
    }

    #[test]
    fn the_wrapper_is_a_gleaner_run() {
        let words = |mode: Mode| {
            let words: Vec<String> =
                mode.wrapper(Path::new("/x/gleaner")).iter().map(|w| w.to_string_lossy().into()).collect();
            words.join(" ")
        };
        assert_eq!(words(Mode::Default), "");
        assert_eq!(words(Mode::Gleaner), "/x/gleaner run --quiet --require --no-memory --");
        assert_eq!(
            words(Mode::Fixed("consolidate:1".into())),
            "/x/gleaner run --quiet --require --fixed consolidate:1 --"
        );
    }
}
