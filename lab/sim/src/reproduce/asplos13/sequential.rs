//! §4.1.2, §4.3 and §5: an 8-vCPU VM beside four sequential VMs.

use super::super::measure::{
    ABOUT, MUCH, Measure, View, all, every, holds, largest, mean, number, share, smallest, some,
};
use super::{Mix, QUIET, WITH_EXITS, communicating, gain, parsec, reduction};
use crate::ids::Ns;
use crate::world::{Category, Report};

pub(super) fn time(view: &View<'_>, program: &str, scheme: &str) -> Option<f64> {
    Mix::sequential(program, scheme).time(view)
}

/// Run time under one scheme by that under another.
pub(super) fn by_scheme(view: &View<'_>, program: &str, a: &str, b: &str) -> Option<f64> {
    let (a, b) = (time(view, program, a), time(view, program, b));
    Some(a? / b?)
}

/// Whether a program is faster under `a` than under `b`.
fn faster(program: &'static str, a: &'static str, b: &'static str) -> Measure {
    holds(move |v| Some(by_scheme(v, program, a, b)? < 1.0))
}

/// Gain by urgent vCPU first over another scheme, in per cent.
fn gain_over(view: &View<'_>, program: &str, scheme: &str) -> Option<f64> {
    gain(time(view, program, scheme), time(view, program, "uvf"))
}

/// Slowdown of the sequential VMs against a pCPU of their own: elapsed time by the CPU time that they get.
fn sequential(report: &Report) -> Option<f64> {
    let cpu = report.vms.get(1..).filter(|vms| !vms.is_empty())?.iter().map(|vm| vm.tasks[0].totals.cpu);
    Some(report.elapsed as f64 * (report.vms.len() - 1) as f64 / cpu.sum::<Ns>() as f64)
}

/// Slowdown of the sequential VMs beside a program.
pub(super) fn slowdown_beside(view: &View<'_>, program: &str, scheme: &str) -> Option<f64> {
    Mix::sequential(program, scheme).mean(view, sequential)
}

/// The worst slowdown of sequential VMs, by program beside them.
fn worst(view: &View<'_>, scheme: &str) -> Option<f64> {
    largest(parsec().map(|program| slowdown_beside(view, program, scheme)))
}

fn with_exits(
    view: &View<'_>,
    program: &str,
    scheme: &str,
    of: impl Fn(&Report) -> Option<f64>,
) -> Option<f64> {
    Mix::with_exits(program, scheme).mean(view, of)
}

/// Fewer pause-loop exits by urgent vCPU first, in per cent.
fn fewer_exits(view: &View<'_>, program: &str) -> Option<f64> {
    let exits = |scheme| Mix::with_exits(program, scheme).count(view, |c| c.pause_exits);
    reduction(exits("baseline"), exits("uvf"))
}

/// Run times under the baseline and another scheme, with pause-loop exits.
pub(super) fn exit_times(view: &View<'_>, program: &str, scheme: &str) -> (Option<f64>, Option<f64>) {
    (Mix::with_exits(program, "baseline").time(view), Mix::with_exits(program, scheme).time(view))
}

fn exit_gain(view: &View<'_>, program: &str) -> Option<f64> {
    let (before, after) = exit_times(view, program, "uvf");
    gain(before, after)
}

/// CPU time in a category by urgent vCPU first relative to the baseline, with pause-loop exits.
pub(super) fn spinning(view: &View<'_>, program: &str, category: Category) -> Option<f64> {
    let time = |scheme| with_exits(view, program, scheme, move |r| Some(r.vms[0].time(category) as f64));
    let (before, after) = (time("baseline"), time("uvf"));
    let (before, after) = (before?, after?);
    Some(if before > 0.0 { after / before } else { 1.0 })
}

/// Run times without and with a guest that delays its interrupts.
pub(super) fn delayed_times(view: &View<'_>, program: &str, scheme: &str) -> (Option<f64>, Option<f64>) {
    (time(view, program, scheme), Mix::delayed(program, scheme).time(view))
}

/// Speed-up by a guest that delays its interrupts, in per cent.
fn delayed(view: &View<'_>, program: &str, scheme: &str) -> Option<f64> {
    let (before, after) = delayed_times(view, program, scheme);
    gain(before, after)
}

pub(super) fn measure(id: &str) -> Option<Measure> {
    balance(id).or_else(|| urgent(id)).or_else(|| exits(id)).or_else(|| delayed_interrupts(id))
}

