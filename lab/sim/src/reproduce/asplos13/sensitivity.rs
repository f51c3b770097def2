//! §4.1.1, Figure 7: preemption delay, urgent slice and urgent allowance.

use super::super::measure::{
    ABOUT, MUCH, Measure, View, all, every, holds, largest, mean, number, per_vcpu_second,
};
use super::mixes::other_rate;
use super::{Mix, reduction};
use crate::world::{Category, VcpuCounts};

/// Programs that contend for futex queues.
pub(super) const CONTENDING: [&str; 3] = ["bodytrack", "facesim", "streamcluster"];
/// Delays of preemption in Figure 7(a), in us.
pub(super) const DELAYS_US: [u32; 6] = [0, 100, 300, 500, 700, 1000];
/// Urgent slices in Figure 7(b), in us.
pub(super) const SLICES_US: [u32; 5] = [100, 500, 1000, 3000, 5000];
/// Urgent allowances in Figure 7(c), in ms.
pub(super) const ALLOWANCES_MS: [u32; 5] = [0, 6, 12, 18, 24];

/// A contending program beside dedup, by delay of its preemption; `early`: from the first access to the APIC on.
fn delay(program: &str, us: u32, early: bool) -> Mix {
    let mix = Mix { runs: 5, ..Mix::of("asplos13-figure7a", program) };
    mix.with("vm.parallel.urgent.resched_dp", &format!("{us}us"))
        .with("vm.parallel.urgent.early", if early { "true" } else { "false" })
}

/// Preempted lock holders beside dedup.
pub(super) fn preempted(view: &View<'_>, program: &str, us: u32, early: bool) -> Option<f64> {
    delay(program, us, early).count(view, |c| c.lock_holder_preempted)
}

/// Preemptions of holders of one kind, all three programs together.
fn of_kind(view: &View<'_>, us: u32, kind: fn(&VcpuCounts) -> u64) -> Option<f64> {
    Some(all(CONTENDING.map(|p| delay(p, us, false).count(view, kind)))?.iter().sum())
}

/// Three VMs with vips, by urgent slice.
pub(super) fn three_vips(slice_us: u32) -> Mix {
    let mix = Mix { run: super::Run::of("asplos13-figure7b"), runs: 10 };
    mix.with("host.urgent.slice", &format!("{slice_us}us"))
}

/// vips beside two VMs with another program under urgent vCPU first, by urgent allowance.
fn beside_two(other: &str, allowance_ms: u32) -> Mix {
    let mix = Mix { run: super::Run::of("asplos13-figure7c"), runs: super::RUNS };
    mix.with("vm.other.program.0.name", other).with("host.urgent.allowance", &format!("{allowance_ms}ms"))
}

/// vips beside two VMs with facesim, by urgent allowance; `None`: with load-conscious balance alone.
pub(super) fn beside_facesim(allowance_ms: Option<u32>) -> Mix {
    match allowance_ms {
        Some(ms) => beside_two("facesim", ms),
        None => beside_two("facesim", 18).with("scheme", "lc"),
    }
}

/// CPU time that the first VM spends waiting for shootdowns to be acknowledged.
fn shootdown_time(view: &View<'_>, mix: &Mix) -> Option<f64> {
    mix.mean(view, |r| Some(r.vms[0].time(Category::TlbSpin) as f64))
}

/// How long a VM's shootdowns wait for a vCPU to acknowledge them, in ns.
fn answer_time(view: &View<'_>, mix: &Mix, vm: usize) -> Option<f64> {
    let count = |of: fn(&VcpuCounts) -> u64| mix.mean(view, |r| Some(r.vms.get(vm)?.count(of) as f64));
    let (ns, answers) = (count(|c| c.flush_answer_ns), count(|c| c.flush_answers));
    Some(ns? / answers?)
}

/// Whether values grow from each to the next.
fn grows(values: impl IntoIterator<Item = Option<f64>>) -> Option<bool> {
    Some(all(values)?.windows(2).all(|pair| pair[0] < pair[1]))
}

pub(super) fn measure(id: &str) -> Option<Measure> {
    delays(id).or_else(|| slices(id)).or_else(|| allowances(id))
}

