//! `promises` checks the numbers of SPECIFICATION.md and writes the page.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use gleaner_bench::environment;
use gleaner_bench::promises::{Outcomes, Promises, Verdict};
use gleaner_kernel::Root;
use gleaner_print::{Usage, outln, say};

use crate::output::write;

/// Run the checks of lab/bench/promises.toml and update SPECIFICATION.md, in the source tree
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only these promises or checks, separated by commas; the outcomes of the others stay
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// Check nothing: write the page from the outcomes that are there
    #[arg(long, conflicts_with = "only")]
    page: bool,
    /// The promises
    #[arg(long, value_name = "FILE", default_value = "lab/bench/promises.toml")]
    promises: PathBuf,
    /// The latest outcome of each
    #[arg(long, value_name = "FILE", default_value = "docs/promises.json")]
    outcomes: PathBuf,
    /// The page
    #[arg(long, value_name = "FILE", default_value = "SPECIFICATION.md")]
    markdown: PathBuf,
}

pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let text = fs::read_to_string(&args.promises)
        .with_context(|| format!("cannot read {}", args.promises.display()))?;
    let promises = Promises::parse(&text).with_context(|| args.promises.display().to_string())?;
    let mut outcomes = read(&args.outcomes)?;
    let checks = if args.page {
        Vec::new()
    } else {
        promises.checks(&args.only).map_err(|error| Usage(error.to_string()))?
    };
    let mut all_kept = true;
    for check in checks {
        say!("checking: {check}");
        let machine = environment::read(&Root::system())?;
        let output = promises.run(check).context("cannot run bash")?;
        let names = promises.judge(check, &output, &machine.date, &machine.to_string(), &mut outcomes);
        for name in names {
            let outcome = &outcomes[name];
            all_kept &= outcome.verdict == Verdict::Kept;
            let found = outcome.found.as_deref().or(outcome.failure.as_deref());
            outln!("{name}: {} {}", outcome.verdict, found.unwrap_or_default())?;
            if outcome.verdict == Verdict::Unknown {
                say!("{}", end(&output.text));
            }
        }
        if !output.status.success() {
            say!("{check} failed:\n{}", end(&output.text));
        }
        // What was checked is kept, whatever becomes of the next one.
        write(&args.outcomes, &format!("{}\n", serde_json::to_string_pretty(&outcomes)?))?;
    }
    write(&args.markdown, &promises.page(&outcomes))?;
    Ok(if all_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(file: &Path) -> Result<Outcomes> {
    if !file.exists() {
        return Ok(Outcomes::new());
    }
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    serde_json::from_str(&text).with_context(|| format!("{} is not a file of outcomes", file.display()))
}

/// The last lines of an output.
fn end(output: &str) -> String {
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}
