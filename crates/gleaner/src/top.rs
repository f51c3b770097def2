//! `gleaner top`: shows the machine and its Gleaner live. Changes nothing.

mod draw;
mod follow;
mod keys;
mod reading;
mod run;
mod screen;
#[cfg(test)]
mod tests;
mod text;
mod view;
mod watch;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use gleaner_engine::StateDir;
use gleaner_print::outln;
use gleaner_trace::Scope;

use crate::group;
use draw::Palette;
use watch::Watch;

/// Show the machine and the running Gleaner, live
///
/// What gleanerd, `gleaner run` or `gleaner attach` has in force and has decided, what each vCPU does, and how long
/// wake-ups take, on one screen that is refreshed every second. It only reads: it takes no lock and changes nothing.
/// Wake-up latencies need root and a kernel with BTF. Keys: q quits, p pauses, space refreshes, up and down scroll through
/// the decisions.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sample twice, print what happened in between as text, and exit
    #[arg(long)]
    once: bool,
    /// Print it as JSON
    #[arg(long, requires = "once")]
    json: bool,
    /// Sampling interval
    #[arg(long, value_name = "S", value_parser = gleaner_print::times::seconds, default_value = "1")]
    interval: Duration,
    /// Follow this journal [default: that of the run without `--journal`]
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
    #[command(flatten)]
    traced: Traced,
}

/// Whose wake-ups are traced.
#[derive(Debug, clap::Args)]
#[group(multiple = false)]
struct Traced {
    /// Only the wake-ups of this process and its descendants
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Only the wake-ups in this control group: its directory, or its path as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Trace no wake-ups
    #[arg(long)]
    no_trace: bool,
}

impl Traced {
    fn scope(&self) -> anyhow::Result<Option<(Scope, String)>> {
        Ok(match (self.pid, &self.cgroup, self.no_trace) {
            (Some(pid), ..) => Some((Scope::Tree(pid), format!("process {pid}"))),
            (_, Some(name), _) => {
                let dir = group::directory(name)?;
                let name = format!("group {}", dir.display());
                Some((Scope::Cgroup(dir), name))
            }
            (.., true) => None,
            (None, None, false) => Some((Scope::System, "the whole machine".to_owned())),
        })
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // The screen waits for the journal to appear; `--once` would report that there is no run.
    if let Some(path) = args.journal.as_ref().filter(|_| args.once) {
        fs::metadata(path).with_context(|| format!("cannot read the journal {}", path.display()))?;
    }
    let state = StateDir::default_place()?;
    let mut watch = Watch::new(state, args.journal.clone(), args.traced.scope()?)?;
    if !args.once {
        // An empty variable counts as unset: https://no-color.org.
        let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        return screen::show(&mut watch, args.interval, Palette { colours });
    }
    thread::sleep(args.interval);
    let view = watch.sample();
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&view)?)?;
    } else {
        outln!("{}", text::text(&view))?;
    }
    Ok(ExitCode::SUCCESS)
}
