//! `gleaner attach`: help for a program that is already running.

use std::process::ExitCode;

use anyhow::bail;
use gleaner_engine::live::{Found, Parts, Signals};
use gleaner_engine::{LeaseBook, StateDir};
use gleaner_kernel::Root;
use gleaner_policy::CpuSet;
use gleaner_print::outln;
use gleaner_proto::journal::Summary;
use serde_json::json;

use crate::client;
use crate::control::{calibrated, check_fixed, configure, control, member_parts, open_journal, warn};
use crate::options::{AttachArgs, ControlArgs};
use crate::run::{restore_leases, restore_stale_leases};
use gleaner_explain::summary;

/// Version of the JSON form.
const JSON_VERSION: u32 = 1;

pub(crate) fn run(args: &AttachArgs) -> anyhow::Result<ExitCode> {
    if let Some(daemon) = client::find_as_root() {
        return client::attach(daemon, args);
    }
    let root = Root::system();
    let state = StateDir::default_place()?;
    let what = match (&args.target.pid, &args.target.cgroup) {
        // A dry run only observes, which needs no rights.
        (Some(pid), _) => Found::process(&root, pid.unsigned_abs(), args.control.dry_run)?,
        (None, Some(path)) => Found::group(&root, path)?,
        (None, None) => bail!("name a --pid or a --cgroup"),
    };
    check_fixed(&args.control, &what.allowed)?;
    if let Some(why) = &what.own_set {
        check_own_set(&args.control, &what.name, &what.allowed, why)?;
    }
    // Blocked before anything is changed, so that no signal can end this process halfway.
    let signals = Signals::block()?;
    restore_stale_leases(&state, &root)?;
    let choice = calibrated(&state, &root, &args.control);
    let (book, _) = LeaseBook::open(&state, root.clone())?;
    let mut config = configure(&root, &args.control, &what.allowed, &choice)?;
    config.consolidate &= what.own_set.is_none();
    let member = member_parts(&args.control, &choice, what.place, what.workload, what.allowed, what.heads);
    let parts = Parts { book, member, signals, child: None, warn };
    let name = what.name.clone();
    let summary = open_journal(&args.control, &state)
        .and_then(|journal| {
            let own_set = what.own_set.map(|why| format!("consolidation: {why}"));
            let limits = choice.limits.iter().cloned().chain(own_set).collect();
            control(parts, config, journal, what.program, &args.control, what.name, limits)
        })
        .inspect_err(|_| restore_leases(&state, &root))?;
    report(args, &name, &summary)
}

/// Says that a workload is not consolidated.
///
/// # Errors
/// It was asked for.
fn check_own_set(args: &ControlArgs, name: &str, allowed: &CpuSet, why: &str) -> anyhow::Result<()> {
    let fixed = args.fixed.and_then(|fixed| fixed.on(allowed).ok());
    if fixed.is_some_and(|setting| setting.active != *allowed) {
        bail!("the set of vCPUs of {name} stays as it is: {why}; --fixed can only retain here");
    }
    if !args.quiet {
        warn(&format!("the set of vCPUs of {name} stays as it is: {why}"));
    }
    Ok(())
}

/// Prints the account of what was attached to. A failure if that is not as it was.
pub(crate) fn report(args: &AttachArgs, workload: &str, summary: &Summary) -> anyhow::Result<ExitCode> {
    if args.json {
        let account = json!({ "version": JSON_VERSION, "workload": workload, "summary": summary });
        outln!("{}", serde_json::to_string_pretty(&account)?)?;
    } else if !args.control.quiet {
        gleaner_print::write_err(format_args!("{}", summary::text(summary, args.control.dry_run)));
    }
    let failed = !summary.left_behind.is_empty() || summary.not_in_force.is_some();
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
