//! `gleaner completions` and `gleaner man`: from the one definition of the command line.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::{Command, CommandFactory as _};
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
    let mut out = Vec::new();
    render(&Cli::command(), "gleaner", &mut out)?;
    io::stdout().write_all(&out)?;
    Ok(ExitCode::SUCCESS)
}

fn render(command: &Command, title: &str, out: &mut Vec<u8>) -> io::Result<()> {
    clap_mangen::Man::new(command.clone()).title(title).render(out)?;
    let mut subcommands = command.get_subcommands().filter(|command| !command.is_hide_set());
    subcommands.try_for_each(|command| render(command, &format!("{title}-{}", command.get_name()), out))
}
