//! Parsers for named values: help lists the names, shells complete them, and a wrong one gets a suggestion.

use std::error::Error;
use std::str::FromStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use gleaner_policy::{Method, Objective};

pub(crate) fn method() -> impl TypedValueParser<Value = Method> {
    named(Method::ALL.map(|method| PossibleValue::new(method.name())))
}

pub(crate) fn objective() -> impl TypedValueParser<Value = Objective> {
    let help = |objective| match objective {
        Objective::Latency => "short wake-ups, even if polling costs much CPU time",
        Objective::Balanced => "on an idle machine polling must save at least a hundredth of its time",
        Objective::Efficiency => "on an idle machine polling must save at least a tenth of its time",
    };
    named(Objective::ALL.map(|objective| PossibleValue::new(objective.name()).help(help(objective))))
}

fn named<T, const N: usize>(names: [PossibleValue; N]) -> impl TypedValueParser<Value = T>
where
    T: FromStr<Err: Into<Box<dyn Error + Send + Sync>>> + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names).try_map(|name| name.parse::<T>())
}
