//! Values that have names: help lists them, shells complete them, and a wrong one is answered with the nearest.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gleaner_bench::workload::Workload;

/// Any built-in workload.
pub(crate) fn workload() -> impl TypedValueParser<Value = Workload> {
    named(Workload::ALL)
}

/// A workload of the demonstration.
pub(crate) fn demo_workload() -> impl TypedValueParser<Value = Workload> {
    named(Workload::DEMO)
}

fn named<const N: usize>(workloads: [Workload; N]) -> impl TypedValueParser<Value = Workload> {
    let names = workloads.map(|workload| PossibleValue::new(workload.name()));
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Workload>())
}
