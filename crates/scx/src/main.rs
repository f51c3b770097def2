//! `scx_gleaner`: coordinated scheduling of vCPUs on a KVM host.

mod cli;
mod monitor;
mod run;

use std::process::ExitCode;

/// Prefix of messages.
const NAME: &str = "scx_gleaner";
const VERSION: &str = env!("CARGO_PKG_VERSION");

fn main() -> ExitCode {
    let cli = gleaner_print::parse::<cli::Cli>(NAME);
    cli.run().unwrap_or_else(|error| gleaner_print::failure(NAME, error.as_ref()))
}
