//! `gleaner sim predict`: runs a recorded program on a simulated machine.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use gleaner_bench::stats::median;
use gleaner_print::{out, outln};
use gleaner_sim::predict::{NamedPolicy, Neighbours, Question, Run, halt};
use gleaner_sim::recorded::{Recorded, Replay};
use gleaner_sim::{COST_TABLES, Costs, parallel};

use super::progress;

/// Version of the JSON form.
const VERSION: u32 = 1;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// What `gleaner record` wrote of the program
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// The VM's vCPUs; without it, as many as were recorded
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    vcpus: Option<u32>,
    /// The host's pCPUs, which all VMs share; without it, as many as the VM has vCPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pcpus: Option<u32>,
    /// VMs of the same size beside it: COUNT:PROGRAM, a program of `gleaner sim list`; as often as needed
    #[arg(long, value_name = "COUNT:PROGRAM")]
    neighbours: Vec<Neighbours>,
    /// What decides in the VM: gleaner, paper (`gleaner run --strategy paper`), or a setting such as halt, haltpoll:200us, consolidate:4; as often as needed
    #[arg(long, value_name = "POLICY", default_value = "gleaner")]
    policy: Vec<NamedPolicy>,
    /// What operations cost: `recorded` (the trace's machine), a table of `gleaner sim list`, or a report of
    /// `gleaner doctor --json`
    #[arg(long, value_name = "TABLE|FILE", default_value = "recorded")]
    costs: String,
    /// How many runs, each with other variations
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// By how much each computation varies around its recorded length: standard deviation over mean
    #[arg(long, value_name = "SHARE", default_value_t = 0.05, value_parser = share)]
    vary: f64,
    /// How often the trace is replayed, one after the other, in each run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    times: u64,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=2.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is not a number from 0 to 2"))
}

