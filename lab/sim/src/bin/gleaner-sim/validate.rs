//! `gleaner sim validate`: runs small programs on this machine under fixed settings, and compares them with its
//! simulation.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gleaner_bench::stats::{Rng, median};
use gleaner_bench::workload::Outcome;
use gleaner_engine::{Journal, StateDir};
use gleaner_kernel::Root;
use gleaner_kernel::stat::StatSensor;
use gleaner_print::{out, outln, sibling};
use gleaner_sim::library::{self, Parameters};
use gleaner_sim::scenario::{Control, Scenario};
use gleaner_sim::{Costs, Fair, HostSpec, Spec, Tuning, VmSpec};
use serde::Serialize;

use gleaner_calibrate::{Confidence, Depth, calibrate, load};
use gleaner_print::times::seconds;

/// A built-in workload, and the simulator's program that stands for it.
struct Program {
    /// Arguments of `gleaner workload`.
    here: &'static [&'static str],
    /// Name in the simulator's library.
    there: &'static str,
    /// Computation between two hand-offs, in ns.
    grain: u64,
    /// Whether `grain` counts rounds of arithmetic, of about a nanosecond each, rather than real time.
    counted: bool,
}

const PROGRAMS: [Program; 5] = [
    Program { here: &["wake", "--kind", "halting"], there: "ping-pong", grain: 15_000, counted: false },
    Program { here: &["request-response"], there: "request-response", grain: 1_000, counted: false },
    Program { here: &["pipeline"], there: "pipeline", grain: 5_000, counted: true },
    Program { here: &["barrier"], there: "barrier", grain: 50_000, counted: true },
    Program { here: &["convoy"], there: "convoy", grain: 50, counted: false },
];

/// A run is repeated if more than this share of the vCPUs' time was stolen.
const MAX_STOLEN_SHARE: f64 = 0.01;
/// Most runs for one sample; the least disturbed one counts.
const MAX_TRIES: usize = 4;

