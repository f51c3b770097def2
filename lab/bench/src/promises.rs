//! What SPECIFICATION.md promises, and whether it is kept.
//!
//! The promises are data, `lab/bench/promises.toml`: what is promised, the script that checks it, and how the number is
//! found in what the script prints. Only that file has the limits, and only this module judges: a script measures, and
//! its exit status says whether that worked.

mod page;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::process::{Command, ExitStatus, Stdio};

use regex::Regex;
use serde::{Deserialize, Serialize};

/// The promises, and the scripts that check them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promises {
    /// The first paragraph of the page, as Markdown.
    about: String,
    /// Scripts for bash, by name.
    checks: BTreeMap<String, String>,
    section: Vec<Section>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    title: String,
    #[serde(default)]
    about: String,
    promise: Vec<Promise>,
}

/// One promise.
#[derive(Debug, Deserialize)]
#[serde(try_from = "PromiseFile")]
pub struct Promise {
    /// Its short name.
    pub name: String,
    /// What is promised, as Markdown.
    pub says: String,
    /// The name of its check.
    pub check: String,
    criterion: Criterion,
}

/// The keys of a promise in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PromiseFile {
    name: String,
    says: String,
    check: String,
    find: Option<String>,
    #[serde(default = "one")]
    count: usize,
    at_least: Option<f64>,
    at_most: Option<f64>,
    #[serde(default)]
    unit: String,
}

fn one() -> usize {
    1
}

#[derive(Debug)]
enum Criterion {
    /// The check succeeds.
    Success,
    /// `find` finds at least `count` numbers in its output, and the worst is on this side of the limit.
    Number { find: Regex, count: usize, limit: Limit, unit: String },
}

#[derive(Debug, Clone, Copy)]
enum Limit {
    AtLeast(f64),
    AtMost(f64),
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(limit) => write!(f, "≥ {limit}"),
            Self::AtMost(limit) => write!(f, "≤ {limit}"),
        }
    }
}

impl Limit {
    fn holds(self, number: f64) -> bool {
        match self {
            Self::AtLeast(limit) => number >= limit,
            Self::AtMost(limit) => number <= limit,
        }
    }

    /// The sort key of a number: the worst has the lowest. What is not a number, such as `never`, is worse than any.
    fn quality(self, text: &str) -> f64 {
        match (self, text.parse::<f64>()) {
            (Self::AtLeast(_), Ok(number)) => number,
            (Self::AtMost(_), Ok(number)) => -number,
            (_, Err(_)) => f64::NEG_INFINITY,
        }
    }
}

impl TryFrom<PromiseFile> for Promise {
    type Error = String;

    fn try_from(file: PromiseFile) -> Result<Self, String> {
        let PromiseFile { name, says, check, find, count, at_least, at_most, unit } = file;
        let limits = [at_least.map(Limit::AtLeast), at_most.map(Limit::AtMost)];
        let criterion = match (find, limits) {
            (None, [None, None]) => Criterion::Success,
            (Some(find), [Some(limit), None] | [None, Some(limit)]) => {
                Criterion::Number { find: pattern(&name, &find)?, count, limit, unit }
            }
            _ => {
                return Err(format!(
                    "the promise `{name}` needs `find` and one of `at_least` and `at_most`, or none of the three"
                ));
            }
        };
        Ok(Self { name, says, check, criterion })
    }
}

/// The regular expression of the promise `name`, in which `^` and `$` match at lines.
fn pattern(name: &str, find: &str) -> Result<Regex, String> {
    let pattern =
        Regex::new(&format!("(?m){find}")).map_err(|error| format!("the promise `{name}`: {error}"))?;
    if pattern.captures_len() == 2 {
        Ok(pattern)
    } else {
        Err(format!("the promise `{name}`: `{find}` needs one group, the number"))
    }
}

/// Whether a promise is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It is.
    Kept,
    /// It is not, or the check failed.
    Missed,
    /// The check did not print the number, or not as often as it should.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kept => "kept",
            Self::Missed => "missed",
            Self::Unknown => "no number",
        })
    }
}

/// What the latest check of a promise found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Start of the check, UTC, ISO 8601.
    pub date: String,
    /// The machine, in a few words.
    pub machine: String,
    /// Whether the promise is kept.
    pub verdict: Verdict,
    /// The number, as it was printed.
    pub found: Option<String>,
    /// How the check ended, if it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How many checks in a row, this one included, did not find the promise kept.
    pub misses: u32,
}

/// The latest outcome of each promise, by its name.
pub type Outcomes = BTreeMap<String, Outcome>;

/// What a check printed, and how it ended.
#[derive(Debug)]
pub struct CheckOutput {
    /// Its output and its messages.
    pub text: String,
    /// How it ended: success says that the measurement worked, not what it found.
    pub status: ExitStatus,
}

