//! `gleaner status`: what the daemon does now.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::anyhow;
use gleaner_control::{ClientError, Mode, Retention, Stake, State, Status, Workload};
use gleaner_engine::StateDir;
use gleaner_explain::wrap;
use gleaner_kernel::Root;
use gleaner_print::outln;
use nix::unistd::geteuid;
use serde_json::json;

use crate::client;

/// Version of the JSON form.
const VERSION: u32 = 1;
/// Watched workloads that are shown without `--all`: those with the most wake-ups.
const MOST_WATCHED: usize = 5;

/// Show what gleanerd is doing: for which workloads, with what effect, at what cost
///
/// For root and the members of the group `gleaner`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also list all workloads that are only watched
    #[arg(long)]
    all: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let status = client::connect().map_err(without_daemon)?.status()?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&json!({ "version": VERSION, "status": status }))?)?;
    } else {
        outln!("{}", text(&status, args.all).trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds what the machine's state is, where no daemon runs that could say so.
fn without_daemon(error: anyhow::Error) -> anyhow::Error {
    let not_running = matches!(error.downcast_ref(), Some(ClientError::NotRunning { .. }));
    // Only root knows: others have a state directory of their own.
    let state = StateDir::default_place().ok().filter(|_| not_running && geteuid().is_root());
    let Some(state) = state else { return error };
    match (state.holder(&Root::system()), state.leases().exists()) {
        (Some(pid), _) => anyhow!("{error}; another Gleaner (pid {pid}) is at work: `gleaner top` shows it"),
        (None, true) => anyhow!(
            "{error}; a killed Gleaner has left changes on the machine: `gleaner restore` puts them back"
        ),
        (None, false) => anyhow!("{error}; nothing is changed on the machine"),
    }
}

/// `status` on a page of 80 columns.
fn text(status: &Status, all: bool) -> String {
    let mut out = String::new();
    let Status { version, pid, machine, usage, leases, lease_file, .. } = status;
    wrap(
        &mut out,
        "",
        &format!("gleanerd {version} (pid {pid}), {}: {}", age(status.uptime_ms), mode(status)),
    );
    let vcpus = count(machine.vcpus.len() as u64, "vCPU");
    let cost = machine.wake_cost_us;
    let retention = retention(machine.retention);
    wrap(&mut out, "  ", &format!("{vcpus}: waking an idle one costs {cost:.1} us; {retention}"));
    let (used, allowed) = (percent(machine.polling_share), percent(machine.polling_share_allowed));
    wrap(&mut out, "  ", &format!("polling: {used} of the vCPUs' time lately, {allowed} are allowed"));
    let memory = usage.memory_bytes as f64 / f64::from(1 << 20);
    let own = format!("itself: {:.2} % of a vCPU since its start, {memory:.1} MiB", usage.cpu_share * 100.0);
    let held = match leases {
        0 => "nothing is changed on the machine".to_owned(),
        n => format!("{} in force, recorded in {lease_file}", count(*n, "change")),
    };
    wrap(&mut out, "  ", &format!("{own}; {held}"));
    for limit in &status.limits {
        wrap(&mut out, "  ", &format!("note: {limit}"));
    }
    workloads(&mut out, &status.workloads, all);
    if !status.decisions.is_empty() {
        out += "\nDecisions, newest first\n";
    }
    for decision in decisions(status) {
        wrap(&mut out, "  ", &decision);
    }
    out
}

fn workloads(out: &mut String, workloads: &[Workload], all: bool) {
    let mut watched = 0;
    let shown = workloads.iter().filter(|workload| {
        watched += usize::from(workload.state == State::Watched);
        all || workload.state != State::Watched || watched <= MOST_WATCHED
    });
    let shown: Vec<_> = shown.collect();
    if workloads.is_empty() {
        *out += "\nNo workload is running.\n";
        return;
    }
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(out, "\n{}", row(&HEADINGS.map(str::to_owned)));
    for workload in &shown {
        let _ = writeln!(out, "{}", row(&cells(workload)));
        let sentences = [
            workload.reason.clone(),
            workload.trial.as_ref().map(|trial| format!("on trial: {trial}")),
            workload.evidence.clone(),
        ];
        sentences.into_iter().flatten().for_each(|sentence| wrap(out, "  ", &sentence));
    }
    let hidden = workloads.len() - shown.len();
    if hidden > 0 {
        let _ = writeln!(out, "and {hidden} more that are only watched: --all lists them");
    }
}

const HEADINGS: [&str; 7] = ["WORKLOAD", "STATE", "VCPUS", "WAKE-UPS/S", "LOAD", "RETENTION", "FOR"];

/// A line of the table of workloads.
fn row([name, state, vcpus, wakeups, load, retention, age]: &[String; 7]) -> String {
    let line = format!("{name:<22} {state:<11} {vcpus:<8} {wakeups:>10} {load:>6}  {retention:<10} {age}");
    line.trim_end().to_owned()
}

fn cells(workload: &Workload) -> [String; 7] {
    [
        workload.name.clone(),
        state(workload.state).to_owned(),
        vcpus(workload),
        format!("{:.0}", workload.wakeups_per_s),
        format!("{:.2}", workload.load),
        workload.stake.map_or("", stake).to_owned(),
        workload.since_ms.map_or_else(String::new, age),
    ]
}

/// The vCPUs that a workload is allowed to use now, and of how many if these are not all.
pub(crate) fn vcpus(workload: &Workload) -> String {
    match (&workload.active, &workload.allowed) {
        (Some(active), Some(allowed)) if active != allowed => format!("{active} of {}", allowed.len()),
        (Some(active), _) => active.to_string(),
        (None, _) => String::new(),
    }
}

pub(crate) fn state(state: State) -> &'static str {
    match state {
        State::Watched => "watched",
        State::Engaged => "engaged",
        State::LeftAlone => "left alone",
    }
}

pub(crate) fn stake(stake: Stake) -> &'static str {
    match stake {
        Stake::Helped => "helped",
        Stake::Tolerates => "tolerates",
        Stake::Objects => "objects",
    }
}

/// What the daemon does for the machine as a whole, and why.
pub(crate) fn mode(status: &Status) -> String {
    let reason = status.mode_reason.as_deref();
    match (status.mode, reason) {
        (Mode::Paused, None) => "paused, nothing is in force".to_owned(),
        (Mode::Paused, Some(reason)) => format!("paused, nothing is in force: {reason}"),
        (Mode::Running, None) => "running".to_owned(),
        (Mode::Running, Some(reason)) => format!("running ({reason})"),
        (Mode::QuietHours | Mode::CreditsLow, reason) => {
            format!("running, but nothing polls ({})", reason.unwrap_or("no reason is given"))
        }
    }
}

/// The retention in force, as a part of a sentence.
pub(crate) fn retention(Retention { method, limit_us }: Retention) -> String {
    limit_us.map_or_else(|| format!("retention {method}"), |us| format!("retention {method}, limit {us} us"))
}

/// The latest decisions, newest first, as sentences.
pub(crate) fn decisions(status: &Status) -> impl Iterator<Item = String> {
    status.decisions.iter().map(|decision| {
        let of = decision.workload.as_ref().map_or_else(String::new, |name| format!(", {name}"));
        format!("{} ago{of}: {}", age(decision.ago_ms), decision.text)
    })
}

pub(crate) fn percent(share: f64) -> String {
    // The sum of nothing is a negative zero.
    format!("{:.1} %", share * 100.0 + 0.0)
}

/// A time in its largest units.
pub(crate) fn age(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min", s / 60),
        3600..86400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86400, s / 3600 % 24),
    }
}

pub(crate) fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
