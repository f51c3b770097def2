//! `gleaner run -- COMMAND`: runs a command in its own control group under the engine.
//!
//! The command always runs. If anything fails before it is started, Gleaner becomes the command; after that, a failure
//! only ends the help.

use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};

use anyhow::Context as _;
use gleaner_calibrate::MethodChoice;
use gleaner_engine::live::{
    self, ActiveSetLever, Child, Parts, ProcessFd, Signals, SpawnError, group_sensor, quotas,
};
use gleaner_engine::{Journal, LeaseBook, LeaseError, Outcome, StateDir, UndoResult, program_of_command};
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::{CgroupSetup, WorkloadGroup};
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::workload::{Members, WorkloadSensor};
use gleaner_policy::CpuSet;
use gleaner_print::{Usage, say};
use gleaner_proto::journal::Summary;
use nix::sys::signal::SigSet;
use nix::unistd::Pid;

use crate::client;
use crate::control::{calibrated, check_fixed, configure, control, member_parts, open_journal, warn};
use crate::options::RunArgs;
use gleaner_explain::summary;

/// With `--require`, the status if Gleaner cannot help; as for `env`.
const FAILURE_STATUS: u8 = 125;

pub(crate) fn run(args: &RunArgs) -> ExitCode {
    // Reading the mask cannot fail.
    let mask = SigSet::thread_get_mask().unwrap_or_else(|_| SigSet::empty());
    let done = match client::find_as_root() {
        Some(daemon) => client::run(daemon, args),
        None => start(args).map(|started| started.supervise(args)),
    };
    let error = match done {
        Ok(status) => return status,
        Err(error) => error,
    };
    if error.is::<Usage>() {
        return gleaner_print::failure(crate::NAME, error.as_ref());
    }
    let of_command =
        error.downcast_ref::<SpawnError>().map(SpawnError::exit_code).filter(|code| *code != FAILURE_STATUS);
    if of_command.is_some() || args.require {
        say!("gleaner: {error:#}");
        return ExitCode::from(of_command.unwrap_or(FAILURE_STATUS));
    }
    say!("gleaner: the command runs without Gleaner: {error:#}");
    let error = live::become_command(&mask, &args.command);
    say!("gleaner: {error}");
    ExitCode::from(error.exit_code())
}

/// The running command, and what is needed to control it.
struct Started {
    child: Child,
    workload: Workload,
    book: LeaseBook,
    signals: Signals,
    state: StateDir,
    choice: MethodChoice,
    /// What this machine lacks, as sentences.
    limits: Vec<String>,
}

/// Prepares everything and starts the command. On an error nothing was started, and the machine is as before.
fn start(args: &RunArgs) -> anyhow::Result<Started> {
    let root = Root::system();
    // Blocked before anything is changed, so that no signal can end this process halfway.
    let signals = Signals::block()?;
    let state = StateDir::default_place()?;
    let allowed = Affinity::of_caller().context("cannot read the CPU affinity")?;
    check_fixed(&args.control, &allowed)?;
    live::check(&root)?;
    restore_stale_leases(&state, &root)?;
    let choice = calibrated(&state, &root, &args.control);
    signals.deliver_pending()?;
    let (mut book, _) = LeaseBook::open(&state, root.clone())?;
    let mut limits = choice.limits.clone();
    // A dry run makes no group: that would be a change.
    let group = if args.control.dry_run { None } else { make_group(&root, &mut book, &mut limits) };
    let child = match live::spawn(&root, group.as_ref(), &signals, &args.command) {
        Ok(child) => child,
        Err(error) => {
            report_left_behind(book.close());
            return Err(error.into());
        }
    };
    let pid = Pid::from_raw(child.id().cast_signed());
    let workload = Workload { root, pid, group, allowed };
    Ok(Started { child, workload, book, signals, state, choice, limits })
}

