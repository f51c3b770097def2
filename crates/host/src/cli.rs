//! The command line.

pub(crate) mod halt_poll;
pub(crate) mod restore;
pub(crate) mod sched;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use gleaner_host::discover::{Vm, discover};
use gleaner_host::screen::screen;
use gleaner_host::timeline::sampled;
use gleaner_host::{HostError, HostSetup, HostTracer, Options, RecordError, Report, intervals, text};
use gleaner_kernel::Root;
use gleaner_print::files::distinct;
use gleaner_print::{Generate, out, outln, say};
use gleaner_trace::NotAvailable;

use crate::page::Page;
use crate::serve;

/// What this KVM host spends on its virtual machines, by cause
///
/// Counts VM exits by reason, and attributes the time of each vCPU: to the guest, to the hypervisor by exit reason, to
/// waiting for a pCPU after wake-ups and after preemption, to being halted. Needs root, a kernel with BTF, and KVM. It only
/// reads, but for `halt-poll set`, `halt-poll auto` and `sched`.
#[derive(Debug, Parser)]
#[command(name = crate::NAME, version = crate::VERSION, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "Exit status: 0 success, 1 failure, 2 usage error.";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the virtual machines of this host
    List(ListArgs),
    /// Say what each virtual machine loses to exits and waiting, by cause, and what to do
    Diagnose(DiagnoseArgs),
    /// Serve metrics for a Prometheus, in the OpenMetrics format, until it is ended
    Serve(serve::Args),
    /// Show the virtual machines and what they lose, live, until Ctrl-C
    Top(TopArgs),
    #[command(subcommand)]
    HaltPoll(halt_poll::HaltPoll),
    #[command(subcommand)]
    Sched(sched::Sched),
    /// Put back what a killed `halt-poll set` or `halt-poll auto` left changed
    Restore(restore::RestoreArgs),
    #[command(flatten)]
    Generate(Generate),
}

#[derive(Debug, Args)]
pub(crate) struct ListArgs {
    /// Only this virtual machine: its name or the VMM's process
    #[arg(long, value_name = "NAME")]
    vm: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiagnoseArgs {
    /// Only this virtual machine: its name or the VMM's process
    #[arg(long, value_name = "NAME")]
    vm: Option<String>,
    /// How long to follow the vCPUs
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// Largest share of the vCPUs' time, in per cent, that following them may take; if it takes more, only a part of the time
    /// is followed, and that is said
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = percent)]
    budget: f64,
    /// Print this record, which --json wrote, rather than follow the vCPUs of this host; needs neither root nor KVM
    #[arg(long, value_name = "HOST.json", conflicts_with_all = ["seconds", "budget"])]
    from: Option<PathBuf>,
    /// Write a self-contained page, too: the times of each VM, histograms of its waits, a timeline of the pCPUs
    #[arg(short = 'o', long, value_name = "FILE.html")]
    html: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print each vCPU and each exit reason, too
    #[arg(long, conflicts_with = "json")]
    all: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Only this virtual machine, until it ends: its name or the VMM's process
    #[arg(long, value_name = "NAME")]
    vm: Option<String>,
    /// Seconds from one screen to the next
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Print one screen of 80 columns and 24 lines, and end
    #[arg(long)]
    once: bool,
    /// Largest share of the vCPUs' time, in per cent, that following them may take
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = percent)]
    budget: f64,
}

pub(crate) fn list(args: &ListArgs) -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let mut vms = discover(&root);
    if vms.is_empty() && (args.vm.is_some() || !args.json) {
        // Says why, where there is no KVM.
        HostSetup::read(&root)?;
    }
    if let Some(name) = &args.vm {
        let only = find(&vms, name)?;
        vms.retain(|vm| vm.pid == only);
    }
    if args.json {
        outln!("{}", serde_json::to_string(&vms)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    if vms.is_empty() {
        say!(
            "{}: no virtual machine runs here{}",
            crate::NAME,
            if is_root() { "" } else { ", as far as this user sees: run as root" }
        );
        return Ok(ExitCode::SUCCESS);
    }
    out!("{}", text::list(&vms))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "a number is expected".to_owned())?;
    if (0.1..=100.0).contains(&value) { Ok(value) } else { Err("0.1 to 100 are allowed".to_owned()) }
}

pub(crate) fn diagnose(args: &DiagnoseArgs) -> anyhow::Result<ExitCode> {
    // Before a measurement that would be in vain.
    let read: Vec<&Path> = args.from.as_deref().into_iter().collect();
    distinct(&read, &args.html)?;
    let page = args.html.as_deref().map(Page::prepare).transpose()?;
    let report = match &args.from {
        Some(file) => saved(file, args.vm.as_deref())?,
        None => followed(args)?,
    };
    let json = serde_json::to_string(&report)?;
    let printed = if args.json { outln!("{json}") } else { out!("{}", text::diagnosis(&report, args.all)) };
    // A closed output is no reason to lose the page, nor the other way round.
    if let Some(page) = page {
        page.write(&json)?;
    }
    printed?;
    Ok(ExitCode::SUCCESS)
}

