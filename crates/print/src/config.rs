//! The command line of `gleaner config`. `gleaner` describes it, in its help, man pages and completions, and `gleanerd`,
//! which alone can read its configuration, carries it out.

use std::path::PathBuf;

/// What to do with the daemon's configuration.
#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    /// The action.
    #[command(subcommand)]
    pub action: ConfigAction,
}

/// See [`ConfigArgs`].
#[derive(Debug, clap::Subcommand)]
pub enum ConfigAction {
    /// Name every mistake, with its line and what to write; exits with status 1 if there are any
    Check(ConfigPlace),
    /// Show what holds
    Show(ConfigShow),
    /// Print the JSON schema, by which an editor checks and completes the file
    Schema,
}

/// Which configuration.
#[derive(Debug, clap::Args)]
pub struct ConfigPlace {
    /// Read the gleaner.toml and gleaner.toml.d in this directory, or this file, rather than what is in
    /// /usr/lib/gleaner and /etc/gleaner
    #[arg(long, value_name = "PATH")]
    pub config: Option<PathBuf>,
}

/// How to show it.
#[derive(Debug, clap::Args)]
pub struct ConfigShow {
    /// Where it is.
    #[command(flatten)]
    pub place: ConfigPlace,
    /// Show which file and line each value comes from
    #[arg(long)]
    pub origin: bool,
    /// Print JSON, origins included
    #[arg(long)]
    pub json: bool,
}
