//! The paper's figures.

use super::super::measure::{View, largest, mean, quantile};
use super::super::{Bar, Chart, Figure, Group, Quantity, Series};
use super::{
    HIGH_HOST, HIGH_OVERCOMMITTED, Measured, Overcommitted, OvercommittedBase2, Overhead, SIZES, Scenario,
    Study, Undercommitted, benchmarks,
};

type Measure = fn(Overhead) -> f64;
type Part = (&'static str, fn(&Measured) -> f64);
const TIME: (&str, Measure) = ("δη_t", |o| o.time);
const CYCLES: (&str, Measure) = ("δη_r", |o| o.cycles);
const IMPACT: (&str, Measure) = ("ω", Overhead::impact);

const BOXES: &str = "Medians of the 26 benchmarks with their quartiles.";

pub(in super::super) fn figures(view: &View<'_>) -> Vec<Figure> {
    let study = Study(view);
    vec![
        boxes(study, "Figure 2", "Sequential programs", &[1], &[TIME, CYCLES]),
        boxes(study, "Figure 3a", "Reduced temporal efficiency, δη_t, by vCPUs", &SIZES, &[TIME]),
        boxes(study, "Figure 3b", "Reduced resource efficiency, δη_r, by vCPUs", &SIZES, &[CYCLES]),
        boxes(study, "Figure 3c", "Overhead impact factor, ω, by vCPUs", &SIZES, &[IMPACT]),
        each(study, "Figure 4a", TIME),
        each(study, "Figure 4b", CYCLES),
        spread(study),
        over_sizes(study, "Figure 8a", &HIGH_HOST, Undercommitted, CYCLES),
        over_sizes(study, "Figure 8b", &HIGH_HOST, Undercommitted, TIME),
        causes(study),
        over_sizes(study, "Figure 10a", &HIGH_OVERCOMMITTED, OvercommittedBase2, CYCLES),
        over_sizes(study, "Figure 10b", &HIGH_OVERCOMMITTED, OvercommittedBase2, TIME),
        spinning(study),
        halt_polling(study, "Figure 12a", "cycles", |o| o.cycles),
        halt_polling(study, "Figure 12b", "run time", |o| -o.time),
    ]
}

fn boxes(
    study: Study<'_>,
    place: &'static str,
    title: &str,
    sizes: &[u32],
    measures: &[(&'static str, Measure)],
) -> Figure {
    let one = measures.len() == 1;
    let group = |cpus: u32, (name, of): (&str, Measure)| {
        let bar = |(series, scenario): (usize, Scenario)| {
            let values = study.over_benchmarks(cpus, scenario, of).unwrap_or_default();
            let range = quantile(&values, 0.25).zip(quantile(&values, 0.75));
            Bar { label: scenario.name().to_owned(), series, value: quantile(&values, 0.5), range }
        };
        let label = if one { format!("{cpus} vCPUs") } else { name.to_owned() };
        Group { label, bars: (1..).zip(Scenario::ALL).map(bar).collect() }
    };
    let groups = sizes.iter().flat_map(|c| measures.iter().map(move |m| group(*c, *m))).collect();
    let is_factor = measures[0].0 == IMPACT.0;
    Figure {
        place,
        title: title.to_owned(),
        caption: format!("{BOXES} UC: one VM; OC: two VMs against one native instance; OC2: against two."),
        value: if one { measures[0].0 } else { "overhead" },
        quantity: if is_factor { Quantity::Factor } else { Quantity::Share },
        chart: Chart::Bars { reference: if is_factor { 1.0 } else { 0.0 }, groups },
    }
}

fn each(study: Study<'_>, place: &'static str, (name, of): (&'static str, Measure)) -> Figure {
    let group = |program: &'static str| Group {
        label: program.to_owned(),
        bars: (1..)
            .zip(Scenario::ALL)
            .map(|(series, scenario)| {
                let values = SIZES.map(|cpus| study.overhead(program, cpus, scenario).map(of));
                let middle = mean(values);
                let range = middle.zip(largest(values));
                Bar { label: scenario.name().to_owned(), series, value: middle, range }
            })
            .collect(),
    };
    Figure {
        place,
        title: format!("{name} by benchmark"),
        caption: "Means over 4 to 64 vCPUs; the whisker reaches to the maximum.".to_owned(),
        value: name,
        quantity: Quantity::Share,
        chart: Chart::Bars { reference: 0.0, groups: benchmarks().into_iter().map(group).collect() },
    }
}

fn spread(study: Study<'_>) -> Figure {
    let series = ["bodytrack", "ocean_cp"].into_iter().flat_map(|program| {
        let sides = [("native", study.native(program, 64, 1)), ("VM", study.vm(program, 64, Undercommitted))];
        let native: Option<f64> = sides[0].1.as_ref().map(|m| m.by_cpu.iter().sum());
        sides.into_iter().filter_map(move |(side, measured)| {
            let by_cpu = &measured?.by_cpu;
            let points = (1..).map(f64::from).zip(by_cpu.iter().map(|c| c / native.unwrap_or(f64::NAN)));
            Some(Series { label: format!("{program}, {side}"), points: points.collect() })
        })
    });
    Figure {
        place: "Figure 5",
        title: "Cycles by vCPU, 64 vCPUs, UC".to_owned(),
        caption: "Shares of the native cycles. In the paper one vCPU bears most of bodytrack's overhead; the shape here has no \
                  such thread."
            .to_owned(),
        value: "share of the native cycles",
        quantity: Quantity::Share,
        chart: Chart::Lines { across: "vCPU", series: series.collect() },
    }
}

fn over_sizes(
    study: Study<'_>,
    place: &'static str,
    programs: &[&'static str],
    scenario: Scenario,
    (name, of): (&'static str, Measure),
) -> Figure {
    let series = programs.iter().map(|program| Series {
        label: (*program).to_owned(),
        points: points(|cpus| study.overhead(program, cpus, scenario).map(of)),
    });
    Figure {
        place,
        title: format!("{name} by vCPUs, {}", scenario.name()),
        caption: String::new(),
        value: name,
        quantity: Quantity::Share,
        chart: Chart::Lines { across: "vCPUs", series: series.collect() },
    }
}

/// The values that exist, by size.
fn points(at: impl Fn(u32) -> Option<f64>) -> Vec<(f64, f64)> {
    SIZES.into_iter().filter_map(|cpus| Some((f64::from(cpus), at(cpus)?))).collect()
}

/// One bar per part of a run, relative to `whole`.
fn by_part(label: String, run: Option<&Measured>, whole: Option<f64>, parts: &[Part]) -> Group {
    let bar = |(series, (label, of)): (usize, &Part)| {
        let value = run.map(of).zip(whole).map(|(part, whole)| part / whole);
        Bar { label: (*label).to_owned(), series, value, range: None }
    };
    Group { label, bars: (1..).zip(parts).map(bar).collect() }
}

fn causes(study: Study<'_>) -> Figure {
    const CAUSES: [Part; 5] = [
        ("halt polling", |m| m.polling),
        ("scheduling", |m| m.scheduling),
        ("wake-up interrupts", |m| m.reschedule),
        ("shootdowns", |m| m.shootdown),
        ("tick", |m| m.tick),
    ];
    let group = |program: &'static str, cpus: u32, scenario: Scenario| {
        let native = study.native(program, cpus, 1).map(|n| n.cycles);
        let label = format!("{program}, {cpus} vCPUs, {}", scenario.name());
        by_part(label, study.vm(program, cpus, scenario).as_ref(), native, &CAUSES)
    };
    let rows = HIGH_HOST.into_iter().flat_map(|p| {
        [4, 16, 64].into_iter().flat_map(move |c| [Undercommitted, Overcommitted].map(move |s| (p, c, s)))
    });
    Figure {
        place: "Figure 9",
        title: "Host cycles by cause".to_owned(),
        caption: "Relative to the native cycles. Interrupts and the tick are counted and multiplied with their costs.".to_owned(),
        value: "part of δη_r",
        quantity: Quantity::Share,
        chart: Chart::Bars { reference: 0.0, groups: rows.map(|(p, c, s)| group(p, c, s)).collect() },
    }
}

fn spinning(study: Study<'_>) -> Figure {
    const PARTS: [Part; 4] = [
        ("user", |m| m.user),
        ("spinning, user", |m| m.user_spin),
        ("spinning, TLB", |m| m.tlb_spin),
        ("spinning, locks", |m| m.lock_spin),
    ];
    let group = |program: &'static str, scenario: Scenario| {
        let all = study.vm(program, 64, Undercommitted).map(|m| m.cycles);
        let label = format!("{program}, {}", scenario.name());
        by_part(label, study.vm(program, 64, scenario).as_ref(), all, &PARTS)
    };
    let rows = HIGH_OVERCOMMITTED.into_iter().flat_map(|p| [Undercommitted, Overcommitted].map(|s| (p, s)));
    Figure {
        place: "Figure 11",
        title: "Where the CPU time goes, 64 vCPUs".to_owned(),
        caption: "Relative to all cycles of the benchmark in one VM. The paper shows functions: smp_call_function_many is \
                  the waiting for TLB flushes, Ray_Trace volrend's user time."
            .to_owned(),
        value: "CPU time",
        quantity: Quantity::Share,
        chart: Chart::Bars { reference: 0.0, groups: rows.map(|(p, s)| group(p, s)).collect() },
    }
}

fn halt_polling(study: Study<'_>, place: &'static str, what: &str, of: Measure) -> Figure {
    let series = HIGH_HOST.into_iter().map(|program| Series {
        label: program.to_owned(),
        points: points(|cpus| study.polling_gain(program, cpus, Undercommitted).map(of)),
    });
    Figure {
        place,
        title: format!("What halt polling adds to the {what}, UC"),
        caption: "Difference between runs with and without halt polling in the hypervisor.".to_owned(),
        value: "difference",
        quantity: Quantity::Share,
        chart: Chart::Lines { across: "vCPUs", series: series.collect() },
    }
}
