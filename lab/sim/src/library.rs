//! The built-in programs. Each states the source of its parameters: a paper (with section), measured here,
//! fitted to a figure, or assumed where no source exists.

mod micro;
mod oltp;
mod shapes;
mod suites;

pub use shapes::{Shape, Tlb};
pub use suites::{SUITES, SuiteProgram, by_name};

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
