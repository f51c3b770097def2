//! §4.2, Figure 10: Resched-Co for streamcluster beside bodytrack.

use super::super::measure::{ABOUT, Measure, View, about, every, holds, largest, mean, number};
use super::mixes::other_rate;
use super::{Mix, QUIET, communicating, gain, reduction};
use crate::world::VcpuCounts;

/// Counts that differ by less than this are equal.
const EQUAL: f64 = 0.01;

/// A program beside bodytrack, with Resched-DP and TLB-Co on; `blocking`: without spinning first.
fn beside_bodytrack(program: &str, blocking: bool, coscheduled: bool) -> Mix {
    Mix::of("asplos13-figure10", program)
        .with("vm.parallel.program.0.variant", if blocking { "asplos13-blocking" } else { "asplos13" })
        .with("vm.parallel.urgent.resched_co", if coscheduled { "true" } else { "false" })
}

/// streamcluster's barriers that spin first.
fn streamcluster(coscheduled: bool) -> Mix {
    beside_bodytrack("streamcluster", false, coscheduled)
}

/// Gain by Resched-Co, in per cent.
fn gain_of(view: &View<'_>, program: &str, blocking: bool) -> Option<f64> {
    let [without, with] = [false, true].map(|on| beside_bodytrack(program, blocking, on).time(view));
    gain(without, with)
}

/// Gain of streamcluster by Resched-Co, in per cent.
pub(super) fn resched_co(view: &View<'_>, blocking: bool) -> Option<f64> {
    gain_of(view, "streamcluster", blocking)
}

/// Waits of streamcluster's threads: alone, without and with Resched-Co.
pub(super) fn waits(view: &View<'_>, of: fn(&VcpuCounts) -> u64) -> [Option<f64>; 3] {
    [Mix::alone("streamcluster"), streamcluster(false), streamcluster(true)].map(|mix| mix.count(view, of))
}

fn fewer(view: &View<'_>, of: fn(&VcpuCounts) -> u64) -> Option<f64> {
    let [_, without, with] = waits(view, of);
    reduction(without, with)
}

pub(super) fn measure(id: &str) -> Option<Measure> {
    Some(match id {
        "3.1.2-07" => {
            holds(|v| every(QUIET.map(|p| gain_of(v, p, false).map(|gain| gain.abs() <= 100.0 * ABOUT))))
        }
        "3.1.2-08" => holds(|v| {
            let others = communicating().filter(|p| *p != "streamcluster");
            Some(mean(others.map(|p| gain_of(v, p, false)))? <= 0.0)
        }),
        "4.2-02" => holds(|v| {
            let beside = |other| Mix::beside("streamcluster", other).time(v);
            let bodytrack = beside("bodytrack");
            let others = largest(["dedup", "freqmine", "vips", "facesim"].map(beside));
            Some(bodytrack? > others?)
        }),
        "4.2-04" => number(|v| resched_co(v, false)),
        "4.2-05" => holds(|v| {
            let [without, with] = [false, true].map(|on| other_rate(v, &streamcluster(on)));
            Some(about(with?, without?))
        }),
        "4.2-06" => holds(|v| {
            let (spinning, blocking) = (resched_co(v, false), resched_co(v, true));
            Some(spinning? > blocking?)
        }),
        "4.2-07" => number(|v| resched_co(v, true)),
        "4.2-08" => holds(|v| {
            let [_, without, with] = waits(v, |c| c.arrival_waits);
            Some((with? / without? - 1.0).abs() <= EQUAL)
        }),
        "4.2-09" => holds(|v| {
            let [alone, beside, _] = waits(v, |c| c.departure_waits);
            Some(beside? > alone?)
        }),
        "4.2-10" => number(|v| fewer(v, |c| c.blocked_waits)),
        "4.2-11" => number(|v| fewer(v, |c| c.departure_waits)),
        "4.2-12" => holds(|v| {
            let closer = |of| {
                let [alone, without, with] = waits(v, of);
                let alone = alone?;
                Some((with? - alone).abs() < (without? - alone).abs())
            };
            every([closer(|c| c.blocked_waits), closer(|c| c.departure_waits)])
        }),
        "4.2-13" => number(|v| fewer(v, |c| c.resched_ipis)),
        _ => return None,
    })
}
