//! The programs that the signals are tested with, as data.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_proto::result::Class;

use crate::adapters::Adapter;
use crate::experiment::{Expression, Program};
use crate::servers::{self, Row};
use crate::workload::{Amount, Workload};

/// Duration of a built-in workload in a cell.
const WORKLOAD_TIME: Duration = Duration::from_millis(1500);

/// The untouched system, in the same machinery.
pub(super) const UNTOUCHED: &str = "halt";
/// Settings to compare. Yield threads only affect the workload, so servers' cells would show nothing more.
const BUILT_IN_SETTINGS: &[&str] = &[UNTOUCHED, "haltpoll:200us", "yield:200us", "consolidate:1"];
const OTHER_SETTINGS: &[&str] = &[UNTOUCHED, "haltpoll:200us", "consolidate:1"];

/// Built-in workloads in configurations that differ in how often and what their threads wait for.
const WORKLOADS: &[(Workload, &[&str])] = &[
    (Workload::RequestResponse, &["", "threads=4", "granularity=20us"]),
    (Workload::Pipeline, &["", "granularity=50us", "kind=dedup"]),
    (Workload::Barrier, &["", "threads=4", "imbalance=0.8", "kind=spin", "kind=spin-then-block"]),
    (Workload::Convoy, &["", "threads=4"]),
    (Workload::Compute, &["", "threads=1"]),
    (Workload::Wake, &["", "kind=awake"]),
    (Workload::UserSpinBarrier, &[""]),
    (Workload::TaskQueue, &["", "granularity=50us"]),
    (Workload::Tlb, &["", "kind=munmap"]),
    (Workload::Matmul, &[""]),
    (Workload::Freqsleep, &[""]),
];

/// Rows of the benchmark; the last five are open loops.
const ROWS: &[&str] = &[
    "redis-1",
    "redis-8",
    "redis-1-server-only",
    "point-select-1",
    "read-write-1",
    "pgbench-1",
    "nginx-1",
    "nginx-16",
    "pipe",
    "threads-2",
    "python-pipe",
    "python-threads-4",
    "java-queue-1",
    "go-http-1",
    "proxy-1",
    "memcached-1",
    "memcached-8",
    "redis-open-5000-1",
    "redis-open-20000-4",
    "memcached-open-5000-4",
    "memcached-open-20000-1",
    "point-select-open-2000-4",
];

/// Adapters whose programs need no server, with sizes that take a second or two.
const ADAPTERS: &[(&str, &[(&str, &str)])] =
    &[("pbzip2", &[("megabytes", "30")]), ("vips", &[("pixels", "7000")]), ("x264", &[("megabytes", "40")])];

/// A program with a load.
#[derive(Debug, Clone)]
pub struct Case {
    /// Name on the command line and in the tables.
    pub(super) name: String,
    /// Unit of its own rate.
    pub(super) unit: String,
    /// Whether clients determine the rate: then settings only change their latency.
    pub(super) open_loop: bool,
    /// Settings, with the untouched one first.
    pub(super) settings: &'static [&'static str],
    pub(super) load: Load,
}

/// How a case is run.
#[derive(Debug, Clone)]
pub(super) enum Load {
    /// A row of the benchmark.
    Row(Row),
    /// A program in its own process.
    Program {
        program: Program,
        /// A shell command that makes its input, once.
        prepare: Option<String>,
        rate: Rate,
    },
}

/// Source of a program's rate.
#[derive(Debug, Clone)]
pub(super) enum Rate {
    /// The outcome printed by a built-in workload.
    Outcome,
    /// Its output, by this expression.
    Reported(Expression),
    /// Its run time: it does one piece of work and ends.
    Completion,
}

/// Why a list of cases cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum CaseError {
    /// No case has this name.
    #[error("unknown case `{name}`; choose from: {known}")]
    Unknown {
        /// The given name.
        name: String,
        /// The names of all cases.
        known: String,
    },
    /// A built-in case refers to something that does not exist.
    #[error("the case {name} cannot be made: {why}")]
    Impossible {
        /// Name of the case.
        name: String,
        /// The reason.
        why: String,
    },
}

/// The cases that match `only` (names or parts of names, separated by commas; a full name matches only that
/// case); all if it is empty.
///
/// # Errors
/// See [`CaseError`].
pub fn find(only: &str) -> Result<Vec<Case>, CaseError> {
    let cases = all()?;
    let parts: Vec<&str> = only.split(',').map(str::trim).filter(|part| !part.is_empty()).collect();
    let matches = |case: &Case, part: &str| {
        let exact = cases.iter().any(|other| other.name == part);
        if exact { case.name == part } else { case.name.contains(part) }
    };
    if let Some(name) = parts.iter().find(|part| !cases.iter().any(|case| matches(case, part))) {
        let known = cases.iter().map(|case| case.name.as_str()).collect::<Vec<_>>().join(", ");
        return Err(CaseError::Unknown { name: (*name).to_owned(), known });
    }
    let chosen = |case: &&Case| parts.is_empty() || parts.iter().any(|part| matches(case, part));
    Ok(cases.iter().filter(chosen).cloned().collect())
}

