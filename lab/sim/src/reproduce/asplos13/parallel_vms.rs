//! §4.1.1, §4.1.3 and §4.2: parallel VMs beside each other.

use super::super::measure::{
    ABOUT, MUCH, Measure, View, about, all, every, holds, largest, mean, number, rate, seconds, some,
};
use super::alone::unchanged;
use super::{Mix, QUIET, communicating, gain, parsec, reduction};
use crate::world::{Category, Report, VcpuCounts};

/// Programs that contend for futex queues (§4.1.1).
const CONTENDING: [&str; 3] = ["streamcluster", "facesim", "bodytrack"];
/// Values of the urgent allowance in ms, in ascending order.
const ALLOWANCES_MS: [u32; 4] = [6, 12, 18, 24];

fn count(view: &View<'_>, mix: &Mix, of: fn(&VcpuCounts) -> u64) -> Option<f64> {
    mix.mean(view, |r| Some(r.vms[0].count(of) as f64))
}

/// Preempted lock holders beside dedup with a delay of preemption.
pub(super) fn preempted(view: &View<'_>, program: &str, delay_us: u32) -> Option<f64> {
    let scheme = match delay_us {
        0 => "lc",
        100 => "lc-dp-100us",
        300 => "lc-dp-300us",
        500 => "lc-dp",
        _ => "lc-dp-1000us",
    };
    count(view, &Mix::parallel(program, "dedup", scheme), |c| c.lock_holder_preempted)
}

/// Three VMs with vips, by urgent slice.
fn three_vips(slice: &str) -> Mix {
    let mix = Mix::parallel("vips", "vips", "uvf").with("vm.other.count", "2");
    mix.with("host.urgent.slice", slice)
}

/// vips beside two VMs with facesim, by urgent allowance.
fn beside_facesim(allowance_ms: u32) -> Mix {
    let mix = Mix::parallel("vips", "facesim", "uvf").with("vm.other.count", "2");
    mix.with("host.urgent.allowance", &format!("{allowance_ms}ms"))
}

/// CPU time that vips' VM spends waiting for shootdowns to be acknowledged.
fn shootdown_time(view: &View<'_>, mix: &Mix) -> Option<f64> {
    mix.mean(view, |r| Some(r.vms[0].time(Category::TlbSpin) as f64))
}

/// Rate of the second VM's program.
fn other_rate(view: &View<'_>, mix: &Mix) -> Option<f64> {
    mix.mean(view, |r| rate(r, 1))
}

/// Rate of a program that runs alone.
fn rate_alone(view: &View<'_>, program: &str) -> Option<f64> {
    Mix::alone(program).mean(view, |r| Some(r.vms[0].tasks[0].totals.operations as f64 / seconds(r)?))
}

/// The sum of both programs' speeds relative to alone.
pub(super) fn weighted_speed_up(view: &View<'_>, program: &str, other: &str, scheme: &str) -> Option<f64> {
    let mix = Mix::parallel(program, other, scheme);
    let own = (Mix::alone(program).time(view), mix.time(view));
    let others = (other_rate(view, &mix), rate_alone(view, other));
    Some(own.0? / own.1? + others.0? / others.1?)
}

fn time_beside(view: &View<'_>, program: &str, other: &str, scheme: &str) -> Option<f64> {
    Mix::parallel(program, other, scheme).time(view)
}

/// Run time beside `other` under one scheme by that under another.
fn by_scheme(view: &View<'_>, program: &str, other: &str, a: &str, b: &str) -> Option<f64> {
    let (a, b) = (time_beside(view, program, other, a), time_beside(view, program, other, b));
    Some(a? / b?)
}

/// Rate of dedup as the neighbour, relative to alone; the mean over all programs.
fn dedup_beside(view: &View<'_>, scheme: &str) -> Option<f64> {
    let beside = mean(parsec().map(|p| other_rate(view, &Mix::parallel(p, "dedup", scheme))));
    let alone = rate_alone(view, "dedup");
    Some(beside? / alone?)
}

/// streamcluster beside bodytrack, by barrier and scheme.
fn barrier(blocking: bool, scheme: &str) -> Mix {
    let variant = if blocking { "asplos13-blocking" } else { "asplos13" };
    Mix::parallel("streamcluster", "bodytrack", scheme).with("vm.parallel.program.0.variant", variant)
}

/// Gain by Resched-Co, in per cent.
pub(super) fn resched_co(view: &View<'_>, blocking: bool) -> Option<f64> {
    gain(barrier(blocking, "uvf").time(view), barrier(blocking, "uvf-co").time(view))
}

