//! `gleaner-bench`: measures commands, workloads and real servers in several modes, interleaved, and shows what came out.

mod ad_hoc;
mod compare;
mod demo;
mod diagnosis_page;
mod list;
mod load;
mod names;
mod report;
mod run;
mod wake;
mod workload;

use std::ffi::OsString;
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Parser, Subcommand};
use gleaner_bench::client::{self, Address, Pace, Protocol};
use gleaner_bench::experiment::overhead;
use gleaner_bench::runner;
use gleaner_bench::servers::{self, Mode, Options, Report, Window};
use gleaner_bench::signals;
use gleaner_bench::steps;
use gleaner_print::{Generate, Usage, files, out, outln};

/// Before each message.
const NAME: &str = "gleaner-bench";
/// What goes before the arguments to repeat a run from the source tree.
const REPEAT: &str =
    "cargo build --release -p gleaner && cargo run --release -p gleaner-bench --bin gleaner-bench --";

/// Measure commands, workloads and real servers with and without Gleaner
#[derive(Debug, Parser)]
#[command(name = NAME, version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    // The help of these is that of their arguments: a comment here would take its place.
    Run(run::Args),
    List(list::Args),
    Compare(compare::Args),
    Report(report::Args),
    Demo(demo::Args),
    Workload(workload::Args),
    #[command(hide = true)]
    Load(load::Args),
    #[command(hide = true)]
    Wake(wake::Args),
    #[command(hide = true)]
    DiagnosisPage(diagnosis_page::Args),
    /// Measures servers from Debian's packages in every mode and reports ratios with their intervals
    Servers(Servers),
    /// Holds Gleaner's signals of progress against what programs say of themselves
    Signals(Signals),
    /// Sends requests to a running server at a rate of their own and reports their latency
    Open(Open),
    /// Measures how fast the speed follows the load when it steps from 1 to 16 busy clients and back
    Steps(FollowLoad),
    /// Measures how fast a packed workload gets all vCPUs back when its load rises
    ExpandSteps(ExpandSteps),
    /// Measures what the harness costs beyond an empty command
    Overhead(Overhead),
    /// Runs the stepping load once, in this process
    #[command(hide = true)]
    StepLoad(StepLoad),
    /// Measures one row once, in this process
    #[command(hide = true)]
    Cell(Cell),
    /// Runs one row's load in this process and prints its rate each second, until the output is closed
    #[command(hide = true)]
    Rate(Rate),
    #[command(flatten)]
    Generate(Generate),
}

#[derive(Debug, Args)]
struct Servers {
    /// How often each mode is measured per row
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Measured time per cell, in seconds [default: 2; open loops 3]
    #[arg(long, value_parser = seconds)]
    window: Option<Duration>,
    /// Time before it in which the load runs unmeasured, in seconds [default: 1; open loops and unseen programs 2]
    #[arg(long, value_parser = seconds)]
    warmup: Option<Duration>,
    /// Only these rows: names or parts of names, separated by commas
    #[arg(long, default_value = "")]
    rows: String,
    /// Modes: default, gleaner, or what `gleaner run --fixed` takes
    #[arg(long, value_delimiter = ',', default_value = "default,gleaner,haltpoll:200us,qos-poll,pack:1")]
    modes: Vec<Mode>,
    /// Seed of the order of modes
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Keep the rows that the output file has and that are not measured now
    #[arg(long, requires = "output")]
    update: bool,
    #[command(flatten)]
    report: ReportFiles,
    #[command(flatten)]
    binary: Binary,
}

/// Where a report goes.
#[derive(Debug, Args)]
struct ReportFiles {
    /// Write everything that was measured as JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the tables as Markdown; without this they are printed
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

impl ReportFiles {
    /// Refuses the same file for both formats, before anything is measured.
    fn check(&self) -> Result<()> {
        Ok(files::distinct(&[], self.output.iter().chain(&self.markdown))?)
    }

