//! The HP3C'20 paper: four 24-vCPU VMs on 48 hardware threads, whose idle vCPUs halt (vanilla), poll for a while
//! (`HaltPoll`) or poll without end (`IdlePoll`); Linux 3.16.

use std::rc::Rc;

use super::atc14::wake_beside_ratio;
use super::figures::{Labelled, bars};
use super::measure::{MUCH, Measure, View, about, all, every, holds, largest, mean, number, rate, smallest};
use super::runs::Run;
use super::{Figure, Quantity};
use crate::reproduce::atc14::{BUSY_W, IDLE_W};
use crate::world::{PcpuReport, Report};

/// What idle vCPUs do; `Native` is bare metal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Native,
    Vanilla,
    HaltPoll,
    IdlePoll,
}

const VIRTUAL: [Mode; 3] = [Mode::Vanilla, Mode::HaltPoll, Mode::IdlePoll];
const VMS: usize = 4;
/// Programs that synchronise a lot, each in two VMs beside two that compute. They stand in for the paper's applications.
const PAIRS: [&str; 5] = ["dedup", "volrend", "facesim", "cholesky", "request-response"];
/// What "high" and "large" mean of a spread of normalised throughputs.
const LARGE: f64 = 0.25;

impl Mode {
    const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Vanilla => "vanilla",
            Self::HaltPoll => "HaltPoll",
            Self::IdlePoll => "IdlePoll",
        }
    }

    fn run(self, mix: &str) -> Run {
        let policy = match self {
            Self::Native => return Run::of("hp3c20-native").with("mix", mix),
            Self::Vanilla => "halt",
            Self::HaltPoll => "haltpoll:200us",
            Self::IdlePoll => "qos-poll",
        };
        Run::of("hp3c20-vms").with("mix", mix).with("vm.*.policy", policy)
    }
}

fn report(view: &View<'_>, mix: &str, mode: Mode) -> Option<Rc<Report>> {
    view.report(mode.run(mix))
}

/// Operations per second of the program in VM `vm`, or of that program natively.
fn speed(view: &View<'_>, mix: &str, mode: Mode, vm: usize) -> Option<f64> {
    let report = report(view, mix, mode)?;
    if mode == Mode::Native {
        let operations = report.vms[0].tasks.get(vm)?.totals.operations;
        return Some(operations as f64 / super::measure::elapsed(&report));
    }
    rate(&report, vm)
}

/// Speed of a VM's program under `mode` by that under `base`.
fn ratio(view: &View<'_>, mix: &str, vm: usize, mode: Mode, base: Mode) -> Option<f64> {
    let (a, b) = (speed(view, mix, mode, vm), speed(view, mix, base, vm));
    Some(a? / b?)
}

/// The mean of these VMs' ratios.
fn mean_ratio(
    view: &View<'_>,
    mix: &str,
    vms: impl IntoIterator<Item = usize>,
    mode: Mode,
    base: Mode,
) -> Option<f64> {
    mean(vms.into_iter().map(|vm| ratio(view, mix, vm, mode, base)))
}

