//! The figures that are simulated.

use super::super::figures::{Labelled, bars};
use super::super::measure::View;
use super::super::{Figure, Quantity};
use super::alone::{beside, kernel, rate, time_in};
use super::parallel_vms::{preempted, resched_co, weighted_speed_up};
use super::sequential::{by_scheme, spinning};
use super::{Mix, parsec};
use crate::world::Category;

const SHAPES: &str = "The programs' shapes are assumed beyond what the text states.";

/// Schemes with their names in the figures.
const SCHEMES: [(&str, &str); 4] =
    [("baseline", "baseline"), ("balance", "balance"), ("LC balance", "lc"), ("urgent vCPU first", "uvf")];

fn by_program(
    programs: impl Iterator<Item = &'static str>,
    of: impl Fn(&'static str) -> Vec<Labelled>,
) -> Vec<(&'static str, Vec<Labelled>)> {
    programs.map(|program| (program, of(program))).collect()
}

#[allow(clippy::too_many_lines, reason = "a list of figures")]
pub(in super::super) fn figures(view: &View<'_>) -> Vec<Figure> {
    let interrupts = |p| {
        vec![
            ("reschedule".to_owned(), rate(view, p, |c| c.resched_ipis)),
            ("TLB shootdown".to_owned(), rate(view, p, |c| c.flush_ipis)),
        ]
    };
    let in_kernel = |p| {
        vec![
            ("alone".to_owned(), kernel(view, &Mix::alone(p))),
            ("beside streamcluster".to_owned(), kernel(view, &beside(p))),
        ]
    };
    let waits = |p| {
        vec![
            ("wait queues".to_owned(), time_in(view, &beside(p), &[Category::LockSpin])),
            ("TLB shootdowns".to_owned(), time_in(view, &beside(p), &[Category::TlbSpin])),
        ]
    };
    let holders = |p| [0, 100, 300, 500, 1000].map(|us| (format!("{us} us"), preempted(view, p, us))).into();
    let sequential = |p| {
        let schemes = SCHEMES[1..].iter();
        schemes.map(|(name, scheme)| ((*name).to_owned(), by_scheme(view, p, scheme, "baseline"))).collect()
    };
    let weighted = |p| {
        let of =
            |(name, scheme): &(&str, &str)| ((*name).to_owned(), weighted_speed_up(view, p, "dedup", scheme));
        SCHEMES.iter().map(of).collect()
    };
    let spun = |p| {
        vec![
            ("locks".to_owned(), spinning(view, p, Category::LockSpin)),
            ("TLB shootdowns".to_owned(), spinning(view, p, Category::TlbSpin)),
        ]
    };
    let barriers = [("spins for 0.1 ms first", false), ("blocks", true)]
        .map(|(name, blocking)| (name.to_owned(), resched_co(view, blocking).map(|g| g / 100.0)));
    let share = Quantity::Share;
    vec![
        bars(
            "Figure 1",
            "Interrupts between vCPUs, alone",
            SHAPES,
            "per second and vCPU",
            Quantity::Plain,
            by_program(parsec(), interrupts),
        ),
        bars(
            "Figure 2",
            "Time in the guest's kernel",
            SHAPES,
            "share of the CPU time",
            share,
            by_program(parsec(), in_kernel),
        ),
        bars(
            "Table 1",
            "Spinning in the kernel beside streamcluster",
            SHAPES,
            "share of the CPU time",
            share,
            by_program(parsec(), waits),
        ),
        bars(
            "Figure 7a",
            "Delayed preemption, beside dedup",
            SHAPES,
            "preempted lock holders",
            Quantity::Plain,
            by_program(["bodytrack", "facesim", "streamcluster"].into_iter(), holders),
        ),
        bars(
            "Figure 8",
            "Beside four sequential VMs",
            SHAPES,
            "run time / that with the baseline",
            Quantity::Factor,
            by_program(parsec(), sequential),
        ),
        bars(
            "Figure 9",
            "Weighted speed-up beside dedup",
            SHAPES,
            "sum of both speeds relative to alone",
            Quantity::Factor,
            by_program(parsec(), weighted),
        ),
        bars(
            "Figure 10a",
            "Resched-Co, streamcluster beside bodytrack",
            SHAPES,
            "gain in speed",
            share,
            vec![("", barriers.into())],
        ),
        bars(
            "Figure 11",
            "Urgent vCPUs first where pause-loop exits yield, beside four sequential VMs",
            SHAPES,
            "spinning relative to the baseline",
            Quantity::Factor,
            by_program(["streamcluster", "facesim", "ferret", "vips"].into_iter(), spun),
        ),
    ]
}
