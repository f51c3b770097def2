//! The ATC'14 paper: two sockets with 8 cores each, VMs with up to 16 vCPUs, Linux 3.9. Slowdowns in per cent: twice
//! the time is 100 % slower.

mod figures;
mod shared;
mod suites;

pub(super) use figures::figures;
pub(super) use suites::{BUSY_W, IDLE_W};

use super::measure::{MUCH, Measure, View, all, every, holds, largest, median, number, seconds};
use super::runs::Run;

/// dedup's run time with all of its work, 23.5 s of CPU time, by that of an eighth.
const DEDUP_SCALE: f64 = 8.0;
/// An eighth of dedup's work.
const DEDUP: &str = "2.9375s";
/// All of dedup's work, where a run with Gleaner, which has to settle, is compared.
const WHOLE_DEDUP: &str = "23.5s";
/// Work of the other programs beside a VM.
const WORK: &str = "16s";
/// Work of the other programs alone; the paper's inputs (§7) run for seconds.
const LONG_WORK: &str = "64s";
/// Seeds of runs beside another VM. A program that blocks often is either fast or slow there for long: its vCPUs' weight
/// decides whether they preempt on wake-up.
const SEEDS: [u32; 3] = [1, 2, 3];

fn alone(program: &str, system: &str, size: u32, work: &str) -> Run {
    let run = Run::of("atc14-alone").with("vm.bench.program.0.name", program).with("system", system);
    run.with("size", size.to_string()).with("vm.bench.program.0.work", work)
}

fn beside(program: &str, system: &str, other: &str, size: u32, work: &str, seed: u32) -> Run {
    let run = Run::of("atc14-beside").with("vm.bench.program.0.name", program).with("system", system);
    let run = run.with("vm.other.program.0.name", other).with("size", size.to_string());
    run.with("vm.bench.program.0.work", work).with("seed", seed.to_string())
}

/// Run time of dedup alone, in seconds with all of its work.
fn dedup(view: &View<'_>, system: &str, size: u32) -> Option<f64> {
    Some(seconds(&*view.report(alone("dedup", system, size, DEDUP))?)? * DEDUP_SCALE)
}

/// Median run time beside another VM, in seconds.
fn time_beside(view: &View<'_>, program: &str, system: &str, other: &str, size: u32) -> Option<f64> {
    let (work, scale) = if program == "dedup" { (DEDUP, DEDUP_SCALE) } else { (WORK, 1.0) };
    let time = |seed| seconds(&*view.report(beside(program, system, other, size, work, seed))?);
    Some(median(SEEDS.map(time))? * scale)
}

fn shared_dedup(view: &View<'_>, other: &str, size: u32) -> Option<f64> {
    time_beside(view, "dedup", "vm", other, size)
}

/// How much longer than `base` a run takes, in per cent.
fn slower(time: Option<f64>, base: Option<f64>) -> Option<f64> {
    Some(100.0 * (time? / base? - 1.0))
}

/// The quotient of two values; both are asked for.
fn ratio(a: Option<f64>, b: Option<f64>) -> Option<f64> {
    Some(a? / b?)
}

/// Run time alone in a system, in seconds.
fn time_alone(view: &View<'_>, program: &str, system: &str) -> Option<f64> {
    let work = if program == "dedup" { WHOLE_DEDUP } else { LONG_WORK };
    seconds(&*view.report(alone(program, system, 16, work))?)
}

/// Slowdown alone in a VM, with or without Gleaner, in per cent of the native run time.
fn slowdown(view: &View<'_>, program: &str, system: &str) -> Option<f64> {
    slower(time_alone(view, program, system), time_alone(view, program, "native"))
}

/// Wake-up latency of the pair in a setting of Table 2, in microseconds.
fn wake(view: &View<'_>, system: &str, setting: &str) -> Option<f64> {
    let run = if (system, setting) == ("native", "D") {
        Run::of("atc14-table2-native")
    } else {
        Run::of("atc14-table2").with("system", system).with("setting", setting)
    };
    wake_latency(view, run)
}

/// A wake-up's latency in a VM by its latency natively, beside another VM or program (D).
pub(super) fn wake_beside_ratio(view: &View<'_>) -> Option<f64> {
    ratio(wake(view, "vm", "D"), wake(view, "native", "D"))
}

fn wake_latency(view: &View<'_>, run: Run) -> Option<f64> {
    let totals = view.report(run)?.vms[0].tasks[0].totals;
    (totals.wakes > 0).then(|| totals.wake_ns as f64 / totals.wakes as f64 / 1e3)
}

