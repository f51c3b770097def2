//! `gleaner diagnose`: which of the papers' causes costs a program the most, and what to do about it.

mod cause;
mod evidence;
mod exits;
mod notes;
pub(crate) mod observe;
mod page;
mod rank;
mod report;
mod text;
mod timeline;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_print::{out, outln, say, sibling};
use gleaner_proto::result::check_place;
use gleaner_trace::Scope;

use crate::group;
use evidence::{Costs, Evidence};
use exits::Recorded;
use report::{Report, VERSION};

/// Say what a program loses to virtualisation, by cause
///
/// The kernel's events are counted while the program runs: who wakes whom and how long that takes, interrupts, TLB
/// shootdowns, spinning, waits. Each cause is reported with its rate, the time that it costs per second (an estimate: a
/// guest cannot see what the hypervisor does), the threads behind it, and what to do. Needs root and a kernel with BTF.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long to observe; a command that runs longer is then ended. Without it: 5 s, or to the command's end
    #[arg(long, value_name = "S", value_parser = gleaner_print::times::seconds)]
    seconds: Option<Duration>,
    /// Print the report as JSON, with everything that was counted
    #[arg(long)]
    json: bool,
    /// Write the report as a self-contained page, too: with wake-ups between threads, histograms and a timeline of the vCPUs
    #[arg(short, long, value_name = "FILE.html")]
    output: Option<PathBuf>,
    /// What exits cost by the host's record of this machine, by `gleaner-host diagnose --json`, in place of assumptions
    #[arg(long, value_name = "HOST.json")]
    host: Option<PathBuf>,
    /// This machine in that record: its name or the VMM's process; without it, the only one
    #[arg(long, value_name = "NAME", requires = "host")]
    vm: Option<String>,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Target {
    /// This process and its descendants
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,
    /// Every process in this control group: its directory, or its path as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<PathBuf>,
    /// Everything that runs here
    #[arg(long)]
    system: bool,
    /// A command to run, and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Target {
    pub(crate) fn scope(&self) -> anyhow::Result<Scope> {
        Ok(match (self.pid, &self.cgroup, self.system) {
            (Some(pid), ..) => Scope::Tree(pid),
            (_, Some(name), _) => Scope::Cgroup(group::directory(name)?),
            (.., true) => Scope::System,
            (None, None, false) => Scope::Children,
        })
    }

    /// The command to run; empty for something that already runs.
    pub(crate) fn command(&self) -> &[OsString] {
        &self.command
    }

    pub(crate) fn name(&self) -> String {
        match (self.pid, &self.cgroup, self.system) {
            (Some(pid), ..) => format!("process {pid}"),
            (_, Some(path), _) => format!("group {}", path.display()),
            (.., true) => "the whole machine".to_owned(),
            (None, None, false) => {
                self.command.iter().map(|s| s.to_string_lossy()).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    args.output.iter().try_for_each(|file| check_place(file))?;
    let recorded = args.host.as_ref().map(|file| Recorded::read(file, args.vm.as_deref())).transpose()?;
    let page_program = args.output.as_ref().map(|_| sibling(page::PAGE_PROGRAM)).transpose()?;
    // Before the observation, which would otherwise see the calibration.
    let costs = Costs::known(&StateDir::default_place()?, &Root::system()).with(recorded.as_ref());
    let observed = observe::observe(&args.target.scope()?, args.target.command(), args.seconds)?;
    let evidence = Evidence {
        snapshot: &observed.snapshot,
        costs,
        recorded: recorded.as_ref(),
        stolen: observed.stolen,
        vcpus: observed.snapshot.vcpus.len(),
    };
    let report = Report {
        version: VERSION,
        target: args.target.name(),
        vanished: observed.vanished,
        verdict: rank::verdict(&evidence),
        causes: rank::causes(&evidence),
        costs: evidence.costs,
        recorded: recorded.clone(),
        stolen: evidence.stolen,
        timeline: observed.timeline,
        counted: observed.snapshot.clone(),
    };
    let printed = if args.json {
        outln!("{}", serde_json::to_string_pretty(&report)?)
    } else {
        out!("{}", text::text(&report))
    };
    // A closed output is no reason to lose the page, nor the other way round.
    if let (Some(file), Some(page_program)) = (&args.output, &page_program) {
        page::write(&report, file, page_program)?;
        say!("gleaner: wrote {}", file.display());
    }
    printed?;
    Ok(observed.exit)
}
