//! Compares two result files: the same rows in the same modes, and, if one is from a virtual machine and the
//! other from bare metal, the virtualisation overhead as defined in the literature ([`overhead`]).
//!
//! The samples of two files were not taken in the same rounds. So their ratios are not paired and include
//! whatever changed between the two runs: comparing two files shows less than comparing two modes of one run.

use std::collections::BTreeSet;

use gleaner_proto::result::{BenchResult, Cell, Estimate, Metric, Row, SCHEMA, Verdict};
use serde::Serialize;

pub mod host;
pub mod overhead;

mod host_table;
mod matching;
mod table;

use crate::stats;
use gleaner_host_record::Report;
use host::{Cycles, HostOrigin, Join, JoinError};
use matching::overheads;
use overhead::Overhead;

/// Why two results cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// One of them has another format version.
    #[error(
        "result {which} has schema {found}, and this gleaner compares schema {SCHEMA}: measure again with this gleaner"
    )]
    Schema {
        /// `A` or `B`.
        which: char,
        /// Its format version.
        found: u32,
    },
    /// They have no row and mode in common.
    #[error(
        "nothing in common: A has {a}, B has {b}; compare two runs of one scenario, or name rows and modes alike"
    )]
    NothingInCommon {
        /// Rows and modes of the first result.
        a: String,
        /// Rows and modes of the second result.
        b: String,
    },
    /// The host's record is not of the virtualised run.
    #[error(transparent)]
    Host(#[from] JoinError),
}

/// Where and when a result was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Origin {
    /// Title of the result.
    pub title: String,
    /// Start of the run, UTC.
    pub date: String,
    /// The hypervisor, or a note that there is none.
    pub hypervisor: String,
    /// Whether there is a hypervisor.
    pub virtualised: bool,
    /// Number of CPUs that the run could use.
    pub cpus: usize,
    /// Kernel version.
    pub kernel: String,
    /// Version of Gleaner.
    pub gleaner: String,
}

/// One metric of one row in one mode, in both results.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Name of the row.
    pub row: String,
    /// Name of the mode.
    pub mode: String,
    /// The compared metric.
    pub metric: Metric,
    /// Whether both results judge the row by it.
    pub primary: bool,
    /// Median in A.
    pub a: Estimate,
    /// Median in B.
    pub b: Estimate,
    /// The typical ratio B / A, not paired.
    pub ratio: Estimate,
    /// Two-sided p value of the Mann-Whitney test.
    pub p: f64,
    /// Verdict on B against A.
    pub verdict: Verdict,
}

/// Virtualisation overhead of one row and mode over bare metal.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowOverhead {
    /// Row of the virtualised result.
    pub row: String,
    /// Its mode; the native side is always the native result's first mode.
    pub mode: String,
    /// The overhead.
    #[serde(flatten)]
    pub overhead: Overhead,
    /// The virtualised cycles and the parts of `δη_r`, where the host recorded the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cycles: Option<Cycles>,
}

/// Two compared results. [`Display`](std::fmt::Display) formats them as a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Compared {
    /// The first result, the baseline.
    pub a: Origin,
    /// The second result.
    pub b: Origin,
    /// What is in both, in the order of A.
    pub lines: Vec<Line>,
    /// The host's record of the virtualised run, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostOrigin>,
    /// Filled if one is native and the other virtualised.
    pub overheads: Vec<RowOverhead>,
    /// Caveats, as sentences.
    pub notes: Vec<String>,
}

/// Compares B with A; rows and modes are matched by name.
///
/// # Errors
/// See [`CompareError`].
pub fn compare(a: &BenchResult, b: &BenchResult) -> Result<Compared, CompareError> {
    joined(a, b, None)
}

/// The same, where the host recorded the virtualised run: `δη_r` then has the hypervisor's cycles in it. `vm` is the VM's name,
/// or its VMM's process; the record's only VM needs none.
///
/// # Errors
/// See [`CompareError`].
pub fn compare_with_host(
    a: &BenchResult,
    b: &BenchResult,
    record: &Report,
    vm: Option<&str>,
) -> Result<Compared, CompareError> {
    joined(a, b, Some(OfHost { record, vm, nested: false }))
}

/// The same for nested virtualisation: A was measured on the KVM host itself, which is a virtual machine, too. It is taken for
/// the native side.
///
/// # Errors
/// See [`CompareError`].
pub fn compare_nested(
    a: &BenchResult,
    b: &BenchResult,
    record: &Report,
    vm: Option<&str>,
) -> Result<Compared, CompareError> {
    joined(a, b, Some(OfHost { record, vm, nested: true }))
}

/// What the host says of the virtualised run.
struct OfHost<'a> {
    record: &'a Report,
    vm: Option<&'a str>,
    /// Whether A is native even if it was measured in a virtual machine.
    nested: bool,
}

