//! Rules: which workloads are meant.

use std::fmt;
use std::path::Path;

use gleaner_policy::Objective;
use toml::de::{DeTable, DeValue};

use crate::glob::Glob;
use crate::keys::{Table as _, keys};
use crate::value::{boolean, describe, objective, objectives, some, source};

/// What a rule can know of a workload.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'s> {
    /// The systemd unit, such as `redis-server.service`.
    pub unit: Option<&'s str>,
    /// The control group, as in `/proc/PID/cgroup`: from the root of its hierarchy, with a `/` first.
    pub group: &'s Path,
    /// The executable of the main process.
    pub executable: Option<&'s Path>,
}

keys! {
    /// Which workloads are meant: every key that is given must match. Patterns have `*`, `?` and `[a-z]` within a name,
    /// and `**` for any number of directories.
    pub struct Rule {
        /// Pattern for the name of the systemd unit, such as `redis*.service`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        pub unit: Option<Glob> = None, scalar(unit);
        /// Pattern for the path of the control group, such as `/kubepods/**`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        pub group: Option<Glob> = None, scalar(path);
        /// Pattern for the path of the executable, such as `/usr/sbin/mariadbd`.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        pub executable: Option<Glob> = None, scalar(path);
    }
}

keys! {
    /// A rule and what is different for the workloads that it matches. What is not given is as in the whole
    /// configuration.
    pub struct Workload {
        also rule: Rule,
        /// How much polling a wake-up is worth.
        #[serde(skip_serializing_if = "Option::is_none", serialize_with = "crate::value::as_text_or_empty")]
        #[schemars(schema_with = "objectives")]
        pub objective: Option<Objective> = None, scalar(some(objective));
        /// Whether idle vCPUs may poll for it before they halt.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "bool")]
        pub retain: Option<bool> = None, scalar(some(boolean));
        /// Whether it may be moved to fewer vCPUs.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "bool")]
        pub consolidate: Option<bool> = None, scalar(some(boolean));
        /// The program's own progress: a command that prints a growing number, or `file:PATH` that holds one.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schemars(with = "String")]
        pub progress: Option<String> = None, scalar(source);
    }
}

impl Rule {
    /// Whether every key that is given matches.
    pub fn matches(&self, subject: &Subject<'_>) -> bool {
        self.can_match(subject) && (self.executable.is_none() || subject.executable.is_some())
    }

    /// Whether every key that is given matches, or can once the executable is known.
    pub fn can_match(&self, subject: &Subject<'_>) -> bool {
        let executable = subject.executable.map(Path::to_string_lossy);
        let fits = |pattern: &Option<Glob>, text: Option<&str>| match (pattern, text) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(pattern), Some(text)) => pattern.matches(text),
        };
        fits(&self.unit, subject.unit)
            && fits(&self.group, Some(&subject.group.to_string_lossy()))
            && (executable.is_none() || fits(&self.executable, executable.as_deref()))
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let table = toml::Value::try_from(self).map_err(|_| fmt::Error)?;
        write!(f, "{table}")
    }
}

/// What a rule lacks, if it lacks something.
pub(crate) fn missing(table: &DeTable<'_>) -> Option<String> {
    let names = Rule::names();
    let has_rule = table.keys().any(|key| names.iter().any(|name| name == key.get_ref()));
    (!has_rule).then(|| {
        "names no workload: add unit, group or executable, such as unit = \"redis.service\"".to_owned()
    })
}

fn glob(value: &DeValue<'_>, check: impl Fn(&str) -> Result<(), String>) -> Result<Option<Glob>, String> {
    let Some(text) = value.as_str() else {
        return Err(format!("expected a pattern such as \"redis*.service\", not {}", describe(value)));
    };
    let wrong = |message: String| format!("`{text}` {message}");
    let glob = Glob::new(text).map_err(wrong)?;
    check(text).map_err(wrong)?;
    Ok(Some(glob))
}

fn unit(value: &DeValue<'_>) -> Result<Option<Glob>, String> {
    glob(value, |text| {
        let is_whole = [".service", ".scope", ".slice", "*", "?", "]"].iter().any(|end| text.ends_with(end));
        if text.contains('/') {
            Err("is a path, and no unit's name has a `/`: write group = or executable =".to_owned())
        } else if is_whole {
            Ok(())
        } else {
            Err(format!("matches no unit: write its whole name, such as {text}.service"))
        }
    })
}

fn path(value: &DeValue<'_>) -> Result<Option<Glob>, String> {
    glob(value, |text| {
        let is_whole = text.starts_with('/') || text.starts_with("**");
        let remedy =
            format!("matches no path, since these start with a `/`: write the whole path, or **/{text}");
        if is_whole { Ok(()) } else { Err(remedy) }
    })
}
