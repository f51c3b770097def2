//! `gleaner attach`: help for a program that is already running.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use gleaner_engine::live::{ActiveSetLever, Parts, ProcessFd, Signals};
use gleaner_engine::{LeaseBook, StateDir, program_of_process};
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::{CgroupSetup, WorkloadGroup};
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::lever::{Target, ThreadKey, Value};
use gleaner_kernel::workload::{Members, Owner, WorkloadSensor};
use gleaner_policy::CpuSet;
use gleaner_print::outln;
use gleaner_proto::journal::Summary;
use nix::unistd::{Pid, geteuid};
use serde_json::json;

use crate::client;
use crate::control::{calibrated, check_fixed, configure, control, member_parts, open_journal, warn};
use crate::options::AttachArgs;
use crate::run::{group_sensor, quotas, restore_leases, restore_stale_leases};
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
        (Some(pid), _) => by_pid(&root, *pid, args.control.dry_run)?,
        (None, Some(path)) => by_group(&root, path)?,
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

struct Attached {
    name: String,
    /// The name under which its memory is stored.
    program: Option<String>,
    place: ActiveSetLever,
    workload: WorkloadSensor,
    allowed: CpuSet,
    process: Option<(Pid, ProcessFd)>,
}

fn by_pid(root: &Root, pid: i32, dry_run: bool) -> anyhow::Result<Attached> {
    let number = pid.unsigned_abs();
    let process = ProcessFd::open(Pid::from_raw(pid))?;
    let command = root.read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let caller = geteuid().as_raw();
    match Owner::of(root, number).with_context(|| format!("process {pid}"))? {
        Owner::Kernel => {
            bail!("process {pid} ({command}) is a kernel thread: it has no user-space threads to help")
        }
        // A dry run only observes, which needs no rights.
        owner @ Owner::User { uid, .. } if !dry_run && !owner.lets(root, caller) => bail!(
            "process {pid} ({command}) belongs to user {uid}, and user {caller} may not place its threads: run as root \
             or as user {uid}, or only watch with --dry-run"
        ),
        Owner::User { .. } => {}
    }
    let key = ThreadKey::of(root, number).with_context(|| format!("process {pid}"))?;
    let Value::Cpus(allowed) = Target::Affinity(key).read(root)? else {
        bail!("process {pid} has no affinity")
    };
    Ok(Attached {
        name: format!("process {pid} ({command})"),
        program: program_of_process(root, number),
        place: ActiveSetLever::Threads(Affinity::new(allowed.clone())),
        workload: WorkloadSensor::new(root, Members::Tree(number))?
            .with_quotas(quotas(root, Pid::from_raw(pid))),
        allowed,
        process: Some((Pid::from_raw(pid), process)),
    })
}

fn by_group(root: &Root, path: &Path) -> anyhow::Result<Attached> {
    let setup = CgroupSetup::detect(root)?;
    let group = WorkloadGroup::existing(root, &setup, path)?;
    let dir = group.cpuset_dir();
    let effective = ["cpuset.cpus.effective", "cpuset.effective_cpus"]
        .iter()
        .find_map(|name| root.read_opt(dir.join(name)).ok().flatten())
        .with_context(|| format!("{} does not show its CPUs", dir.display()))?;
    let allowed: CpuSet = effective.parse().with_context(|| format!("the CPUs of {}", dir.display()))?;
    let sensor = group_sensor(root, &group)?;
    // In cgroup v1 quotas are in another hierarchy, which can only be found through a member process.
    let member = root.read_opt(dir.join("cgroup.procs"))?.and_then(|text| text.lines().next()?.parse().ok());
    let sensor = match member {
        Some(pid) => sensor.with_quotas(quotas(root, Pid::from_raw(pid))),
        None => sensor,
    };
    Ok(Attached {
        name: format!("group {}", dir.display()),
        program: setup.find(root, dir).ok().map(|group| format!("/{}", group.relative.display())),
        workload: sensor,
        place: ActiveSetLever::Group(group),
        allowed,
        process: None,
    })
}