    fn write(&self, report: &impl serde::Serialize, page: &str) -> Result<()> {
        if let Some(file) = &self.output {
            write(file, &serde_json::to_string_pretty(report)?)?;
        }
        match &self.markdown {
            Some(file) => write(file, page),
            None => Ok(out!("{page}")?),
        }
    }
}

/// What is measured.
#[derive(Debug, Args)]
struct Binary {
    /// The gleaner binary [default: the one beside this program]
    #[arg(long, value_name = "PATH")]
    gleaner: Option<PathBuf>,
}

impl Binary {
    /// The binary to use if the benchmark binary is at `bench`.
    fn beside(&self, bench: &Path) -> PathBuf {
        self.gleaner.clone().unwrap_or_else(|| bench.with_file_name("gleaner"))
    }
}

#[derive(Debug, Args)]
struct Signals {
    /// How often each setting is measured per case
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Only these cases: names or parts of names, separated by commas; a wrong one lists them
    #[arg(long, value_name = "NAMES", default_value = "")]
    only: String,
    #[command(flatten)]
    report: ReportFiles,
    #[command(flatten)]
    binary: Binary,
}

#[derive(Debug, Args)]
struct Open {
    /// What the server speaks: redis or memcached
    #[arg(long)]
    server: Protocol,
    /// The UNIX socket on which it listens
    #[arg(long, value_name = "PATH", required_unless_present = "port")]
    socket: Option<PathBuf>,
    /// The TCP port of the loopback interface on which it listens
    #[arg(long, conflicts_with = "socket")]
    port: Option<u16>,
    /// Requests per second on average, over all connections; the gaps are exponential
    #[arg(long, required_unless_present = "closed", value_parser = rate)]
    rate: Option<f64>,
    /// A closed loop instead: each connection asks again as soon as it has its answer
    #[arg(long, conflicts_with = "rate")]
    closed: bool,
    /// Connections; each request goes to a random one
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    connections: u16,
    /// Measured time, in seconds
    #[arg(long, default_value = "5", value_parser = seconds)]
    seconds: Duration,
    /// Time before it in which the load runs unmeasured, in seconds
    #[arg(long, default_value = "0", value_parser = seconds)]
    warmup: Duration,
    /// Seed of the arrivals
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct Cell {
    /// The row
    row: String,
    /// Measured time
    #[arg(long, value_parser = seconds)]
    seconds: Duration,
    /// Time before it
    #[arg(long, default_value = "1", value_parser = seconds)]
    warmup: Duration,
    /// Where prepared data, sockets and logs are
    #[arg(long)]
    state: PathBuf,
    /// Where the measurement is written, as JSON
    #[arg(long)]
    out: PathBuf,
    /// What the server alone is started behind
    #[arg(last = true)]
    wrapper: Vec<OsString>,
}

#[derive(Debug, Args)]
struct Rate {
    /// The row
    row: String,
    /// Where prepared data, sockets and logs are
    #[arg(long)]
    state: PathBuf,
}

#[derive(Debug, Args)]
struct FollowLoad {
    /// How often the load rises, and how often it falls
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    steps: u16,
    /// Write every step and all samples as JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    binary: Binary,
}

#[derive(Debug, Args)]
struct ExpandSteps {
    /// How many rises are wanted that find the workload packed; an eighth more are made
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

#[derive(Debug, Args)]
struct Overhead {
    /// How often the command runs each way
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(1..))]
    pairs: u16,
    /// Write the numbers as JSON
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct StepLoad {
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

fn main() -> ExitCode {
    let done = match gleaner_print::parse::<Cli>(NAME).command {
        Command::Run(args) => run::run(&args),
        Command::List(args) => list::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Workload(args) => workload::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Wake(args) => wake::run(&args),
        Command::DiagnosisPage(args) => diagnosis_page::run(&args),
        Command::Generate(what) => what.run::<Cli>(NAME, env!("CARGO_PKG_VERSION")),
        Command::Servers(args) => run_servers(&args),
        Command::Signals(args) => run_signals(&args),
        Command::Open(args) => run_open(&args),
        Command::Steps(args) => run_steps(&args),
        Command::ExpandSteps(args) => run_expand_steps(&args),
        Command::Overhead(args) => run_overhead(&args),
        Command::StepLoad(args) => run_step_load(&args),
        Command::Cell(args) => run_cell(&args),
        Command::Rate(args) => run_rate(&args),
    };
    done.unwrap_or_else(|error| gleaner_print::failure(NAME, error.as_ref()))
}

fn run_servers(args: &Servers) -> Result<ExitCode> {
    args.report.check()?;
    let rows = servers::find(&args.rows).map_err(|error| Usage(error.to_string()))?;
    let earlier = args.report.output.as_deref().filter(|_| args.update).map(read_report).transpose()?;
    if let Some(earlier) = &earlier {
        earlier.fits(&args.modes)?;
    }
    runner::watch()?;
    let bench = std::env::current_exe().context("cannot find this program")?;
    let gleaner = args.binary.beside(&bench);
    let mut report = servers::run(&Options {
        rows,
        modes: args.modes.clone(),
        rounds: args.rounds.into(),
        warmup: args.warmup,
        length: args.window,
        seed: args.seed,
        gleaner,
        bench,
        repeat_with: repeat_with(),
    })?;
    if let Some(earlier) = earlier {
        report.keep_rows_of(earlier);
    }
    args.report.write(&report, &report.markdown())?;
    Ok(status(!report.failures.is_empty(), report.interrupted))
}

fn read_report(file: &Path) -> Result<Report> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a report of this version", file.display()))
}

fn run_signals(args: &Signals) -> Result<ExitCode> {
    args.report.check()?;
    let cases = signals::find(&args.only).map_err(|error| Usage(error.to_string()))?;
    runner::watch()?;
    let bench = std::env::current_exe().context("cannot find this program")?;
    let gleaner = args.binary.beside(&bench);
    let report = signals::run(&signals::Options {
        cases,
        rounds: args.rounds.into(),
        gleaner,
        bench,
        repeat_with: repeat_with(),
    })?;
    args.report.write(&report, &report.markdown())?;
    Ok(status(!report.failures.is_empty(), report.interrupted))
}

/// The command line that repeats this run.
fn repeat_with() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    format!("{REPEAT} {}", words.join(" "))
}

fn status(failed: bool, interrupted: bool) -> ExitCode {
    match (failed, interrupted) {
        (true, _) => ExitCode::FAILURE,
        (false, true) => ExitCode::from(runner::status()),
        (false, false) => ExitCode::SUCCESS,
    }
}

fn run_open(args: &Open) -> Result<ExitCode> {
    runner::watch()?;
    let options = client::Options {
        protocol: args.server,
        address: match (&args.socket, args.port) {
            (Some(path), _) => Address::Unix(path.clone()),
            (None, port) => Address::Port(port.context("neither --socket nor --port")?),
        },
        pace: args.rate.map_or(Pace::Closed, |rate| Pace::Poisson { rate }),
        connections: args.connections.into(),
        warmup: args.warmup,
        window: args.seconds,
        seed: args.seed,
        patience: client::PATIENCE,
    };
    let outcome = client::run(&options)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&outcome)?)?;
    } else {
        out!("{outcome}")?;
    }
    outcome.check(&options)?;
    Ok(ExitCode::SUCCESS)
}

