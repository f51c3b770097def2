//! Real programs as rows of an experiment, each described by data instead of code.
//!
//! An [`Adapter`] names the program that it needs and its package, how to make an input of a known size, the
//! command line, and where the program prints its metric. [`Adapter::expand`] fills in the parameters of a
//! scenario; the result is an ordinary shell command that the runner treats like the user's own. Servers are
//! started by the launchers of [`crate::servers`], through the hidden `gleaner-bench load`.

mod known;

use std::collections::BTreeMap;
use std::thread::available_parallelism;

pub use known::ADAPTERS;

use crate::servers::launch::find_program;
use crate::shell::quoted;

/// A program that can be measured where it is installed.
#[derive(Debug, PartialEq, Eq)]
pub struct Adapter {
    /// Name in scenarios.
    pub name: &'static str,
    /// What runs and how its threads wait for each other; shown to users.
    pub about: &'static str,
    /// Required programs.
    pub needs: &'static [RequiredProgram],
    /// Parameters that a scenario can set.
    pub parameters: &'static [Parameter],
    /// A shell command that makes the input, once. `{name}` stands for a parameter, `$STATE` for the run's
    /// directory, `$BENCH` for the `gleaner-bench` binary.
    prepare: Option<&'static str>,
    /// The shell command that is measured, with the same placeholders.
    command: &'static str,
    /// Regular expressions for its metrics; without any, the metric is the wall time.
    pub expressions: &'static [&'static str],
    /// Unit of its throughput; empty if it has none.
    pub unit: &'static str,
}

/// A required program, and where to get it.
#[derive(Debug, PartialEq, Eq)]
pub struct RequiredProgram {
    /// Name of the program; `{name}` if a parameter gives it.
    pub program: &'static str,
    /// How to get it, as part of a sentence, such as `apt-get install pbzip2`.
    pub remedy: &'static str,
}

/// A parameter that a scenario can set.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Name in scenarios.
    pub name: &'static str,
    /// Type and default value.
    pub default: Default,
    /// Description for error messages and lists.
    pub about: &'static str,
}

/// Types of parameters, with their default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// A number from 1 to 100,000.
    Number(u32),
    /// A number; defaults to the number of vCPUs that this process may use.
    Cpus,
    /// One word, passed to the program unchanged.
    Word(&'static str),
    /// Any number of words, parsed by a shell.
    Words(&'static str),
    /// One word without a default.
    Required,
}

/// An adapter with its parameters filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expanded {
    /// Name of the adapter.
    pub adapter: &'static str,
    /// Shell command that makes the input.
    pub prepare: Option<String>,
    /// Shell command to measure.
    pub command: String,
    /// Required programs, each with its remedy.
    pub needs: Vec<(String, String)>,
}

/// Why an adapter cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// A required program is not installed.
    #[error("{adapter}: `{program}` is not found: {remedy}")]
    NotFound {
        /// Name of the adapter.
        adapter: &'static str,
        /// The missing program.
        program: String,
        /// How to get it.
        remedy: String,
    },
    /// The adapter has no such parameter.
    #[error("{adapter} has no parameter `{name}`; it has: {known}")]
    UnknownParameter {
        /// Name of the adapter.
        adapter: &'static str,
        /// The given name.
        name: String,
        /// The adapter's parameters.
        known: String,
    },
    /// The value of a parameter is missing or invalid.
    #[error("{adapter}: the parameter `{name}` ({about}) must be {expected}")]
    Value {
        /// Name of the adapter.
        adapter: &'static str,
        /// Name of the parameter.
        name: &'static str,
        /// Description of the parameter.
        about: &'static str,
        /// The valid values, and the given one.
        expected: String,
    },
}

impl Adapter {
    /// The adapter called `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        ADAPTERS.iter().find(|adapter| adapter.name == name)
    }

    /// Fills in `parameters`, and defaults for the rest.
    ///
    /// # Errors
    /// [`AdapterError::UnknownParameter`] and [`AdapterError::Value`].
    pub fn expand(&self, parameters: &BTreeMap<String, String>) -> Result<Expanded, AdapterError> {
        let names = || self.parameters.iter().map(|parameter| parameter.name);
        if let Some(name) = parameters.keys().find(|name| !names().any(|known| known == *name)) {
            let known = names().collect::<Vec<_>>().join(", ");
            return Err(AdapterError::UnknownParameter { adapter: self.name, name: name.clone(), known });
        }
        let mut values = Vec::new();
        for parameter in self.parameters {
            let given = parameters.get(parameter.name).map(String::as_str);
            values.push((format!("{{{}}}", parameter.name), self.value(parameter, given)?));
        }
        let fill =
            |text: &str| values.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
        Ok(Expanded {
            adapter: self.name,
            prepare: self.prepare.map(fill),
            command: fill(self.command),
            needs: self.needs.iter().map(|need| (fill(need.program), need.remedy.to_owned())).collect(),
        })
    }

    fn value(&self, parameter: &Parameter, given: Option<&str>) -> Result<String, AdapterError> {
        let expected = |expected: String| AdapterError::Value {
            adapter: self.name,
            name: parameter.name,
            about: parameter.about,
            expected,
        };
        let number = |default: usize| match given.map_or(Ok(default), str::parse) {
            Ok(number) if (1..=100_000).contains(&number) => Ok(number.to_string()),
            _ => Err(expected(format!("a number from 1 to 100000, not `{}`", given.unwrap_or_default()))),
        };
        match parameter.default {
            Default::Number(default) => number(default as usize),
            Default::Cpus => number(available_parallelism().map_or(1, usize::from)),
            Default::Word(default) => Ok(quoted(given.unwrap_or(default))),
            Default::Words(default) => Ok(given.unwrap_or(default).to_owned()),
            Default::Required => given.map(quoted).ok_or_else(|| expected("given".to_owned())),
        }
    }

    /// Checks that the adapter, with its defaults, can be measured here.
    ///
    /// # Errors
    /// As [`Expanded::check`]; also [`AdapterError::Value`] for one that needs a parameter.
    pub fn available(&self) -> Result<(), AdapterError> {
        self.expand(&BTreeMap::new())?.check()
    }
}

