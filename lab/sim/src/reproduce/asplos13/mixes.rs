//! §4.1.3, Figure 9: two parallel VMs beside each other.

use super::super::measure::{MUCH, Measure, View, holds, mean, rate, seconds, some};
use super::alone::unchanged;
use super::{Mix, communicating, parsec};

/// Rate of the second VM's program.
pub(super) fn other_rate(view: &View<'_>, mix: &Mix) -> Option<f64> {
    mix.mean(view, |r| rate(r, 1))
}

/// Rate of a program that runs alone.
pub(super) fn rate_alone(view: &View<'_>, program: &str) -> Option<f64> {
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

#[allow(clippy::too_many_lines, reason = "an arm for each row")]
pub(super) fn measure(id: &str) -> Option<Measure> {
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