/// Over all pairs of programs.
fn over_pairs(of: impl Fn(&'static str) -> Option<f64>) -> Option<f64> {
    mean(PAIRS.map(of))
}

/// Times that the vCPUs of the synchronising VMs left their pCPU: to halt, or because another vCPU got it.
fn switches(view: &View<'_>, mix: &str, mode: Mode) -> Option<f64> {
    let report = report(view, mix, mode)?;
    let vms = [0, 2].map(|vm| Some(report.vms.get(vm)?.count(|c| c.halts + c.preempted)));
    Some(all(vms)?.into_iter().sum::<u64>() as f64)
}

/// Switches per operation, since a faster program switches more often in the same time.
fn switches_per_operation(view: &View<'_>, mix: &str, mode: Mode) -> Option<f64> {
    let (switches, speed) = (switches(view, mix, mode), speed(view, mix, mode, 0));
    Some(switches? / speed?)
}

/// Energy for the same work of all VMs, relative to vanilla's.
fn energy(view: &View<'_>, mix: &str, mode: Mode) -> Option<f64> {
    let watts = |mode| {
        let report = report(view, mix, mode)?;
        Some(report.energy(BUSY_W, IDLE_W) / super::measure::elapsed(&report))
    };
    let (power, vanilla, work) =
        (watts(mode), watts(Mode::Vanilla), mean_ratio(view, mix, 0..VMS, mode, Mode::Vanilla));
    Some(power? / vanilla? / work?)
}

/// Largest minus smallest throughput of the four VMs, each relative to its native one.
fn spread(view: &View<'_>, mix: &str, mode: Mode) -> Option<f64> {
    let ratios = || (0..VMS).map(|vm| ratio(view, mix, vm, mode, Mode::Native));
    let (most, least) = (largest(ratios()), smallest(ratios()));
    Some(most? - least?)
}

/// Share of the pCPUs' time that is not idle.
fn utilisation(view: &View<'_>, mix: &str, mode: Mode) -> Option<f64> {
    let report = report(view, mix, mode)?;
    let idle: u64 = report.pcpus.iter().map(|p: &PcpuReport| p.idle).sum();
    Some(1.0 - idle as f64 / (report.elapsed as f64 * report.pcpus.len() as f64))
}

/// Mean latency of wake-ups of the request-response pairs.
fn latency(view: &View<'_>, mode: Mode) -> Option<f64> {
    let totals = report(view, "request-response", mode)?.vms[0].tasks[0].totals;
    (totals.wakes > 0).then(|| totals.wake_ns as f64 / totals.wakes as f64)
}

/// How the row called `id` is measured.
pub(super) fn measure(id: &str) -> Option<Measure> {
    four_alike(id).or_else(|| mixed(id)).or_else(|| pairs(id))
}

fn four_alike(id: &str) -> Option<Measure> {
    const MIXES: [&str; 2] = ["4 dedup", "4 volrend"];
    let gain = |mix: &'static str| {
        number(move |v| Some(100.0 * (mean_ratio(v, mix, 0..VMS, Mode::IdlePoll, Mode::Vanilla)? - 1.0)))
    };
    Some(match id {
        "1-04" => number(wake_beside_ratio),
        "2.3-05" => holds(|v| {
            every(MIXES.map(|mix| {
                let [vanilla, idle] = [Mode::Vanilla, Mode::IdlePoll].map(|mode| utilisation(v, mix, mode));
                Some(vanilla? < idle?)
            }))
        }),
        "2.3-06" => gain("4 dedup"),
        "2.3-07" => gain("4 volrend"),
        "2.3-08" => holds(|v| {
            every(
                MIXES.map(|mix| Some(mean_ratio(v, mix, 0..VMS, Mode::Vanilla, Mode::Native)? <= 1.0 / MUCH)),
            )
        }),
        "2.3-10" => holds(|v| {
            every(MIXES.map(|mix| Some(mean_ratio(v, mix, 0..VMS, Mode::IdlePoll, Mode::Vanilla)? > 1.0)))
        }),
        _ => return None,
    })
}

fn mixed(id: &str) -> Option<Measure> {
    Some(match id {
        "2.3-14" => holds(|v| Some(spread(v, "mix", Mode::Vanilla)? >= LARGE)),
        "2.3-15" => holds(|v| {
            let [vanilla, idle] = [Mode::Vanilla, Mode::IdlePoll].map(|mode| spread(v, "mix", mode));
            Some(idle? < vanilla?)
        }),
        "2.3-16" => holds(|v| {
            let [vanilla, halt, idle] = VIRTUAL.map(|mode| mean_ratio(v, "mix", 0..VMS, mode, Mode::Native));
            Some(idle? > vanilla?.max(halt?))
        }),
        "2.3-19" => holds(|v| Some(spread(v, "mix", Mode::IdlePoll)? >= LARGE)),
        "2.3-20" => {
            holds(|v| every([2, 3].map(|vm| Some(ratio(v, "mix", vm, Mode::IdlePoll, Mode::Vanilla)? < 1.0))))
        }
        _ => return None,
    })
}