/// Gain by Resched-Co of any program beside bodytrack.
fn resched_co_of(view: &View<'_>, program: &str) -> Option<f64> {
    let time = |scheme| time_beside(view, program, "bodytrack", scheme);
    gain(time("uvf"), time("uvf-co"))
}

pub(super) fn measure(id: &str) -> Option<Measure> {
    delays(id).or_else(|| slices(id)).or_else(|| mixes(id)).or_else(|| barriers(id))
}

fn delays(id: &str) -> Option<Measure> {
    let lowers = |program: &'static str| {
        holds(move |v| {
            let (without, with) = (preempted(v, program, 0), preempted(v, program, 500));
            Some(with? <= without? / MUCH)
        })
    };
    Some(match id {
        "4.1.1-02" => holds(|v| {
            let lost = |other| {
                Mix::parallel("streamcluster", other, "baseline")
                    .mean(v, |r: &Report| Some(super::super::measure::per_vcpu_second(r, |c| c.preempted)))
            };
            let (dedup, freqmine) = (lost("dedup"), lost("freqmine"));
            Some(dedup? >= MUCH * freqmine?)
        }),
        "4.1.1-05" => lowers("streamcluster"),
        "4.1.1-06" => lowers("facesim"),
        "4.1.1-07" => lowers("bodytrack"),
        "4.1.1-08" => number(|v| {
            let cells = CONTENDING.into_iter().flat_map(|p| [100, 300, 500, 1000].map(|us| (p, us)));
            largest(cells.map(|(p, us)| reduction(preempted(v, p, 0), preempted(v, p, us))))
        }),
        "4.1.1-09" => holds(|v| {
            every(CONTENDING.map(|p| {
                let [none, some, most] = [0, 300, 1000].map(|us| preempted(v, p, us));
                Some((some? - most?) / none? <= ABOUT)
            }))
        }),
        "4.1.1-10" => holds(|v| every(CONTENDING.map(|p| preempted(v, p, 1000).map(|n| n > 0.0)))),
        _ => return None,
    })
}

fn slices(id: &str) -> Option<Measure> {
    const SLICES: [&str; 5] = ["100us", "500us", "1ms", "3ms", "5ms"];
    let facesim = |v: &View<'_>, ms| other_rate(v, &beside_facesim(ms));
    let vips = |v: &View<'_>, ms| beside_facesim(ms).time(v);
    Some(match id {
        "3.1.3-13" => holds(|v| {
            let (strict, loose) =
                (shootdown_time(v, &beside_facesim(6)), shootdown_time(v, &beside_facesim(24)));
            Some(strict? > loose?)
        }),
        "4.1.1-17" => holds(|v| {
            let times = all(SLICES.map(|slice| shootdown_time(v, &three_vips(slice))))?;
            Some(times.windows(2).all(|pair| pair[0] < pair[1]))
        }),
        "4.1.1-18" => holds(|v| {
            let times = all(SLICES.map(|slice| shootdown_time(v, &three_vips(slice))))?;
            Some(times[1..].iter().all(|t| times[0] < *t))
        }),
        "4.1.1-19" => holds(|v| {
            let (short, long) = (three_vips("100us").time(v), three_vips("500us").time(v));
            Some(short? > long?)
        }),
        "4.1.1-23" => holds(move |v| {
            let (strict, loose) = (vips(v, 6), vips(v, 24));
            Some(loose? < strict?)
        }),
        "4.1.1-24" => holds(move |v| {
            let (strict, loose) = (facesim(v, 6), facesim(v, 24));
            Some(loose? >= (1.0 - ABOUT) * strict?)
        }),
        "4.1.1-27" => number(move |v| {
            let times = all(ALLOWANCES_MS.map(|ms| vips(v, ms)))?;
            // The last one before the first that is faster than the strictest by more than 3 %.
            let helps = times.iter().position(|t| *t < 0.97 * times[0])?;
            Some(f64::from(ALLOWANCES_MS[helps - 1]))
        }),
        _ => return None,
    })
}