/// The four times of dedup beside other VMs, relative to the dedicated VM.
fn sharing(view: &View<'_>) -> Option<Vec<f64>> {
    let cells = [("streamcluster", 4), ("streamcluster", 16), ("matmul", 4), ("matmul", 16)];
    all(cells.map(|(other, size)| ratio(shared_dedup(view, other, size), dedup(view, "vm", size))))
}

/// How the row called `id` is measured.
pub(super) fn measure(id: &str) -> Option<Measure> {
    table_1(id)
        .or_else(|| table_2(id))
        .or_else(|| alone_with_gleaner(id))
        .or_else(|| suites::measure(id))
        .or_else(|| shared::measure(id))
}

#[allow(clippy::too_many_lines, reason = "an arm for each row")]
fn table_1(id: &str) -> Option<Measure> {
    let alone = |system: &'static str, size| number(move |v| dedup(v, system, size));
    let slowdown = |size| number(move |v| ratio(dedup(v, "vm", size), dedup(v, "native", size)));
    let beside = |other: &'static str, size| number(move |v| shared_dedup(v, other, size));
    let by_native = |other: &'static str, size| {
        number(move |v| ratio(shared_dedup(v, other, size), dedup(v, "native", size)))
    };
    let by_vm = |other: &'static str, size| {
        number(move |v| ratio(shared_dedup(v, other, size), dedup(v, "vm", size)))
    };
    Some(match id {
        "0-01" => holds(|v| Some(dedup(v, "vm", 16)? > dedup(v, "native", 16)?)),
        "0-03" => holds(|v| {
            let differ =
                ratio(shared_dedup(v, "matmul", 16), time_beside(v, "dedup", "vm", "freqsleep", 16))?;
            Some((differ - 1.0).abs() > super::measure::ABOUT)
        }),
        "1-06" => number(|v| slower(dedup(v, "vm", 16), dedup(v, "native", 16))),
        "1-09" => holds(|v| {
            let halts = |system: &str| {
                let report = v.report(self::alone("dedup", system, 16, WHOLE_DEDUP))?;
                Some(report.vms[0].halts_per_s(report.elapsed))
            };
            let (with, without) = (halts(v.gleaner()), halts("vm"));
            Some(with? < without?)
        }),
        "2-01" => alone("native", 1),
        "2-02" => alone("native", 4),
        "2-03" => alone("native", 16),
        "2-04" => alone("vm", 1),
        "2-05" => slowdown(1),
        "2-06" => alone("vm", 4),
        "2-07" => slowdown(4),
        "2-08" => alone("vm", 16),
        "2-10" => beside("streamcluster", 4),
        "2-11" => by_native("streamcluster", 4),
        "2-12" => by_vm("streamcluster", 4),
        "2-13" => beside("streamcluster", 16),
        "2-14" => by_native("streamcluster", 16),
        "2-15" => by_vm("streamcluster", 16),
        "2-16" => beside("matmul", 4),
        "2-17" => by_native("matmul", 4),
        "2-18" => by_vm("matmul", 4),
        "2-19" => beside("matmul", 16),
        "2-20" => by_native("matmul", 16),
        "2-21" => by_vm("matmul", 16),
        "2-22" => holds(|v| {
            let [one, four, sixteen] =
                [1, 4, 16].map(|size| ratio(dedup(v, "vm", size), dedup(v, "native", size)));
            Some(one? < four? && four? < sixteen?)
        }),
        "2-29" => number(|v| median(sharing(v)?.into_iter().map(Some))),
        "2-30" => number(|v| largest(sharing(v)?.into_iter().map(Some))),
        "2-32" => holds(|v| {
            let [few, many] = [4, 16].map(|size| {
                let (matmul, streamcluster) =
                    (shared_dedup(v, "matmul", size), shared_dedup(v, "streamcluster", size));
                Some((matmul? - streamcluster?).abs())
            });
            Some(many? > MUCH * few?)
        }),
        _ => return None,
    })
}

