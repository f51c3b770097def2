//! `gleaner workload`: one of the built-in workloads, for `gleaner demo`, `gleaner bench` and tests, and to try `gleaner run` with.

use std::num::NonZeroU64;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_bench::runner;
use gleaner_bench::workload::{Amount, Kind, ParameterError, Parameters, Workload, parse_time};
use gleaner_print::{Usage, outln};

/// Run a built-in workload and print what it achieved
///
/// SIGINT and SIGTERM end it before its time in the same way; one that has so many operations to do they end at once.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which one; docs/workloads.md describes them, a wrong name lists them
    name: Workload,
    /// How long, e.g. 500ms or 2s
    #[arg(long = "for", value_name = "TIME", value_parser = time, conflicts_with = "operations")]
    time: Option<Duration>,
    /// How long, in seconds
    #[arg(long, value_name = "S", value_parser = seconds, conflicts_with_all = ["time", "operations"])]
    seconds: Option<Duration>,
    /// How many operations, however long they take
    #[arg(long, value_name = "N")]
    operations: Option<NonZeroU64>,
    /// How many threads; what they are is the workload's own
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Which kind of the workload
    #[arg(long)]
    kind: Option<Kind>,
    /// Any parameter: threads=N, kind=NAME, granularity=TIME, imbalance=0..1
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print the outcome as one line of JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// Two seconds if nothing is said.
    fn amount(&self) -> Amount {
        let time = self.time.or(self.seconds).unwrap_or(Duration::from_secs(2));
        self.operations.map_or(Amount::Time(time), Amount::Operations)
    }

    fn parameters(&self) -> Result<Parameters, ParameterError> {
        let mut parameters = Parameters { threads: self.threads, kind: self.kind, ..Parameters::default() };
        self.set.iter().try_for_each(|assignment| parameters.set(assignment))?;
        // Before anything runs.
        self.name.settings(&parameters)?;
        Ok(parameters)
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let parameters = args.parameters().map_err(|error| Usage(error.to_string()))?;
    let amount = args.amount();
    if matches!(amount, Amount::Time(_)) {
        runner::watch()?;
    }
    let outcome = args.name.run(amount, &parameters)?;
    if args.json {
        outln!("{}", serde_json::to_string(&outcome)?)?;
    } else {
        let (seconds, rate) = (outcome.elapsed.as_secs_f64(), outcome.throughput());
        outln!("{}: {} operations in {seconds:.2} s, {rate:.0} per second", args.name, outcome.operations)?;
        outln!("{}", args.name.about())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A time with its unit, from 10 ms to an hour.
fn time(text: &str) -> Result<Duration, String> {
    let time = parse_time(text)?;
    let (least, most) = (Duration::from_millis(10), Duration::from_secs(3600));
    let fits = (least..=most).contains(&time);
    fits.then_some(time).ok_or_else(|| format!("`{text}` is not a time between 10ms and 3600s"))
}

/// A time in seconds, from 10 ms to an hour.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|s| (0.01..=3600.0).contains(s))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("`{text}` is not a time between 0.01 and 3600 seconds"))
}
