//! Fits the parameters of the library's programs to the papers' numbers: for each program whose slowdown on
//! dedicated hardware ATC'14 states, the grain that yields it; for dedup, a grid to compare with Table 1.
//! Takes program names, or fits all.

#![allow(clippy::print_stdout, reason = "a measurement for developers: the end of its output may end it")]

use gleaner_sim::library::{Parameters, SUITES, SuiteProgram, by_name};
use gleaner_sim::reproduce::{Side, Trial};

const CPUS: u32 = 16;

fn slowdown(program: &SuiteProgram, grain: u64, work: u64) -> Option<f64> {
    let made = || program.make(Parameters { threads: CPUS, work, grain });
    let native = Trial::alone(program.name, CPUS, Side::Native, work).run_program(made())?;
    let dedicated = Trial::alone(program.name, CPUS, Side::Vm, work).run_program(made())?;
    Some(dedicated.seconds / native.seconds - 1.0)
}

/// Bisection on the logarithm of the grain: above a certain grain, a longer one means a smaller slowdown.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between the two bounds")]
fn fit(program: &SuiteProgram, target: f64) -> u64 {
    let (mut low, mut high) = (80_000_u64, 20_000_000_u64);
    while high > low + low / 50 {
        let middle = ((low as f64) * (high as f64)).sqrt() as u64;
        match slowdown(program, middle, 800_000_000.max(middle * 16 * 40)) {
            Some(found) if found > target => low = middle,
            _ => high = middle,
        }
    }
    low.midpoint(high)
}

/// Prints a grid of dedup's grain, multiplied by its number of pipeline threads, to compare with Table 1: run
/// times on 4 and 16 cores relative to one, and slowdowns.
fn dedup() {
    let Some(program) = by_name("dedup") else { return };
    println!("dedup: grain | native 4/1 16/1 (0.30 0.32) | dedicated 4/4 16/16 (1.90 6.17)");
    for grain in (900_000..=1_500_000).step_by(100_000) {
        let run = |cpus, side| {
            let made = program.make(Parameters {
                threads: cpus,
                work: 200_000_000,
                grain: grain / u64::from(3 * cpus + 2),
            });
            Trial::alone("dedup", cpus, side, 0).run_program(made).map_or(f64::NAN, |t| t.seconds)
        };
        let [n1, n4, n16] = [1, 4, 16].map(|c| run(c, Side::Native));
        let [v4, v16] = [4, 16].map(|c| run(c, Side::Vm));
        println!("{grain:6} | {:.2} {:.2} | {:.2} {:.2}", n4 / n1, n16 / n1, v4 / n4, v16 / n16);
    }
}

/// Two grains yield streamcluster's slowdown: with longer grains, first fewer waits end within the spin, and
/// then there are fewer waits at all. The shorter one matches two to four barriers per ms (ASPLOS'13 §3.1.2).
fn streamcluster() {
    let Some(program) = by_name("streamcluster") else { return };
    for grain in (200_000..=600_000).step_by(50_000) {
        let found = slowdown(program, grain, 3_200_000_000).unwrap_or(f64::NAN);
        println!("streamcluster: grain {grain} ns: {found:.3} (0.13 wanted)");
    }
}

fn main() {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|o| o == name);
    for program in &SUITES {
        if let Some(target) = program.fitted_slowdown
            && !["dedup", "streamcluster"].contains(&program.name)
            && wanted(program.name)
        {
            let grain = fit(program, target);
            let found = slowdown(program, grain, 3_200_000_000).unwrap_or(f64::NAN);
            println!("{}: grain {grain} ns: {found:.3} ({target} wanted)", program.name);
        }
    }
    if wanted("streamcluster") {
        streamcluster();
    }
    if wanted("dedup") {
        dedup();
    }
}
