//! §6.3, the alternatives of §7.1.1 to spinning, and §8.

use super::super::measure::{MUCH, Measure, View, about, all, every, holds, largest, mean, number, smallest};
use super::{
    HIGH_OVERCOMMITTED, Measured, NEGLIGIBLE_OVERHEAD, Overcommitted, OvercommittedBase2, Overhead, SIZES,
    Scenario, Study, Systems, Undercommitted,
};

/// How much more CPU time goes into a part on 64 vCPUs in OC than in UC.
fn growth(view: &View<'_>, program: &str, of: fn(&Measured) -> f64) -> Option<f64> {
    let [uc, oc] = [Undercommitted, Overcommitted].map(|s| Study(view).vm(program, 64, s));
    Some(of(&oc?) - of(&uc?))
}

/// A part on 64 vCPUs in OC by that in UC.
fn times(view: &View<'_>, program: &str, of: fn(&Measured) -> f64) -> Option<f64> {
    let [uc, oc] = [Undercommitted, Overcommitted].map(|s| Study(view).vm(program, 64, s));
    Some(of(&oc?) / of(&uc?))
}

/// A quantity of volrend that spins, and of one that blocks, on 64 vCPUs in OC.
fn blocking(view: &View<'_>, of: fn(Overhead) -> f64) -> Option<(f64, f64)> {
    let [spins, blocks] = [Systems::Study, Systems::BlockingVolrend]
        .map(|systems| Study(view).overhead_on("volrend", 64, Overcommitted, systems));
    Some((of(spins?), of(blocks?)))
}

pub(super) fn measure(id: &str) -> Option<Measure> {
    shootdowns(id).or_else(|| spinning(id)).or_else(|| newer(id))
}

fn shootdowns(id: &str) -> Option<Measure> {
    let sign = |program: &'static str, positive: bool| {
        holds(move |v| {
            let cycles = Study(v).cycles(program, OvercommittedBase2)?;
            Some(if positive { cycles > 0.0 } else { cycles < 0.0 })
        })
    };
    let waits = |program: &'static str| {
        holds(move |v| {
            let own = growth(v, program, |m| m.tlb_spin);
            let others = [
                growth(v, program, |m| m.user),
                growth(v, program, |m| m.user_spin),
                growth(v, program, |m| m.lock_spin),
            ];
            let (own, others) = (own?, largest(others)?);
            Some(own > 0.0 && own > others)
        })
    };
    Some(match id {
        "6.3-01" => sign("lu_cb", true),
        "6.3-02" => sign("vips", true),
        "6.3-03" => sign("x264", true),
        "6.3-04" => sign("streamcluster", false),
        "6.3-05" => sign("volrend", false),
        "6.3-07" => holds(|v| {
            every(HIGH_OVERCOMMITTED.map(|p| {
                let cycles = || SIZES.map(|c| Study(v).overhead(p, c, OvercommittedBase2).map(|o| o.cycles));
                let (most, least) = (largest(cycles()), smallest(cycles()));
                Some(most? - least? <= MUCH - 1.0)
            }))
        }),
        "6.3-08" => waits("lu_cb"),
        "6.3-09" => waits("vips"),
        "6.3-10" => waits("x264"),
        "6.3.1-01" => holds(|v| {
            every(["lu_cb", "vips", "x264"].map(|p| Some(times(v, p, |m| m.tlb_spin / m.flushes)? > 1.0)))
        }),
        "6.3.1-03" => holds(|v| {
            every(["lu_cb", "vips", "x264"].map(|p| {
                let waits = |systems| Some(Study(v).vm_on(p, 64, Overcommitted, systems)?.tlb_spin);
                let (with, without) = (waits(Systems::Study), waits(Systems::NoPauseLoops));
                Some(with? <= without? / MUCH)
            }))
        }),
        _ => return None,
    })
}

