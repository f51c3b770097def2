//! `gleaner pause`, `resume` and `reload`: what concerns the daemon as a whole.

use std::process::ExitCode;

use gleaner_print::outln;
use serde_json::json;

use crate::client;

/// Version of the JSON form.
const VERSION: u32 = 1;

/// Undo everything that gleanerd has in force, and change nothing until `gleaner resume`
///
/// The machine is then as if gleanerd did not run, which goes on watching. Needs root.
#[derive(Debug, clap::Args)]
pub(crate) struct PauseArgs {
    /// Why, for `gleaner status` to show
    #[arg(long, value_name = "TEXT")]
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
    client::connect()?.pause(args.reason.clone())?;
    if args.json {
        outln!("{}", json!({ "version": VERSION, "mode": "paused" }))?;
    } else {
        outln!("paused: nothing is in force any more; `gleaner resume` ends that")?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn resume(args: &ResumeArgs) -> anyhow::Result<ExitCode> {
    let mut daemon = client::connect()?;
    daemon.resume()?;
    // Quiet hours or a lack of credits can still keep everything untouched.
    let status = daemon.status()?;
    if args.json {
        outln!("{}", json!({ "version": VERSION, "mode": status.mode }))?;
    } else {
        outln!("resumed; {}", crate::status::mode(&status))?;
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
