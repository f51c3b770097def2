//! `steps` and `expand-steps` measure how soon a change of the load is answered; `step-load` is that load.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use gleaner_bench::steps;
use gleaner_print::{out, outln};

use crate::output::{Binary, bench, write};

/// Measure how fast the speed adapts when the load steps from 1 to 16 busy clients and back
#[derive(Debug, clap::Args)]
pub(crate) struct FollowLoad {
    /// How often the load rises, and how often it falls
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    steps: u16,
    /// Write every step and all samples as JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    binary: Binary,
}

/// Measure how fast a consolidated workload gets all vCPUs back when its load rises
#[derive(Debug, clap::Args)]
pub(crate) struct Expand {
    /// How many rises to find the workload consolidated; an eighth more are made
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..=1000))]
    steps: u16,
    /// Without BPF: runnable threads are counted every 5 ms
    #[arg(long)]
    no_bpf: bool,
    /// Without retention, as where no idle vCPU can be kept from halting: a smaller set is all that can help
    #[arg(long)]
    no_retain: bool,
    /// Write every rise as JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    binary: Binary,
}

/// Run the stepping load once, in this process
#[derive(Debug, clap::Args)]
pub(crate) struct Load {
    /// How often the load rises, and how often it falls
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    steps: u16,
    /// Phases as for expand-steps
    #[arg(long)]
    expand: bool,
    /// Where the recording is written, as JSON; without this it is printed
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub(crate) fn follow_load(args: &FollowLoad) -> Result<ExitCode> {
    let bench = bench()?;
    let gleaner = args.binary.path()?;
    let report = steps::run(&steps::Options { steps: args.steps, gleaner, bench })?;
    if let Some(file) = &args.output {
        write(file, &serde_json::to_string(&report)?)?;
    }
    out!("{report}")?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn expand(args: &Expand) -> Result<ExitCode> {
    let bench = bench()?;
    let gleaner = args.binary.path()?;
    let options = steps::Options { steps: args.steps, gleaner, bench };
    let report = steps::run_expand(&options, !args.no_bpf, !args.no_retain)?;
    if let Some(file) = &args.output {
        write(file, &serde_json::to_string(&report)?)?;
    }
    out!("{report}")?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn load(args: &Load) -> Result<ExitCode> {
    let plan = if args.expand {
        steps::expand_plan(args.steps)
    } else {
        steps::Plan::even(args.steps, steps::PHASE)
    };
    let recording = serde_json::to_string(&steps::run_load(&plan)?)?;
    match &args.out {
        Some(file) => write(file, &recording)?,
        None => outln!("{recording}")?,
    }
    Ok(ExitCode::SUCCESS)
}
