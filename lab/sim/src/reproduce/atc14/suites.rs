//! Rows about all programs of the suites: averages and trends.

use super::super::measure::{
    ABOUT, MUCH, Measure, View, all, correlation, every, holds, largest, mean, number, seconds, some,
};
use super::{WORK, alone, beside, change, ratio, slowdown};
use crate::library::SUITES;
use crate::world::Report;

/// Power of a busy core in watts: assumed, an eighth of a Xeon E5-2665's 115 W plus its share of the machine.
pub(in super::super) const BUSY_W: f64 = 15.0;
/// Power of a core idling in C1, in watts: assumed.
pub(in super::super) const IDLE_W: f64 = 7.0;

/// Programs in which the paper finds much overhead by blocking (§7.1).
const BLOCKING: [&str; 4] = ["dedup", "facesim", "cholesky", "volrend"];

pub(super) fn suite(name: &str) -> impl Iterator<Item = &'static str> {
    SUITES.iter().filter(move |p| p.suite == name).map(|p| p.name)
}

fn programs() -> impl Iterator<Item = &'static str> {
    SUITES.iter().map(|p| p.name)
}

/// Work of a program where all of them run: dedup's threads mostly wait for one lock, so that a little takes long.
fn work(program: &str) -> &'static str {
    if program == "dedup" { super::DEDUP } else { WORK }
}

/// A run of the figures: alone or, with one seed, beside another VM.
pub(super) fn drawn(
    view: &View<'_>,
    program: &str,
    system: &str,
    other: Option<&str>,
) -> Option<std::rc::Rc<Report>> {
    view.report(match other {
        None => alone(program, system, 16, work(program)),
        Some(other) => beside(program, system, other, 16, work(program), 1),
    })
}

/// Run time in the figures.
fn time(view: &View<'_>, program: &str, system: &str, other: Option<&str>) -> Option<f64> {
    seconds(&*drawn(view, program, system, other)?)
}

/// Slowdown by virtualisation in Figure 1, as a factor.
pub(super) fn factor(view: &View<'_>, program: &str, system: &str, other: Option<&str>) -> Option<f64> {
    ratio(time(view, program, system, other), time(view, program, "native", None))
}

/// Halts per second and vCPU when the program runs alone in a VM.
pub(super) fn halts(view: &View<'_>, program: &str) -> Option<f64> {
    let report = drawn(view, program, "vm", None)?;
    Some(report.vms[0].halts_per_s(report.elapsed))
}

/// How a quantity of the programs goes with how often their vCPUs become idle.
fn with_halts(view: &View<'_>, of: impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let pairs = programs().map(|program| {
        let (halts, value) = (halts(view, program), of(program));
        Some((halts?, value?))
    });
    correlation(&all(pairs)?)
}

/// Speed-up by Gleaner beside matmul.
pub(super) fn speed_up(view: &View<'_>, program: &str) -> Option<f64> {
    let other = Some("matmul");
    ratio(time(view, program, "vm", other), time(view, program, view.gleaner(), other))
}

/// Mean of the program's and matmul's speed-ups by Gleaner: the paper's weighted speed-up.
pub(super) fn throughput(view: &View<'_>, program: &str) -> Option<f64> {
    let neighbour = |system: &str| {
        let report = drawn(view, program, system, Some("matmul"))?;
        Some(report.vms.get(1)?.tasks[0].totals.operations as f64 / seconds(&report)?)
    };
    let (own, other) = (speed_up(view, program), ratio(neighbour(view.gleaner()), neighbour("vm")));
    Some(f64::midpoint(own?, other?))
}

/// Energy with Gleaner by that without, alone.
pub(super) fn energy(view: &View<'_>, program: &str) -> Option<f64> {
    let joules = |system: &str| Some(drawn(view, program, system, None)?.energy(BUSY_W, IDLE_W));
    ratio(joules(view.gleaner()), joules("vm"))
}

/// The programs' run times beside matmul by those beside freqsleep.
fn by_neighbour(view: &View<'_>, program: &str, system: &str) -> Option<f64> {
    ratio(time(view, program, system, Some("matmul")), time(view, program, system, Some("freqsleep")))
}

/// Figure 2: how much the slowdown differs by the neighbour.
pub(super) fn variation(view: &View<'_>, program: &str) -> Option<f64> {
    let [matmul, freqsleep] = ["matmul", "freqsleep"].map(|other| factor(view, program, "vm", Some(other)));
    Some((matmul? - freqsleep?).abs())
}

pub(super) fn measure(id: &str) -> Option<Measure> {
    averages(id).or_else(|| energies(id)).or_else(|| neighbours(id))
}

