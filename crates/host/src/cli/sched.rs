//! `gleaner-host sched`: starts, ends, shows and changes `scx_gleaner`.

mod start;
mod stop;
mod vms;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use clap::{Args, Subcommand};
use gleaner_host::discover::discover;
use gleaner_host::sched::{KernelScheduler, changed_text, status_text};
use gleaner_kernel::Root;
use gleaner_print::{out, outln};
use gleaner_scx_control::{Change, Client, Rules, SOCKET, parse_ns};
use vms::NamedRules;

/// Schedule this host with `scx_gleaner`, or change how it does
///
/// `scx_gleaner` is a `sched_ext` scheduler that is not ready for production yet. It also runs alone, as any
/// `sched_ext` scheduler; `stop`, `status` and `set` work then, too.
#[derive(Debug, Subcommand)]
pub(crate) enum Sched {
    /// Start `scx_gleaner` in the background, and wait until it schedules this host
    Start(StartArgs),
    /// End `scx_gleaner`, and wait until the kernel's own scheduler has taken over
    Stop,
    /// Print which scheduler this host has, and of `scx_gleaner` the rules, the VMs and what it did
    Status(StatusArgs),
    /// Change rules and times of the `scx_gleaner` that runs; it keeps them until it ends
    ///
    /// At least one option is needed; several change together. Placement and slice are options of `start`: they hold until it
    /// ends.
    #[command(override_usage = "gleaner-host sched set [OPTIONS]")]
    Set(SetArgs),
}

#[derive(Debug, Args)]
pub(crate) struct StartArgs {
    /// Options of `scx_gleaner` (`scx_gleaner --help`); `--vm` takes names, too
    #[arg(value_name = "SCX_OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    options: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(crate) struct SetArgs {
    /// What makes a vCPU urgent: off, or some of resched-dp, tlb-co, tlb-wait and resched-co with commas. `resched-co-auto`
    /// is resched-co while experiments show that it helps. For guests that are not Linux: `freebsd`, or their vectors in
    /// hexadecimal, as in `reschedule:f8,shootdown:f4+f5`
    #[arg(long, value_name = "RULES")]
    rules: Option<Rules>,
    /// Rules of one virtual machine, by its name or the VMM's process; `default`: it has none of its own. May be given more
    /// than once
    #[arg(long = "vm", value_name = "NAME=RULES")]
    vms: Vec<NamedRules>,
    /// Time for which the sender of a reschedule interrupt is not preempted
    #[arg(long, value_name = "TIME", value_parser = parse_ns)]
    preemption_delay: Option<u64>,
    /// Time for which an urgent vCPU runs before the next one, and the recipient of a reschedule interrupt is urgent
    #[arg(long, value_name = "TIME", value_parser = parse_ns)]
    urgent_slice: Option<u64>,
    /// Time on a pCPU by which an urgent vCPU may be ahead of others
    #[arg(long, value_name = "TIME", value_parser = parse_ns)]
    allowance: Option<u64>,
}

pub(crate) fn run(what: &Sched) -> anyhow::Result<ExitCode> {
    match what {
        Sched::Start(args) => start::run(&args.options),
        Sched::Stop => stop::run(),
        Sched::Status(args) => status(args),
        Sched::Set(args) => set(args),
    }
}

/// The scheduler that runs.
fn connect() -> anyhow::Result<Option<Client>> {
    Ok(Client::connect(Path::new(SOCKET))?)
}

fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let kernel = KernelScheduler::read(&root);
    let found = match connect()? {
        Some(mut client) => Some((client.pid()?, client.status()?)),
        None => None,
    };
    match found {
        _ if args.json => {
            let (pid, status) = found.unzip();
            outln!("{}", serde_json::json!({"kernel": kernel, "pid": pid, "scheduler": status}))?;
        }
        Some((pid, status)) => out!("{}", status_text(&status, pid, &discover(&root)))?,
        None => outln!("{}", without_answer(&kernel))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn without_answer(kernel: &KernelScheduler) -> String {
    let remedy = if kernel.has_gleaner() {
        format!(", and does not answer at {SOCKET}: end it with `kill` and its process")
    } else {
        String::new()
    };
    format!("{}{remedy}", kernel.text())
}

fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let Some(mut client) = connect()? else {
        let kernel = without_answer(&KernelScheduler::read(&root));
        bail!("no scx_gleaner answers ({kernel}): start it with `{} sched start`", crate::NAME);
    };
    let vms = discover(&root);
    let change = Change {
        rules: args.rules,
        preemption_delay_ns: args.preemption_delay,
        urgent_slice_ns: args.urgent_slice,
        allowance_ns: args.allowance,
        vms: args.vms.iter().map(|one| one.resolve(&vms)).collect::<Result<_, _>>()?,
    };
    out!("{}", changed_text(&client.set(change)?, &vms))?;
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(args: &[&str]) -> Result<Sched, String> {
        match Cli::try_parse_from([&["gleaner-host", "sched"], args].concat()) {
            Ok(Cli { command: Command::Sched(sched) }) => Ok(sched),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn set_wants_something_to_set() {
        let Sched::Set(args) = parse(&[
            "set",
            "--rules",
            "off",
            "--allowance",
            "6ms",
            "--vm",
            "a=b=tlb-co",
            "--vm",
            "db=default",
        ])
        .unwrap() else {
            panic!("another command")
        };
        assert_eq!(
            (args.rules, args.allowance, args.urgent_slice),
            (Some(Rules::OFF), Some(6_000_000), None)
        );
        assert_eq!(args.vms.len(), 2);
        for (wrong, named) in [
            (&["set"][..], "--rules <RULES>"),
            (&["set", "--rules", "all"], "`all` is no rule"),
            (&["set", "--vm", "web-1"], "NAME=RULES"),
            (&["set", "--vm", "web-1=all"], "`all` is no rule"),
            (&["set", "--urgent-slice", "5"], "500us"),
            (&["set", "--slice", "3ms"], "--slice"),
        ] {
            let error = parse(wrong).unwrap_err();
            assert!(error.contains(named), "{wrong:?}: {error}");
        }
    }

    #[test]
    fn start_passes_options_on() {
        let Sched::Start(args) = parse(&["start", "--rules", "off", "--vm", "web-1=tlb-co"]).unwrap() else {
            panic!("another command")
        };
        assert_eq!(args.options, ["--rules", "off", "--vm", "web-1=tlb-co"]);
    }

    #[test]
    fn a_scheduler_without_a_socket_can_still_be_ended() {
        let kernel = |state: &str, ops: &str| KernelScheduler {
            state: Some(state.to_owned()),
            ops: (!ops.is_empty()).then(|| ops.to_owned()),
        };
        assert!(without_answer(&kernel("enabled", "gleaner")).contains("does not answer at /run"));
        assert_eq!(without_answer(&kernel("disabled", "")), "the kernel's own scheduler schedules this host");
    }
}
