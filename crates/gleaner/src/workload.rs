//! `gleaner workload`: one of the built-in workloads, for `gleaner demo` and for tests. Hidden.

use std::process::ExitCode;
use std::time::Duration;

use gleaner_bench::workload::Workload;

/// Run a built-in workload and print what it achieved
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// request-response, pipeline, barrier, convoy or compute
    name: Workload,
    /// How long, in seconds
    #[arg(long, value_name = "S", default_value = "2.0", value_parser = seconds)]
    seconds: Duration,
    /// How many threads; what they are is the workload's own
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print the outcome as one line of JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let outcome = args.name.run(args.seconds, args.threads)?;
    if args.json {
        println!("{}", serde_json::to_string(&outcome)?);
    } else {
        let seconds = outcome.elapsed.as_secs_f64();
        let rate = outcome.operations as f64 / seconds;
        println!("{}: {} operations in {seconds:.2} s, {rate:.0} per second", args.name, outcome.operations);
        println!("{}", args.name.about());
    }
    Ok(ExitCode::SUCCESS)
}

/// A time in seconds, from 10 ms to an hour.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .filter(|s| (0.01..=3600.0).contains(s))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("`{text}` is not a time between 0.01 and 3600 seconds"))
}
