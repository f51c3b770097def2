//! `gleaner-bench list`: what can be measured here.

use std::process::ExitCode;

use gleaner_bench::adapters::ADAPTERS;
use gleaner_bench::mode::Mode;
use gleaner_bench::scenario::{self, BUILT_IN};
use gleaner_bench::workload::Workload;
use gleaner_kernel::Root;
use gleaner_kernel::capability::probe;
use gleaner_print::outln;
use serde::Serialize;

/// List workloads, modes, scenarios, real programs, and what is missing on this machine
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the lists as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct List {
    workloads: Vec<Entry>,
    modes: Vec<Entry>,
    scenarios: Vec<Entry>,
    /// Real programs that are installed here.
    adapters: Vec<Entry>,
    /// Adapters whose program is not installed, each with where to get it.
    missing_adapters: Vec<Entry>,
    /// Levers that some modes need and this machine lacks, each with the reason.
    missing: Vec<Entry>,
}

#[derive(Debug, Serialize)]
struct Entry {
    name: String,
    about: String,
}

impl Entry {
    fn new(name: &impl ToString, about: &impl ToString) -> Self {
        Self { name: name.to_string(), about: about.to_string() }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let list = list()?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&list)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let parts = [
        ("Workloads (gleaner bench run --workload NAME)", &list.workloads),
        ("Modes (--mode NAME, or `modes` in a scenario)", &list.modes),
        ("Scenarios (gleaner bench run NAME)", &list.scenarios),
        ("Real programs (`adapter` in a scenario)", &list.adapters),
        ("Real programs that are not installed", &list.missing_adapters),
        ("Levers that are not available here", &list.missing),
    ];
    for (title, entries) in parts.into_iter().filter(|(_, entries)| !entries.is_empty()) {
        outln!("{title}:")?;
        let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or_default();
        for entry in entries {
            outln!("  {:width$}  {}", entry.name, entry.about)?;
        }
        outln!()?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> anyhow::Result<List> {
    let scenario = |(name, text): &(&str, &str)| {
        let experiment = scenario::parse(text, name)?;
        let after = if experiment.source.is_empty() { "" } else { "; after " };
        anyhow::Ok(Entry::new(name, &format!("{}{after}{}", experiment.title, experiment.source)))
    };
    let (mut adapters, mut missing_adapters) = (Vec::new(), Vec::new());
    for adapter in ADAPTERS {
        match adapter.available() {
            Ok(()) => adapters.push(Entry::new(&adapter.name, &adapter.about)),
            Err(error) => missing_adapters.push(Entry::new(&adapter.name, &error)),
        }
    }
    let levers = probe(&Root::system()).levers;
    let missing = levers.iter().filter_map(|(lever, absence)| Some((lever, absence.as_ref()?)));
    Ok(List {
        workloads: Workload::ALL.iter().map(|workload| Entry::new(workload, &workload.about())).collect(),
        modes: Mode::kinds().into_iter().map(|(name, about)| Entry::new(&name, &about)).collect(),
        scenarios: BUILT_IN.iter().map(scenario).collect::<Result<_, _>>()?,
        adapters,
        missing_adapters,
        missing: missing.map(|(lever, absence)| Entry::new(&lever.name(), absence)).collect(),
    })
}