fn joined(a: &BenchResult, b: &BenchResult, host: Option<OfHost<'_>>) -> Result<Compared, CompareError> {
    for (which, result) in [('A', a), ('B', b)] {
        if result.schema != SCHEMA {
            return Err(CompareError::Schema { which, found: result.schema });
        }
    }
    let lines: Vec<Line> = a
        .rows
        .iter()
        .filter_map(|row| Some((row, b.row(&row.name)?)))
        .flat_map(|(in_a, in_b)| lines(in_a, in_b))
        .collect();
    let nested = host.as_ref().is_some_and(|host| host.nested);
    let pair = match (a.environment.virtualised, b.environment.virtualised) {
        (true, false) => Some((a, b)),
        (true, true) if !nested => None,
        (_, true) => Some((b, a)),
        (false, false) => None,
    };
    let host = match (host, pair) {
        (None, _) => None,
        (Some(_), None) => {
            return Err(JoinError::NoPair { virtualised: a.environment.virtualised }.into());
        }
        (Some(host), Some((virtualised, native))) => {
            if native.environment.virtualised {
                Join::check_host(native, host.record)?;
            }
            Some(Join::new(virtualised, host.record, host.vm)?)
        }
    };
    let overheads =
        pair.map(|(virtualised, native)| overheads(virtualised, native, host.as_ref())).unwrap_or_default();
    if host.is_some() && overheads.is_empty() {
        return Err(JoinError::NoRow.into());
    }
    if lines.is_empty() && overheads.is_empty() {
        return Err(CompareError::NothingInCommon { a: contents(a), b: contents(b) });
    }
    let notes = notes(a, b, &overheads, host.as_ref());
    let host = host.as_ref().map(Join::origin);
    Ok(Compared { a: origin(a), b: origin(b), lines, host, overheads, notes })
}

/// The common metrics of two rows of the same name, mode by mode.
fn lines(in_a: &Row, in_b: &Row) -> Vec<Line> {
    let line = |a: &Cell, b: &Cell, metric: Metric| {
        let (values_a, values_b) = (a.values(metric), b.values(metric));
        let (ratio, p, verdict) = stats::judge_unpaired(&values_b, &values_a, metric.better())?;
        Some(Line {
            row: in_a.name.clone(),
            mode: a.mode.clone(),
            metric,
            primary: metric == in_a.primary && metric == in_b.primary,
            a: stats::estimate(&values_a)?,
            b: stats::estimate(&values_b)?,
            ratio,
            p,
            verdict,
        })
    };
    let cells = in_a.cells.iter().filter_map(|a| Some((a, in_b.cell(&a.mode)?)));
    cells.flat_map(|(a, b)| Metric::ALL.into_iter().filter_map(move |metric| line(a, b, metric))).collect()
}

fn origin(result: &BenchResult) -> Origin {
    let environment = &result.environment;
    Origin {
        title: result.title.clone(),
        date: environment.date.clone(),
        hypervisor: environment.hypervisor.clone(),
        virtualised: environment.virtualised,
        cpus: environment.vcpus,
        kernel: environment.kernel.clone(),
        gleaner: environment.gleaner.clone(),
    }
}

/// The rows and modes of a result, for an error message.
fn contents(result: &BenchResult) -> String {
    let rows: Vec<&str> = result.rows.iter().map(|row| row.name.as_str()).collect();
    let modes: Vec<&str> = result.modes.iter().map(|mode| mode.name.as_str()).collect();
    let list = |names: Vec<&str>| if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    format!("the rows {} in the modes {}", list(rows), list(modes))
}

fn notes(
    a: &BenchResult,
    b: &BenchResult,
    overheads: &[RowOverhead],
    host: Option<&Join<'_>>,
) -> Vec<String> {
    let mut notes = Vec::new();
    let (ea, eb) = (&a.environment, &b.environment);
    if ea.vcpus != eb.vcpus {
        notes.push(format!(
            "A had {} CPUs and B {}: the overhead is defined for equal numbers; measure both with the same",
            ea.vcpus, eb.vcpus
        ));
    }
    if ea.kernel != eb.kernel {
        notes.push(format!(
            "A ran on Linux {} and B on {}: the kernel is part of the ratios",
            ea.kernel, eb.kernel
        ));
    }
    for (only, has, lacks) in [("A", a, b), ("B", b, a)] {
        let missing = only_in(has, lacks);
        if !missing.is_empty() {
            notes.push(format!("only in {only}: {}", missing.into_iter().collect::<Vec<_>>().join(", ")));
        }
    }
    let differing =
        a.rows.iter().filter(|row| b.row(&row.name).is_some_and(|other| other.primary != row.primary));
    for row in differing {
        notes.push(format!(
            "{}: the two results are judged by different metrics; all common ones are in the JSON",
            row.name
        ));
    }
    if let Some(host) = host {
        if ea.virtualised && eb.virtualised {
            notes.push(format!(
                "the native side was measured in a virtual machine, too ({}): what that one costs is on both sides, and a \
                 VM exit costs more than on bare metal",
                ea.hypervisor
            ));
        }
        notes.extend(host.notes());
    } else if !overheads.is_empty() {
        notes.push(
            "CPU seconds stand for the paper's cycles, and those of the hypervisor are not among them where the \
             guest measured: δη_r is then a lower bound, and ω an upper one; \
             --host takes the host's record of the run"
                .to_owned(),
        );
    } else if ea.virtualised == eb.virtualised {
        notes.push(format!(
            "both results are {}: for δη_t, δη_r and ω one must be native and the other one virtualised",
            if ea.virtualised { "of virtual machines" } else { "native" }
        ));
    } else {
        notes.push(
            "no row of the virtualised result runs what a native row runs, alone or beside a second instance of \
             itself: no δη_t, δη_r, ω"
                .to_owned(),
        );
    }
    notes
}

/// The rows, and the modes of common rows, that are missing from `lacks`.
fn only_in(has: &BenchResult, lacks: &BenchResult) -> BTreeSet<String> {
    let mut missing = BTreeSet::new();
    for row in &has.rows {
        match lacks.row(&row.name) {
            None => {
                missing.insert(row.name.clone());
            }
            Some(other) => missing.extend(
                row.cells
                    .iter()
                    .filter(|cell| other.cell(&cell.mode).is_none())
                    .map(|cell| format!("{} in mode {}", row.name, cell.mode)),
            ),
        }
    }
    missing
}