impl Expanded {
    /// Checks that all required programs are installed.
    ///
    /// # Errors
    /// [`AdapterError::NotFound`] for the first missing program.
    pub fn check(&self) -> Result<(), AdapterError> {
        match self.needs.iter().find(|(program, _)| find_program(program).is_none()) {
            None => Ok(()),
            Some((program, remedy)) => Err(AdapterError::NotFound {
                adapter: self.adapter,
                program: program.clone(),
                remedy: remedy.clone(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Expression;

    fn parameters(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn adapter(name: &str) -> &'static Adapter {
        Adapter::find(name).unwrap()
    }

    #[test]
    fn every_adapter_is_complete() {
        for adapter in ADAPTERS {
            let required = adapter.parameters.iter().filter(|p| p.default == Default::Required);
            let given: BTreeMap<String, String> =
                required.map(|p| (p.name.to_owned(), "/x/program".to_owned())).collect();
            let expanded = adapter.expand(&given).unwrap();
            let texts = [expanded.prepare.as_deref().unwrap_or_default(), &expanded.command];
            for parameter in adapter.parameters {
                let name = format!("{{{}}}", parameter.name);
                assert!(!texts.iter().any(|text| text.contains(&name)), "{}: {texts:?}", adapter.name);
                let used = [adapter.prepare.unwrap_or_default(), adapter.command];
                assert!(used.iter().any(|text| text.contains(&name)), "{} ignores {name}", adapter.name);
            }
            assert!(!adapter.needs.is_empty() && !adapter.about.is_empty(), "{}", adapter.name);
            for expression in adapter.expressions {
                Expression::new(expression).unwrap();
            }
            assert_eq!(adapter.unit.is_empty(), adapter.expressions.is_empty(), "{}", adapter.name);
            assert_eq!(ADAPTERS.iter().filter(|other| other.name == adapter.name).count(), 1);
        }
    }

    #[test]
    fn parameters_are_filled_in_and_quoted() {
        let expanded = adapter("parsec").expand(&parameters(&[("benchmark", "x; rm y")])).unwrap();
        assert!(expanded.command.contains("-p 'x; rm y' "), "{}", expanded.command);
        let expanded = adapter("pbzip2").expand(&parameters(&[("threads", "7")])).unwrap();
        assert!(expanded.command.contains("-p7 "), "{}", expanded.command);
    }

    #[test]
    fn wrong_parameters_are_named_with_what_there_is() {
        let error = adapter("pbzip2").expand(&parameters(&[("thread", "7")])).unwrap_err().to_string();
        assert!(error.contains("no parameter `thread`") && error.contains("threads"), "{error}");
        for wrong in ["0", "-1", "many", "100001"] {
            let error = adapter("pbzip2").expand(&parameters(&[("threads", wrong)])).unwrap_err();
            assert!(error.to_string().contains(&format!("not `{wrong}`")), "{error}");
        }
        let error = adapter("splash-3").expand(&parameters(&[])).unwrap_err().to_string();
        assert!(error.contains("`binary`") && error.contains("must be given"), "{error}");
    }

    #[test]
    fn what_is_not_there_is_named_with_its_remedy() {
        let splash = adapter("splash-3");
        let expanded = splash.expand(&parameters(&[("binary", "/no/such/CHOLESKY")])).unwrap();
        let error = expanded.check().unwrap_err();
        assert!(matches!(error, AdapterError::NotFound { .. }));
        let text = error.to_string();
        assert!(text.contains("`/no/such/CHOLESKY` is not found: build"), "{text}");
        let shell = splash.expand(&parameters(&[("binary", "/bin/sh")])).unwrap();
        assert_eq!(shell.check(), Ok(()));
    }

    /// Actual output of the programs.
    #[test]
    fn metrics_are_found_in_real_output() {
        let found = |name: &str, output: &str| {
            let expression = Expression::new(adapter(name).expressions[0]).unwrap();
            expression.find(output).unwrap().values().copied().collect::<Vec<f64>>()
        };
        assert_eq!(
            found("x264", "x264 [info]: kb/s:1846.44\n\nencoded 60 frames, 83.48 fps, 1846.44 kb/s\n"),
            [83.48]
        );
        assert_eq!(found("redis", "redis-8: 139768.25 requests per second\n"), [139_768.25]);
    }
}