impl Started {
    /// Controls the command as far as possible, and returns its exit status.
    fn supervise(self, args: &RunArgs) -> ExitCode {
        let Self { mut child, workload, book, signals, state, choice, limits } = self;
        let reported = limits.clone();
        let name = args.command.iter().map(|s| s.to_string_lossy()).collect::<Vec<_>>().join(" ");
        let journal = open_journal(&args.control, &state).unwrap_or_else(|error| {
            say!("gleaner: no journal is kept: {error:#}");
            Journal::disabled()
        });
        let result = workload.parts(book, signals, args, &choice).and_then(|parts| {
            let config = configure(&Root::system(), &args.control, &parts.member.allowed, &choice)?;
            let program = args.command.first().and_then(|name| program_of_command(name));
            control(parts, config, journal, program, &args.control, name, limits)
        });
        if let Err(error) = &result {
            say!("gleaner: the command runs on without Gleaner: {error:#}");
            restore_leases(&state, &Root::system());
        }
        let status = live::wait_for_exit(&mut child);
        if let Ok(summary) = result {
            print_summary(&summary, args, &reported);
        }
        exit_status(status)
    }
}

/// The exit status of a command that was waited for.
pub(crate) fn exit_status(status: io::Result<ExitStatus>) -> ExitCode {
    match status {
        Ok(status) => exit_code(status),
        Err(error) => {
            say!("gleaner: cannot wait for the command: {error}");
            ExitCode::from(FAILURE_STATUS)
        }
    }
}

pub(crate) fn print_summary(summary: &Summary, args: &RunArgs, limits: &[String]) {
    if args.control.quiet {
        for left in &summary.left_behind {
            say!("gleaner: could not be put back: {left}");
        }
        return;
    }
    gleaner_print::write_err(format_args!("{}", summary::text(summary, args.control.dry_run)));
    for limit in limits {
        say!("gleaner: {limit}");
    }
}

/// Restores what a dead holder left behind, which calibration would otherwise measure, and reports it.
pub(crate) fn restore_stale_leases(state: &StateDir, root: &Root) -> Result<(), LeaseError> {
    for outcome in gleaner_engine::restore(state, root)? {
        say!("gleaner: restored what a killed Gleaner left: {}", outcome.detail);
    }
    Ok(())
}

/// Restores what is left in the lease book of a control that failed to start, as after a dead holder.
pub(crate) fn restore_leases(state: &StateDir, root: &Root) {
    match gleaner_engine::restore(state, root) {
        Ok(outcomes) => report_left_behind(outcomes),
        Err(error) => say!("gleaner: could not be put back: {error}"),
    }
}

fn report_left_behind(outcomes: Vec<Outcome>) {
    for left in outcomes.into_iter().filter(|o| o.undone == UndoResult::Failed) {
        say!("gleaner: could not be put back: {}", left.detail);
    }
}

/// Makes the command's control group under leases. If that is not possible, the reason is added to `limits`.
fn make_group(root: &Root, book: &mut LeaseBook, limits: &mut Vec<String>) -> Option<WorkloadGroup> {
    let mut plan = || -> anyhow::Result<WorkloadGroup> {
        let setup = CgroupSetup::detect(root)?;
        let group = WorkloadGroup::new(root, &setup, std::process::id())?;
        group.writes().iter().try_for_each(|write| book.set(write))?;
        Ok(group)
    };
    plan()
        .map_err(|e| {
            limits.push(format!("no control group for the command ({e:#}): plain CPU affinity is used"));
        })
        .ok()
}

struct Workload {
    root: Root,
    pid: Pid,
    group: Option<WorkloadGroup>,
    allowed: CpuSet,
}

impl Workload {
    fn parts(
        self,
        book: LeaseBook,
        signals: Signals,
        args: &RunArgs,
        choice: &MethodChoice,
    ) -> anyhow::Result<Parts> {
        let Self { root, pid, group, allowed } = self;
        let number = pid.as_raw().unsigned_abs();
        let (place, workload) = if let Some(group) = group {
            let sensor = group_sensor(&root, &group)?;
            (ActiveSetLever::Group(group), sensor.with_quotas(quotas(&root, number)))
        } else {
            let sensor = WorkloadSensor::new(&root, Members::Tree(number))?;
            let sensor = sensor.with_quotas(quotas(&root, number));
            (ActiveSetLever::Threads(Affinity::new(allowed.clone())), sensor)
        };
        let heads = vec![ProcessFd::open(pid)?];
        let member = member_parts(&args.control, choice, place, workload, allowed, heads);
        Ok(Parts { book, member, signals, child: Some(pid), warn })
    }
}

/// The command's own status; 128+N if signal N ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code =
        status.code().or_else(|| status.signal().map(|n| 128 + n)).unwrap_or(i32::from(FAILURE_STATUS));
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(FAILURE_STATUS))
}
