//! What to run: a command, a built-in workload in its own process, or a server with its load.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use crate::servers::launch::Launch;
use crate::servers::{self, Window};
use crate::workload::{Amount, ParameterError, Parameters, Workload};

/// In a command, stands for the run's temporary directory.
const STATE: &str = "$STATE";
/// In a command, stands for the `gleaner` binary.
const GLEANER: &str = "$GLEANER";
/// In a command, stands for the `gleaner-bench` binary.
const BENCH: &str = "$BENCH";
/// Where a server's cell writes its measurements.
pub(super) const CELL: &str = "cell.json";

/// A program to run.
#[derive(Debug, Clone, PartialEq)]
pub enum Program {
    /// A command and its arguments, in which `$STATE` stands for a directory that is removed after the run,
    /// `$GLEANER` for the `gleaner` binary, and `$BENCH` for the `gleaner-bench` binary.
    Command(Vec<OsString>),
    /// A built-in workload.
    Workload {
        /// The workload.
        workload: Workload,
        /// Parameters by name.
        parameters: BTreeMap<String, String>,
        /// When to stop: after a time, which yields its throughput, or a number of operations, which yields
        /// its wall time.
        amount: Amount,
    },
    /// A server with its load, measured in a window between its start and its end.
    Server {
        /// The server.
        row: servers::Row,
        /// When it is measured.
        window: Window,
    },
}

impl Program {
    /// A command line for `sh`.
    pub fn shell(line: &str) -> Self {
        Self::Command(["sh", "-c", line].map(OsString::from).to_vec())
    }

    /// A workload with these parameters.
    ///
    /// # Errors
    /// The workload has no such parameter, or a value is out of range.
    pub fn of_workload(
        workload: Workload,
        parameters: BTreeMap<String, String>,
        amount: Amount,
    ) -> Result<Self, ParameterError> {
        let mut known = Parameters::default();
        parameters.iter().try_for_each(|(name, value)| known.set(&format!("{name}={value}")))?;
        workload.settings(&known)?;
        Ok(Self::Workload { workload, parameters, amount })
    }

    /// The workload, if it is one.
    pub fn workload(&self) -> Option<Workload> {
        match self {
            Self::Workload { workload, .. } => Some(*workload),
            Self::Command(_) | Self::Server { .. } => None,
        }
    }

    /// Default name: that of the workload, or of the command without its path.
    pub fn name(&self) -> String {
        match self {
            Self::Workload { workload, .. } => workload.to_string(),
            Self::Command(words) => words.first().map_or_else(String::new, |word| {
                let name = Path::new(word).file_name().unwrap_or(word);
                name.to_string_lossy().into_owned()
            }),
            Self::Server { row, .. } => row.name.to_owned(),
        }
    }

    /// Prepares the start, with files in `state`; a workload is run by the binary `gleaner`, a server by `bench`.
    pub(crate) fn launch(&self, gleaner: &Path, bench: &Path, state: &Path) -> Launch {
        let words = match self {
            Self::Command(words) => words.clone(),
            Self::Workload { workload, parameters, amount } => {
                let mut words: Vec<OsString> =
                    vec![gleaner.into(), "workload".into(), workload.name().into(), "--json".into()];
                match amount {
                    Amount::Time(time) => {
                        words.extend(["--seconds".into(), time.as_secs_f64().to_string().into()]);
                    }
                    Amount::Operations(count) => {
                        words.extend(["--operations".into(), count.to_string().into()]);
                    }
                }
                for (name, value) in parameters {
                    words.extend(["--set".into(), format!("{name}={value}").into()]);
                }
                words
            }
            Self::Server { row, window } => {
                let seconds = |time: Duration| time.as_secs_f64().to_string();
                let (warmup, length) = (seconds(window.warmup), seconds(window.length));
                let out = format!("{STATE}/{CELL}");
                let times = ["--warmup", &warmup, "--seconds", &length];
                let words = [BENCH, "cell", row.name].into_iter().chain(times);
                words.chain(["--state", STATE, "--out", &out]).map(OsString::from).collect()
            }
        };
        let (state, gleaner, bench) =
            (state.to_string_lossy(), gleaner.to_string_lossy(), bench.to_string_lossy());
        // Words that are not UTF-8 cannot contain a placeholder.
        let replaced = words.into_iter().map(|word| match word.to_str() {
            Some(text) if text.contains('$') => {
                let text = text.replace(STATE, &state).replace(GLEANER, &gleaner);
                OsString::from(text.replace(BENCH, &bench))
            }
            _ => word,
        });
        let mut replaced = replaced.collect::<Vec<_>>().into_iter();
        let program = replaced.next().unwrap_or_default();
        Launch::new(&program.to_string_lossy()).args(replaced).group()
    }
}

/// Replaces the run's own paths in `text`, so that the results of two runs can be compared.
pub(crate) fn portable(text: &str, gleaner: &Path, state: &Path) -> String {
    text.replace(&*state.to_string_lossy(), STATE).replace(&*gleaner.to_string_lossy(), "gleaner")
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    fn line(program: &Program) -> String {
        let (gleaner, state) = (Path::new("/x/gleaner"), Path::new("/tmp/state"));
        portable(&program.launch(gleaner, Path::new("/x/gleaner-bench"), state).line(), gleaner, state)
    }

    #[test]
    fn commands_are_run_as_given() {
        let program = Program::Command(["/bin/echo", "a b", "$STATE/in"].map(OsString::from).to_vec());
        assert_eq!(line(&program), "/bin/echo 'a b' $STATE/in");
        assert_eq!(program.name(), "echo");
        assert!(
            line(&Program::shell("$BENCH load x; $GLEANER why"))
                .ends_with("/sh -c 'gleaner-bench load x; gleaner why'")
        );
        assert!(line(&Program::shell("sleep 1; true")).ends_with("/sh -c 'sleep 1; true'"));
    }

    #[test]
    fn servers_are_measured_by_the_harness() {
        let row = servers::find("redis-1").unwrap().remove(0);
        let window = Window { warmup: Duration::ZERO, length: Duration::from_millis(500) };
        assert_eq!(
            line(&Program::Server { row, window }),
            "gleaner-bench cell redis-1 --warmup 0 --seconds 0.5 --state $STATE --out $STATE/cell.json"
        );
    }

    #[test]
    fn workloads_are_run_by_the_product() {
        let program = Program::Workload {
            workload: Workload::Barrier,
            parameters: [("threads".to_owned(), "4".to_owned())].into(),
            amount: Amount::Time(Duration::from_millis(1500)),
        };
        assert_eq!(line(&program), "gleaner workload barrier --json --seconds 1.5 --set threads=4");
        let amount = Amount::Operations(NonZeroU64::new(1000).unwrap());
        let program = Program::Workload { workload: Workload::Convoy, parameters: BTreeMap::new(), amount };
        assert_eq!(line(&program), "gleaner workload convoy --json --operations 1000");
        assert_eq!((program.name().as_str(), program.workload()), ("convoy", Some(Workload::Convoy)));
    }
}
