//! `gleaner completions` and `gleaner man`: from the one definition of the command line.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Command, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;
use gleaner_print::write_bytes;

use crate::NAME;
use crate::cli::{Cli, VERSION};

/// Which shell.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell to complete for
    shell: Shell,
}

/// Where the pages go.
#[derive(Debug, clap::Args)]
pub(crate) struct ManArgs {
    /// Write each page as a file of its own into this directory: gleaner.1, gleaner-run.1 and so on
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

/// Prints the completion script.
pub(crate) fn completions(args: &Args) -> anyhow::Result<ExitCode> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut visible(&Cli::command()), NAME, &mut out);
    write_bytes(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the man page of the program and then of each subcommand, or writes one file for each.
pub(crate) fn man(args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = visible(&Cli::command()).disable_help_subcommand(true);
    // It gives each subcommand its whole name.
    command.build();
    let pages = pages(&command)?;
    match &args.output {
        Some(dir) => {
            fs::create_dir_all(dir)
                .with_context(|| format!("cannot make the directory {}", dir.display()))?;
            pages.iter().try_for_each(|page| page.write(dir))?;
        }
        None => write_bytes(&pages.into_iter().flat_map(|page| page.text).collect::<Vec<u8>>())?,
    }
    Ok(ExitCode::SUCCESS)
}

struct Page {
    file: String,
    text: Vec<u8>,
}

impl Page {
    fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let path = dir.join(&self.file);
        fs::write(&path, &self.text).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// The page of `command`, and then those of its subcommands.
fn pages(command: &Command) -> io::Result<Vec<Page>> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    // clap_mangen would number each page's program by its own name, and a subcommand has no version.
    let source = format!("{NAME} {}", env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).source(source);
    let mut page = Page { file: format!("{name}.1"), text: Vec::new() };
    man.render(&mut page.text)?;
    let mut pages = vec![page];
    for subcommand in command.get_subcommands() {
        pages.append(&mut self::pages(subcommand)?);
    }
    Ok(pages)
}

/// The command without what is hidden: clap's completions would offer that, too.
fn visible(command: &Command) -> Command {
    let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set());
    // Subcommands can be added to a command, and not taken away.
    Command::new(NAME)
        .version(VERSION)
        .about(command.get_about().cloned().unwrap_or_default())
        .after_help(command.get_after_help().cloned().unwrap_or_default())
        .max_term_width(100)
        .subcommand_required(true)
        .args(command.get_arguments())
        .subcommands(subcommands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_commands_are_offered_neither_by_completions_nor_in_pages() {
        let whole = Cli::command();
        let hidden: Vec<&str> =
            whole.get_subcommands().filter(|c| c.is_hide_set()).map(Command::get_name).collect();
        assert!(!hidden.is_empty() && whole.get_arguments().all(|a| !a.is_hide_set()));
        let mut seen = visible(&whole);
        seen.build();
        for name in hidden {
            assert!(seen.find_subcommand(name).is_none(), "{name}");
        }
        // None of the others has hidden parts, which `visible` would leave in.
        let nested = seen.get_subcommands().flat_map(Command::get_subcommands);
        assert!(nested.into_iter().all(|c| !c.is_hide_set()));
    }
}