/// A file of promises that makes no sense, or a name that it does not have.
#[derive(Debug, thiserror::Error)]
pub enum PromiseError {
    /// It cannot be parsed.
    #[error(transparent)]
    Syntax(#[from] toml::de::Error),
    /// Two promises have one name.
    #[error("there are two promises `{0}`")]
    Twice(String),
    /// A promise names a check that is not there.
    #[error("the promise `{promise}` names the check `{check}`, which is not in [checks]")]
    NoCheck {
        /// Its name.
        promise: String,
        /// The check that it names.
        check: String,
    },
    /// There is no such promise.
    #[error("unknown promise `{name}`; choose from: {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
}

impl Promises {
    /// Parses the text of a file.
    ///
    /// # Errors
    /// Wrong syntax, a name that stands twice, or a check that is missing.
    pub fn parse(text: &str) -> Result<Self, PromiseError> {
        let promises: Self = toml::from_str(text)?;
        let mut names: Vec<&str> = promises.all().map(|promise| promise.name.as_str()).collect();
        names.sort_unstable();
        if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(PromiseError::Twice(pair[0].to_owned()));
        }
        if let Some(lost) = promises.all().find(|promise| !promises.checks.contains_key(&promise.check)) {
            return Err(PromiseError::NoCheck { promise: lost.name.clone(), check: lost.check.clone() });
        }
        Ok(promises)
    }

    fn all(&self) -> impl Iterator<Item = &Promise> {
        self.section.iter().flat_map(|section| &section.promise)
    }

    /// The checks of the promises with these names, or with these names themselves: each once, in the order of the page;
    /// all of them if there are no names.
    ///
    /// # Errors
    /// [`PromiseError::Unknown`].
    pub fn checks(&self, names: &[String]) -> Result<Vec<&str>, PromiseError> {
        let is_called = |promise: &Promise, name: &String| promise.name == *name || promise.check == *name;
        if let Some(name) = names.iter().find(|name| !self.all().any(|promise| is_called(promise, name))) {
            let known: Vec<&str> = self.all().map(|promise| promise.name.as_str()).collect();
            return Err(PromiseError::Unknown { name: name.clone(), known: known.join(", ") });
        }
        let mut checks = Vec::new();
        for promise in self.all() {
            let chosen = names.is_empty() || names.iter().any(|name| is_called(promise, name));
            if chosen && !checks.contains(&promise.check.as_str()) {
                checks.push(promise.check.as_str());
            }
        }
        Ok(checks)
    }

    /// Runs the check with this name, in which no test may be skipped. Its output is kept, not shown.
    ///
    /// # Errors
    /// There is no bash.
    pub fn run(&self, check: &str) -> io::Result<CheckOutput> {
        let script = self.checks.get(check).map_or("", String::as_str);
        let output = Command::new("bash")
            .args(["-c", &format!("exec 2>&1\n{script}")])
            .env("CI", "true")
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Ok(CheckOutput { text, status: output.status })
    }

    /// Judges every promise with this check by what it printed, and replaces the outcomes. If it failed, all of them are
    /// missed: what it printed before may be half a measurement. Returns the names.
    pub fn judge(
        &self,
        check: &str,
        output: &CheckOutput,
        date: &str,
        machine: &str,
        outcomes: &mut Outcomes,
    ) -> Vec<&str> {
        let failure = (!output.status.success()).then(|| output.status.to_string());
        let judged = self.all().filter(|promise| promise.check == check);
        let mut names = Vec::new();
        for promise in judged {
            let (verdict, found) =
                if failure.is_some() { (Verdict::Missed, None) } else { promise.judge(&output.text) };
            let before = outcomes.get(&promise.name).map_or(0, |outcome| outcome.misses);
            let misses = if verdict == Verdict::Kept { 0 } else { before + 1 };
            let (date, machine, failure) = (date.to_owned(), machine.to_owned(), failure.clone());
            let outcome = Outcome { date, machine, verdict, found, failure, misses };
            outcomes.insert(promise.name.clone(), outcome);
            names.push(promise.name.as_str());
        }
        names
    }
}

impl Promise {
    /// Judges it by what its check printed, which succeeded.
    fn judge(&self, text: &str) -> (Verdict, Option<String>) {
        let Criterion::Number { find, count, limit, .. } = &self.criterion else {
            return (Verdict::Kept, None);
        };
        let found = find.captures_iter(text).filter_map(|found| Some(found.get(1)?.as_str()));
        let found: Vec<&str> = found.collect();
        if found.len() < *count {
            return (Verdict::Unknown, None);
        }
        let worst = found.into_iter().min_by(|a, b| limit.quality(a).total_cmp(&limit.quality(b)));
        match worst {
            None => (Verdict::Unknown, None),
            Some(number) => {
                let kept = number.parse().is_ok_and(|number| limit.holds(number));
                (if kept { Verdict::Kept } else { Verdict::Missed }, Some(number.to_owned()))
            }
        }
    }
}
