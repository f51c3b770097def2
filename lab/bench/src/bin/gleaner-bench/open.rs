//! `open` is the client of open loops.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use gleaner_bench::client::{self, Address, Pace, Protocol};
use gleaner_bench::runner;
use gleaner_print::times::{seconds, seconds_or_none};
use gleaner_print::{out, outln};

/// Send requests to a running server at a given average rate, and report their latency
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What the server speaks: redis or memcached
    #[arg(long)]
    server: Protocol,
    /// The UNIX socket on which it listens
    #[arg(long, value_name = "PATH", required_unless_present = "port")]
    socket: Option<PathBuf>,
    /// The TCP port of the loopback interface on which it listens
    #[arg(long, conflicts_with = "socket")]
    port: Option<u16>,
    /// Requests per second on average, over all connections; the gaps are exponential
    #[arg(long, required_unless_present = "closed", value_parser = rate)]
    rate: Option<f64>,
    /// A closed loop instead: each connection asks again as soon as it has its answer
    #[arg(long, conflicts_with = "rate")]
    closed: bool,
    /// Connections; each request goes to a random one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: u16,
    /// Measured time, in seconds
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// Time before it in which the load runs unmeasured, in seconds
    #[arg(long, default_value = "0", value_parser = seconds_or_none)]
    warmup: Duration,
    /// Seed of the arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    runner::watch()?;
    let options = client::Options {
        protocol: args.server,
        address: match (&args.socket, args.port) {
            (Some(path), _) => Address::Unix(path.clone()),
            (None, port) => Address::Port(port.context("neither --socket nor --port")?),
        },
        pace: args.rate.map_or(Pace::Closed, |rate| Pace::Poisson { rate }),
        connections: args.connections.into(),
        warmup: args.warmup,
        window: args.seconds,
        seed: args.seed,
        timeout: client::TIMEOUT,
    };
    let outcome = client::run(&options)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&outcome)?)?;
    } else {
        out!("{outcome}")?;
    }
    outcome.check(&options)?;
    Ok(ExitCode::SUCCESS)
}

/// Parses a rate that a client can sustain while sleeping between requests.
fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if rate > 0.0 && rate <= 1e6 {
        Ok(rate)
    } else {
        Err(String::from("not between 0 and 1000000 per second"))
    }
}
