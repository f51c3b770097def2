//! `gleaner pause`, `resume` and `reload`: what concerns the daemon as a whole.

use std::process::ExitCode;

use gleaner_print::{outln, say};
use serde_json::json;

use crate::client;
use crate::status::count;

/// Version of the JSON form.
const VERSION: u32 = 1;

/// Undo everything that gleanerd has in force, and change nothing until `gleaner resume`
///
/// The machine is then as if gleanerd did not run. Needs root. Exit status: 0 if nothing is in force any more, 1 if
/// something could not be put back.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    /// Why, for `gleaner status` to show, e.g. `gleaner pause "incident 4711"`
    #[arg(value_name = "REASON")]
    reason: Option<String>,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// Let gleanerd help again after `gleaner pause`
///
/// Needs root.
#[derive(Debug, clap::Args)]
pub(crate) struct ResumeArgs {
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// Have gleanerd read its configuration again
///
/// If something is wrong with it, it says what and where, and all of the old one stays in force. Needs root.
#[derive(Debug, clap::Args)]
pub(crate) struct ReloadArgs {
    /// Print the files read as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn pause(args: &PauseArgs) -> anyhow::Result<ExitCode> {
    let mut daemon = client::connect()?;
    daemon.pause(args.reason.clone())?;
    let status = daemon.status()?;
    if args.json {
        outln!("{}", json!({ "version": VERSION, "mode": status.mode, "leases": status.leases }))?;
    } else if status.leases == 0 {
        outln!("paused: nothing is in force any more; `gleaner resume` ends that")?;
    }
    if status.leases == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    say!(
        "gleaner: paused, but {} could not be put back: {} names them, and stopping gleanerd tries again",
        count(status.leases, "change"),
        status.lease_file
    );
    Ok(ExitCode::FAILURE)
}

pub(crate) fn resume(args: &ResumeArgs) -> anyhow::Result<ExitCode> {
    let mut daemon = client::connect()?;
    daemon.resume()?;
    // Quiet hours or a lack of credits can still forbid polling.
    let status = daemon.status()?;
    if args.json {
        outln!("{}", json!({ "version": VERSION, "mode": status.mode }))?;
    } else {
        outln!("resumed: {}", crate::status::mode(&status))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn reload(args: &ReloadArgs) -> anyhow::Result<ExitCode> {
    let files = client::connect()?.reload()?;
    if args.json {
        outln!("{}", json!({ "version": VERSION, "files": files }))?;
    } else if files.is_empty() {
        outln!("there is no configuration file: the defaults are in force")?;
    } else {
        outln!("in force are {}", files.join(", "))?;
    }
    Ok(ExitCode::SUCCESS)
}