fn balance(id: &str) -> Option<Measure> {
    let slower = |program: &'static str| faster(program, "baseline", "balance");
    Some(match id {
        "1-10" => holds(|v| Some(mean(parsec().map(|p| by_scheme(v, p, "lc", "baseline")))? < 1.0)),
        "4.1.2-03" => slower("bodytrack"),
        "4.1.2-04" => slower("canneal"),
        "4.1.2-05" => slower("facesim"),
        "4.1.2-06" => slower("ferret"),
        "4.1.2-07" => slower("fluidanimate"),
        "4.1.2-08" => slower("vips"),
        "4.1.2-10" => {
            holds(|v| some(parsec().map(|p| by_scheme(v, p, "balance", "baseline").map(|r| r < 1.0))))
        }
        "4.1.2-11" => holds(|v| {
            let both = parsec().map(|p| {
                let (balance, lc) =
                    (by_scheme(v, p, "balance", "baseline"), by_scheme(v, p, "lc", "balance"));
                Some((balance?, lc?))
            });
            let worse: Vec<f64> =
                all(both)?.into_iter().filter(|(balance, _)| *balance > 1.0).map(|(_, lc)| lc).collect();
            Some(!worse.is_empty() && mean(worse.into_iter().map(Some))? < 1.0)
        }),
        "4.1.2-12" => holds(|v| {
            let spins = [Category::LockSpin, Category::TlbSpin, Category::UserSpin];
            let spun = |scheme: &str| {
                mean(
                    communicating()
                        .map(|p| Mix::sequential(p, scheme).mean(v, |r| Some(share(&r.vms[0], &spins)))),
                )
            };
            let (lc, balance) = (spun("lc"), spun("balance"));
            Some(lc? > balance?)
        }),
        "4.1.2-13" => faster("dedup", "balance", "lc"),
        "4.1.2-14" => faster("streamcluster", "balance", "lc"),
        "4.1.2-28" => number(|v| worst(v, "balance")),
        "4.1.2-29" => holds(|v| Some((worst(v, "baseline")? - 1.0).abs() <= ABOUT)),
        "4.1.2-30" => holds(|v| {
            let [balance, lc, uvf] = ["balance", "lc", "uvf"].map(|scheme| worst(v, scheme));
            let ours = lc?.max(uvf?);
            Some((ours - 1.0).abs() <= ABOUT && ours < balance?)
        }),
        _ => return None,
    })
}

fn urgent(id: &str) -> Option<Measure> {
    let dp = |program: &'static str| faster(program, "lc-dp", "lc");
    let tlb_co = |program: &'static str| faster(program, "uvf", "lc-dp");
    let gains =
        |v: &View<'_>, scheme: &'static str| parsec().map(|p| gain_over(v, p, scheme)).collect::<Vec<_>>();
    Some(match id {
        "abstract-04" => holds(|v| {
            let these = mean(communicating().map(|p| gain_over(v, p, "baseline")));
            let others = mean(QUIET.map(|p| gain_over(v, p, "baseline")));
            Some(these? > others?)
        }),
        "4.1.2-15a" => number(move |v| smallest(gains(v, "baseline"))),
        "4.1.2-15b" => number(move |v| largest(gains(v, "baseline"))),
        "4.1.2-16a" => number(move |v| smallest(gains(v, "lc"))),
        "4.1.2-16b" => number(move |v| largest(gains(v, "lc"))),
        "4.1.2-17" => dp("dedup"),
        "4.1.2-18" => dp("facesim"),
        "4.1.2-19" => dp("ferret"),
        "4.1.2-20" => dp("fluidanimate"),
        "4.1.2-21" => dp("streamcluster"),
        "4.1.2-22" => dp("x264"),
        "4.1.2-23" => tlb_co("dedup"),
        "4.1.2-24" => tlb_co("ferret"),
        "4.1.2-25" => tlb_co("vips"),
        "4.1.2-26" => holds(|v| {
            every(
                ["baseline", "balance", "lc"]
                    .map(|other| Some(mean(parsec().map(|p| by_scheme(v, p, "uvf", other)))? < 1.0)),
            )
        }),
        _ => return None,
    })
}

fn exits(id: &str) -> Option<Measure> {
    let fewer = |program: &'static str| number(move |v| fewer_exits(v, program));
    let spins_less =
        |category| holds(move |v| Some(mean(WITH_EXITS.map(|p| spinning(v, p, category)))? <= 1.0 / MUCH));
    Some(match id {
        "4.3-04a" => number(|v| smallest(WITH_EXITS.map(|p| exit_gain(v, p)))),
        "4.3-04b" => number(|v| largest(WITH_EXITS.map(|p| exit_gain(v, p)))),
        "4.3-05" => spins_less(Category::LockSpin),
        "4.3-06" => spins_less(Category::TlbSpin),
        "4.3-10" => fewer("streamcluster"),
        "4.3-11" => fewer("facesim"),
        "4.3-12" => fewer("ferret"),
        "4.3-13" => fewer("vips"),
        "4.3-14" => holds(|v| {
            every(
                WITH_EXITS
                    .map(|p| Mix::with_exits(p, "uvf").count(v, |c| c.pause_exits).map(|exits| exits > 0.0)),
            )
        }),
        _ => return None,
    })
}

fn delayed_interrupts(id: &str) -> Option<Measure> {
    let gains = |program: &'static str, scheme: &'static str| {
        holds(move |v| Some(delayed(v, program, scheme)? > 0.0))
    };
    Some(match id {
        "5-01" => gains("streamcluster", "baseline"),
        "5-02" => gains("streamcluster", "lc"),
        "5-03" => gains("facesim", "baseline"),
        "5-04" => gains("facesim", "lc"),
        "5-05" => holds(|v| {
            every(["streamcluster", "facesim"].map(|p| {
                let (delayed, dp) = (Mix::delayed(p, "lc").time(v), time(v, p, "lc-dp"));
                super::alone::unchanged(delayed, dp)
            }))
        }),
        "5-06" => holds(|v| {
            every(["streamcluster", "facesim"].map(|p| {
                let preempted = |mix: Mix| mix.count(v, |c| c.lock_holder_preempted);
                let (without, with) =
                    (preempted(Mix::sequential(p, "baseline")), preempted(Mix::delayed(p, "baseline")));
                let (without, with) = (without?, with?);
                Some(without > 0.0 && with <= without / MUCH)
            }))
        }),
        _ => return None,
    })
}
