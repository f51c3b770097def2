//! `gleaner demo`: the built-in workloads, plain and under `gleaner run`, interleaved.

mod child;
mod report;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_bench::runner::{self, Plan, Problem};
use gleaner_bench::sensors::Sensors;
use gleaner_bench::workload::Workload;
use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_print::{out, outln, say};
use gleaner_proto::journal;

use crate::{NAME, names};
use child::Sample;
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

/// How each workload runs.
const WAYS: [&str; 2] = ["plain", "with Gleaner"];
/// Index of the second one.
const HELPED: usize = 1;

/// Samples of one workload, by round.
struct Samples {
    plain: Vec<Option<Sample>>,
    gleaner: Vec<Option<Sample>>,
    failures: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let state = StateDir::default_place()?;
    let workloads = args.only.map_or_else(|| Workload::DEMO.to_vec(), |only| vec![only]);
    let journal = |workload: &Workload| state.path().join(format!("demo-{workload}.journal"));
    let journals: Vec<PathBuf> = workloads.iter().map(journal).collect();
    let mut sensors = Sensors::new(&Root::system())?;
    runner::watch()?;
    let plan = Plan {
        rows: workloads.iter().map(Workload::to_string).collect(),
        modes: WAYS.map(str::to_owned).to_vec(),
        rounds: args.rounds.into(),
        warmup_rounds: 0,
        seed: 1,
    };
    let outcome = plan.run(
        |cell| {
            let journal = (cell.mode == HELPED).then_some(journals[cell.row].as_path());
            let sample = child::measure(workloads[cell.row], args.seconds, journal, &mut sensors);
            sample.map_err(|error| Problem { message: format!("{error:#}"), ends_run: false })
        },
        |_, _| false,
        |_, _| None,
    );
    if outcome.interrupted {
        say!("{NAME}: interrupted; what had been changed is put back");
        return Ok(ExitCode::from(runner::status()));
    }
    let mut rows = Vec::new();
    for ((workload, measured), journal) in workloads.into_iter().zip(outcome.rows).zip(journals) {
        let did = journal::read(&journal)
            .map_or_else(|error| OneLineSummary::of(error.to_string()), |records| one_line_summary(&records));
        let failures = outcome.failures.iter().filter(|failure| failure.row == workload.name());
        let failures = failures.map(ToString::to_string).collect();
        let mut by_way = measured.samples.into_iter();
        let mut next = || by_way.next().unwrap_or_default();
        rows.push(Row::new(workload, Samples { plain: next(), gleaner: next(), failures }, did, journal));
    }
    let report = Report::new(args.rounds, args.seconds, rows);
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out!("{}", report.text())?;
    }
    Ok(if report.failures().next().is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
