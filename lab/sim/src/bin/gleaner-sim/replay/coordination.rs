//! A record of `scx_gleaner`: whether the simulator decides the same.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use gleaner_print::{out, outln};
use gleaner_sim::scx::{Agreement, replay};

use super::Args;

/// The kinds of decisions, in words.
const KINDS: [(&str, &str); 7] = [
    ("placed", "where a woken vCPU goes"),
    ("kicked", "that a pCPU decides at once"),
    ("preempts", "that a woken task preempts"),
    ("chose", "what a pCPU does next"),
    ("timed", "for how long"),
    ("yielded", "whether a vCPU gives way"),
    ("ran", "who runs"),
];

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if !args.policy.is_empty() {
        bail!("--policy is of the policy in the guest, and this is a record of scx_gleaner: leave it out");
    }
    let agreement = replay(&args.file)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&agreement)?)?;
    } else {
        out!("{}", text(&agreement))?;
    }
    Ok(if agreement.difference.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn text(agreement: &Agreement) -> String {
    let Agreement { kernel, pcpus, vms, tasks, events, decisions, difference, .. } = agreement;
    let elapsed = Duration::from_nanos(agreement.elapsed_ns).as_secs_f64();
    let mut text = format!(
        "scx_gleaner on {pcpus} pCPU{}, Linux {kernel}, for {elapsed:.2} s: {events} events of {tasks} tasks, {vms} VMs\n\n\
         {:<30}{:>10}{:>10}\n",
        if *pcpus == 1 { "" } else { "s" },
        "decisions",
        "recorded",
        "the same"
    );
    for (kind, words) in KINDS {
        if let Some(count) = decisions.get(kind) {
            let _ = writeln!(text, "{words:<30}{:>10}{:>10}", count.recorded, count.same);
        }
    }
    let total = agreement.total();
    let _ = writeln!(text, "{:<30}{:>10}{:>10}\n", "all", total.recorded, total.same);
    match difference {
        None => text.push_str("The simulator decides the same, in the same order.\n"),
        Some(difference) => {
            let (line, on) = (difference.line, difference.on);
            let _ = writeln!(text, "They differ, first at line {line}, on pCPU {on}: {}", difference.text());
        }
    }
    text
}
