//! The figures, with every program of the suites. Most of their shapes are assumed, so none of this counts as
//! a reproduced number.

use super::super::{Bar, Chart, Figure, Group, Point, Quantity};
use super::{DEDUP, WORK};
use crate::ids::Ns;
use crate::library::SUITES;
use crate::parallel;
use crate::reproduce::{Side, Timing, Trial};

/// Co-runners of the programs.
const NEIGHBOURS: [&str; 2] = ["matmul", "freqsleep"];
/// Runs of each program, in this order.
const RUNS: [(Side, Option<&str>); 6] = [
    (Side::Native, None),
    (Side::Vm, None),
    (Side::Gleaner, None),
    (Side::Vm, Some(NEIGHBOURS[0])),
    (Side::Vm, Some(NEIGHBOURS[1])),
    (Side::Gleaner, Some(NEIGHBOURS[0])),
];

/// Results of a program's runs.
struct Runs {
    program: &'static str,
    native: Option<Timing>,
    vm: Option<Timing>,
    gleaner: Option<Timing>,
    matmul: Option<Timing>,
    freqsleep: Option<Timing>,
    gleaner_matmul: Option<Timing>,
}

/// A figure derived from the runs: its name and its value for a program.
type View = (&'static str, fn(&Runs) -> Option<f64>);

/// `of(a) / of(b)`.
fn ratio(a: Option<Timing>, b: Option<Timing>, of: fn(&Timing) -> f64) -> Option<f64> {
    Some(of(&a?) / of(&b?))
}

/// Ratio of the run times.
fn factor(a: Option<Timing>, b: Option<Timing>) -> Option<f64> {
    ratio(a, b, |t| t.seconds)
}

fn all() -> Vec<Runs> {
    // dedup's threads mostly wait for one lock, so a little work takes much simulated time.
    let work = |program| -> Ns { if program == "dedup" { DEDUP } else { WORK } };
    let trials: Vec<Trial> = SUITES
        .iter()
        .flat_map(|p| {
            let trial = |side, beside| Trial { program: p.name, cpus: 16, side, beside, work: work(p.name) };
            RUNS.map(|(side, beside)| trial(side, beside))
        })
        .collect();
    let timings = parallel::on_all_cores(&trials, Trial::run);
    let runs = |(trials, t): (&[Trial], &[Option<Timing>])| Runs {
        program: trials[0].program,
        native: t[0],
        vm: t[1],
        gleaner: t[2],
        matmul: t[3],
        freqsleep: t[4],
        gleaner_matmul: t[5],
    };
    trials.chunks(RUNS.len()).zip(timings.chunks(RUNS.len())).map(runs).collect()
}

pub(in super::super) fn figures(progress: &mut dyn FnMut(&str)) -> Vec<Figure> {
    progress("Figures 1, 2, 5, 6 and 7");
    let runs = all();
    let slowdown = "run time in the VM / native";
    let ways: [View; 2] =
        [("without Gleaner", |r| factor(r.vm, r.native)), ("with Gleaner", |r| factor(r.gleaner, r.native))];
    let both: fn(&Runs) -> Option<f64> = |r| {
        let neighbour = ratio(r.gleaner_matmul, r.matmul, |t| t.beside_rate)?;
        Some(f64::midpoint(factor(r.matmul, r.gleaner_matmul)?, neighbour))
    };
    vec![
        points(&runs, "Figure 1a", "Slowdown on dedicated hardware", slowdown, |r| factor(r.vm, r.native)),
        points(&runs, "Figure 1b", "Slowdown beside matmul", slowdown, |r| factor(r.matmul, r.native)),
        points(&runs, "Figure 2", "Variation by the neighbour", "difference of the slowdowns", |r| {
            Some((factor(r.matmul, r.native)? - factor(r.freqsleep, r.native)?).abs())
        }),
        bars(&runs, "Figure 5", "Slowdown with and without Gleaner", slowdown, Quantity::Factor, &ways),
        bars(
            &runs,
            "Figure 6",
            "Energy",
            "more energy with Gleaner",
            Quantity::Share,
            &[("energy", |r| Some(ratio(r.gleaner, r.vm, |t| t.joules)? - 1.0))],
        ),
        bars(
            &runs,
            "Figure 7a",
            "Speed-up by Gleaner beside matmul",
            "speed-up",
            Quantity::Factor,
            &[("speed-up", |r| factor(r.matmul, r.gleaner_matmul))],
        ),
        bars(
            &runs,
            "Figure 7b",
            "Both VMs: mean of their speed-ups",
            "throughput",
            Quantity::Factor,
            &[("both", both)],
        ),
    ]
}

fn points(
    runs: &[Runs],
    place: &'static str,
    title: &str,
    value: &'static str,
    of: fn(&Runs) -> Option<f64>,
) -> Figure {
    let point = |r: &Runs| Some(Point { label: r.program.to_owned(), x: r.vm?.halts_per_s, y: of(r)? });
    Figure {
        place,
        title: title.to_owned(),
        caption:
            "Over how often vCPUs become idle when the program runs alone. 16 vCPUs; shapes mostly assumed."
                .to_owned(),
        value,
        quantity: Quantity::Factor,
        chart: Chart::Points {
            across: "halts per second and vCPU",
            points: runs.iter().filter_map(point).collect(),
        },
    }
}

fn bars(
    runs: &[Runs],
    place: &'static str,
    title: &str,
    value: &'static str,
    quantity: Quantity,
    ways: &[View],
) -> Figure {
    let group = |r: &Runs| Group {
        label: if ways.len() == 1 { String::new() } else { r.program.to_owned() },
        bars: (1..)
            .zip(ways)
            .map(|(series, (label, of))| Bar {
                label: if ways.len() == 1 { r.program } else { label }.to_owned(),
                series,
                value: of(r),
                range: None,
            })
            .collect(),
    };
    let reference = if quantity == Quantity::Factor { 1.0 } else { 0.0 };
    Figure {
        place,
        title: title.to_owned(),
        caption: "16 vCPUs; most programs' shapes are assumed.".to_owned(),
        value,
        quantity,
        chart: Chart::Bars { reference, groups: runs.iter().map(group).collect() },
    }
}
