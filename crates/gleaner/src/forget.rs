//! `gleaner forget`: lists or removes what earlier runs learned about programs.

use std::collections::BTreeSet;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use gleaner_control::Client;
use gleaner_engine::MemoryDir;
use gleaner_kernel::Root;
use gleaner_policy::{Evidence, KnownLoad, Objective};
use gleaner_print::{outln, say};
use gleaner_proto::memory::{LoadMemory, ProgramMemory};

use gleaner_explain::utc;
use serde_json::json;

use crate::client;

/// Version of the JSON form.
const VERSION: u32 = 1;

/// Forget what earlier runs showed of programs, or list it
///
/// `gleaner run`, `gleaner attach` and gleanerd keep, for each program, which setting paid under which load, and start the
/// next run with it. Without a name all programs are forgotten. While gleanerd runs, root's `gleaner forget` asks it. They
/// are in `/var/lib/gleaner/memory` for root, else in
/// `$XDG_STATE_HOME/gleaner/memory`; `GLEANER_MEMORY` names another directory, and none if it is empty.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only print what is known: program, setting, gain, when
    #[arg(long)]
    list: bool,
    /// Print what is known, or what was forgotten, as JSON
    #[arg(long)]
    json: bool,
    /// Programs: the path or the name of the executable, or of the unit or control group, as listed
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    // The daemon's memory is root's; another one that was named is not.
    let daemon = std::env::var_os("GLEANER_MEMORY").is_none().then(client::find_as_root).flatten();
    let forgotten = match daemon {
        Some(daemon) if !args.list => by_daemon(daemon, &args.names)?,
        _ => {
            let dir = MemoryDir::default_place(&Root::system())
                .context("nothing is kept: GLEANER_MEMORY is empty, or HOME is not set")?;
            let (known, errors) = dir.list()?;
            for error in errors {
                say!("gleaner: {error}");
            }
            let named = select(&known, &args.names)?;
            if args.list {
                list(&named, args.json)?;
                return Ok(ExitCode::SUCCESS);
            }
            if args.names.is_empty() {
                dir.forget_all()?;
            } else {
                named.iter().try_for_each(|program| dir.forget(program))?;
            }
            programs(&named).into_iter().map(str::to_owned).collect()
        }
    };
    if args.json {
        outln!("{}", json!({ "version": VERSION, "forgotten": forgotten }))?;
    } else {
        outln!("forgetting {}", count(forgotten.len() as u64, "program"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Has the daemon forget these programs, or all.
fn by_daemon(mut daemon: Client, names: &[String]) -> anyhow::Result<BTreeSet<String>> {
    if names.is_empty() {
        return Ok(daemon.forget(None)?.into_iter().collect());
    }
    let mut forgotten = BTreeSet::new();
    for name in names {
        forgotten.extend(daemon.forget(Some(name.clone()))?);
    }
    Ok(forgotten)
}

fn list(named: &[&ProgramMemory], json: bool) -> anyhow::Result<()> {
    if json {
        outln!("{}", serde_json::to_string_pretty(&json!({ "version": VERSION, "programs": named }))?)?;
        return Ok(());
    }
    if named.is_empty() {
        outln!("nothing is known")?;
    }
    for line in named.iter().flat_map(|program| lines(program)) {
        outln!("{line}")?;
    }
    Ok(())
}

/// The entries of `known` that match `names`, or all if there are none.
fn select<'a>(known: &'a [ProgramMemory], names: &[String]) -> anyhow::Result<Vec<&'a ProgramMemory>> {
    let all: Vec<_> = known.iter().collect();
    for name in names {
        if known.iter().any(|program| program.is_called(name)) {
            continue;
        }
        let programs = programs(&all);
        if programs.is_empty() {
            bail!("`{name}` has no stored results: nothing is stored");
        }
        bail!("`{name}` has no stored results; stored are: {}", programs.join(", "));
    }
    let meant = |program: &&ProgramMemory| names.is_empty() || names.iter().any(|n| program.is_called(n));
    Ok(all.into_iter().filter(meant).collect())
}

/// Their names, each once: a program can be known on several machines.
fn programs<'a>(known: &[&'a ProgramMemory]) -> Vec<&'a str> {
    let mut names: Vec<_> = known.iter().map(|program| program.program.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn lines(program: &ProgramMemory) -> Vec<String> {
    let machine = &program.machine;
    let runs = count(program.runs.into(), "run");
    let price = Objective::of_price(machine.poll_price)
        .map_or_else(|| machine.poll_price.to_string(), |objective| objective.to_string());
    let (vcpus, kernel, method) = (count(machine.vcpus as u64, "vCPU"), &machine.kernel, machine.method);
    let head = format!("{} ({vcpus}, Linux {kernel}, {method}, {price}): {runs}", program.program);
    std::iter::once(head).chain(program.loads.iter().map(load_line)).collect()
}

/// One line about one kind of load.
fn load_line(load: &LoadMemory) -> String {
    let KnownLoad { load: share, retention, vcpus, refuted, refuted_vcpus } = load.known;
    let when = |at: Option<u64>| at.map_or_else(String::new, |at| format!(", {} UTC", utc(at)));
    let head = format!("  at {:.0} % load of each vCPU: ", share * 100.0);
    let paid = match (retention, vcpus) {
        (Some(known), None) if refuted_vcpus > 0 => format!(
            "{}, {}; fewer vCPUs did not pay in {}",
            known.setting,
            gain(&known.evidence),
            count(refuted_vcpus.into(), "run")
        ),
        (Some(known), None) => format!("{}, {}", known.setting, gain(&known.evidence)),
        (None, Some(known)) => {
            format!("on {}, {}", count(known.active as u64, "vCPU"), gain(&known.evidence))
        }
        (Some(retained), Some(fewer)) => format!(
            "{}, {}; on {} once more {}",
            retained.setting,
            gain(&retained.evidence),
            count(fewer.active as u64, "vCPU"),
            gain(&fewer.evidence)
        ),
        (None, None) => {
            let tried = count(refuted.max(refuted_vcpus).into(), "run");
            return format!("{head}nothing paid in {tried}{}", when(load.refuted_unix_ms));
        }
    };
    format!("{head}{paid}{}", when(load.proven_unix_ms))
}

fn gain(evidence: &Evidence) -> String {
    format!("{} ({:.2} to {:.2})", evidence.signal.times(evidence.ratio), evidence.low, evidence.high)
}

fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}
