//! Parameters of workloads, from a command line or a TOML table.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::time;
use gleaner_print::times::{format_time, parse_time};

/// How to run a workload. Omitted parameters have the workload's defaults; unknown ones and values out of
/// range are errors of [`Workload::settings`](super::Workload::settings). As TOML:
///
/// ```toml
/// kind = "spin-then-block"
/// threads = 4
/// granularity = "50us"
/// imbalance = 0.5
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Kind of the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Number of threads; what exactly it counts depends on the workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Computation of a thread between two synchronisations.
    #[serde(skip_serializing_if = "Option::is_none", with = "time")]
    pub granularity: Option<Duration>,
    /// How unevenly the computation is distributed, from 0 to 1: pieces take between 1 − this and 1 + this
    /// times the granularity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub imbalance: Option<f64>,
}

/// A variant of a workload with different synchronisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// `wake`: setting A of Table 2, both threads on one vCPU.
    Same,
    /// `wake`: setting B, two vCPUs that never idle.
    Awake,
    /// `wake`: setting C, two vCPUs that halt when idle, unless retention prevents it.
    Halting,
    /// `wake`: setting D, two vCPUs that are busy with something else.
    Busy,
    /// `pipeline`: stages of equal, synthetic computation.
    Synthetic,
    /// `pipeline`: chunking, hashing, compression and reordering as in PARSEC's dedup.
    Dedup,
    /// `barrier`: waiters sleep at once.
    Block,
    /// `barrier`: waiters spin with the pause instruction and never sleep.
    Spin,
    /// `barrier`: waiters spin for 0.1 ms, then sleep.
    SpinThenBlock,
    /// `tlb`: pages lose their write permission.
    Mprotect,
    /// `tlb`: pages are unmapped.
    Munmap,
}

impl Kind {
    /// All kinds of all workloads.
    pub const ALL: [Self; 11] = [
        Self::Same,
        Self::Awake,
        Self::Halting,
        Self::Busy,
        Self::Synthetic,
        Self::Dedup,
        Self::Block,
        Self::Spin,
        Self::SpinThenBlock,
        Self::Mprotect,
        Self::Munmap,
    ];

    /// Name on the command line, in scenarios and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Awake => "awake",
            Self::Halting => "halting",
            Self::Busy => "busy",
            Self::Synthetic => "synthetic",
            Self::Dedup => "dedup",
            Self::Block => "block",
            Self::Spin => "spin",
            Self::SpinThenBlock => "spin-then-block",
            Self::Mprotect => "mprotect",
            Self::Munmap => "munmap",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| format!("`{name}` is no kind of any workload; there are {}", names()))
    }
}

/// Why the parameters of a workload are invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParameterError {
    /// Not `key=value` with a known key.
    #[error(
        "`{assignment}` sets no parameter of a workload: write threads=N, granularity=TIME, imbalance=0..1 or \
         kind=NAME"
    )]
    NotAnAssignment {
        /// The given text.
        assignment: String,
    },
    /// The value is malformed.
    #[error("parameter {parameter}: {problem}")]
    Malformed {
        /// Name of the parameter.
        parameter: &'static str,
        /// What is wrong and what to write.
        problem: String,
    },
    /// The workload does not have this parameter.
    #[error("workload {workload} has no parameter {parameter}; it has {present}")]
    Absent {
        /// Name of the workload, with its kind if it has kinds.
        workload: String,
        /// Name of the parameter.
        parameter: &'static str,
        /// The workload's parameters.
        present: String,
    },
    /// The workload does not have this kind.
    #[error("workload {workload} has no kind {kind}; its kinds are {present}")]
    AbsentKind {
        /// Name of the workload.
        workload: &'static str,
        /// The given kind.
        kind: Kind,
        /// The workload's kinds.
        present: String,
    },
    /// The value is too small or too large.
    #[error("workload {workload}: {parameter} = {value} is out of range; use {least} to {most}")]
    OutOfRange {
        /// Name of the workload, with its kind if it has kinds.
        workload: String,
        /// Name of the parameter.
        parameter: &'static str,
        /// The given value.
        value: String,
        /// Minimum value.
        least: String,
        /// Maximum value.
        most: String,
    },
}

