//! Values that have names: help lists them, shells complete them, and a wrong one is answered with the nearest.

use std::error::Error;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gleaner_bench::workload::Workload;
use gleaner_policy::{Method, Objective};

/// A retention method.
pub(crate) fn method() -> impl TypedValueParser<Value = Method> {
    named(Method::ALL.map(|method| PossibleValue::new(method.name())))
}

/// What polling is worth.
pub(crate) fn objective() -> impl TypedValueParser<Value = Objective> {
    let help = |objective| match objective {
        Objective::Latency => "short wake-ups, also where much is polled for them",
        Objective::Balanced => "polling must save at least an eighth of its time",
        Objective::Efficiency => "polling must save at least half of its time",
    };
    named(Objective::ALL.map(|objective| PossibleValue::new(objective.name()).help(help(objective))))
}

/// Any built-in workload.
pub(crate) fn workload() -> impl TypedValueParser<Value = Workload> {
    named(Workload::ALL.map(|workload| PossibleValue::new(workload.name())))
}

/// A workload of the demonstration.
pub(crate) fn demo_workload() -> impl TypedValueParser<Value = Workload> {
    named(Workload::DEMO.map(|workload| PossibleValue::new(workload.name())))
}

fn named<T, const N: usize>(names: [PossibleValue; N]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}
