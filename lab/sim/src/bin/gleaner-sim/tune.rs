//! `gleaner sim tune`: searches the policy's parameters, and judges the result on held-out scenarios.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use gleaner_bench::stats::median;
use gleaner_policy::PolicyConfig;
use gleaner_print::{Usage, out, outln};
use gleaner_proto::source_text::{nearest, proposal};
use gleaner_sim::scenario::Scenario;
use gleaner_sim::tune::{Found, Gain, Search, Verdict, Weights, field, judge};
use gleaner_sim::{POLICY_PARAMETERS, PolicyParameter, parallel};

use super::progress;

/// Version of the JSON form.
const VERSION: u32 = 1;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Scenarios to search on, each with a VM whose policy is "gleaner"; without any, 24 that come with the program
    #[arg(requires = "hold_out")]
    scenarios: Vec<PathBuf>,
    /// A scenario to judge on, which the search does not see; as often as needed
    #[arg(long, value_name = "FILE", requires = "scenarios")]
    hold_out: Vec<PathBuf>,
    /// How long the built-in scenarios are simulated, in seconds
    #[arg(long, value_name = "S", default_value = "2", value_parser = gleaner_print::times::seconds, conflicts_with = "scenarios")]
    seconds: Duration,
    /// The most simulations for the search
    #[arg(long, value_name = "N", default_value_t = 1000)]
    budget: usize,
    /// Decides the candidates and everything random in the scenarios
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// With how many seeds the held-out scenarios are judged; the search's own is none of them
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// What CPU time counts: so many per cent of speed are worth one per cent of CPU time per operation
    #[arg(long, value_name = "X", default_value_t = Weights::default().cpu, value_parser = weight)]
    cpu_price: f64,
    /// Search only this parameter; as often as needed; without it, all of them
    #[arg(long, value_name = "KEY", value_parser = parameter)]
    only: Vec<&'static PolicyParameter>,
    /// How many simulations run at a time; without it, as many as there are cores
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

fn weight(text: &str) -> Result<f64, String> {
    let weight = text.parse().ok().filter(|w| (0.0..=10.0).contains(w));
    weight.ok_or_else(|| format!("`{text}` is not a number from 0 to 10"))
}

