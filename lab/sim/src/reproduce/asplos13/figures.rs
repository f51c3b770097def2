//! The figures that are simulated.

use super::super::figures::{Labelled, bars};
use super::super::measure::View;
use super::super::{Figure, Quantity};
use super::alone::{beside, kernel, rate, time_in};
use super::barriers::{resched_co, waits};
use super::mixes::{other_rate, rate_alone, weighted_speed_up};
use super::sensitivity::{
    ALLOWANCES_MS, CONTENDING, DELAYS_US, SLICES_US, beside_facesim, preempted, three_vips,
};
use super::sequential::{by_scheme, delayed_times, exit_times, slowdown_beside, spinning, time};
use super::{Mix, WITH_EXITS, parsec};
use crate::world::{Category, VcpuCounts};

const SHAPES: &str = "The programs' shapes are assumed beyond what the text states.";

/// Schemes with their names in the figures.
const SCHEMES: [(&str, &str); 5] = [
    ("baseline", "baseline"),
    ("balance", "balance"),
    ("LC balance", "lc"),
    ("LC, Resched-DP", "lc-dp"),
    ("LC, Resched-DP, TLB-Co", "uvf"),
];

/// A group of bars for each of the programs.
fn by_program(
    programs: impl Iterator<Item = &'static str>,
    of: impl Fn(&'static str) -> Vec<Labelled>,
) -> Vec<(&'static str, Vec<Labelled>)> {
    programs.map(|program| (program, of(program))).collect()
}

/// Values by scheme.
fn by_schemes(schemes: &[(&str, &str)], of: impl Fn(&str) -> Option<f64>) -> Vec<Labelled> {
    schemes.iter().map(|(name, scheme)| ((*name).to_owned(), of(scheme))).collect()
}

/// Values of the two ways of spinning in the kernel.
fn spinning_by_cause(of: impl Fn(Category) -> Option<f64>) -> Vec<Labelled> {
    let causes = [("TLB shootdowns", Category::TlbSpin), ("locks", Category::LockSpin)];
    causes.map(|(name, category)| (name.to_owned(), of(category))).into()
}

pub(in super::super) fn figures(view: &View<'_>) -> Vec<Figure> {
    let mut all = analysis(view);
    all.extend(sensitivity(view));
    all.extend(mixes(view));
    all.extend(coscheduling(view));
    all.extend(contention(view));
    all
}

/// §3.1.
fn analysis(view: &View<'_>) -> Vec<Figure> {
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
    let of_time = "share of the CPU time";
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
            of_time,
            Quantity::Share,
            by_program(parsec(), in_kernel),
        ),
        bars(
            "Table 1",
            "Spinning in the kernel beside streamcluster",
            SHAPES,
            of_time,
            Quantity::Share,
            by_program(parsec(), waits),
        ),
    ]
}

/// §4.1.1.
fn sensitivity(view: &View<'_>) -> Vec<Figure> {
    let holders = |p| {
        let late = DELAYS_US.map(|us| (format!("{us} us"), preempted(view, p, us, false)));
        let early = ("1000 us, early".to_owned(), preempted(view, p, 1000, true));
        late.into_iter().chain([early]).collect()
    };
    let shares = |mix: &Mix| spinning_by_cause(|category| mix.mean(view, |r| Some(r.vms[0].share(category))));
    let slices = SLICES_US.map(|us| (format!("{us} us"), three_vips(us)));
    let allowances = [("no UVF".to_owned(), beside_facesim(None))]
        .into_iter()
        .chain(ALLOWANCES_MS.map(|ms| (format!("{ms} ms"), beside_facesim(Some(ms)))));
    let allowances: Vec<(String, Mix)> = allowances.collect();
    let slowdowns = |mix: &Mix| {
        let (vips, facesim) = (mix.time(view), other_rate(view, mix));
        let alone = (Mix::alone("vips").time(view), rate_alone(view, "facesim"));
        let slowdown = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
        vec![("vips".to_owned(), slowdown(vips, alone.0)), ("facesim".to_owned(), slowdown(alone.1, facesim))]
    };
    let spinning = "share of the VM's time";
    vec![
        bars(
            "Figure 7a",
            "Delayed preemption, beside dedup",
            SHAPES,
            "preempted lock holders",
            Quantity::Plain,
            by_program(CONTENDING.into_iter(), holders),
        ),
        bars(
            "Figure 7b, run time",
            "Urgent slice, three VMs with vips",
            SHAPES,
            "seconds",
            Quantity::Plain,
            vec![("", slices.iter().map(|(label, mix)| (label.clone(), mix.time(view))).collect())],
        ),
        bars(
            "Figure 7b, spinning",
            "Urgent slice, three VMs with vips",
            SHAPES,
            spinning,
            Quantity::Share,
            slices.iter().map(|(label, mix)| (label.as_str(), shares(mix))).collect(),
        ),
        bars(
            "Figure 7c, slowdown",
            "Urgent allowance, vips beside two VMs with facesim",
            SHAPES,
            "run time / that alone",
            Quantity::Factor,
            allowances.iter().map(|(label, mix)| (label.as_str(), slowdowns(mix))).collect(),
        ),
        bars(
            "Figure 7c, spinning",
            "Urgent allowance, vips beside two VMs with facesim",
            SHAPES,
            spinning,
            Quantity::Share,
            allowances.iter().map(|(label, mix)| (label.as_str(), shares(mix))).collect(),
        ),
    ]
}

