//! §3.1: interrupts and time in the kernel, alone and beside streamcluster.

use super::super::measure::{
    ABOUT, MUCH, Measure, View, about, all, correlation, every, holds, largest, mean, number,
    per_vcpu_second, share, smallest,
};
use super::{Mix, QUIET, communicating, parsec};
use crate::world::{Category, Report, VcpuCounts};

const KERNEL: [Category; 5] =
    [Category::Kernel, Category::LockSpin, Category::TlbSpin, Category::Irq, Category::Switch];

/// The programs whose kernel time grows, in Table 1's order.
const CONTENDING: [&str; 10] = [
    "bodytrack",
    "canneal",
    "dedup",
    "facesim",
    "ferret",
    "fluidanimate",
    "streamcluster",
    "swaptions",
    "vips",
    "x264",
];

/// The program beside streamcluster under the baseline.
pub(super) fn beside(program: &str) -> Mix {
    Mix::beside(program, "streamcluster")
}

/// A rate of the program alone, per second and vCPU.
pub(super) fn rate(view: &View<'_>, program: &str, of: fn(&VcpuCounts) -> u64) -> Option<f64> {
    Mix::alone(program).mean(view, |r| Some(per_vcpu_second(r, of)))
}

fn rescheds(view: &View<'_>, program: &str) -> Option<f64> {
    rate(view, program, |c| c.resched_ipis)
}

fn shootdowns(view: &View<'_>, program: &str) -> Option<f64> {
    rate(view, program, |c| c.flush_ipis)
}

/// A share of the program's CPU time, alone or beside streamcluster.
pub(super) fn time_in(view: &View<'_>, mix: &Mix, categories: &'static [Category]) -> Option<f64> {
    mix.mean(view, |r| Some(share(&r.vms[0], categories)))
}

fn tlb(view: &View<'_>, program: &str) -> Option<f64> {
    time_in(view, &beside(program), &[Category::TlbSpin])
}

fn locks(view: &View<'_>, program: &str) -> Option<f64> {
    time_in(view, &beside(program), &[Category::LockSpin])
}

pub(super) fn kernel(view: &View<'_>, mix: &Mix) -> Option<f64> {
    time_in(view, mix, &KERNEL)
}

/// Share of kernel time beside streamcluster by that alone.
fn growth(view: &View<'_>, program: &str) -> Option<f64> {
    let (alone, beside) = (kernel(view, &Mix::alone(program)), kernel(view, &beside(program)));
    Some(beside? / alone?)
}

/// How busy the program keeps its vCPUs alone: the share of time that they run threads.
fn busy(view: &View<'_>, program: &str) -> Option<f64> {
    Mix::alone(program).mean(view, |r: &Report| Some(r.vms[0].share(Category::User)))
}

/// How much longer the program takes beside streamcluster.
fn slowdown(view: &View<'_>, program: &str) -> Option<f64> {
    let (alone, beside) = (Mix::alone(program).time(view), beside(program).time(view));
    Some(beside? / alone?)
}

/// Mean wait for a contended spinlock of a wait queue beside streamcluster, in us.
fn lock_wait(view: &View<'_>, program: &str) -> Option<f64> {
    let mix = beside(program);
    let (ns, waits) = (mix.count(view, |c| c.lock_wait_ns), mix.count(view, |c| c.lock_waits));
    Some(ns? / waits? / 1e3)
}

/// Whether the value of one program is above the median of all.
fn above_median(view: &View<'_>, program: &str, of: impl Fn(&View<'_>, &str) -> Option<f64>) -> Option<bool> {
    let all = all(parsec().map(|p| of(view, p)))?;
    Some(of(view, program)? > super::super::measure::quantile(&all, 0.5)?)
}