fn saved(file: &Path, vm: Option<&str>) -> Result<Report, RecordError> {
    let report = Report::read(file)?;
    warn(&report.missing, &report.hidden);
    match vm {
        Some(name) => report.only(name),
        None => Ok(report),
    }
}

fn followed(args: &DiagnoseArgs) -> Result<Report, HostError> {
    let root = Root::system();
    let setup = HostSetup::read(&root)?;
    let only = args.vm.as_deref().map(|name| find(&discover(&root), name)).transpose()?;
    let mut tracer = HostTracer::start(setup.isa, Options { pid: only })?;
    tracer.keep_within(args.budget / 100.0)?;
    warn(tracer.missing(), &setup.hidden());
    let earlier = tracer.read()?;
    let samples = sampled(Duration::from_secs(args.seconds), |time| {
        tracer.wait(time)?;
        tracer.read_pcpus()
    })?;
    let later = tracer.read()?;
    let mut report = Report::between(&setup, &discover(&root), &earlier, &later, only);
    report.missing = tracer.missing().to_vec();
    report.cost = tracer.cost();
    report.timeline = intervals(&samples);
    Ok(report)
}

/// Says what is not in the numbers.
pub(crate) fn warn(missing: &[NotAvailable], hidden: &[String]) {
    for missing in missing {
        say!("{}: {missing}", crate::NAME);
    }
    for hidden in hidden {
        say!("{}: {hidden}", crate::NAME);
    }
}

/// Columns and lines where the output is no terminal.
const SIZE: (usize, usize) = (80, 24);
/// Moves the cursor to the upper left corner; clears from there to the end.
const HOME: &str = "\x1b[H\x1b[J";

pub(crate) fn top(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let setup = HostSetup::read(&root)?;
    let only = args.vm.as_deref().map(|name| find(&discover(&root), name)).transpose()?;
    let mut tracer = HostTracer::start(setup.isa, Options { pid: only })?;
    tracer.keep_within(args.budget / 100.0)?;
    let mut earlier = tracer.read()?;
    loop {
        tracer.wait(Duration::from_secs(args.interval))?;
        if tracer.read_pcpus()?.at_ns == earlier.at_ns {
            // In one pause: this time is shown with the next window.
            continue;
        }
        // What ended before the last screen is of no interest any more.
        tracer.forget_ended();
        let later = tracer.read()?;
        let vms = discover(&root);
        let mut report = Report::between(&setup, &vms, &earlier, &later, only);
        report.missing = tracer.missing().to_vec();
        report.cost = tracer.cost();
        let (width, height) = if args.once { SIZE } else { size() };
        let lines = screen(&report, width, height).join("\n");
        if args.once {
            outln!("{lines}")?;
            return Ok(ExitCode::SUCCESS);
        }
        out!("{HOME}{lines}")?;
        if only.is_some_and(|pid| vms.iter().all(|vm| vm.pid != pid)) {
            outln!()?;
            say!("{}: the virtual machine has ended", crate::NAME);
            return Ok(ExitCode::SUCCESS);
        }
        earlier = later;
    }
}

/// Columns and lines of the terminal.
fn size() -> (usize, usize) {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the call writes a `winsize`, which is there and outlives it.
    let answer = unsafe { libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &raw mut size) };
    if answer == 0 && size.ws_col > 0 && size.ws_row > 0 {
        (size.ws_col.into(), size.ws_row.into())
    } else {
        SIZE
    }
}

fn find(vms: &[Vm], name: &str) -> Result<u32, HostError> {
    let found = vms.iter().find(|vm| vm.name == name || vm.pid.to_string() == name);
    found.map(|vm| vm.pid).ok_or_else(|| HostError::NoVm {
        name: name.to_owned(),
        known: match vms.iter().map(|vm| vm.name.as_str()).collect::<Vec<_>>().join(", ") {
            names if names.is_empty() => "none".to_owned(),
            names => names,
        },
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeSet;

    use clap::CommandFactory as _;
    use gleaner_host::discover::{Vm, Vmm};

    use super::find;

    pub(crate) fn vm(pid: u32, name: &str) -> Vm {
        Vm { pid, name: name.to_owned(), vmm: Vmm::Qemu, vcpus: BTreeSet::new(), threads: Vec::new() }
    }

    #[test]
    fn the_definition_is_consistent() {
        super::Cli::command().debug_assert();
    }

    #[test]
    fn a_vm_is_found_by_its_name_or_process() {
        let vms = [vm(17, "web-1"), vm(18, "db")];
        assert_eq!((find(&vms, "db").unwrap(), find(&vms, "17").unwrap()), (18, 17));
        let said = |vms: &[Vm]| find(vms, "web").unwrap_err().to_string();
        assert_eq!(said(&vms), "no VM is called `web`; there are: web-1, db");
        assert_eq!(said(&[]), "no VM is called `web`; there are: none");
    }
}