/// §4.1.2 and §4.1.3.
fn mixes(view: &View<'_>) -> Vec<Figure> {
    let relative = |p| by_schemes(&SCHEMES[1..], |scheme| by_scheme(view, p, scheme, "baseline"));
    let sequential = |p| by_schemes(&SCHEMES, |scheme| slowdown_beside(view, p, scheme));
    let weighted = |other: &'static str| {
        move |p: &'static str| by_schemes(&SCHEMES, |scheme| weighted_speed_up(view, p, other, scheme))
    };
    let sum = "sum of both speeds relative to alone";
    vec![
        bars(
            "Figure 8a",
            "Parallel programs beside four sequential VMs",
            SHAPES,
            "run time / that with the baseline",
            Quantity::Factor,
            by_program(parsec(), relative),
        ),
        bars(
            "Figure 8b",
            "The sequential VMs beside them",
            SHAPES,
            "run time / that on a pCPU of its own",
            Quantity::Factor,
            by_program(parsec(), sequential),
        ),
        bars(
            "Figure 9a",
            "Weighted speed-up beside freqmine",
            SHAPES,
            sum,
            Quantity::Factor,
            by_program(parsec(), weighted("freqmine")),
        ),
        bars(
            "Figure 9b",
            "Weighted speed-up beside dedup",
            SHAPES,
            sum,
            Quantity::Factor,
            by_program(parsec(), weighted("dedup")),
        ),
    ]
}

/// §4.2.
fn coscheduling(view: &View<'_>) -> Vec<Figure> {
    let barriers = [("spins for 0.1 ms first", false), ("blocks", true)]
        .map(|(name, blocking)| (name.to_owned(), resched_co(view, blocking).map(|g| g / 100.0)));
    let at_barriers = |of: fn(&VcpuCounts) -> u64| {
        let labels = ["alone", "without Resched-Co", "with Resched-Co"].map(str::to_owned);
        labels.into_iter().zip(waits(view, of)).collect::<Vec<Labelled>>()
    };
    vec![
        bars(
            "Figure 10a",
            "Resched-Co, streamcluster beside bodytrack",
            SHAPES,
            "gain in speed",
            Quantity::Share,
            vec![("", barriers.into())],
        ),
        bars(
            "Figure 10b",
            "Waits of streamcluster at its barriers, beside bodytrack",
            SHAPES,
            "waits",
            Quantity::Plain,
            vec![
                ("for arrival", at_barriers(|c| c.arrival_waits)),
                ("for departure", at_barriers(|c| c.departure_waits)),
                ("that block", at_barriers(|c| c.blocked_waits)),
            ],
        ),
    ]
}

/// §4.3 and §5.
fn contention(view: &View<'_>) -> Vec<Figure> {
    let exits = |p| {
        let schemes =
            [("LC balance", "lc"), ("urgent vCPU first", "uvf"), ("the same, senders wait", "uvf-wait")];
        by_schemes(&schemes, |scheme| {
            let (before, after) = exit_times(view, p, scheme);
            Some(after? / before?)
        })
    };
    let spun = |p| spinning_by_cause(|category| spinning(view, p, category));
    let delayed = |p| {
        let baseline = time(view, p, "baseline");
        let relative = |time: Option<f64>| Some(time? / baseline?);
        let plain = |scheme| relative(time(view, p, scheme));
        let delayed = |scheme| relative(delayed_times(view, p, scheme).1);
        vec![
            ("delayed interrupts".to_owned(), delayed("baseline")),
            ("LC balance".to_owned(), plain("lc")),
            ("LC, delayed interrupts".to_owned(), delayed("lc")),
            ("LC, Resched-DP".to_owned(), plain("lc-dp")),
        ]
    };
    let to_baseline = "run time / that with the baseline";
    vec![
        bars(
            "Figure 11, run time",
            "Where pause-loop exits yield, beside four sequential VMs",
            SHAPES,
            to_baseline,
            Quantity::Factor,
            by_program(WITH_EXITS.into_iter(), exits),
        ),
        bars(
            "Figure 11, spinning",
            "Urgent vCPUs first where pause-loop exits yield, beside four sequential VMs",
            SHAPES,
            "spinning relative to the baseline",
            Quantity::Factor,
            by_program(WITH_EXITS.into_iter(), spun),
        ),
        bars(
            "Figure 12",
            "Reschedule interrupts that the guest delays, beside four sequential VMs",
            SHAPES,
            to_baseline,
            Quantity::Factor,
            by_program(["streamcluster", "facesim"].into_iter(), delayed),
        ),
    ]
}
