//! `gleanerd`: keeps idle vCPUs ready for the services of a virtual machine.

mod config;
mod credits;
mod daemon;
mod engaged;
mod facts;
mod heap;
mod log;
mod lookout;
mod notify;
mod paths;
mod paused;
mod polling;
mod restore;
mod tuned;

use std::net::TcpListener;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use gleaner_engine::StateDir;
use gleaner_print::config::ConfigArgs;
use tracing_subscriber::filter::LevelFilter;

use crate::daemon::Daemon;
use crate::paths::Paths;

/// Includes the commit if built from a checkout.
pub(crate) const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), env!("GLEANER_COMMIT"));
/// Prefix of messages.
const NAME: &str = "gleanerd";

/// Keep idle vCPUs ready for the services of this virtual machine
///
/// Finds the workloads that lose time because waking an idle vCPU takes long, tries what helps them, keeps what proves
/// itself, and undoes everything when it ends. Safe and useful with no configuration; gleaner.toml(5) has the options.
/// Needs root. `gleaner status` shows what it does.
#[derive(Debug, Parser)]
#[command(name = NAME, version = VERSION, max_term_width = 100, after_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    /// Read gleaner.toml and gleaner.toml.d in this directory rather than in /usr/lib/gleaner and /etc/gleaner
    #[arg(long, value_name = "DIR")]
    config: Option<PathBuf>,
    /// Listen for `gleaner status` and other clients on this socket
    #[arg(long, value_name = "PATH", default_value = gleaner_control::SOCKET)]
    socket: PathBuf,
    /// Put back what a killed gleanerd left changed, and exit
    #[arg(long, conflicts_with_all = ["config", "socket"])]
    restore: bool,
    /// Write debugging messages, too
    #[arg(long)]
    debug: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Check or show the configuration
    Config(ConfigArgs),
}

const AFTER_HELP: &str = "\
Exit status: 0 after an orderly end, 1 after a failure or if something could not be put back, 2 usage error.

SIGTERM and SIGINT end it, SIGHUP makes it read its configuration again.";

fn main() -> ExitCode {
    let cli = gleaner_print::parse::<Cli>(NAME);
    if let Some(Command::Config(args)) = cli.command {
        return config::run(&args).unwrap_or_else(|error| gleaner_print::failure(NAME, error.as_ref()));
    }
    log::start(if cli.debug { LevelFilter::DEBUG } else { LevelFilter::INFO });
    let done = if cli.restore { restore::run() } else { run(cli) };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<bool> {
    heap::keep_large_blocks_apart();
    anyhow::ensure!(
        nix::unistd::geteuid().is_root(),
        "only root can keep the vCPUs of a machine ready: start gleanerd as root, or use `gleaner run -- COMMAND` for a \
         program of your own"
    );
    let paths =
        Paths { config: paths::config(cli.config), state: StateDir::default_place()?, socket: cli.socket };
    Daemon::start(paths, metrics_listener())?.run()
}

/// The listener for metrics that systemd passes on (`gleanerd-metrics.socket`), if it does.
fn metrics_listener() -> Option<TcpListener> {
    let fd = sd_notify::listen_fds().ok()?.next()?;
    // SAFETY: systemd passes this descriptor on to this process, and nothing else has taken it: this is called once.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    Some(TcpListener::from(fd))
}
