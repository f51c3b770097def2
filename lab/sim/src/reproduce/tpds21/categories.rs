//! §6 and §6.1: the categories of benchmarks.

use super::super::measure::{Measure, View, all, correlation, every, holds, mean};
use super::{
    HIGH_GUEST, NEGLIGIBLE, NEGLIGIBLE_OVERHEAD, Overcommitted, OvercommittedBase2, SIZES, Scenario, Study,
    Undercommitted, benchmarks,
};

/// The host's cycles relative to the native ones, as the mean over the sizes.
fn host_part(view: &View<'_>, program: &str, scenario: Scenario) -> Option<f64> {
    mean(SIZES.map(|cpus| {
        let (vm, native) = (Study(view).vm(program, cpus, scenario), Study(view).native(program, cpus, 1));
        Some(vm?.host() / native?.cycles)
    }))
}

pub(super) fn measure(id: &str) -> Option<Measure> {
    let negligible = |program: &'static str| {
        holds(move |v| {
            let means = [Undercommitted, OvercommittedBase2].map(|s| Study(v).cycles(program, s));
            Some(all(means)?.into_iter().all(|m| m.abs() <= NEGLIGIBLE_OVERHEAD))
        })
    };
    let in_host = |program: &'static str, scenario| {
        holds(move |v| Some(host_part(v, program, scenario)? > NEGLIGIBLE_OVERHEAD))
    };
    let overcommitted = |program: &'static str| {
        holds(move |v| Some(Study(v).cycles(program, Overcommitted)? > NEGLIGIBLE_OVERHEAD))
    };
    if let Some(program) = numbered(id, "6-", 3, &NEGLIGIBLE) {
        return Some(negligible(program));
    }
    Some(match id {
        "6-02" => holds(|v| {
            let cells = benchmarks().into_iter().flat_map(|p| SIZES.map(|c| (p, c)));
            let pairs =
                cells.map(|(p, c)| Study(v).overhead(p, c, Undercommitted).map(|o| (o.cycles, o.time)));
            Some(correlation(&all(pairs)?)?.abs() < 0.7)
        }),
        "6-21" => in_host("bodytrack", Undercommitted),
        "6-22" => in_host("dedup", Undercommitted),
        "6-23" => in_host("facesim", Undercommitted),
        // Most of theirs is overcommitted (§6.2).
        "6-24" => in_host("vips", Overcommitted),
        "6-25" => in_host("volrend", Overcommitted),
        "6-26" => overcommitted("lu_cb"),
        "6-27" => overcommitted("streamcluster"),
        "6-28" => overcommitted("vips"),
        "6-29" => overcommitted("volrend"),
        "6-30" => overcommitted("x264"),
        "6.1-04" => holds(|v| {
            let cells = HIGH_GUEST.into_iter().flat_map(|p| [4, 8, 16].map(|c| (p, c)));
            every(cells.map(|(p, c)| {
                let o = Study(v).overhead(p, c, Undercommitted)?;
                Some(o.time.abs() <= NEGLIGIBLE_OVERHEAD && o.cycles.abs() <= NEGLIGIBLE_OVERHEAD)
            }))
        }),
        _ => return None,
    })
}

/// The program of a row in a list of rows that are numbered from `first`.
fn numbered(id: &str, section: &str, first: usize, programs: &[&'static str]) -> Option<&'static str> {
    let number: usize = id.strip_prefix(section)?.parse().ok()?;
    programs.get(number.checked_sub(first)?).copied()
}
