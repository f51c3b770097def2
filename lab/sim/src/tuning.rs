//! Policy parameters that a scenario can set, a sweep can vary and a search can optimise (lab/python).

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use gleaner_policy::PolicyConfig;

/// A policy parameter.
#[derive(Debug)]
pub struct PolicyParameter {
    /// Key in scenario files.
    pub key: &'static str,
    /// Smallest sensible value.
    pub low: f64,
    /// Largest sensible value.
    pub high: f64,
    /// Whether to search it on a logarithmic scale.
    pub logarithmic: bool,
    get: fn(&PolicyConfig) -> f64,
    set: fn(&mut PolicyConfig, f64),
}

impl PolicyParameter {
    /// Its value in `config`.
    pub fn get(&self, config: &PolicyConfig) -> f64 {
        (self.get)(config)
    }
}

const fn linear(
    key: &'static str,
    (low, high): (f64, f64),
    get: fn(&PolicyConfig) -> f64,
    set: fn(&mut PolicyConfig, f64),
) -> PolicyParameter {
    PolicyParameter { key, low, high, logarithmic: false, get, set }
}

const fn logarithmic(
    key: &'static str,
    range: (f64, f64),
    get: fn(&PolicyConfig) -> f64,
    set: fn(&mut PolicyConfig, f64),
) -> PolicyParameter {
    PolicyParameter { logarithmic: true, ..linear(key, range, get, set) }
}

/// All parameters; [`PolicyConfig`] and [`gleaner_policy::ConsolidationConfig`] explain them.
pub const POLICY_PARAMETERS: [PolicyParameter; 9] = [
    logarithmic("poll_price", (0.001, 2.0), |c| c.poll_price, |c, v| c.poll_price = v),
    linear("rho", (0.1, 1.0), |c| c.consolidation.rho, |c, v| c.consolidation.rho = v),
    linear("eta", (0.1, 1.0), |c| c.consolidation.eta, |c, v| c.consolidation.eta = v),
    logarithmic(
        "min_time_slice_ms",
        (0.1, 30.0),
        |c| c.consolidation.min_time_slice.as_secs_f64() * 1e3,
        |c, v| c.consolidation.min_time_slice = Duration::from_secs_f64(v / 1e3),
    ),
    linear(
        "utilization_change",
        (0.05, 0.5),
        |c| c.consolidation.utilization_change,
        |c, v| c.consolidation.utilization_change = v,
    ),
    linear(
        "utilization_ceiling",
        (0.7, 1.0),
        |c| c.consolidation.utilization_ceiling,
        |c, v| c.consolidation.utilization_ceiling = v,
    ),
    logarithmic(
        "granularity_growth",
        (1.2, 8.0),
        |c| c.consolidation.granularity_growth,
        |c, v| c.consolidation.granularity_growth = v,
    ),
    linear(
        "granularity_drop",
        (0.05, 0.9),
        |c| c.consolidation.granularity_drop,
        |c, v| c.consolidation.granularity_drop = v,
    ),
    linear(
        "drop_tolerance",
        (0.0, 0.3),
        |c| c.consolidation.drop_tolerance,
        |c, v| c.consolidation.drop_tolerance = v,
    ),
];

/// Values of some parameters; the others keep the policy's defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tuning(BTreeMap<&'static str, f64>);

impl Tuning {
    /// Sets a parameter.
    ///
    /// # Errors
    /// The value is outside the parameter's range.
    pub fn set(&mut self, parameter: &'static PolicyParameter, value: f64) -> Result<(), String> {
        if !(parameter.low..=parameter.high).contains(&value) {
            return Err(format!(
                "{} is {value}; it must lie between {} and {}",
                parameter.key, parameter.low, parameter.high
            ));
        }
        self.0.insert(parameter.key, value);
        Ok(())
    }

    /// Copies the values to `config`.
    pub fn apply(&self, config: &mut PolicyConfig) {
        for parameter in &POLICY_PARAMETERS {
            if let Some(value) = self.0.get(parameter.key) {
                (parameter.set)(config, *value);
            }
        }
    }
}

/// Formats it as the section of a scenario file.
impl fmt::Display for Tuning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[policy]")?;
        self.0.iter().try_for_each(|(key, value)| write!(f, "\n{key} = {value:?}"))
    }
}

#[cfg(test)]
mod tests {
    use gleaner_policy::{CpuSet, Policy};

    use super::*;

    #[test]
    fn every_parameter_is_set_and_read_back_and_its_default_is_in_range() {
        for parameter in &POLICY_PARAMETERS {
            let default = parameter.get(&PolicyConfig::default());
            assert!((parameter.low..=parameter.high).contains(&default), "{}: {default}", parameter.key);
            for value in [parameter.low, parameter.low.midpoint(parameter.high), parameter.high] {
                let mut tuning = Tuning::default();
                tuning.set(parameter, value).unwrap();
                let mut config = PolicyConfig::default();
                tuning.apply(&mut config);
                assert!((parameter.get(&config) - value).abs() < 1e-6, "{}", parameter.key);
                let policy = Policy::new(config, CpuSet::first(4));
                assert!(policy.is_ok(), "{}: {value}", parameter.key);
                assert_eq!(tuning.to_string(), format!("[policy]\n{} = {value:?}", parameter.key));
            }
            assert!(Tuning::default().set(parameter, parameter.high * 2.0).is_err());
        }
    }
}