#[allow(clippy::too_many_lines, reason = "an arm for each row")]
fn spinning(id: &str) -> Option<Measure> {
    /// A mean of volrend's two native instances, or of its two VMs, over the sizes.
    fn pair(view: &View<'_>, of: fn(&Measured) -> f64) -> (Option<f64>, Option<f64>) {
        let native = mean(SIZES.map(|c| Some(of(&Study(view).native("volrend", c, 2)?))));
        let vms = mean(SIZES.map(|c| Some(of(&Study(view).vm("volrend", c, Overcommitted)?))));
        (native, vms)
    }
    fn one(view: &View<'_>, of: fn(&Measured) -> f64) -> Option<f64> {
        mean(SIZES.map(|c| Some(of(&Study(view).native("volrend", c, 1)?))))
    }
    let own_functions = |program: &'static str| {
        holds(move |v| {
            let own = growth(v, program, |m| m.user + m.user_spin);
            let others = [growth(v, program, |m| m.tlb_spin), growth(v, program, |m| m.lock_spin)];
            let (own, others) = (own?, largest(others)?);
            Some(own > 0.0 && own > others)
        })
    };
    let greatly =
        |program: &'static str| holds(move |v| Some(times(v, program, |m| m.user + m.user_spin)? >= MUCH));
    Some(match id {
        "6.3-11" => own_functions("streamcluster"),
        "6.3-12" => own_functions("volrend"),
        "6.3.2-01" => greatly("streamcluster"),
        "6.3.2-02" => greatly("volrend"),
        "6.3.2-06" => holds(|v| {
            let [volrend, streamcluster] =
                ["volrend", "streamcluster"].map(|p| growth(v, p, |m| m.user_spin));
            Some(volrend? > streamcluster?)
        }),
        "6.3.2-07" => number(|v| times(v, "volrend", |m| m.user_spin)),
        "6.3.2-08" => holds(|v| {
            let [few, many] =
                [4, 64].map(|c| Study(v).vm("volrend", c, Overcommitted).map(|m| m.user_spin / m.user));
            Some(many? > few?)
        }),
        // Each of two instances takes twice the time without any harm.
        "6.3.2-12" => holds(|v| {
            let (one, two) = (one(v, |m| m.time), pair(v, |m| m.time).0);
            Some(two? >= 2.0 * MUCH * one?)
        }),
        "6.3.2-13" => holds(|v| {
            let (one, two) = (one(v, |m| m.user_spin), pair(v, |m| m.user_spin).0);
            Some(two? > one?)
        }),
        "6.3.2-14" => holds(|v| Some(Study(v).over_sizes("volrend", OvercommittedBase2, |o| o.time)? < 0.0)),
        "6.3.2-16" => holds(|v| {
            let (native, vms) = pair(v, |m| m.user_spin);
            Some(vms? < native?)
        }),
        "6.3.2-17" => holds(|v| {
            let share = |m: Measured| m.user_spin / m.cycles;
            let (native, vm) = (
                Study(v).native("volrend", 64, 2).map(share),
                Study(v).vm("volrend", 64, Overcommitted).map(share),
            );
            Some(native? >= 0.25 && vm? >= 0.25)
        }),
        "6.3.2-18" => holds(|v| Some(growth(v, "streamcluster", |m| m.lock_spin)? < 0.0)),
        "6.3.2-19" => holds(|v| Some(growth(v, "streamcluster", |m| m.halts)? < 0.0)),
        "7.1.1-37" => number(|v| {
            let (spins, blocks) = blocking(v, |o| o.cycles)?;
            Some(100.0 * (1.0 - blocks / spins))
        }),
        "7.1.1-38" => number(|v| {
            // Of two that are negative, a larger one is no reduction.
            let (spins, blocks) = blocking(v, |o| o.time)?;
            Some(100.0 * (spins - blocks) / spins.abs())
        }),
        "7.1.1-40" => holds(|v| {
            let host = |systems| Study(v).vm_on("volrend", 64, Overcommitted, systems).map(|m| m.host());
            let (spins, blocks) = (host(Systems::Study), host(Systems::BlockingVolrend));
            Some(blocks? > spins?)
        }),
        _ => return None,
    })
}

/// §8: a newer kernel, whose shootdowns leave preempted vCPUs out.
fn newer(id: &str) -> Option<Measure> {
    /// Cycles with the newer kernel, and with the study's.
    fn both(view: &View<'_>, program: &str, scenario: Scenario) -> Option<(f64, f64)> {
        let [newer, study] = [Systems::Newer, Systems::Study]
            .map(|systems| Study(view).vm_on(program, 64, scenario, systems).map(|m| m.cycles));
        Some((newer?, study?))
    }
    const UC_AND_OC: &[Scenario] = &[Undercommitted, Overcommitted];
    let same = |program: &'static str, scenarios: &'static [Scenario]| {
        holds(move |v| {
            let pairs = all(scenarios.iter().map(|s| both(v, program, *s)))?;
            Some(pairs.into_iter().all(|(newer, study)| about(newer, study)))
        })
    };
    Some(match id {
        "8-04" => same("bodytrack", UC_AND_OC),
        "8-05" => same("ferret", UC_AND_OC),
        "8-06" => same("ocean_cp", UC_AND_OC),
        "8-07" => same("x264", &[Undercommitted]),
        "8-08" => holds(|v| both(v, "x264", Overcommitted).map(|(newer, study)| !about(newer, study))),
        "8-09" => holds(|v| {
            let before = Study(v).vm("x264", 64, Overcommitted);
            let alone = Study(v).vm("x264", 64, Undercommitted);
            let after = Study(v).vm_on("x264", 64, Overcommitted, Systems::Newer);
            let (before, alone, after) = (before?.tlb_spin, alone?.tlb_spin, after?.tlb_spin);
            Some(before > alone && after - alone < NEGLIGIBLE_OVERHEAD * (before - alone))
        }),
        _ => return None,
    })
}
