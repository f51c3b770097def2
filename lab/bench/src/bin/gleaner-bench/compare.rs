//! `gleaner bench compare`: compares two result files.

use std::path::PathBuf;
use std::process::ExitCode;

use gleaner_bench::compare::{compare, compare_nested, compare_with_host};
use gleaner_host_record::Report;
use gleaner_print::{out, outln};
use gleaner_proto::result::BenchResult;

/// Compare two result files: ratios with their intervals, row by row and mode by mode
///
/// Where one was measured on bare metal and the other one in a virtual machine: the overhead of virtualisation in time
/// and in resources, and how the two go together. What the hypervisor uses is part of the resources if the host recorded
/// the virtual machine's run, of one row in one mode (--host): then they are split into guest and hypervisor, and by exit
/// reason.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The baseline
    #[arg(value_name = "A.json")]
    a: PathBuf,
    /// What is compared with it
    #[arg(value_name = "B.json")]
    b: PathBuf,
    /// The host's record of the virtual machine's run, by `gleaner-host diagnose --json`
    #[arg(long, value_name = "HOST.json")]
    host: Option<PathBuf>,
    /// The virtual machine in that record: its name or the VMM's process; without it, the only one
    #[arg(long, value_name = "NAME", requires = "host")]
    vm: Option<String>,
    /// With nested virtualisation: A was measured on the KVM host itself, which is a virtual machine, too; take it for native
    #[arg(long, requires = "host")]
    nested: bool,
    /// Print the comparison as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (a, b) = (BenchResult::read(&args.a)?, BenchResult::read(&args.b)?);
    let compared = match &args.host {
        None => compare(&a, &b)?,
        Some(host) => {
            let compare = if args.nested { compare_nested } else { compare_with_host };
            compare(&a, &b, &Report::read(host)?, args.vm.as_deref())?
        }
    };
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&compared)?)?;
    } else {
        out!("{compared}")?;
    }
    Ok(ExitCode::SUCCESS)
}
