//! Completions, man pages and the reference of a program, from the one definition of its command line.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::write_bytes;

/// What is made from the definition of a command line.
#[derive(Debug, clap::Subcommand)]
pub enum Generate {
    /// Print a completion script for a shell
    Completions(CompletionArgs),
    /// Print the man pages
    Man(ManArgs),
    /// Print the help of every command as one page in Markdown
    #[command(hide = true)]
    Reference,
}

/// Which shell.
#[derive(Debug, clap::Args)]
pub struct CompletionArgs {
    /// The shell to complete for
    shell: Shell,
}

/// Where the pages go.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Write each page as a file of its own into this directory: NAME.1, NAME-SUBCOMMAND.1 and so on
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl Generate {
    /// Prints or writes it for the program `name` with the command line `C`.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn run<C: CommandFactory>(
        &self,
        name: &'static str,
        version: &'static str,
    ) -> anyhow::Result<ExitCode> {
        let command = visible(&C::command(), name, version);
        match self {
            Self::Completions(args) => completions(command, name, args),
            Self::Man(args) => man(command, name, args),
            Self::Reference => reference(command),
        }
    }
}

/// Prints the completion script.
fn completions(mut command: Command, name: &str, args: &CompletionArgs) -> anyhow::Result<ExitCode> {
    let mut out = Vec::new();
    clap_complete::generate(args.shell, &mut command, name, &mut out);
    write_bytes(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the man page of the program and then of each subcommand, or writes one file for each.
fn man(command: Command, name: &str, args: &ManArgs) -> anyhow::Result<ExitCode> {
    let mut command = command.disable_help_subcommand(true);
    // It gives each subcommand its whole name.
    command.build();
    let source = format!("{name} {}", env!("CARGO_PKG_VERSION"));
    let pages = pages(&command, &source)?;
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

/// Prints the help of the program and of each subcommand, the way `--help` does.
fn reference(command: Command) -> anyhow::Result<ExitCode> {
    let mut command = command.disable_help_subcommand(true).term_width(100);
    command.build();
    let mut page = String::new();
    describe(&mut command, &mut page);
    write_bytes(page.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

fn describe(command: &mut Command, page: &mut String) {
    let name = command.get_bin_name().unwrap_or(command.get_name()).to_owned();
    let help = command.render_long_help();
    // Writing to a string cannot fail.
    let _ = write!(page, "## {name}\n\n```text\n{}\n```\n\n", help.to_string().trim_end());
    let own = command.get_subcommands_mut().filter(|command| describes_itself(command));
    own.for_each(|command| describe(command, page));
}

/// A command that passes `--help` on is described by the program that answers it.
fn describes_itself(command: &Command) -> bool {
    !command.is_hide_set() && !command.is_disable_help_flag_set()
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
fn pages(command: &Command, source: &str) -> io::Result<Vec<Page>> {
    let name = command.get_display_name().unwrap_or(command.get_name());
    // clap_mangen would number each page's program by its own name, and a subcommand has no version.
    let man = Man::new(command.clone()).source(source);
    let mut page = Page { file: format!("{name}.1"), text: Vec::new() };
    man.render(&mut page.text)?;
    let mut pages = vec![page];
    for subcommand in command.get_subcommands().filter(|command| describes_itself(command)) {
        pages.append(&mut self::pages(subcommand, source)?);
    }
    Ok(pages)
}

/// The command without what is hidden: clap's completions would offer that, too.
fn visible(command: &Command, name: &'static str, version: &'static str) -> Command {
    let subcommands = command.get_subcommands().filter(|command| !command.is_hide_set());
    // Subcommands can be added to a command, and not taken away.
    Command::new(name)
        .version(version)
        .about(command.get_about().cloned().unwrap_or_default())
        .after_help(command.get_after_help().cloned().unwrap_or_default())
        .max_term_width(100)
        .subcommand_required(command.is_subcommand_required_set())
        .args_conflicts_with_subcommands(command.is_args_conflicts_with_subcommands_set())
        .args(command.get_arguments())
        .subcommands(subcommands)
}
