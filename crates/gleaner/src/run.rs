//! `gleaner run -- COMMAND`: a command in its own group under the engine.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};

use anyhow::Context as _;
use gleaner_engine::live::{self, Parts, Place, ProcessFd, Signals, SpawnError};
use gleaner_engine::{LeaseBook, LeaseError, StateDir, Undone};
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::{CgroupSetup, WorkloadGroup};
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::workload::{Members, WorkloadSensor};
use gleaner_policy::CpuSet;
use nix::unistd::Pid;

use crate::choice;
use crate::cli::RunArgs;
use crate::control::{check_fixed, configure, control, warn};
use crate::crowds;
use crate::summary;

/// Gleaner itself failed before the command ran, as with `env`.
const FAILED: u8 = 125;

pub(crate) fn run(args: &RunArgs) -> ExitCode {
    match try_run(args) {
        Ok(code) => code,
        Err(error) => {
            gleaner_print::say!("gleaner: {error:#}");
            let code = error.downcast_ref::<SpawnError>().map_or(FAILED, SpawnError::exit_code);
            ExitCode::from(code)
        }
    }
}

fn try_run(args: &RunArgs) -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let state = StateDir::default_place()?;
    let allowed = Affinity::of_caller().context("cannot read the CPU affinity")?;
    check_fixed(&args.control, &allowed);
    put_back_stale(&state, &root)?;
    let choice = choice::for_run(&state, &root, &args.control);
    let signals = Signals::block()?;
    let (mut book, _) = LeaseBook::open(&state, root.clone())?;
    let mut limits = choice.limits.clone();
    // A dry run makes no group: that would be a change too.
    let group = if args.control.dry_run { None } else { make_group(&root, &mut book, &mut limits) };
    let mut child = match live::spawn(&root, group.as_ref(), &signals, &args.command) {
        Ok(child) => child,
        Err(error) => {
            book.close();
            return Err(error.into());
        }
    };
    let pid = Pid::from_raw(i32::try_from(child.id())?);
    let told = limits.clone();
    let name = args.command.iter().map(|s| s.to_string_lossy()).collect::<Vec<_>>().join(" ");
    let result = Workload { root, pid, group, allowed }.parts(book, signals, args).and_then(|parts| {
        let config = configure(&Root::system(), &args.control, &parts.allowed, &choice)?;
        control(parts, config, &args.control, &state, name, limits)
    });
    if let Err(error) = &result {
        gleaner_print::say!("gleaner: the command runs without help: {error:#}");
        put_back(&state, &Root::system());
        live::stand_by(pid)?;
    }
    // Whatever happened to Gleaner, the command runs to its end.
    let status = child.wait().context("cannot wait for the command")?;
    match result {
        Ok(summary) if !args.control.quiet => {
            gleaner_print::write_err(format_args!("{}", summary::text(&summary)));
            for limit in &told {
                gleaner_print::say!("gleaner: {limit}");
            }
        }
        Ok(summary) => {
            for left in &summary.left_behind {
                gleaner_print::say!("gleaner: could not be put back: {left}");
            }
        }
        Err(_) => {}
    }
    Ok(exit_code(status))
}

/// Puts back what a dead holder left, and says so. The calibration comes after it, and would measure that.
pub(crate) fn put_back_stale(state: &StateDir, root: &Root) -> Result<(), LeaseError> {
    for outcome in gleaner_engine::restore(state, root)? {
        gleaner_print::say!("gleaner: put back what a dead holder left: {}", outcome.detail);
    }
    Ok(())
}

/// Puts back what the lease book of a control that failed to begin still held: it went as with a dead holder.
pub(crate) fn put_back(state: &StateDir, root: &Root) {
    let told = match gleaner_engine::restore(state, root) {
        Ok(outcomes) => {
            outcomes.into_iter().filter(|o| o.undone == Undone::Failed).map(|o| o.detail).collect()
        }
        Err(error) => vec![error.to_string()],
    };
    for left in told {
        gleaner_print::say!("gleaner: could not be put back: {left}");
    }
}

/// The group of the command, made under leases; `None` (and the reason in `limits`) where there can be none.
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
    fn parts(self, book: LeaseBook, signals: Signals, args: &RunArgs) -> anyhow::Result<Parts> {
        let Self { root, pid, group, allowed } = self;
        let (place, workload) = if let Some(group) = group {
            let sensor = group_sensor(&root, &group)?;
            (Place::Group(group), sensor)
        } else {
            let members = Members::Tree(pid.as_raw().unsigned_abs());
            (Place::Threads(Affinity::new(allowed.clone())), WorkloadSensor::new(&root, members)?)
        };
        let process = Some((pid, ProcessFd::open(pid)?));
        let counter = args.control.progress.clone();
        Ok(Parts {
            book,
            place,
            workload,
            counter,
            allowed,
            signals,
            process,
            forward: true,
            crowds: crowds::watch(&args.control),
            warn,
        })
    }
}

/// The counters of a group's processes.
pub(crate) fn group_sensor(root: &Root, group: &WorkloadGroup) -> anyhow::Result<WorkloadSensor> {
    let sensor = WorkloadSensor::new(root, Members::Cgroup(group.cpuset_dir().to_owned()))?;
    Ok(match group.accounting_dir() {
        Some(dir) => sensor.with_accounting(dir)?,
        None => sensor,
    })
}

/// The command's own status; 128+N where signal N ended it.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|n| 128 + n)).unwrap_or(i32::from(FAILED));
    ExitCode::from(u8::try_from(code & 0xff).unwrap_or(FAILED))
}