#[allow(clippy::too_many_lines, reason = "an arm for each row")]
pub(super) fn measure(id: &str) -> Option<Measure> {
    Some(match id {
        // Half of the machine doubles the time: that is a fair share, no loss.
        "1-02" => {
            holds(|v| every(["dedup", "ferret", "vips"].map(|p| slowdown(v, p).map(|s| s >= 2.0 * MUCH))))
        }
        "1-03" => holds(|v| {
            let mix = beside("streamcluster");
            let preempted = mix.count(v, |c| c.lock_holder_preempted);
            let (alone, spinning) =
                (time_in(v, &Mix::alone("streamcluster"), &[Category::LockSpin]), locks(v, "streamcluster"));
            Some(preempted? > 0.0 && spinning? > alone?)
        }),
        "3.1-03" => holds(|v| {
            let rates: Vec<Option<f64>> =
                parsec().map(|p| Some(rescheds(v, p)? + shootdowns(v, p)?)).collect();
            let (most, least) = (largest(rates.clone()), smallest(rates));
            Some(most? > MUCH * least?)
        }),
        "3.1.1-01" => holds(|v| {
            let (many, busy) = (above_median(v, "streamcluster", rescheds), busy(v, "streamcluster"));
            Some(many? && busy? > 0.5)
        }),
        "3.1.1-02" => number(|v| largest(parsec().map(|p| growth(v, p)))),
        "3.1.1-03" => holds(|v| {
            let of = |p| {
                let (alone, growth) = (kernel(v, &Mix::alone(p)), growth(v, p));
                Some((alone?, growth?))
            };
            let user: Vec<f64> = all(communicating().map(of))?
                .into_iter()
                .filter(|(alone, _)| *alone < 0.5)
                .map(|(_, g)| g)
                .collect();
            Some(!user.is_empty() && mean(user.into_iter().map(Some))? >= MUCH)
        }),
        "3.1.1-04" => holds(|v| every(communicating().map(|p| growth(v, p).map(|g| g >= MUCH)))),
        "3.1.1-05" => holds(|v| every(QUIET.map(|p| growth(v, p).map(|g| g < MUCH)))),
        "3.1.1-06" => holds(|v| {
            let waiting = |p| {
                let (tlb, locks, kernel) = (tlb(v, p), locks(v, p), kernel(v, &beside(p)));
                Some((tlb? + locks?) / kernel?)
            };
            Some(mean(communicating().map(waiting))? > 0.5)
        }),
        "3.1.1-49" => holds(|v| {
            every(["dedup", "ferret", "vips"].map(|p| {
                let (alone, beside) = (time_in(v, &Mix::alone(p), &[Category::TlbSpin]), tlb(v, p));
                Some(beside? >= MUCH * alone? && beside? > 0.0)
            }))
        }),
        "3.1.1-50" => holds(|v| {
            let these = ["dedup", "ferret", "vips"];
            let first = |of: fn(&View<'_>, &str) -> Option<f64>| {
                let least = smallest(these.map(|p| of(v, p)));
                let others = largest(parsec().filter(|p| !these.contains(p)).map(|p| of(v, p)));
                Some(least? > others?)
            };
            let (rates, times) = (first(shootdowns), first(tlb));
            Some(rates? && times?)
        }),
        "3.1.1-51" => number(|v| shootdowns(v, "dedup")),
        "3.1.1-52" => number(|v| shootdowns(v, "ferret")),
        "3.1.1-53" => number(|v| shootdowns(v, "vips")),
        "3.1.1-55" => holds(|v| {
            let pairs = parsec().map(|p| {
                let (rate, time) = (rescheds(v, p), locks(v, p));
                Some((rate?, time?))
            });
            Some(correlation(&all(pairs)?)? > 0.0)
        }),
        "3.1.1-57a" => number(|v| smallest(CONTENDING.map(|p| lock_wait(v, p)))),
        "3.1.1-57b" => number(|v| largest(CONTENDING.map(|p| lock_wait(v, p)))),
        "3.1.1-67" => holds(|v| {
            let of = |count: fn(&VcpuCounts) -> u64| {
                all(parsec().map(|p| beside(p).count(v, count))).map(|n| n.iter().sum::<f64>())
            };
            let (waiting, preempted) = (of(|c| c.waiting_holder_preempted), of(|c| c.lock_holder_preempted));
            let preempted = preempted?;
            Some(preempted > 0.0 && waiting? <= ABOUT * preempted)
        }),
        "3.1.1-61" => holds(|v| above_median(v, "dedup", locks)),
        "3.1.1-62" => holds(|v| above_median(v, "vips", locks)),
        "3.1.2-03a" | "3.1.2-03b" => number(|v| {
            Mix::alone("streamcluster").mean(v, |r| {
                let task = r.vms[0].tasks.first()?.totals;
                // Each thread counts an operation for each barrier.
                Some(task.operations as f64 / r.vms[0].vcpus.len() as f64 / (task.finished? as f64 / 1e6))
            })
        }),
        "4.1.3-01" => holds(|v| {
            let (freqmine, dedup, busy) =
                (rescheds(v, "freqmine"), rescheds(v, "dedup"), busy(v, "freqmine"));
            Some(freqmine? <= dedup? / MUCH && busy? > 0.9)
        }),
        "4.1.3-03" => holds(|v| {
            let (many, busy) = (above_median(v, "dedup", rescheds), busy(v, "dedup"));
            Some(many? && busy? < 0.9)
        }),
        "6-02" => holds(|v| {
            let send = all(parsec().map(|p| rescheds(v, p).map(|r| r > 1.0)))?;
            Some(2 * send.iter().filter(|send| **send).count() > send.len())
        }),
        _ => return None,
    })
}

/// Table 1: for each program four shares, in per cent.
pub(super) fn table_1(id: &str) -> Option<Measure> {
    let number_in_section: usize = id.strip_prefix("3.1.1-")?.parse().ok()?;
    let cell = number_in_section.checked_sub(7)?;
    let program = *CONTENDING.get(cell / 4)?;
    let spin: fn(&View<'_>, &str) -> Option<f64> = if cell % 4 < 2 { tlb } else { locks };
    let of_kernel = cell % 2 == 1;
    Some(number(move |v| {
        let part = spin(v, program);
        let whole = if of_kernel { kernel(v, &beside(program)) } else { Some(1.0) };
        Some(100.0 * part? / whole?)
    }))
}

/// Whether the quotient of two values is about one; for rows on "as without".
pub(super) fn unchanged(a: Option<f64>, b: Option<f64>) -> Option<bool> {
    Some(about(a?, b?))
}