impl Parameters {
    /// Sets one parameter from `key=value`; a later one replaces an earlier one.
    ///
    /// # Errors
    /// An unknown key, or a malformed value. Ranges depend on the workload and are not checked.
    pub fn set(&mut self, assignment: &str) -> Result<(), ParameterError> {
        let malformed = |parameter, problem| ParameterError::Malformed { parameter, problem };
        match assignment.split_once('=') {
            Some(("kind", name)) => {
                self.kind = Some(name.parse().map_err(|problem| malformed("kind", problem))?);
            }
            Some(("threads", n)) => {
                let problem = |_| malformed("threads", format!("`{n}` is not a whole number"));
                self.threads = Some(n.parse().map_err(problem)?);
            }
            Some(("granularity", time)) => {
                self.granularity = Some(parse_time(time).map_err(|p| malformed("granularity", p))?);
            }
            Some(("imbalance", share)) => {
                let problem = |_| malformed("imbalance", format!("`{share}` is not a number"));
                self.imbalance = Some(share.parse().map_err(problem)?);
            }
            _ => return Err(ParameterError::NotAnAssignment { assignment: assignment.to_owned() }),
        }
        Ok(())
    }

    /// The parameters that are set, as `key=value` for [`Parameters::set`].
    pub fn assignments(&self) -> Vec<String> {
        let kind = self.kind.map(|kind| format!("kind={kind}"));
        let threads = self.threads.map(|n| format!("threads={n}"));
        let granularity = self.granularity.map(|time| format!("granularity={}", format_time(time)));
        let imbalance = self.imbalance.map(|share| format!("imbalance={share}"));
        [kind, threads, granularity, imbalance].into_iter().flatten().collect()
    }
}

/// Assignments separated by spaces; empty if everything has its default.
impl fmt::Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.assignments().join(" "))
    }
}

/// Assignments separated by spaces or commas.
impl FromStr for Parameters {
    type Err = ParameterError;

    fn from_str(text: &str) -> Result<Self, ParameterError> {
        let mut parameters = Self::default();
        let assignments = text.split([' ', ',']).filter(|part| !part.is_empty());
        assignments.into_iter().try_for_each(|assignment| parameters.set(assignment))?;
        Ok(parameters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "kind=spin-then-block threads=4 granularity=50us imbalance=0.5";

    #[test]
    fn text_and_toml_say_the_same() {
        let parameters: Parameters = ALL.parse().unwrap();
        assert_eq!(parameters.to_string(), ALL);
        let table =
            "kind = \"spin-then-block\"\nthreads = 4\ngranularity = \"50us\"\nimbalance = 0.5\n".to_owned();
        assert_eq!(toml::to_string(&parameters).unwrap(), table);
        assert_eq!(toml::from_str::<Parameters>(&table).unwrap(), parameters);
        assert_eq!("".parse::<Parameters>().unwrap(), Parameters::default());
        assert_eq!(toml::from_str::<Parameters>("").unwrap(), Parameters::default());
        assert_eq!("threads=1,threads=2".parse::<Parameters>().unwrap().threads, Some(2));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, hint) in [
            ("thread=2", "`thread=2` sets no parameter"),
            ("threads", "write threads=N"),
            ("threads=-1", "parameter threads: `-1` is not a whole number"),
            ("granularity=5", "parameter granularity: `5` is not a time such as 50us"),
            ("imbalance=much", "parameter imbalance: `much` is not a number"),
            ("kind=warp", "spin-then-block"),
        ] {
            let error = text.parse::<Parameters>().unwrap_err().to_string();
            assert!(error.contains(hint), "{text}: {error}");
        }
        for (table, hint) in [("granularity = 5", "string"), ("thread = 2", "thread"), ("kind = 'x'", "x")] {
            let error = toml::from_str::<Parameters>(table).unwrap_err().to_string();
            assert!(error.contains(hint), "{table}: {error}");
        }
    }

    #[test]
    fn kinds_have_one_name() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse::<Kind>().unwrap(), kind);
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
        }
    }
}