fn pairs(id: &str) -> Option<Measure> {
    let system =
        |mode| holds(move |v| Some(over_pairs(|mix| mean_ratio(v, mix, 0..VMS, mode, Mode::Vanilla))? > 1.0));
    let faster_wake_ups = |mode| {
        holds(move |v| {
            let (own, vanilla) = (latency(v, mode), latency(v, Mode::Vanilla));
            Some(own? < vanilla?)
        })
    };
    let computing = |v: &View<'_>, mode| over_pairs(|mix| mean_ratio(v, mix, [1, 3], mode, Mode::Vanilla));
    let joules = |v: &View<'_>, mode| over_pairs(|mix| energy(v, mix, mode));
    Some(match id {
        "0-06" => system(Mode::IdlePoll),
        "0-07" => system(Mode::HaltPoll),
        "0-08" => faster_wake_ups(Mode::IdlePoll),
        "0-09" => faster_wake_ups(Mode::HaltPoll),
        "4.1-01" => holds(|v| every(PAIRS.map(|mix| switches(v, mix, Mode::IdlePoll).map(|n| n == 0.0)))),
        "4.1-02" => holds(|v| {
            every(PAIRS.map(|mix| {
                let [vanilla, halt] =
                    [Mode::Vanilla, Mode::HaltPoll].map(|mode| switches_per_operation(v, mix, mode));
                Some(halt? <= vanilla? / MUCH)
            }))
        }),
        "4.2-03" => holds(move |v| Some(computing(v, Mode::IdlePoll)? < 1.0)),
        "4.2-08" => holds(move |v| {
            let [halt, idle] = [Mode::HaltPoll, Mode::IdlePoll].map(|mode| computing(v, mode));
            Some(halt? >= MUCH * idle?)
        }),
        // A quarter of vanilla's is still much.
        "4.2-10" => holds(|v| {
            let [vanilla, halt] = [Mode::Vanilla, Mode::HaltPoll]
                .map(|mode| over_pairs(|mix| switches_per_operation(v, mix, mode)));
            Some(halt? >= 0.25 * vanilla?)
        }),
        "4.3-01" => holds(move |v| Some(joules(v, Mode::IdlePoll)? <= 1.0 / MUCH)),
        "4.3-02" => holds(move |v| Some(joules(v, Mode::HaltPoll)? <= 1.0 / MUCH)),
        "4.3-03" => holds(move |v| {
            let [halt, idle] = [Mode::HaltPoll, Mode::IdlePoll].map(|mode| joules(v, mode));
            Some(halt? >= idle?)
        }),
        "4.3-04" => holds(move |v| {
            let [halt, idle] = [Mode::HaltPoll, Mode::IdlePoll].map(|mode| joules(v, mode));
            let (halt, idle) = (halt?, idle?);
            Some(idle >= halt || about(idle, halt))
        }),
        _ => return None,
    })
}

/// A value of each mode for each mix.
fn by_mode<'m>(
    mixes: &[&'m str],
    of: impl Fn(&'m str, Mode) -> Option<f64>,
) -> Vec<(&'m str, Vec<Labelled>)> {
    let modes = |mix| VIRTUAL.map(|mode| (mode.name().to_owned(), of(mix, mode))).into();
    mixes.iter().map(|mix| (*mix, modes(*mix))).collect()
}

pub(super) fn figures(view: &View<'_>) -> Vec<Figure> {
    const NATIVE: &str = "Throughput relative to the same four programs without virtualisation.";
    let normalised = |place, title, values| {
        bars(place, title, NATIVE, "times the native throughput", Quantity::Factor, values)
    };
    let of_vms = |mix, vms: &[usize], mode| mean_ratio(view, mix, vms.iter().copied(), mode, Mode::Native);
    let three = [("dedup", 0), ("volrend", 1), ("matmul", 2)].map(|(name, vm)| {
        (
            name,
            VIRTUAL.map(|mode| (mode.name().to_owned(), ratio(view, "mix", vm, mode, Mode::Native))).into(),
        )
    });
    let mut synchronising = by_mode(&PAIRS, |mix, mode| of_vms(mix, &[0, 2], mode));
    synchronising.push((
        "matmul beside them",
        VIRTUAL.map(|mode| (mode.name().to_owned(), over_pairs(|mix| of_vms(mix, &[1, 3], mode)))).into(),
    ));
    vec![
        normalised(
            "Figure 2",
            "The same program in four VMs",
            by_mode(&["4 dedup", "4 volrend"], |mix, mode| of_vms(mix, &[0, 1, 2, 3], mode)),
        ),
        normalised("Figure 3", "Two that synchronise, two that compute", three.into()),
        bars(
            "Table 2",
            "vCPUs that leave their pCPU",
            "Halts and preemptions of the two VMs with the program, beside two with matmul.",
            "switches per operation",
            Quantity::Plain,
            by_mode(&PAIRS, |mix, mode| switches_per_operation(view, mix, mode)),
        ),
        normalised("Figure 4", "Programs that synchronise beside matmul", synchronising),
        bars(
            "Figure 5",
            "Energy for the same work of all VMs",
            "By assumed watts.",
            "of vanilla's",
            Quantity::Factor,
            by_mode(&PAIRS, |mix, mode| energy(view, mix, mode)),
        ),
    ]
}
