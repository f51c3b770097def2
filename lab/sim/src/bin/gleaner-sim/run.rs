//! `gleaner-sim run FILE`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use gleaner_engine::Journal;
use gleaner_print::files::distinct;
use gleaner_print::{out, outln, say};
use gleaner_sim::scenario::{Outcome, Scenario};
use gleaner_sim::{Category, End, Report, VmReport};

use gleaner_explain::summary::{self, action_counts};

/// Most vCPU spans that a timeline holds: about 200 MB of JSON.
const MAX_SPANS: usize = 2_000_000;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The scenario, see docs/sim.md
    file: PathBuf,
    /// Decide everything random by this number instead of the file's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write what every vCPU did when, for <https://ui.perfetto.dev>
    #[arg(long, value_name = "FILE")]
    timeline: Option<PathBuf>,
    /// Write the policy's journal, for `gleaner why`; where it governs several VMs, one journal for each, FILE.VM
    #[arg(long, value_name = "FILE")]
    journal: Option<PathBuf>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut scenario = Scenario::read(&args.file)?;
    scenario.spec.seed = args.seed.unwrap_or(scenario.spec.seed);
    let governed: Vec<&str> = scenario.governed().map(|vm| vm.name.as_str()).collect();
    let journal_of =
        |path: &PathBuf| governed.iter().map(|vm| journal_path(path, vm, governed.len())).collect::<Vec<_>>();
    let paths = args.journal.as_ref().map(journal_of).unwrap_or_default();
    distinct(&[&args.file], paths.iter().chain(&args.timeline))?;
    let mut journals: Vec<Journal> = paths.iter().map(|path| journal(path)).collect::<Result<_, _>>()?;
    let outcome = scenario.run_with(args.timeline.is_some().then_some(MAX_SPANS), &mut journals)?;
    journals.iter_mut().for_each(Journal::flush);
    if let (Some(path), Some(json)) = (&args.timeline, outcome.world.export()) {
        fs::write(path, json).with_context(|| format!("cannot write {}", path.display()))?;
        if outcome.world.trace().is_some_and(gleaner_sim::Trace::is_full) {
            say!("gleaner-sim: the timeline ends early: it holds {MAX_SPANS} spans; shorten the scenario");
        }
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&outcome.report)?)?;
    } else {
        out!("{}", text(&scenario, &outcome))?;
    }
    if let End::Deadlock(_) | End::NoProgress(_) | End::EventLimit = outcome.end {
        anyhow::bail!("{}: {}", args.file.display(), outcome.end);
    }
    Ok(ExitCode::SUCCESS)
}

/// Where to write the journal of one of `count` governed VMs.
fn journal_path(path: &Path, vm: &str, count: usize) -> PathBuf {
    if count == 1 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}", vm.replace('/', "_")));
    name.into()
}

fn journal(path: &Path) -> anyhow::Result<Journal> {
    let warn = |sentence: &str| say!("gleaner-sim: {sentence}");
    Journal::create_blocking(path, warn).with_context(|| format!("cannot write {}", path.display()))
}

fn text(scenario: &Scenario, outcome: &Outcome) -> String {
    let report = &outcome.report;
    let seconds = report.elapsed as f64 / 1e9;
    let mut out = format!("{}\n", scenario.title);
    if let Some(source) = &scenario.source {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "Source: {source}");
    }
    let _ = writeln!(out, "{seconds:.3} s simulated, {} events, digest {}", report.events, report.digest);
    for vm in &report.vms {
        out += &vm_text(vm, report);
    }
    for (vm, summary) in &outcome.accounts {
        let _ = writeln!(out, "\nGleaner in {vm}: {}; {}", action_counts(summary), summary::outcome(summary));
    }
    out
}

fn vm_text(vm: &VmReport, report: &Report) -> String {
    let seconds = report.elapsed as f64 / 1e9;
    let mut out = format!("\n{} ({} vCPUs)\n", vm.name, vm.vcpus.len());
    for task in &vm.tasks {
        let t = &task.totals;
        let end = t.finished.map_or_else(
            || format!("{:.0} operations/s", t.operations as f64 / seconds),
            |at| format!("ended after {:.3} s", at as f64 / 1e9),
        );
        let wake = if t.wakes == 0 { 0.0 } else { t.wake_ns as f64 / t.wakes as f64 / 1e3 };
        let _ = writeln!(
            out,
            "  {:<18}{end}; CPU {:.2} s, {} switches, {} wake-ups of {wake:.1} us",
            task.name,
            t.cpu as f64 / 1e9,
            t.switches,
            t.wakes
        );
    }
    let whole = seconds * 1e9 * vm.vcpus.len() as f64;
    let share = |categories: &[Category]| {
        let sum: u64 = categories.iter().map(|c| vm.time(*c)).sum();
        100.0 * sum as f64 / whole
    };
    let _ = writeln!(
        out,
        "  time: user {:.1} %, kernel {:.1} %, spinning {:.1} % (user {:.1}, locks {:.1}, TLB {:.1}), retained {:.1} %, \
         halted {:.1} %, waking {:.1} %, steal {:.1} %",
        share(&[Category::User]),
        share(&[Category::Kernel, Category::Irq, Category::Switch, Category::IdleEnter]),
        share(&[Category::UserSpin, Category::LockSpin, Category::TlbSpin]),
        share(&[Category::UserSpin]),
        share(&[Category::LockSpin]),
        share(&[Category::TlbSpin]),
        share(&[Category::Poll, Category::Yield]),
        share(&[Category::Halted, Category::HostPoll]),
        share(&[Category::Waking]),
        share(&[Category::Steal]),
    );
    if vm.throttled > 0 {
        let share = 100.0 * vm.throttled as f64 / report.elapsed as f64;
        let _ = writeln!(out, "  quota: used up {share:.1} % of the time");
    }
    let _ = writeln!(
        out,
        "  per second and vCPU: {:.0} halts, {:.0} reschedule and {:.0} TLB interrupts; {} preemptions ({} of lock \
         holders), {} pause-loop exits",
        vm.halts_per_s(report.elapsed),
        vm.count(|c| c.resched_ipis) as f64 / (whole / 1e9),
        vm.count(|c| c.flush_ipis) as f64 / (whole / 1e9),
        vm.count(|c| c.preempted),
        vm.count(|c| c.lock_holder_preempted),
        vm.count(|c| c.pause_exits),
    );
    out
}