fn all() -> Result<Vec<Case>, CaseError> {
    let built_in =
        WORKLOADS.iter().flat_map(|(workload, shapes)| shapes.iter().map(|s| of_workload(*workload, s)));
    let rows = ROWS.iter().map(|name| of_row(name));
    let adapters = ADAPTERS.iter().map(|(name, parameters)| of_adapter(name, parameters));
    built_in.chain(rows).chain(adapters).collect()
}

fn of_workload(workload: Workload, shape: &str) -> Result<Case, CaseError> {
    let name = if shape.is_empty() { workload.to_string() } else { format!("{workload} {shape}") };
    let parameters = shape.split(' ').filter_map(|part| part.split_once('='));
    let parameters = parameters.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    let program = Program::of_workload(workload, parameters, Amount::Time(WORKLOAD_TIME));
    let program = program.map_err(impossible(&name))?;
    let load = Load::Program { program, prepare: None, rate: Rate::Outcome };
    Ok(Case { name, unit: "operations".to_owned(), open_loop: false, settings: BUILT_IN_SETTINGS, load })
}

fn of_row(name: &str) -> Result<Case, CaseError> {
    let mut rows = servers::find(name).map_err(impossible(name))?;
    let row = rows.remove(0);
    let open_loop = row.class == Class::Latency;
    let (name, unit) = (name.to_owned(), row.unit.to_owned());
    Ok(Case { name, unit, open_loop, settings: OTHER_SETTINGS, load: Load::Row(row) })
}

fn of_adapter(name: &str, parameters: &[(&str, &str)]) -> Result<Case, CaseError> {
    let adapter = Adapter::find(name).ok_or_else(|| impossible(name)("there is no such adapter"))?;
    let parameters: BTreeMap<_, _> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let expanded = adapter.expand(&parameters).map_err(impossible(name))?;
    let (rate, unit) = match adapter.expressions.first() {
        Some(text) => (Rate::Reported(Expression::new(text).map_err(impossible(name))?), adapter.unit),
        None => (Rate::Completion, "completions"),
    };
    let load = Load::Program { program: Program::shell(&expanded.command), prepare: expanded.prepare, rate };
    Ok(Case {
        name: name.to_owned(),
        unit: unit.to_owned(),
        open_loop: false,
        settings: OTHER_SETTINGS,
        load,
    })
}

fn impossible<E: ToString>(name: &str) -> impl FnOnce(E) -> CaseError {
    let name = name.to_owned();
    move |why| CaseError::Impossible { name, why: why.to_string() }
}

impl Case {
    /// Why the case cannot be measured here: a required program is not installed.
    pub(super) fn absent(&self) -> Option<String> {
        match &self.load {
            Load::Row(row) => row.available().err().map(|error| error.to_string()),
            Load::Program { rate: Rate::Outcome, .. } => None,
            Load::Program { .. } => {
                Adapter::find(&self.name)?.available().err().map(|error| error.to_string())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn names(only: &str) -> Vec<String> {
        find(only).unwrap().into_iter().map(|case| case.name).collect()
    }

    #[test]
    fn there_are_forty_cases_with_names_of_their_own_and_every_workload_is_among_them() {
        let all = names("");
        assert!(all.len() >= 40, "{all:?}");
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        for workload in Workload::ALL {
            assert!(all.contains(&workload.to_string()), "{workload}");
        }
        assert!(all.iter().filter(|name| name.contains("-open-")).count() >= 5);
    }

    #[test]
    fn open_loops_are_known_and_the_untouched_setting_comes_first() {
        for case in find("").unwrap() {
            assert_eq!(case.open_loop, case.name.contains("-open-"), "{}", case.name);
            assert_eq!(case.settings[0], UNTOUCHED);
            for setting in case.settings {
                setting.parse::<gleaner_policy::Fixed>().unwrap();
            }
        }
    }

    #[test]
    fn a_whole_name_means_that_case_alone_and_an_unknown_one_is_named() {
        assert_eq!(names("convoy"), ["convoy"]);
        assert_eq!(names("convoy threads"), ["convoy threads=4"]);
        assert_eq!(names("redis-1, pbzip2"), ["redis-1", "pbzip2"]);
        let error = find("convoy,mongo").unwrap_err().to_string();
        assert!(error.contains("unknown case `mongo`") && error.contains("barrier kind=spin"), "{error}");
    }
}