fn run_cell(args: &Cell) -> Result<ExitCode> {
    runner::watch()?;
    let window = Window { warmup: args.warmup, length: args.seconds };
    let measured = servers::measure(&one_row(&args.row)?, &args.state, window, &args.wrapper)?;
    write(&args.out, &serde_json::to_string(&measured)?)?;
    Ok(ExitCode::SUCCESS)
}

fn run_rate(args: &Rate) -> Result<ExitCode> {
    runner::watch()?;
    let print = |rate: f64| {
        let told = outln!("{rate}");
        if told.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    };
    servers::watch(&one_row(&args.row)?, &args.state, print)?;
    Ok(ExitCode::SUCCESS)
}

fn one_row(name: &str) -> Result<servers::Row> {
    let mut rows = servers::find(name)?;
    anyhow::ensure!(rows.len() == 1, "`{name}` is not one row");
    Ok(rows.remove(0))
}

fn run_steps(args: &FollowLoad) -> Result<ExitCode> {
    let bench = std::env::current_exe().context("cannot find this program")?;
    let gleaner = args.binary.beside(&bench);
    let report = steps::run(&steps::Options { steps: args.steps, gleaner, bench })?;
    if let Some(file) = &args.output {
        write(file, &serde_json::to_string(&report)?)?;
    }
    out!("{report}")?;
    Ok(ExitCode::SUCCESS)
}

fn run_expand_steps(args: &ExpandSteps) -> Result<ExitCode> {
    let bench = std::env::current_exe().context("cannot find this program")?;
    let gleaner = args.binary.beside(&bench);
    let options = steps::Options { steps: args.steps, gleaner, bench };
    let report = steps::run_expand(&options, !args.no_bpf, !args.no_retain)?;
    if let Some(file) = &args.output {
        write(file, &serde_json::to_string(&report)?)?;
    }
    out!("{report}")?;
    Ok(if report.is_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_overhead(args: &Overhead) -> Result<ExitCode> {
    runner::watch()?;
    let bench = std::env::current_exe().context("cannot find this program")?;
    let overhead = overhead::measure(&bench.with_file_name("gleaner"), args.pairs)?;
    if let Some(file) = &args.output {
        write(file, &serde_json::to_string_pretty(&overhead)?)?;
    }
    out!("{overhead}")?;
    Ok(if overhead.is_kept() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn run_step_load(args: &StepLoad) -> Result<ExitCode> {
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

fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

/// Parses a time in seconds, at most an hour.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("`{text}` is not a number of seconds"))?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|e| e.to_string())?;
    if time > Duration::from_secs(3600) { Err(String::from("more than an hour")) } else { Ok(time) }
}

/// Parses a rate that a client can sustain while sleeping between requests.
fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| format!("`{text}` is not a number"))?;
    if rate > 0.0 && rate <= 1e6 {
        Ok(rate)
    } else {
        Err(String::from("not between 0 and 1000000 per second"))
    }
}
