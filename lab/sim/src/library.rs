//! The built-in programs. Each states the source of its parameters: a paper (with section), measured here,
//! fitted to a figure, or assumed where no source exists.

mod micro;
mod oltp;
mod shapes;
mod suites;
mod tpds21;

pub use shapes::{Shape, Tlb};
pub use suites::{SUITES, SuiteProgram, by_name};

use serde::Deserialize;

use crate::Ns;
use crate::program::Program;

/// Parameters of a library program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// Number of threads; for pipelines and services its exact meaning depends on the program.
    pub threads: u32,
    /// Total CPU time of all threads, after which the program ends; 0: it never ends.
    pub work: Ns,
    /// Computation between two synchronisations; 0: the program's default.
    pub grain: Ns,
}

/// A program of the library.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Name in scenario files.
    pub name: &'static str,
    /// Description in one sentence.
    pub about: &'static str,
    /// Source of the parameters.
    pub source: &'static str,
    /// Default number of threads; 0: one per vCPU.
    pub threads: u32,
    make: fn(Parameters) -> Program,
}

impl Entry {
    /// Builds the program.
    pub fn make(&self, parameters: Parameters) -> Program {
        (self.make)(parameters)
    }
}

/// The micro-benchmarks, which correspond to `gleaner workload`.
pub const MICRO: [Entry; 8] = micro::ENTRIES;

/// Names of all library programs.
pub fn names() -> impl Iterator<Item = &'static str> {
    MICRO.iter().map(|e| e.name).chain(SUITES.iter().map(|p| p.name))
}

/// Whose account of a program it follows, where papers differ.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// The library's own: that of the ATC'14 paper's systems.
    #[default]
    Library,
    /// On Linux 3.2 (ASPLOS'13), whose `rwsem` passes to the first waiter on release; lock stealing came with 3.9.
    Asplos13,
    /// The same, with barriers that block at once (its §4.2).
    Asplos13Blocking,
    /// As the TPDS'21 paper describes the suites' programs.
    Tpds21,
    /// The same, with a blocking barrier in place of volrend's spinning one (its §7.1.1).
    Tpds21Blocking,
}

/// The program called `name` in a variant; otherwise as [`make`].
pub fn make_variant(variant: Variant, name: &str, parameters: Parameters, vcpus: u32) -> Option<Program> {
    let threads = if parameters.threads == 0 { vcpus } else { parameters.threads };
    let all = Parameters { threads, ..parameters };
    match (variant, by_name(name)) {
        (Variant::Asplos13, Some(program)) => Some(match program.shape {
            shape @ Shape::Sections { tlb: Tlb::EachSection, .. } => shape.with_handoff().program(name, all),
            _ => program.make(all),
        }),
        (Variant::Asplos13Blocking, Some(program)) => Some(program.shape.blocking().program(name, all)),
        (Variant::Tpds21, Some(program)) => Some(tpds21::make(program, all, false)),
        (Variant::Tpds21Blocking, Some(program)) => Some(tpds21::make(program, all, true)),
        _ => make(name, parameters, vcpus),
    }
}

/// The program called `name`; if `parameters.threads` is 0, it gets its default for a VM with `vcpus` vCPUs.
pub fn make(name: &str, parameters: Parameters, vcpus: u32) -> Option<Program> {
    let with = |default: u32| {
        let threads = if default == 0 { vcpus } else { default };
        let threads = if parameters.threads == 0 { threads } else { parameters.threads };
        Parameters { threads, ..parameters }
    };
    if let Some(entry) = MICRO.iter().find(|e| e.name == name) {
        return Some(entry.make(with(entry.threads)));
    }
    by_name(name).map(|program| program.make(with(0)))
}
