//! `gleaner attach`: help for a program that is already running.

use std::process::ExitCode;

use anyhow::bail;
use gleaner_engine::live::{Found, Parts, Signals};
use gleaner_engine::{LeaseBook, StateDir};
use gleaner_kernel::Root;
use gleaner_print::outln;
use gleaner_proto::journal::Summary;
use serde_json::json;

use crate::client;
use crate::control::{calibrated, check_fixed, configure, control, member_parts, open_journal, warn};
use crate::options::AttachArgs;
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
    // Blocked before anything is changed, so that no signal can end this process halfway.
    let signals = Signals::block()?;
    restore_stale_leases(&state, &root)?;
    let choice = calibrated(&state, &root, &args.control);
    let (book, _) = LeaseBook::open(&state, root.clone())?;
    let config = configure(&root, &args.control, &what.allowed, &choice)?;
    let member = member_parts(&args.control, &choice, what.place, what.workload, what.allowed, what.process);
    let parts = Parts { book, member, signals, child: None, warn };
    let name = what.name.clone();
    let summary = open_journal(&args.control, &state)
        .and_then(|journal| {
            let limits = choice.limits.clone();
            control(parts, config, journal, what.program, &args.control, what.name, limits)
        })
        .inspect_err(|_| restore_leases(&state, &root))?;
    report(args, &name, &summary)
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
