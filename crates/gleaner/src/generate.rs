//! `gleaner completions` and `gleaner man`: from the one definition of the command line.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;

/// Which shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell to complete for
    shell: Shell,
}

/// Prints the completion script.
pub(crate) fn completions(args: &Args) -> ExitCode {
    clap_complete::generate(args.shell, &mut Cli::command(), "gleaner", &mut io::stdout());
    ExitCode::SUCCESS
}

/// Prints the man page of the program and then of each subcommand, in one.
pub(crate) fn man() -> anyhow::Result<ExitCode> {
    let command = Cli::command();
    let mut out = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut out)?;
    for subcommand in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        let title = format!("gleaner-{}", subcommand.get_name());
        clap_mangen::Man::new(subcommand.clone()).title(title).render(&mut out)?;
    }
    io::stdout().write_all(&out)?;
    Ok(ExitCode::SUCCESS)
}