fn delays(id: &str) -> Option<Measure> {
    let lowers = |program: &'static str| {
        holds(move |v| {
            let (without, with) = (preempted(v, program, 0, false), preempted(v, program, 500, false));
            Some(with? <= without? / MUCH)
        })
    };
    Some(match id {
        "3.1.1-64" => holds(|v| {
            let answers = |us| mean(CONTENDING.map(|p| answer_time(v, &delay(p, us, false), 1)));
            let (short, long) = (answers(100), answers(1000));
            Some(long? > short?)
        }),
        "4.1.1-02" => holds(|v| {
            let lost = |other| {
                Mix::beside("streamcluster", other).mean(v, |r| Some(per_vcpu_second(r, |c| c.preempted)))
            };
            let (dedup, freqmine) = (lost("dedup"), lost("freqmine"));
            Some(dedup? >= MUCH * freqmine?)
        }),
        "4.1.1-05" => lowers("streamcluster"),
        "4.1.1-06" => lowers("facesim"),
        "4.1.1-07" => lowers("bodytrack"),
        "4.1.1-08" => number(|v| {
            let cells = CONTENDING.into_iter().flat_map(|p| DELAYS_US[1..].iter().map(move |us| (p, *us)));
            largest(cells.map(|(p, us)| reduction(preempted(v, p, 0, false), preempted(v, p, us, false))))
        }),
        "4.1.1-09" => holds(|v| {
            every(CONTENDING.map(|p| {
                let [none, some, most] = [0, 300, 1000].map(|us| preempted(v, p, us, false));
                Some((some? - most?) / none? <= ABOUT)
            }))
        }),
        "4.1.1-10" => holds(|v| every(CONTENDING.map(|p| preempted(v, p, 1000, false).map(|n| n > 0.0)))),
        "4.1.1-11" => holds(|v| {
            let [sending, all] = [
                of_kind(v, 1000, |c| c.sending_holder_preempted),
                of_kind(v, 1000, |c| c.lock_holder_preempted),
            ];
            Some(sending? > 0.5 * all?)
        }),
        "4.1.1-12" => holds(|v| {
            every(CONTENDING.map(|p| {
                let [late, early] = [false, true].map(|early| preempted(v, p, 1000, early));
                Some(early? < late?)
            }))
        }),
        "4.3-15" => holds(|v| {
            let [without, with] = [0, 500].map(|us| of_kind(v, us, |c| c.waiting_holder_preempted));
            let (without, with) = (without?, with?);
            Some(without > 0.0 && with >= (1.0 - ABOUT) * without)
        }),
        _ => return None,
    })
}

fn slices(id: &str) -> Option<Measure> {
    Some(match id {
        "4.1.1-16" => holds(|v| grows(SLICES_US.map(|us| answer_time(v, &three_vips(us), 0)))),
        "4.1.1-17" => holds(|v| grows(SLICES_US.map(|us| shootdown_time(v, &three_vips(us))))),
        "4.1.1-18" => holds(|v| {
            let times = all(SLICES_US.map(|us| shootdown_time(v, &three_vips(us))))?;
            Some(times[1..].iter().all(|t| times[0] < *t))
        }),
        "4.1.1-19" => holds(|v| {
            let (short, long) = (three_vips(100).time(v), three_vips(500).time(v));
            Some(short? > long?)
        }),
        _ => return None,
    })
}

fn allowances(id: &str) -> Option<Measure> {
    let facesim = |v: &View<'_>, ms| other_rate(v, &beside_facesim(Some(ms)));
    let vips = |v: &View<'_>, ms| beside_facesim(Some(ms)).time(v);
    Some(match id {
        "3.1.3-13" => holds(|v| {
            let [strict, loose] = [6, 24].map(|ms| shootdown_time(v, &beside_facesim(Some(ms))));
            Some(strict? > loose?)
        }),
        "4.1.1-20" => holds(|v| {
            let [facesim, freqmine] =
                ["facesim", "freqmine"].map(|other| answer_time(v, &beside_two(other, 6), 0));
            Some(facesim? > freqmine?)
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
            let allowances = &ALLOWANCES_MS[1..];
            let times = all(allowances.iter().map(|ms| vips(v, *ms)))?;
            // The last one before the first that is faster than the strictest by more than 3 %.
            let helps = times.iter().position(|t| *t < 0.97 * times[0])?;
            Some(f64::from(allowances[helps - 1]))
        }),
        _ => return None,
    })
}
