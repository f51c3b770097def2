//! The figures, with every program of the suites. Most of their shapes are assumed.

use super::super::figures::{bars, points};
use super::super::measure::View;
use super::super::{Figure, Quantity};
use super::suites::{energy, factor, halts, slowdown_drawn, speed_up, throughput, variation};
use crate::library::SUITES;

/// A figure's series: its name and its value for a program.
type Series = (&'static str, fn(&View<'_>, &str) -> Option<f64>);

const SHAPES: &str = "16 vCPUs, strategy paper; most programs' shapes are assumed.";

pub(in super::super) fn figures(view: &View<'_>) -> Vec<Figure> {
    let slowdown = "run time in the VM / native";
    let over_halts = |place, title, value, of: fn(&View<'_>, &str) -> Option<f64>| {
        let point = |p: &crate::library::SuiteProgram| (p.name, halts(view, p.name), of(view, p.name));
        points(place, title, value, "halts per second and vCPU", SUITES.iter().map(point).collect())
    };
    let by_program = |place, title, value, quantity, series: &[Series]| {
        let values = SUITES.iter().map(|p| {
            (p.name, series.iter().map(|(label, of)| ((*label).to_owned(), of(view, p.name))).collect())
        });
        bars(place, title, SHAPES, value, quantity, values.collect())
    };
    vec![
        over_halts("Figure 1a", "Slowdown on dedicated hardware", slowdown, |v, p| factor(v, p, "vm", None)),
        over_halts("Figure 1b", "Slowdown beside matmul", slowdown, |v, p| {
            factor(v, p, "vm", Some("matmul"))
        }),
        over_halts("Figure 2", "Variation by the neighbour", "difference of the slowdowns", variation),
        by_program(
            "Figure 5",
            "Slowdown with and without Gleaner",
            slowdown,
            Quantity::Factor,
            &[
                ("without Gleaner", |v, p| slowdown_drawn(v, p, false)),
                ("with Gleaner", |v, p| slowdown_drawn(v, p, true)),
            ],
        ),
        by_program(
            "Figure 6",
            "Energy",
            "more energy with Gleaner",
            Quantity::Share,
            &[("energy", |v, p| Some(energy(v, p)? - 1.0))],
        ),
        by_program(
            "Figure 7a",
            "Speed-up by Gleaner beside matmul",
            "speed-up",
            Quantity::Factor,
            &[("speed-up", speed_up)],
        ),
        by_program(
            "Figure 7b",
            "Both VMs: mean of their speed-ups",
            "throughput",
            Quantity::Factor,
            &[("both", throughput)],
        ),
    ]
}
