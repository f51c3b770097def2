//! `gleaner-bench load` (hidden): runs a real server under load once, for the adapters of `gleaner bench`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_bench::runner;
use gleaner_bench::servers::{self, Row, Window};
use gleaner_print::outln;

use gleaner_print::times::seconds;

/// Start a server and its client, measure the client's rate, stop both
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Which server and how many connections, e.g. redis-8, read-write-16, point-select-4, pgbench-8, nginx-16
    #[arg(value_parser = servers::load)]
    row: Row,
    /// Where data, sockets and logs are; data that is there is used again
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
    /// Only make the data
    #[arg(long)]
    prepare: bool,
    /// How long the client is measured, in seconds, after one second of warm-up
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "2")]
    seconds: Duration,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    runner::watch()?;
    if args.prepare {
        servers::prepare(&args.row, &args.state)?;
        return Ok(ExitCode::SUCCESS);
    }
    let window = Window { warmup: Duration::from_secs(1), length: args.seconds };
    let sample = servers::measure(&args.row, &args.state, window, &[])?.sample;
    outln!("{}: {:.2} {} per second", args.row.name, sample.rate(), args.row.unit)?;
    Ok(ExitCode::SUCCESS)
}
