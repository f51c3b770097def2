//! Fits the grains of the library's programs to the papers' numbers: for each program whose slowdown on dedicated
//! hardware ATC'14 states, the grain that yields it; for dedup and streamcluster, a table to choose from.
//! Takes program names, or fits all.

#![allow(clippy::print_stdout, reason = "a measurement for developers: the end of its output may end it")]

use std::error::Error;
use std::path::Path;

use gleaner_engine::Journal;
use gleaner_sim::library::{SUITES, by_name};
use gleaner_sim::scenario::Scenario;
use gleaner_sim::sweep::{Axis, Sweep};

type Seconds = Result<f64, Box<dyn Error>>;

/// Run time in the papers' scenario, with this grain and work in ns.
fn run(program: &str, system: &str, size: u32, grain: u64, work: u64) -> Seconds {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/atc14-alone.toml");
    let text =
        std::fs::read_to_string(&path)?.replacen("work = \"16s\"", "work = \"16s\"\ngrain = \"1us\"", 1);
    let settings = [
        ("vm.bench.program.0.name", program.to_owned()),
        ("system", system.to_owned()),
        ("size", size.to_string()),
        ("vm.bench.program.0.work", format!("{work}ns")),
        ("vm.bench.program.0.grain", format!("{grain}ns")),
    ];
    let chosen = |(key, value): (&str, String)| Axis {
        key: key.to_owned(),
        values: vec![value.as_str().into()],
        cases: Vec::new(),
    };
    let axes = settings.into_iter().map(chosen).collect();
    let scenario: Scenario = Sweep::parse(&path.display().to_string(), text, axes)?.scenario(0)?;
    let report = scenario.run_with(None, &mut [] as &mut [Journal])?.report;
    let finished = report.vms[0].finished().ok_or("it did not end")?;
    Ok(finished as f64 / 1e9)
}

fn slowdown(program: &str, grain: u64, work: u64) -> Seconds {
    Ok(run(program, "vm", 16, grain, work)? / run(program, "native", 16, grain, work)? - 1.0)
}

/// Bisection on the logarithm of the grain: above a certain grain, a longer one means a smaller slowdown.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between the two bounds")]
fn fit(program: &str, target: f64) -> Result<u64, Box<dyn Error>> {
    let (mut low, mut high) = (80_000_u64, 20_000_000_u64);
    while high > low + low / 50 {
        let middle = ((low as f64) * (high as f64)).sqrt() as u64;
        if slowdown(program, middle, 800_000_000.max(middle * 16 * 40))? > target {
            low = middle;
        } else {
            high = middle;
        }
    }
    Ok(low.midpoint(high))
}

/// dedup's grain, multiplied by its number of pipeline threads, with what Table 1 is fitted by: its times on 16 cores,
/// native and dedicated, relative to one core.
fn dedup() -> Result<(), Box<dyn Error>> {
    println!("dedup: grain | native 16/1 (0.32) | dedicated 16/16 (6.17)");
    for grain in (900_000..=1_500_000).step_by(100_000) {
        let run =
            |cpus: u32, system| run("dedup", system, cpus, grain / u64::from(3 * cpus + 2), 200_000_000);
        let (one, native, dedicated) = (run(1, "native")?, run(16, "native")?, run(16, "vm")?);
        println!("{grain:6} | {:.2} | {:.2}", native / one, dedicated / native);
    }
    Ok(())
}

/// Two grains yield streamcluster's slowdown: with longer grains, first fewer waits end within the spin, and
/// then there are fewer waits at all. The shorter one matches two to four barriers per ms (ASPLOS'13 §3.1.2).
fn streamcluster() -> Result<(), Box<dyn Error>> {
    for grain in (200_000..=600_000).step_by(50_000) {
        let found = slowdown("streamcluster", grain, 3_200_000_000)?;
        println!("streamcluster: grain {grain} ns: {found:.3} (0.13 wanted)");
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let only: Vec<String> = std::env::args().skip(1).collect();
    for name in &only {
        by_name(name).ok_or_else(|| format!("there is no program `{name}`"))?;
    }
    let wanted = |name: &str| only.is_empty() || only.iter().any(|o| o == name);
    for program in SUITES.iter().filter(|p| wanted(p.name)) {
        match (program.name, program.fitted_slowdown) {
            ("dedup", _) => dedup()?,
            ("streamcluster", _) => streamcluster()?,
            (name, Some(target)) => {
                let grain = fit(name, target)?;
                println!(
                    "{name}: grain {grain} ns: {:.3} ({target} wanted)",
                    slowdown(name, grain, 3_200_000_000)?
                );
            }
            _ => {}
        }
    }
    Ok(())
}
