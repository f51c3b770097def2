//! `gleaner-sim`: simulated machines, the papers' numbers on them, this machine beside its simulation, and what-if.

mod list;
mod predict;
mod replay;
mod reproduce;
mod run;
mod sweep;
mod validate;

use std::process::ExitCode;
use std::time::Instant;

use gleaner_print::Generate;
use gleaner_sim::Costs;
use indicatif::{ProgressBar, ProgressStyle};

/// Simulate hosts, VMs, programs and policies
#[derive(Debug, clap::Parser)]
#[command(name = NAME, version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// Before each message.
const NAME: &str = "gleaner-sim";

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Run a scenario file
    Run(run::Args),
    /// Name the programs of the library and where their parameters are from
    List,
    /// Compare what the papers state with what is simulated
    Reproduce(reproduce::Args),
    /// Say how a recorded program would run elsewhere: on more vCPUs, beside neighbours, under a policy
    Predict(predict::Args),
    /// Run a scenario with every combination of some values, on all cores
    Sweep(sweep::Args),
    /// Compare this machine with its simulation: five programs under four settings
    Validate(validate::Args),
    // Its help is that of its arguments: a comment here would take its place.
    Replay(replay::Args),
    #[command(flatten)]
    Generate(Generate),
}

fn main() -> ExitCode {
    let done = match &gleaner_print::parse::<Cli>(NAME).command {
        Command::Run(args) => run::run(args),
        Command::List => list::run(),
        Command::Reproduce(args) => reproduce::run(args),
        Command::Predict(args) => predict::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Validate(args) => validate::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Generate(what) => what.run::<Cli>(NAME, env!("CARGO_PKG_VERSION")),
    };
    done.unwrap_or_else(|error| gleaner_print::failure(NAME, error.as_ref()))
}

/// A progress bar for `count` simulations, on a terminal only.
fn progress(what: &'static str, count: usize) -> ProgressBar {
    let bar = ProgressBar::new(count as u64);
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}") {
        bar.set_style(style);
    }
    bar.with_message(what)
}

/// The costs in a report of `gleaner doctor --json`.
fn doctor_costs(json: &[u8]) -> serde_json::Result<Costs> {
    let report: gleaner_proto::doctor::Report = serde_json::from_slice(json)?;
    Ok(measured(&report.cells))
}

/// The costs that a calibration measured.
fn measured(cells: &[gleaner_proto::doctor::Cell]) -> Costs {
    use gleaner_policy::{Method, Placement};

    let halted = cells.iter().filter(|c| (c.method, c.placement) == (Method::Halt, Placement::AcrossHalting));
    let waker_ns = halted.map(|c| c.waker_cpu_ns).max();
    Costs::measured(&gleaner_proto::doctor::costs(cells), waker_ns, clock_ns())
}

/// What reading the clock twice takes here: the minimum of many, since other programs can interfere.
fn clock_ns() -> u64 {
    let twice = || {
        let start = Instant::now();
        std::hint::black_box(Instant::now());
        start.elapsed().as_nanos()
    };
    let least = (0..1_000).map(|_| twice()).min().unwrap_or_default();
    u64::try_from(least).unwrap_or(u64::MAX)
}
