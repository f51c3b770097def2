//! `gleaner-bench run`: measure, print the table, write the files.

use std::ffi::OsString;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use gleaner_bench::experiment::{self, Experiment, Expression, Options, Rounds};
use gleaner_bench::mode::Mode;
use gleaner_bench::workload::Workload;
use gleaner_bench::{runner, scenario, shell};
use gleaner_print::files::distinct;
use gleaner_print::{Usage, out, outln, say, sibling};
use gleaner_proto::result::{BenchResult, Ending, check_place, write_file};

use crate::{NAME, names};
use gleaner_print::times::seconds;

/// Measure a scenario, a built-in workload or a command in several modes
///
/// Each round measures every mode once, in random order. The table shows medians, and ratios to the first
/// mode with their 95 % intervals; raw samples, the environment and the exact commands are in the result file. A
/// scenario's result is written to NAME.json and NAME.html, in the current directory unless -o and --html say otherwise.
#[derive(Debug, clap::Args)]
#[command(override_usage = "gleaner-bench run [OPTIONS] <SCENARIO | --workload NAME | -- COMMAND...>")]
#[command(group = clap::ArgGroup::new("what").required(true).args(["scenario", "workload", "command"]))]
pub(crate) struct Args {
    /// A scenario: a file, or the name of one that `gleaner bench list` shows
    #[arg(value_name = "SCENARIO")]
    scenario: Option<String>,
    /// Measure this built-in workload
    #[arg(long, value_name = "NAME", value_parser = names::workload())]
    pub(crate) workload: Option<Workload>,
    /// A parameter of the workload
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "workload", value_parser = pair)]
    pub(crate) parameters: Vec<(String, String)>,
    /// The modes of a workload or command, separated by commas [default: default,gleaner]
    #[arg(long = "mode", value_name = "MODE", value_delimiter = ',', value_parser = Mode::here,
          conflicts_with = "scenario")]
    pub(crate) modes: Vec<Mode>,
    /// Find metrics in the command's output by named groups, e.g. 'tps: (?<throughput>[0-9.]+)'
    #[arg(long = "metric", value_name = "REGEX", conflicts_with_all = ["scenario", "workload"],
          value_parser = expression)]
    pub(crate) metrics: Vec<Expression>,
    /// How long the workload runs, in seconds [default: 1]
    #[arg(long, value_name = "S", requires = "workload", value_parser = seconds)]
    pub(crate) window: Option<Duration>,
    /// How often each mode is measured [default: the scenario's, or 6]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) rounds: Option<u16>,
    /// Write the result file here
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write the report here, as one self-contained page
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the tables here, as a page of Markdown
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
    /// Print the result file rather than the table; nothing is written unless -o or --html asks for it
    #[arg(long)]
    json: bool,
    /// Print no table and no progress
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
    /// A command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let files = Files::of(args);
    // The result must not overwrite the scenario, nor the page the result.
    distinct(args.scenario.as_deref().map(Path::new).as_slice(), files.all())?;
    let experiment = experiment(args)?;
    // Fail now rather than after the measurement.
    files.all().try_for_each(|file| check_place(file))?;
    runner::watch()?;
    let options = Options {
        gleaner: sibling("gleaner")?,
        bench: crate::output::bench()?,
        repeat_with: command_line(),
        keep_going: false,
        quiet: args.quiet || args.json || !std::io::stderr().is_terminal(),
    };
    let result = experiment::run(&experiment, &options)?;
    // Files first: a closed standard output must not lose the measurement. A full disk must not lose the table either.
    let written = files.write(&result);
    let printed = if args.json {
        outln!("{}", serde_json::to_string_pretty(&result)?)
    } else if args.quiet {
        Ok(())
    } else {
        out!("\n{}", experiment::table(&result))
    };
    written?;
    if !args.quiet {
        files.all().for_each(|file| say!("{NAME}: wrote {}", file.display()));
    }
    printed?;
    Ok(match &result.ending {
        Ending::Complete => ExitCode::SUCCESS,
        Ending::Interrupted => ExitCode::from(runner::status()),
        Ending::Failed { .. } => ExitCode::FAILURE,
    })
}

fn experiment(args: &Args) -> anyhow::Result<Experiment> {
    let Some(name) = &args.scenario else {
        return Ok(crate::ad_hoc::experiment(args).map_err(|error| Usage(error.to_string()))?);
    };
    let mut experiment = scenario::load(name)?;
    experiment.modes.iter().try_for_each(Mode::fits_here)?;
    if let Some(rounds) = args.rounds {
        let rounds = usize::from(rounds);
        experiment.rounds = Rounds { least: rounds, most: rounds, precision: None };
    }
    Ok(experiment)
}

/// Output files; `None` is not written.
struct Files {
    json: Option<PathBuf>,
    html: Option<PathBuf>,
    markdown: Option<PathBuf>,
}

impl Files {
    fn of(args: &Args) -> Self {
        let named =
            args.scenario.as_deref().filter(|_| !args.json).and_then(|name| Path::new(name).file_stem());
        let place = |given: &Option<PathBuf>, extension| {
            given.clone().or_else(|| Some(Path::new(named?).with_extension(extension)))
        };
        Self {
            json: place(&args.output, "json"),
            html: place(&args.html, "html"),
            markdown: args.markdown.clone(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        self.json.iter().chain(&self.html).chain(&self.markdown)
    }

    fn write(&self, result: &BenchResult) -> anyhow::Result<()> {
        if let Some(file) = &self.json {
            result.write(file)?;
        }
        if let Some(file) = &self.html {
            write_file(file, gleaner_report::bench::html(result)?.as_bytes())?;
        }
        if let Some(file) = &self.markdown {
            write_file(file, experiment::markdown(result).as_bytes())?;
        }
        Ok(())
    }
}

/// This process's command line, quoted for a shell.
fn command_line() -> String {
    let arguments = std::env::args_os().skip(1).map(|word| shell::quoted(&word.to_string_lossy()));
    std::iter::once(NAME.to_owned()).chain(arguments).collect::<Vec<_>>().join(" ")
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not KEY=VALUE"))?;
    Ok((key.to_owned(), value.to_owned()))
}

fn expression(text: &str) -> Result<Expression, String> {
    Expression::new(text).map_err(|error| error.to_string())
}