const SETTINGS: [&str; 4] = ["halt", "haltpoll:200us", "yield-ipi-free:200us", "consolidate:1"];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// How often each program runs under each setting
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=100))]
    rounds: u16,
    /// How long each run takes, in seconds
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = seconds)]
    seconds: Duration,
    /// Use the costs in this report of `gleaner doctor --json` rather than those of this boot
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// One program under one setting.
#[derive(Debug, Serialize)]
struct Row {
    program: &'static str,
    setting: &'static str,
    /// Operations per second, by round.
    measured: Vec<f64>,
    /// Stolen share of the vCPUs' time, by round.
    stolen: Vec<f64>,
    /// Runs discarded because too much time was stolen.
    repeated: usize,
    /// Operations per second; `None` if nothing was measured.
    median: Option<f64>,
    simulated: f64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let costs = costs(args, &root)?;
    let cpus = u32::try_from(std::thread::available_parallelism()?.get())?;
    let mut rows = Vec::new();
    for program in &PROGRAMS {
        for setting in SETTINGS {
            let simulated = simulate(program, setting, costs, cpus)?;
            let (measured, stolen) = (Vec::new(), Vec::new());
            let program = program.there;
            rows.push(Row { program, setting, measured, stolen, repeated: 0, median: None, simulated });
        }
    }
    let mut order: Vec<usize> = (0..rows.len()).filter(|i| possible(&rows[*i])).collect();
    let mut rng = Rng::new(1);
    let mut stat = StatSensor::new(&root)?;
    for _ in 0..args.rounds {
        rng.shuffle(&mut order);
        for &index in &order {
            let row = &mut rows[index];
            let program = &PROGRAMS[index / SETTINGS.len()];
            let (rate, stolen, tries) =
                undisturbed(|| clock(&mut stat), || measure(program, row.setting, args.seconds))?;
            row.measured.push(rate);
            row.stolen.push(stolen);
            row.repeated += tries - 1;
        }
    }
    for row in &mut rows {
        row.median = median(&row.measured);
    }
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&serde_json::json!({ "costs": costs, "rows": rows }))?)?;
    } else {
        out!("{}", text(&rows, costs))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `wake` pins its threads to two vCPUs, so it cannot be consolidated.
fn possible(row: &Row) -> bool {
    row.program != "ping-pong" || !row.setting.starts_with("consolidate")
}

fn costs(args: &Args, root: &Root) -> anyhow::Result<Costs> {
    if let Some(path) = &args.costs {
        let text = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        return super::doctor_costs(&text)
            .with_context(|| format!("{} is not a report of `gleaner doctor --json`", path.display()));
    }
    let state = StateDir::default_place()?;
    let known = load(&state, root).filter(|known| known.confidence() == Confidence::Good);
    let cells = known.map_or_else(|| calibrate(&state, root, Depth::Full, &mut |_| ()), Ok)?.cells;
    if cells.is_empty() {
        bail!("no wake-up costs are known here: run `gleaner doctor` as root first");
    }
    Ok(super::measured(&cells))
}

fn simulate(program: &Program, setting: &'static str, costs: Costs, cpus: u32) -> anyhow::Result<f64> {
    let speed = if program.counted { unit_ns() / 1e3 } else { 1.0 };
    let grain = Duration::from_nanos(program.grain).mul_f64(speed).as_nanos().try_into()?;
    let parameters = Parameters { threads: 0, work: 0, grain };
    let made = library::make(program.there, parameters, cpus)
        .with_context(|| format!("the library has no {}", program.there))?;
    let vm = VmSpec { fair: Fair::EEVDF, wake_queue: true, ..VmSpec::new("vm", cpus, costs).running(made) };
    let mut spec = Spec::new(HostSpec { cores: cpus, ..HostSpec::default() }, vec![vm]);
    spec.time_limit = 500_000_000;
    let control = Control::Fixed(setting.parse().map_err(anyhow::Error::msg)?);
    let scenario = Scenario {
        title: String::new(),
        source: None,
        spec,
        control: vec![control],
        tuning: Tuning::default(),
    };
    let outcome = scenario.run(None, &mut Journal::disabled())?;
    let operations = outcome.report.vms[0].tasks[0].totals.operations as f64;
    // A ping-pong operation is a round in the simulator, and a hand-off here.
    let per_round = if program.there == "ping-pong" { 2.0 } else { 1.0 };
    Ok(operations * per_round / (outcome.report.elapsed as f64 / 1e9))
}

/// How long the built-in workloads' "microsecond" (600 rounds of dependent arithmetic) takes here: the minimum of many,
/// since other programs can interfere.
fn unit_ns() -> f64 {
    const ROUNDS: u64 = 60_000;
    let chain = || {
        let start = Instant::now();
        let value = (0..ROUNDS).fold(std::hint::black_box(1_u64), |x, _| {
            (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9).wrapping_add(1)
        });
        std::hint::black_box(value);
        start.elapsed()
    };
    let least = (0..50).map(|_| chain()).min().unwrap_or_default();
    least.as_nanos() as f64 * 600.0 / ROUNDS as f64
}

/// Repeats `measure` until little enough time is stolen. Returns the least disturbed result, its stolen share, and the
/// number of calls. `clock` returns the time of all vCPUs since boot, and how much of it was stolen.
fn undisturbed(
    mut clock: impl FnMut() -> anyhow::Result<(Duration, Duration)>,
    mut measure: impl FnMut() -> anyhow::Result<f64>,
) -> anyhow::Result<(f64, f64, usize)> {
    let mut best = (f64::NAN, f64::INFINITY);
    for tries in 1..=MAX_TRIES {
        let before = clock()?;
        let rate = measure()?;
        let after = clock()?;
        let passed = after.0.saturating_sub(before.0).as_secs_f64();
        let stolen = after.1.saturating_sub(before.1).as_secs_f64() / passed.max(f64::MIN_POSITIVE);
        if stolen < best.1 {
            best = (rate, stolen);
        }
        if stolen <= MAX_STOLEN_SHARE {
            return Ok((best.0, best.1, tries));
        }
    }
    Ok((best.0, best.1, MAX_TRIES))
}

/// The time of all vCPUs since boot, and how much of it was stolen.
fn clock(stat: &mut StatSensor) -> anyhow::Result<(Duration, Duration)> {
    let cpus = stat.read()?.cpus;
    Ok((cpus.iter().map(|(_, t)| t.total()).sum(), cpus.iter().map(|(_, t)| t.steal).sum()))
}

fn measure(program: &Program, setting: &str, time: Duration) -> anyhow::Result<f64> {
    let bench = sibling("gleaner-bench")?;
    let mut command = Command::new(if setting == "halt" { bench.clone() } else { sibling("gleaner")? });
    if setting != "halt" {
        command.args(["run", "--quiet", "--require", "--fixed", setting, "--"]).arg(&bench);
    }
    command.arg("workload").args(program.here).args(["--json", "--seconds", &time.as_secs_f64().to_string()]);
    let output = command.output().with_context(|| format!("cannot run {}", bench.display()))?;
    if !output.status.success() {
        bail!(
            "{} under {setting}: {}: {}",
            program.there,
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    let outcome: Outcome = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("not an outcome: {}", String::from_utf8_lossy(&output.stdout).trim()))?;
    Ok(outcome.throughput())
}

fn text(rows: &[Row], costs: Costs) -> String {
    let [a, b, c, _] = costs.wake().map(|ns| ns as f64 / 1e3);
    let mut out = format!("Wake-up costs: same vCPU {a:.1} us, awake {b:.1} us, halted {c:.1} us\n\n");
    // Writing to a string cannot fail, here and below.
    let _ = writeln!(
        out,
        "{:<18}{:<22}{:>12}{:>12}{:>8}   spread of the measured",
        "program", "setting", "measured/s", "simulated/s", "error"
    );
    let mut errors = Vec::new();
    for row in rows {
        let Some(median) = row.median else { continue };
        let error = row.simulated / median - 1.0;
        errors.push(error.abs());
        let least = row.measured.iter().copied().fold(f64::INFINITY, f64::min);
        let most = row.measured.iter().copied().fold(0.0, f64::max);
        let _ = writeln!(
            out,
            "{:<18}{:<22}{median:>12.0}{:>12.0}{:>7.0}%   {least:.0}..{most:.0}",
            row.program,
            row.setting,
            row.simulated,
            error * 100.0
        );
    }
    let (right, pairs) = ranking(rows);
    let _ = writeln!(
        out,
        "\nstolen by the hypervisor: {:.1} % of the vCPUs' time at most; {} runs were repeated for it",
        100.0 * rows.iter().flat_map(|r| &r.stolen).copied().fold(0.0, f64::max),
        rows.iter().map(|r| r.repeated).sum::<usize>()
    );
    let _ = writeln!(
        out,
        "median relative error {:.0} %; {right} of {pairs} pairs of settings ranked right (pairs that the measurement \
         itself distinguishes)",
        median(&errors).unwrap_or(f64::NAN) * 100.0
    );
    out
}

/// Of a program's pairs of settings whose measured ranges do not overlap, how many the simulation ranks correctly.
fn ranking(rows: &[Row]) -> (usize, usize) {
    let (mut right, mut pairs) = (0, 0);
    for (i, a) in rows.iter().enumerate() {
        for b in rows[i + 1..].iter().filter(|b| b.program == a.program) {
            let below = |x: &Row, y: &Row| {
                !x.measured.is_empty()
                    && !y.measured.is_empty()
                    && x.measured.iter().all(|x| y.measured.iter().all(|y| x < y))
            };
            let Some(a_is_slower) = below(a, b).then_some(true).or(below(b, a).then_some(false)) else {
                continue;
            };
            pairs += 1;
            right += usize::from((a.simulated < b.simulated) == a_is_slower);
        }
    }
    (right, pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_repeated_until_little_is_stolen_and_the_least_disturbed_counts() {
        // Milliseconds stolen in each second of vCPU time, per call.
        let with = |stolen: &[u64]| {
            let (mut at, mut rate) = ((Duration::ZERO, Duration::ZERO), 0.0);
            let mut next = stolen.iter().copied();
            let mut begun = false;
            let clock = || {
                if begun {
                    at.0 += Duration::from_secs(1);
                    at.1 += Duration::from_millis(next.next().unwrap());
                }
                begun = !begun;
                Ok(at)
            };
            undisturbed(clock, || {
                rate += 1.0;
                Ok(rate)
            })
            .unwrap()
        };
        assert_eq!(with(&[0]), (1.0, 0.0, 1));
        assert_eq!(with(&[300, 5]), (2.0, 0.005, 2));
        assert_eq!(with(&[300, 20, 40, 500]), (2.0, 0.02, 4), "none is quiet");
    }
}
