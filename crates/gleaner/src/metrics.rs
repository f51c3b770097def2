//! `gleaner metrics`: what Prometheus gets from the daemon.

use std::process::ExitCode;

use gleaner_print::out;

use crate::client;

/// Print gleanerd's metrics in the OpenMetrics text format
///
/// The same text that its listener serves to Prometheus, whether there is a listener or not. For root and the members of
/// the group `gleaner`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args) -> anyhow::Result<ExitCode> {
    let text = client::connect()?.metrics()?;
    out!("{text}")?;
    Ok(ExitCode::SUCCESS)
}