fn averages(id: &str) -> Option<Measure> {
    let average = |name: &'static str, gleaner: bool| {
        number(move |v| {
            mean(suite(name).map(|program| slowdown(v, program, if gleaner { v.gleaner() } else { "vm" })))
        })
    };
    Some(match id {
        "2-25" => holds(|v| {
            let dedup = slowdown(v, "dedup", "vm");
            let others = largest(suite("parsec").filter(|p| *p != "dedup").map(|p| slowdown(v, p, "vm")));
            Some(dedup? > others?)
        }),
        "3.2-10" => holds(|v| Some(with_halts(v, |p| factor(v, p, "vm", None))? > 0.7)),
        "3.2-11" => holds(|v| {
            let dedicated = with_halts(v, |p| factor(v, p, "vm", None));
            let shared = with_halts(v, |p| factor(v, p, "vm", Some("matmul")));
            Some(shared? > dedicated?)
        }),
        "3.2-16" => holds(|v| Some(with_halts(v, |p| variation(v, p))? > 0.0)),
        "7.1-01" => holds(|v| {
            let these = mean(BLOCKING.map(|p| change(v, p)));
            let others = mean(programs().filter(|p| !BLOCKING.contains(p)).map(|p| change(v, p)));
            Some(these? < others?)
        }),
        "7.1-21" => average("parsec", false),
        "7.1-22" => average("splash2x", false),
        "7.1-23" => average("parsec", true),
        "7.1-24" => average("splash2x", true),
        _ => return None,
    })
}

fn energies(id: &str) -> Option<Measure> {
    let saved =
        |name: &'static str| number(move |v| Some(100.0 * (1.0 - mean(suite(name).map(|p| energy(v, p)))?)));
    Some(match id {
        "7-06" => holds(|v| Some(mean(programs().map(|p| energy(v, p)))? <= 1.0)),
        "7.1-28" => holds(|v| some(programs().map(|p| energy(v, p).map(|e| e > 1.0 && e <= 1.0 + ABOUT)))),
        "7.1-29" => holds(|v| every(BLOCKING.map(|p| energy(v, p).map(|e| e < 1.0)))),
        "7.1-30" => holds(|v| {
            let pairs = programs().map(|p| {
                let faster = ratio(time(v, p, v.gleaner(), None), time(v, p, "vm", None));
                let less = energy(v, p);
                Some((faster?, less?))
            });
            Some(correlation(&all(pairs)?)? > 0.0)
        }),
        "7.1-31" => holds(|v| {
            let power = |p: &str| {
                let faster = ratio(time(v, p, v.gleaner(), None), time(v, p, "vm", None));
                let less = energy(v, p);
                Some(less? / faster?)
            };
            Some(mean(BLOCKING.map(power))? > 1.0)
        }),
        "7.1-32" => saved("parsec"),
        "7.1-33" => saved("splash2x"),
        _ => return None,
    })
}

fn neighbours(id: &str) -> Option<Measure> {
    let dramatic = |program: &'static str| holds(move |v| Some(speed_up(v, program)? >= MUCH));
    let gains = |program: &'static str| holds(move |v| Some(throughput(v, program)? > 1.0));
    let loses = |program: &'static str| holds(move |v| Some(throughput(v, program)? < 1.0));
    Some(match id {
        "7.2.1-04" => dramatic("streamcluster"),
        "7.2.1-05" => dramatic("bodytrack"),
        "7.2.1-06" => dramatic("cholesky"),
        "7.2.1-07" => dramatic("volrend"),
        "7.2.1-08" => holds(|v| {
            every(
                ["dedup", "streamcluster", "bodytrack", "cholesky", "volrend"]
                    .map(|p| speed_up(v, p).map(|s| s >= 2.0)),
            )
        }),
        "7.2.1-13" => number(|v| Some(100.0 * mean(programs().map(|p| speed_up(v, p)))?)),
        "7.2.1-16" => holds(|v| some(programs().map(|p| throughput(v, p).map(|t| t > 1.0 + 0.03)))),
        "7.2.1-17" => holds(|v| some(programs().map(|p| throughput(v, p).map(|t| t < 1.0 - 0.03)))),
        "7.2.1-18" => holds(|v| Some((mean(programs().map(|p| throughput(v, p)))? - 1.0).abs() <= ABOUT)),
        "7.2.1-19" => number(|v| Some(100.0 * (mean(programs().map(|p| throughput(v, p)))? - 1.0))),
        "7.2.1-20" => loses("bodytrack"),
        "7.2.1-21" => loses("streamcluster"),
        "7.2.1-22" => loses("vips"),
        "7.2.1-29" => gains("dedup"),
        "7.2.1-30" => gains("ferret"),
        "7.2.1-31" => gains("cholesky"),
        "7.2.1-32" => number(|v| {
            let gain = |p| throughput(v, p).map(|t| 100.0 * (t - 1.0));
            largest(["dedup", "ferret", "cholesky"].map(gain))
        }),
        "7.2.1-36" => holds(|v| {
            let dedup = variation(v, "dedup");
            let others = largest(programs().filter(|p| *p != "dedup").map(|p| variation(v, p)));
            Some(dedup? > others?)
        }),
        "7.2.1-39" => number(|v| {
            let shorter = |p| by_neighbour(v, p, v.gleaner()).map(|r| 100.0 * (1.0 - 1.0 / r));
            mean(programs().map(shorter))
        }),
        "7.2.1-40" => number(|v| mean(programs().map(|p| by_neighbour(v, p, "vm")))),
        _ => return None,
    })
}

/// For the figures: the slowdown with the strategy in view.
pub(super) fn slowdown_drawn(view: &View<'_>, program: &str, gleaner: bool) -> Option<f64> {
    factor(view, program, if gleaner { view.gleaner() } else { "vm" }, None)
}
