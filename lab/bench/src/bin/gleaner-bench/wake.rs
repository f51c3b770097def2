//! `gleaner-bench wake` (hidden): measures one case of the paper's Table 2 once, for the scenario of that name.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use gleaner_calibrate::wake::{Case, Plan, allowed};
use gleaner_print::outln;

use gleaner_print::times::seconds;

/// Two threads wake each other on the first and the last vCPU; print how long it took, one way
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The setting: same-vcpu (A), awake (B), halting (C) or contended (D)
    setting: Case,
    /// How long, in seconds
    #[arg(long, value_name = "S", value_parser = seconds, default_value = "0.3")]
    seconds: Duration,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let cpus = allowed()?;
    let (first, last) =
        cpus.iter().next().zip(cpus.iter().next_back()).context("there is no vCPU to run on")?;
    let samples = args.setting.measure(&Plan { budget: args.seconds, ..Plan::new(first, last) })?;
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    outln!(
        "{}: median {:.2} us, p99 {:.2} us, {} wake-ups",
        args.setting,
        us(samples.median()),
        us(samples.p99()),
        samples.n()
    )?;
    Ok(ExitCode::SUCCESS)
}