/// One policy, with all its runs.
struct Row {
    name: String,
    runs: Vec<Run>,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let recorded = Recorded::read(&args.trace)?;
    let vcpus = match args.vcpus {
        Some(n) => n,
        None => u32::try_from(recorded.header.vcpus.len())?,
    };
    let question = Question {
        vcpus,
        pcpus: args.pcpus.unwrap_or(vcpus),
        neighbours: args.neighbours.clone(),
        costs: costs(&args.costs, &recorded)?,
        replay: Replay { times: args.times, vary: args.vary },
        recorded: &recorded,
    };
    let mut policies = vec![halt()];
    policies.extend(args.policy.iter().filter(|p| **p != halt()).cloned());
    let seeds: Vec<u64> = (1..=args.seeds).collect();
    let bar = progress("runs", policies.len() * seeds.len());
    let answers = question.ask(&policies, &seeds, parallel::cores(), || bar.inc(1))?;
    bar.finish_and_clear();
    let rows: Vec<Row> =
        policies.into_iter().zip(answers).map(|(policy, runs)| Row { name: policy.name, runs }).collect();
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&json(args, &question, &rows))?)?;
    } else {
        out!("{}", text(args, &question, &rows))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn costs(name: &str, recorded: &Recorded) -> anyhow::Result<Costs> {
    if name == "recorded" {
        return Ok(recorded.costs());
    }
    if let Some(table) = Costs::named(name) {
        return Ok(table);
    }
    let read = || {
        format!("there is no file and no cost table `{name}`; tables: recorded, {}", COST_TABLES.join(", "))
    };
    let bytes = fs::read(name).with_context(read)?;
    super::doctor_costs(&bytes).with_context(|| format!("{name} is not a report of `gleaner doctor --json`"))
}

fn json(args: &Args, q: &Question, rows: &[Row]) -> serde_json::Value {
    let row = |r: &Row| serde_json::json!({ "policy": r.name, "runs": r.runs });
    serde_json::json!({
        "version": VERSION,
        "trace": args.trace,
        "workload": q.recorded.header.workload,
        "recorded_s": q.recorded.elapsed as f64 / 1e9,
        "hand_offs": q.recorded.hand_offs,
        "timed_waits": q.recorded.timed,
        "lost_events": q.recorded.lost,
        "vcpus": q.vcpus,
        "pcpus": q.pcpus,
        "neighbours": q.neighbours,
        "costs": q.costs,
        "times": q.replay.times,
        "vary": q.replay.vary,
        "policies": rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn text(args: &Args, q: &Question, rows: &[Row]) -> String {
    let r = q.recorded;
    let recorded_s = r.elapsed as f64 / 1e9;
    let mut out = format!(
        "`{}`: {recorded_s:.3} s recorded on vCPUs {}; {} threads, {} hand-offs, {} other waits\n",
        r.header.workload,
        r.header.vcpus,
        r.threads(),
        r.hand_offs,
        r.timed
    );
    if r.lost > 0 {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(
            out,
            "{} events are missing in the trace: what they ended counts as waits of their length",
            r.lost
        );
    }
    let beside: Vec<String> =
        q.neighbours.iter().map(|n| format!("{} VMs of {}", n.count, n.program)).collect();
    let beside =
        if beside.is_empty() { "alone".to_owned() } else { format!("beside {}", beside.join(" and ")) };
    let wake = q.costs.wake()[2] as f64 / 1e3;
    let _ = writeln!(
        out,
        "Simulated on {} vCPUs and {} pCPUs, {beside}; waking a halted vCPU costs {wake:.1} us ({}); {} runs of {} times \
         the trace, computations vary by {} %\n",
        q.vcpus,
        q.pcpus,
        args.costs,
        args.seeds,
        q.replay.times,
        q.replay.vary * 100.0
    );
    let _ = writeln!(
        out,
        "{:<22}{:>9} {:<17}{:>7} {:<13}{:>9}{:>9}{:>9}{:>8}{:>7}",
        "policy",
        "run time",
        "(spread) s",
        "speed",
        "(spread)",
        "wakes/s",
        "wake us",
        "halts/s",
        "CPU s",
        "steal"
    );
    for row in rows {
        out += &line(row, &rows[0], !q.neighbours.is_empty());
    }
    out
}

/// One policy's line. Speeds are relative to `base` with the same seed.
fn line(row: &Row, base: &Row, neighbours: bool) -> String {
    let of = |value: fn(&Run) -> f64| {
        median(&row.runs.iter().map(value).collect::<Vec<f64>>()).unwrap_or(f64::NAN)
    };
    let seconds: Vec<f64> = row.runs.iter().filter_map(|r| r.seconds).collect();
    let pairs = || row.runs.iter().zip(&base.runs);
    let speeds: Vec<f64> = pairs().filter_map(|(r, b)| Some(b.seconds? / r.seconds?)).collect();
    let spread = |values: &[f64], digits: usize| {
        let (least, most) = values.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(*v), b.max(*v)));
        format!("({least:.digits$}-{most:.digits$})")
    };
    if seconds.len() < row.runs.len() {
        let ends: Vec<&str> =
            row.runs.iter().filter(|r| r.seconds.is_none()).map(|r| r.end.as_str()).collect();
        return format!(
            "{:<22}{} of {} runs did not end: {}\n",
            row.name,
            ends.len(),
            row.runs.len(),
            ends[0]
        );
    }
    let mut out = format!(
        "{:<22}{:>9.3} {:<17}{:>7.2} {:<13}{:>9.0}{:>9.1}{:>9.0}{:>8.2}{:>6.1}%\n",
        row.name,
        median(&seconds).unwrap_or(f64::NAN),
        spread(&seconds, 3),
        median(&speeds).unwrap_or(f64::NAN),
        spread(&speeds, 2),
        of(|r| r.wakes_per_s),
        of(|r| r.wake_us),
        of(|r| r.halts_per_s),
        of(|r| r.cpu_s),
        of(|r| r.steal) * 100.0
    );
    let others: Vec<f64> = pairs().map(|(r, b)| r.neighbours_per_s / b.neighbours_per_s).collect();
    if neighbours {
        let middle = median(&others).unwrap_or(f64::NAN);
        let _ = writeln!(out, "{:<22}the neighbours' speed: {middle:.2} {}", "", spread(&others, 2));
    }
    out
}
