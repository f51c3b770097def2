//! `gleaner demo`: the built-in workloads, plain and under `gleaner run`, interleaved.

mod child;
mod report;

use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_bench::runner::{self, interrupted};
use gleaner_bench::stats::Rng;
use gleaner_bench::workload::Workload;
use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_print::{out, outln, say};
use gleaner_proto::journal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{NAME, names};
use child::{Meter, Sample};
use gleaner_explain::{OneLineSummary, one_line_summary};
use gleaner_print::times::seconds;
use report::{Report, Row};

/// Show what Gleaner does for the built-in workloads on this machine
///
/// Each workload runs as it is and under `gleaner run`, in turns. Two of them should come out as they are: in a lock
/// convoy and in plain computation there is nothing to win. Each ratio is that of the two medians, in brackets with the
/// lowest and the highest ratio of a round; `gleaner bench` has intervals and tests. The CPU cost counts everything that
/// the machine's vCPUs did meanwhile, idle polling included, per unit of work. Ctrl-C ends it, after what Gleaner had
/// changed is put back.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How often each workload runs each way
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// How long each run takes, in seconds
    #[arg(long, value_name = "S", default_value = "2.0", value_parser = seconds)]
    seconds: Duration,
    /// Only this workload
    #[arg(long, value_name = "NAME", value_parser = names::demo_workload())]
    only: Option<Workload>,
    /// Print all samples and the ratios as JSON
    #[arg(long)]
    json: bool,
}

/// Samples of one workload, by round.
struct Samples {
    plain: Vec<Option<Sample>>,
    gleaner: Vec<Option<Sample>>,
    failures: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let state = StateDir::default_place()?;
    let workloads = args.only.map_or_else(|| Workload::DEMO.to_vec(), |only| vec![only]);
    let mut meter = Meter::new(&Root::system())?;
    runner::watch()?;
    let bar = progress(workloads.len() as u64 * u64::from(args.rounds) * 2);
    let mut rows = Vec::new();
    for workload in workloads {
        let journal = state.path().join(format!("demo-{workload}.journal"));
        let samples = measure(args, workload, &journal, &mut meter, &bar);
        if interrupted() {
            bar.finish_and_clear();
            say!("{NAME}: interrupted; what had been changed is put back");
            return Ok(ExitCode::from(runner::status()));
        }
        let did = journal::read(&journal)
            .map_or_else(|error| OneLineSummary::of(error.to_string()), |records| one_line_summary(&records));
        rows.push(Row::new(workload, samples, did, journal));
    }
    bar.finish_and_clear();
    let report = Report::new(args.rounds, args.seconds, rows);
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out!("{}", report.text())?;
    }
    report.failures().for_each(|failure| say!("{NAME}: {failure}"));
    Ok(if report.failures().next().is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn measure(args: &Args, workload: Workload, journal: &Path, meter: &mut Meter, bar: &ProgressBar) -> Samples {
    let mut samples = Samples { plain: Vec::new(), gleaner: Vec::new(), failures: Vec::new() };
    let mut rng = Rng::new(workload as u64);
    for round in 1..=args.rounds {
        let mut ways = [false, true];
        // A random order, so that drift within a round does not favour either side.
        rng.shuffle(&mut ways);
        for helped in ways {
            if interrupted() {
                return samples;
            }
            let way = if helped { "with Gleaner" } else { "plain" };
            bar.set_message(format!("{workload}, {way}"));
            let sample = child::measure(workload, args.seconds, helped.then_some(journal), meter);
            let samples_of_way = if helped { &mut samples.gleaner } else { &mut samples.plain };
            match sample {
                Ok(sample) => samples_of_way.push(Some(sample)),
                Err(error) => {
                    samples_of_way.push(None);
                    samples.failures.push(format!("{workload}, {way}, round {round}: {error:#}"));
                }
            }
            bar.inc(1);
        }
    }
    samples
}

/// A progress bar, on a terminal only.
fn progress(runs: u64) -> ProgressBar {
    let visible = std::io::stderr().is_terminal();
    let target = if visible { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(runs), target);
    let style = ProgressStyle::with_template("{pos}/{len} {wide_bar} {msg:30} {eta} left");
    style.map_or(bar.clone(), |style| bar.with_style(style))
}
