//! `gleaner-sim list`.

use std::process::ExitCode;

use gleaner_print::outln;
use gleaner_sim::library::{MICRO, SUITES};

pub(super) fn run() -> anyhow::Result<ExitCode> {
    outln!("Small programs:")?;
    for entry in MICRO {
        outln!("  {:<18}{}\n  {:<18}source: {}", entry.name, entry.about, "", entry.source)?;
    }
    for (suite, title) in [("parsec", "PARSEC 3.0"), ("splash2x", "SPLASH-2x")] {
        outln!("{title}:")?;
        for program in SUITES.iter().filter(|p| p.suite == suite) {
            outln!("  {:<18}{}", program.name, program.source)?;
        }
    }
    outln!("Cost tables: {}", gleaner_sim::COST_TABLES.join(", "))?;
    Ok(ExitCode::SUCCESS)
}
