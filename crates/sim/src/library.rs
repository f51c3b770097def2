//! The programs that come with the simulator. Each says where its parameters are from: from a paper (with the section),
//! measured here, fitted to a figure, or assumed where no source states them.

mod micro;
mod oltp;
mod shapes;
mod suites;

pub use shapes::{Shape, Tlb};
pub use suites::{SUITES, SuiteProgram, by_name};

use crate::Ns;
use crate::program::Program;

/// What a program is made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// How many threads; of pipelines and services what a thread is follows from the program.
    pub threads: u32,
    /// The CPU time of all threads until the program ends; 0: it never ends.
    pub work: Ns,
    /// Computation between two synchronisations; 0: the program's own.
    pub grain: Ns,
}

/// A program of the library.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What it is, in a sentence.
    pub about: &'static str,
    /// Where its parameters are from.
    pub source: &'static str,
    /// Its threads by default; 0: as many as vCPUs.
    pub threads: u32,
    make: fn(Parameters) -> Program,
}

impl Entry {
    /// The program.
    pub fn make(&self, parameters: Parameters) -> Program {
        (self.make)(parameters)
    }
}

/// The small programs, as in `gleaner workload`.
pub const MICRO: [Entry; 8] = micro::ENTRIES;

/// Every name in the library.
pub fn names() -> impl Iterator<Item = &'static str> {
    MICRO.iter().map(|e| e.name).chain(SUITES.iter().map(|p| p.name))
}

/// The program called `name`, for a VM with `vcpus` vCPUs where `parameters.threads` is 0.
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