#[allow(clippy::too_many_lines, reason = "an arm for each row")]
fn mixes(id: &str) -> Option<Measure> {
    let gains = |program: &'static str| {
        holds(move |v| {
            let [lc, uvf] = ["lc", "uvf"].map(|scheme| weighted_speed_up(v, program, "freqmine", scheme));
            Some(uvf? > lc?)
        })
    };
    let mean_of = |v: &View<'_>, other: &'static str, scheme: &str| {
        mean(communicating().map(|p| weighted_speed_up(v, p, other, scheme)))
    };
    let all_beside_dedup =
        |v: &View<'_>, scheme: &str| mean(parsec().map(|p| weighted_speed_up(v, p, "dedup", scheme)));
    Some(match id {
        "4.1.3-04" => holds(|v| {
            let slowdown = |p| {
                let (beside, alone) = (time_beside(v, p, "freqmine", "baseline"), Mix::alone(p).time(v));
                Some(beside? / alone?)
            };
            Some(mean(communicating().map(slowdown))? >= 2.0 * MUCH)
        }),
        "4.1.3-05" => holds(|v| {
            Some(mean(communicating().map(|p| by_scheme(v, p, "freqmine", "balance", "baseline")))? < 1.0)
        }),
        "4.1.3-06" => {
            holds(move |v| unchanged(mean_of(v, "freqmine", "lc"), mean_of(v, "freqmine", "balance")))
        }
        "4.1.3-07" => gains("dedup"),
        "4.1.3-08" => gains("ferret"),
        "4.1.3-09" => gains("vips"),
        "4.1.3-10" => {
            holds(move |v| unchanged(mean_of(v, "freqmine", "lc-dp"), mean_of(v, "freqmine", "lc")))
        }
        "4.1.3-11" => holds(|v| Some(dedup_beside(v, "baseline")? <= 0.5 / MUCH)),
        "4.1.3-12" => holds(|v| {
            let [baseline, balance] = ["baseline", "balance"].map(|scheme| dedup_beside(v, scheme));
            Some(balance? > baseline?)
        }),
        "4.1.3-13" => {
            holds(|v| Some(mean(parsec().map(|p| by_scheme(v, p, "dedup", "lc", "balance")))? < 1.0))
        }
        "4.1.3-14" => holds(|v| {
            let [balance, lc] = ["balance", "lc"].map(|scheme| dedup_beside(v, scheme));
            Some(lc? > balance?)
        }),
        "4.1.3-15" => holds(move |v| {
            let [uvf, baseline, balance, lc] =
                ["uvf", "baseline", "balance", "lc"].map(|scheme| all_beside_dedup(v, scheme));
            Some(uvf? > baseline?.max(balance?).max(lc?))
        }),
        "4.1.3-16" => holds(|v| {
            some(parsec().map(|p| {
                let [lc, dp] = ["lc", "lc-dp"].map(|scheme| weighted_speed_up(v, p, "dedup", scheme));
                Some(dp? < lc?)
            }))
        }),
        "4.1.3-17" => holds(move |v| {
            let [lc, uvf] = ["lc", "uvf"].map(|scheme| all_beside_dedup(v, scheme));
            Some(uvf? >= lc?)
        }),
        _ => return None,
    })
}

fn barriers(id: &str) -> Option<Measure> {
    Some(match id {
        "3.1.2-07" => holds(|v| every(QUIET.map(|p| resched_co_of(v, p).map(|g| g.abs() <= 100.0 * ABOUT)))),
        "3.1.2-08" => holds(|v| {
            Some(mean(communicating().filter(|p| *p != "streamcluster").map(|p| resched_co_of(v, p)))? <= 0.0)
        }),
        "4.2-02" => holds(|v| {
            let bodytrack = time_beside(v, "streamcluster", "bodytrack", "baseline");
            let others = largest(
                ["dedup", "freqmine", "vips", "facesim"]
                    .map(|o| time_beside(v, "streamcluster", o, "baseline")),
            );
            Some(bodytrack? > others?)
        }),
        "4.2-04" => number(|v| resched_co(v, false)),
        "4.2-05" => holds(|v| {
            let [without, with] = ["uvf", "uvf-co"].map(|scheme| other_rate(v, &barrier(false, scheme)));
            Some(about(with?, without?))
        }),
        "4.2-06" => holds(|v| {
            let (spinning, blocking) = (resched_co(v, false), resched_co(v, true));
            Some(spinning? > blocking?)
        }),
        "4.2-07" => number(|v| resched_co(v, true)),
        "4.2-13" => number(|v| {
            let [without, with] =
                ["uvf", "uvf-co"].map(|scheme| count(v, &barrier(false, scheme), |c| c.resched_ipis));
            reduction(without, with)
        }),
        _ => return None,
    })
}