fn table_2(id: &str) -> Option<Measure> {
    /// What a VM adds in a setting.
    fn added(view: &View<'_>, setting: &str) -> Option<f64> {
        let (vm, native) = (wake(view, "vm", setting), wake(view, "native", setting));
        Some(vm? - native?)
    }
    let cell = |system: &'static str, setting: &'static str| number(move |v| wake(v, system, setting));
    let each =
        |setting: &'static str| move |v: &View<'_>| (wake(v, "vm", setting), wake(v, "native", setting));
    let of_vm =
        |a: &'static str, b: &'static str| move |v: &View<'_>| ratio(wake(v, "vm", a), wake(v, "vm", b));
    Some(match id {
        "1-04" => holds(move |v| {
            let (vm, native) = each("C")(v);
            Some(vm? > native?)
        }),
        "1-05" => holds(move |v| Some(of_vm("D", "C")(v)? > 1.0)),
        "1-11" => holds(move |v| Some(of_vm("D", "A")(v)? >= MUCH)),
        "3-02" => holds(|v| {
            let [vm, native] = ["vm", "native"].map(|system| {
                let (c, b) = (wake(v, system, "C"), wake(v, system, "B"));
                Some(c? - b?)
            });
            let (vm, native) = (vm?, native?);
            Some(vm > 0.0 && vm >= MUCH * native)
        }),
        "3.1-01" => cell("native", "A"),
        "3.1-02" => cell("native", "B"),
        "3.1-03" => cell("native", "C"),
        "3.1-04" => cell("native", "D"),
        "3.1-05" => cell("vm", "A"),
        "3.1-06" => cell("vm", "B"),
        "3.1-07" => cell("vm", "C"),
        "3.1-08" => cell("vm", "D"),
        "3.1-09" => holds(move |v| {
            every(["A", "B", "C", "D"].map(|setting| {
                let (vm, native) = each(setting)(v);
                Some(vm? > native?)
            }))
        }),
        "3.1-10" => holds(|v| {
            let times = all(["A", "B", "C", "D"].map(|setting| wake(v, "vm", setting)))?;
            let apart = |i: usize, j: usize| !super::measure::about(times[i], times[j]);
            Some((0..4).all(|i| (0..i).all(|j| apart(i, j))))
        }),
        "3.1-11" => holds(|v| {
            let [a, b, c] = ["A", "B", "C"].map(|setting| added(v, setting));
            let (a, b, c) = (a?, b?, c?);
            Some(a < b / MUCH && a < c / MUCH)
        }),
        "3.1-12" => holds(move |v| {
            let (vm, native) = each("B")(v);
            Some(vm? > native?)
        }),
        "3.1-14" => number(|v| ratio(wake(v, "vm", "C"), wake(v, "native", "C"))),
        "3.1-15" => holds(move |v| every(["A", "B", "C"].map(|other| Some(of_vm("D", other)(v)? > 1.0)))),
        "3.1-16" => number(of_vm("D", "C")),
        "3.1-17" => number(wake_beside_ratio),
        "3.1-18" => number(of_vm("D", "B")),
        _ => return None,
    })
}

/// §7.1: on dedicated hardware, the programs that the text names.
fn alone_with_gleaner(id: &str) -> Option<Measure> {
    let without = |program: &'static str| number(move |v| slowdown(v, program, "vm"));
    let with = |program: &'static str| number(move |v| slowdown(v, program, v.gleaner()));
    let unchanged = |program: &'static str| holds(move |v| Some((change(v, program)? - 1.0).abs() < 0.03));
    Some(match id {
        "0-04" => holds(|v| {
            let (with, without) = (time_alone(v, "dedup", v.gleaner()), time_alone(v, "dedup", "vm"));
            Some(with? < without?)
        }),
        "7.1-03" => without("facesim"),
        "7.1-04" => with("dedup"),
        "7.1-05" => with("facesim"),
        "7.1-06" => without("cholesky"),
        "7.1-07" => without("volrend"),
        "7.1-08" => with("cholesky"),
        "7.1-09" => with("volrend"),
        "7.1-10" => unchanged("ferret"),
        "7.1-11" => unchanged("freqmine"),
        "7.1-12" => unchanged("water_nsquared"),
        "7.1-13" => unchanged("water_spatial"),
        "7.1-15" => holds(|v| {
            let changes = ["bodytrack", "lu_ncb", "canneal", "x264"].map(|program| change(v, program));
            Some(all(changes)?.into_iter().all(|c| (c - 1.0).abs() <= super::measure::ABOUT))
        }),
        "7.1-16" => number(|v| Some(100.0 * (1.0 - change(v, "bodytrack")?))),
        "7.1-17" => number(|v| Some(100.0 * (1.0 - change(v, "lu_ncb")?))),
        "7.1-18" => number(|v| Some(100.0 * (change(v, "canneal")? - 1.0))),
        "7.1-19" => number(|v| Some(100.0 * (change(v, "x264")? - 1.0))),
        _ => return None,
    })
}

/// Run time alone with Gleaner by that without.
fn change(view: &View<'_>, program: &str) -> Option<f64> {
    ratio(time_alone(view, program, view.gleaner()), time_alone(view, program, "vm"))
}
