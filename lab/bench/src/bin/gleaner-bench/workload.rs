//! `gleaner workload`: runs one built-in workload, for `gleaner demo`, `gleaner bench`, tests, and trying `gleaner
//! run`.

use std::num::NonZeroU64;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_bench::runner;
use gleaner_bench::workload::{Amount, Kind, ParameterError, Parameters, Workload};
use gleaner_print::times::{seconds, time};
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
    /// Two seconds by default.
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