fn parameter(text: &str) -> Result<&'static PolicyParameter, String> {
    POLICY_PARAMETERS.iter().find(|k| k.key == text).ok_or_else(|| {
        let names: Vec<&str> = POLICY_PARAMETERS.iter().map(|k| k.key).collect();
        let meant = proposal(nearest(text, names.iter().copied()));
        format!("the policy has no `{text}`{meant}; there are {}", names.join(", "))
    })
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let (search, held_out) = if args.scenarios.is_empty() {
        field(u64::try_from(args.seconds.as_nanos())?)
    } else {
        (read(&args.scenarios)?, read(&args.hold_out)?)
    };
    let parameters =
        if args.only.is_empty() { POLICY_PARAMETERS.iter().collect() } else { args.only.clone() };
    let weights = Weights { cpu: args.cpu_price };
    let search = Search { scenarios: &search, parameters, budget: args.budget, seed: args.seed, weights };
    if args.budget < search.least_budget() {
        bail!(Usage(format!(
            "--budget {} is too small: the defaults and one candidate on {} scenarios take {}",
            args.budget,
            search.scenarios.len(),
            search.least_budget()
        )));
    }
    let workers = args.jobs.unwrap_or_else(parallel::cores);
    let bar = progress("simulations", args.budget);
    let found = search.run(workers, || bar.inc(1))?;
    bar.finish_and_clear();
    let seeds: Vec<u64> = (1..=args.seeds).map(|n| args.seed.wrapping_add(n)).collect();
    let bar = progress("held-out runs", held_out.len() * seeds.len());
    let verdicts = judge(&held_out, &found.tuning, &seeds, workers, || bar.inc(1))?;
    bar.finish_and_clear();
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&json(args, &search, &found, &verdicts))?)?;
    } else {
        out!("{}", text(&search, &found, &verdicts, seeds.len()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn read(paths: &[PathBuf]) -> anyhow::Result<Vec<Scenario>> {
    let scenario = |path: &PathBuf| {
        let scenario = Scenario::read(path)?;
        if scenario.governed().next().is_none() {
            bail!("{}: the policy governs no VM: give one policy = \"gleaner\"", path.display());
        }
        Ok(scenario)
    };
    paths.iter().map(scenario).collect()
}

fn json(args: &Args, search: &Search, found: &Found, verdicts: &[Verdict]) -> serde_json::Value {
    let defaults = PolicyConfig::default();
    let mut config = defaults.clone();
    found.tuning.apply(&mut config);
    let parameter = |k: &&PolicyParameter| serde_json::json!({ "key": k.key, "default": k.get(&defaults), "found": k.get(&config) });
    serde_json::json!({
        "version": VERSION,
        "seed": args.seed,
        "runs": found.runs,
        "candidates": found.candidates,
        "searched": search.scenarios.iter().map(|s| &s.title).collect::<Vec<_>>(),
        "cpu_price": search.weights.cpu,
        "score": found.score,
        "parameters": search.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "held_out": verdicts,
    })
}

fn text(search: &Search, found: &Found, verdicts: &[Verdict], seeds: usize) -> String {
    let mut out = format!(
        "Searched {} candidates on {} scenarios, {} simulations. A per cent of CPU time per operation counts as {} of speed.\n",
        found.candidates,
        search.scenarios.len(),
        found.runs,
        search.weights.cpu
    );
    // Writing to a string cannot fail, here and in the next two functions.
    let _ = writeln!(
        out,
        "There, the best is better by {:+.1} %, all counted.\n",
        (found.score.exp() - 1.0) * 100.0
    );
    if found.score <= 0.0 {
        out += "No candidate is better than the defaults.\n";
        return out;
    }
    out += &by_scenario(verdicts, seeds);
    out += &over_all(verdicts, seeds, search.weights);
    let _ = writeln!(out, "# For a scenario file; nothing was changed.\n{}", found.tuning);
    out
}

/// A line for each held-out scenario.
fn by_scenario(verdicts: &[Verdict], seeds: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "On {} held-out scenarios with {seeds} seeds each, found against defaults:\n\n{:<40}{:>8} {:<13}{:>10}{:>9}",
        verdicts.len(),
        "",
        "speed",
        "(spread)",
        "CPU/op",
        "beside"
    );
    for verdict in verdicts {
        let of = |value: fn(&Gain) -> f64| verdict.gains.iter().map(value).collect::<Vec<f64>>();
        let faster = of(|g| g.speed);
        let others = of(|g| g.others);
        let beside = others.iter().any(|o| (o - 1.0).abs() > f64::EPSILON).then(|| median(&others)).flatten();
        let _ = writeln!(
            out,
            "{:<40}{:>8.3} {:<13}{:>10.3}{:>9}",
            verdict.scenario,
            median(&faster).unwrap_or(f64::NAN),
            spread(&faster),
            median(&of(|g| g.cpu)).unwrap_or(f64::NAN),
            beside.map_or_else(|| "-".to_owned(), |b| format!("{b:.3}"))
        );
    }
    out
}

/// The same over all held-out scenarios.
fn over_all(verdicts: &[Verdict], seeds: usize, weights: Weights) -> String {
    let mut out = String::new();
    // One number per seed: the geometric mean over the scenarios.
    let by_seed = |value: &dyn Fn(&Gain) -> f64| -> Vec<f64> {
        let mean = |seed: usize| {
            let logs: Vec<f64> = verdicts.iter().map(|v| value(&v.gains[seed])).collect();
            (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp()
        };
        (0..seeds).map(mean).collect()
    };
    for (what, values) in [
        ("all: speed", by_seed(&|g: &Gain| g.speed.ln())),
        ("all: CPU time per operation", by_seed(&|g: &Gain| g.cpu.ln())),
        ("all: everything counted", by_seed(&|g: &Gain| g.score(weights))),
    ] {
        let _ = writeln!(out, "{what:<40}{:>8.3} {}", median(&values).unwrap_or(f64::NAN), spread(&values));
    }
    let all = || verdicts.iter().flat_map(|v| &v.gains);
    let worse = all().filter(|g| g.speed < 0.97).count();
    let _ = writeln!(out, "{worse} of {} runs more than 3 % slower\n", all().count());
    out
}

fn spread(values: &[f64]) -> String {
    let (least, most) = values.iter().fold((f64::INFINITY, 0.0_f64), |(a, b), v| (a.min(*v), b.max(*v)));
    format!("({least:.3}-{most:.3})")
}
