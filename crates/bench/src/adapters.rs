//! Real programs as rows of an experiment: each is a description, not code.
//!
//! An [`Adapter`] says which program is needed and which package has it, how an input of a known size is made, the
//! command line, and where the program prints its metric. [`Adapter::expand`] fills in the parameters of a scenario;
//! what comes out is an ordinary shell command that the runner treats like the user's own. Servers are started by the
//! launchers of [`crate::servers`], through the hidden `gleaner load`.

mod known;

use std::collections::BTreeMap;
use std::thread::available_parallelism;

pub use known::ADAPTERS;

use crate::servers::launch::{find_program, quoted};

/// A program that can be measured if it is there.
#[derive(Debug, PartialEq, Eq)]
pub struct Adapter {
    /// The name in scenarios.
    pub name: &'static str,
    /// What is run and how its threads wait for each other, for people.
    pub about: &'static str,
    /// The programs that it needs.
    pub needs: &'static [Need],
    /// What a scenario can set.
    pub parameters: &'static [Parameter],
    /// A shell command that makes the input, once; `{name}` stands for a parameter, `$STATE` for the run's directory,
    /// `$GLEANER` for the product's binary.
    prepare: Option<&'static str>,
    /// The shell command that is measured, with the same placeholders.
    command: &'static str,
    /// The regular expressions that find its metrics; without any the wall time is its metric.
    pub expressions: &'static [&'static str],
    /// What its throughput counts; empty where it has none.
    pub unit: &'static str,
}

/// A program, and where to get it.
#[derive(Debug, PartialEq, Eq)]
pub struct Need {
    /// Its name, or `{name}` for one that a parameter names.
    pub program: &'static str,
    /// How to get it: a sentence part such as `apt-get install pbzip2`.
    pub remedy: &'static str,
}

/// A value that a scenario can set.
#[derive(Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Its value if none is set.
    pub default: Default,
    /// What it is.
    pub about: &'static str,
}

/// The kinds of parameters, with their default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Default {
    /// A number from 1 to 100,000.
    Number(u32),
    /// A number; by default that of the vCPUs that this process may use.
    Cpus,
    /// One word, given to the program as it is.
    Word(&'static str),
    /// Any number of words for a shell.
    Words(&'static str),
    /// One word that has no default.
    Required,
}

/// An adapter whose parameters are filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expanded {
    /// The adapter's name.
    pub adapter: &'static str,
    /// The shell command that makes the input.
    pub prepare: Option<String>,
    /// The shell command that is measured.
    pub command: String,
    /// The programs that are needed, each with its remedy.
    pub needs: Vec<(String, String)>,
}

/// What is wrong with the use of an adapter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// A program that is not on this machine.
    #[error("{adapter}: `{program}` is not found: {remedy}")]
    NotFound {
        /// The adapter.
        adapter: &'static str,
        /// The program.
        program: String,
        /// How to get it.
        remedy: String,
    },
    /// A parameter that the adapter does not have.
    #[error("{adapter} has no parameter `{name}`; it has: {known}")]
    UnknownParameter {
        /// The adapter.
        adapter: &'static str,
        /// The name that was given.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// A parameter without a usable value.
    #[error("{adapter}: the parameter `{name}` ({about}) must be {expected}")]
    Value {
        /// The adapter.
        adapter: &'static str,
        /// The parameter.
        name: &'static str,
        /// What it is.
        about: &'static str,
        /// What it can be, and what it is.
        expected: String,
    },
}

impl Adapter {
    /// The adapter `name`.
    pub fn find(name: &str) -> Option<&'static Self> {
        ADAPTERS.iter().find(|adapter| adapter.name == name)
    }

    /// Fills in `parameters`, and the defaults of those that are not given.
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

    /// Whether the adapter, with its defaults, can be measured here.
    ///
    /// # Errors
    /// As [`Expanded::check`]; also [`AdapterError::Value`] for one that needs a parameter.
    pub fn available(&self) -> Result<(), AdapterError> {
        self.expand(&BTreeMap::new())?.check()
    }
}

impl Expanded {
    /// Checks that what it needs is on this machine.
    ///
    /// # Errors
    /// [`AdapterError::NotFound`] with the first program that is not.
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

    /// What the programs print, as they printed it.
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
