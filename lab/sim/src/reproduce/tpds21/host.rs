//! §6.2, §7.1.1 and §7.1.2: overhead in the host.

use super::super::measure::{ABOUT, MUCH, Measure, View, about, all, every, holds, largest, mean, number};
use super::{
    HIGH_HOST, Measured, NEGLIGIBLE_OVERHEAD, Overcommitted, OvercommittedBase2, Overhead, SIZES, Scenario,
    Study, Systems, Undercommitted, benchmarks,
};

/// The others with high host overhead.
const BUT_VIPS: [&str; 4] = ["bodytrack", "dedup", "facesim", "volrend"];

/// Mean of a quantity of the benchmarks with high host overhead at one size.
fn group(view: &View<'_>, cpus: u32, scenario: Scenario, of: fn(&Measured) -> f64) -> Option<f64> {
    mean(HIGH_HOST.map(|p| Some(of(&Study(view).vm(p, cpus, scenario)?))))
}

/// The same over all sizes.
fn group_over_sizes(view: &View<'_>, scenario: Scenario, of: fn(&Measured) -> f64) -> Option<f64> {
    mean(SIZES.map(|cpus| group(view, cpus, scenario, of)))
}

/// A part of a benchmark's cycles in a VM relative to the native ones, as the mean over the sizes.
fn part(view: &View<'_>, program: &str, scenario: Scenario, of: fn(&Measured) -> f64) -> Option<f64> {
    mean(SIZES.map(|cpus| {
        let (vm, native) = (Study(view).vm(program, cpus, scenario), Study(view).native(program, cpus, 1));
        Some(of(&vm?) / native?.cycles)
    }))
}

/// Share of the halt polls that succeed.
fn polls_won(view: &View<'_>, cpus: u32) -> Option<f64> {
    let (won, lost) =
        (group(view, cpus, Undercommitted, |m| m.polls.0), group(view, cpus, Undercommitted, |m| m.polls.1));
    let (won, lost) = (won?, lost?);
    (won + lost > 0.0).then(|| won / (won + lost))
}

/// Overhead without the cycles of scheduling and polling, mean of the group.
fn unscheduled(view: &View<'_>, cpus: u32) -> Option<Vec<Overhead>> {
    all(HIGH_HOST.map(|p| {
        let (vm, native, overhead) = (
            Study(view).vm(p, cpus, Undercommitted),
            Study(view).native(p, cpus, 1),
            Study(view).overhead(p, cpus, Undercommitted),
        );
        let (vm, native, overhead) = (vm?, native?, overhead?);
        let cycles = overhead.cycles - (vm.scheduling + vm.polling) / native.cycles;
        Some(Overhead { cycles, ..overhead })
    }))
}

/// What halt polling takes off the run time, and adds to the cycles: the mean of the group over the sizes.
fn polling_gain(view: &View<'_>, scenario: Scenario, of: fn(Overhead) -> f64) -> Option<f64> {
    let cells = HIGH_HOST.into_iter().flat_map(|p| SIZES.map(|c| (p, c)));
    mean(cells.map(|(p, c)| Study(view).polling_gain(p, c, scenario).map(of)))
}

fn polling_gain_at(view: &View<'_>, cpus: u32) -> Option<f64> {
    mean(HIGH_HOST.map(|p| Study(view).polling_gain(p, cpus, Undercommitted).map(|g| g.time)))
}

pub(super) fn measure(id: &str) -> Option<Measure> {
    courses(id)
        .or_else(|| scheduling(id))
        .or_else(|| halt_polling(id))
        .or_else(|| shootdowns(id))
        .or_else(|| pause_loops(id))
}

/// How the overheads go with the number of vCPUs.
fn courses(id: &str) -> Option<Measure> {
    fn rises(view: &View<'_>, program: &str) -> Option<bool> {
        let times = all(SIZES.map(|c| Study(view).overhead(program, c, Undercommitted).map(|o| o.time)))?;
        Some(times.windows(2).all(|pair| pair[0] < pair[1]))
    }
    let mostly = |program: &'static str, alone: bool| {
        holds(move |v| {
            let [uc, oc] = [Undercommitted, Overcommitted].map(|s| Study(v).cycles(program, s));
            Some(if alone { uc? > oc? } else { uc? < oc? })
        })
    };
    let rising = |program: &'static str| holds(move |v| rises(v, program));
    let cycles = |v: &View<'_>, c| Study(v).high_host(c, Undercommitted, |o| o.cycles);
    let impact = |v: &View<'_>, c| Study(v).high_host(c, Undercommitted, Overhead::impact);
    Some(match id {
        "6.2-01" => mostly("bodytrack", true),
        "6.2-02" => mostly("dedup", true),
        "6.2-03" => mostly("facesim", true),
        "6.2-04" => mostly("vips", false),
        "6.2-05" => mostly("volrend", false),
        "6.2-06" => holds(move |v| {
            let means = all([4, 8, 16, 32].map(|c| cycles(v, c)))?;
            Some(means.windows(2).all(|pair| pair[0] < pair[1]))
        }),
        "6.2-07" => holds(move |v| {
            let [before, after] = [32, 64].map(|c| cycles(v, c));
            Some(before? > 0.0 && after? <= before? / MUCH)
        }),
        "6.2-08" => rising("bodytrack"),
        "6.2-09" => rising("dedup"),
        "6.2-10" => rising("facesim"),
        "6.2-11" => rising("volrend"),
        "6.2-12" => holds(|v| rises(v, "vips").map(|rises| !rises)),
        "6.2-13" => holds(|v| {
            let cells = HIGH_HOST.into_iter().flat_map(|p| SIZES.map(|c| (p, c)));
            let impacts =
                all(cells.map(|(p, c)| Study(v).overhead(p, c, Undercommitted).map(Overhead::impact)))?;
            let most = impacts.iter().copied().reduce(f64::max)?;
            let least = impacts.iter().copied().reduce(f64::min)?;
            Some(most - least >= MUCH - 1.0)
        }),
        "6.2-14" => holds(|v| {
            let means = SIZES.map(|c| mean(unscheduled(v, c)?.into_iter().map(|o| Some(o.cycles))));
            let means = all(means)?;
            let most = means.iter().copied().reduce(f64::max)?;
            let least = means.iter().copied().reduce(f64::min)?;
            Some(most - least <= ABOUT)
        }),
        "6.2-15" => holds(|v| {
            let impacts = all(SIZES.map(|c| unscheduled(v, c)))?.concat();
            Some(impacts.into_iter().all(|o| (1.0 - ABOUT..=MUCH).contains(&o.impact())))
        }),
        "6.2.1-33" => holds(move |v| {
            let means = all([4, 8, 16, 32].map(|c| impact(v, c)))?;
            Some(means.windows(2).all(|pair| pair[0] > pair[1]))
        }),
        "6.2.1-34" => holds(move |v| {
            let [before, after] = [32, 64].map(|c| impact(v, c));
            Some(after? >= MUCH * before?)
        }),
        "6.2.1-35" => holds(move |v| {
            let times = [32, 64].map(|c| Study(v).high_host(c, Undercommitted, |o| o.time));
            let [before, after] = [32, 64].map(|c| cycles(v, c));
            Some(after? < before? && times[1]? > times[0]?)
        }),
        "6.2.1-36" => holds(|v| {
            let [uc, oc] = [Undercommitted, Overcommitted]
                .map(|s| mean(SIZES.map(|c| Study(v).high_host(c, s, |o| o.cycles))));
            Some(uc? > oc?)
        }),
        _ => return None,
    })
}

fn scheduling(id: &str) -> Option<Measure> {
    Some(match id {
        "6.2.1-14" => number(|v| {
            let cells = HIGH_HOST.into_iter().flat_map(|p| SIZES.map(|c| (p, c)));
            let cells = cells.flat_map(|(p, c)| [Undercommitted, Overcommitted].map(|s| (p, c, s)));
            largest(cells.map(|(p, c, s)| {
                let (vm, native) = (Study(v).vm(p, c, s), Study(v).native(p, c, 1));
                Some(100.0 * vm?.tick / native?.cycles)
            }))
        }),
        "6.2.1-17" => holds(|v| {
            let of = |part| group_over_sizes(v, Undercommitted, part);
            let (scheduling, writes) = (of(|m| m.scheduling + m.polling), of(|m| m.reschedule + m.tick));
            Some(scheduling? > writes?)
        }),
        "6.2.1-26" => holds(|v| {
            let blocked = |cpus| {
                let (time, halts) = (
                    group(v, cpus, Undercommitted, |m| m.halted),
                    group(v, cpus, Undercommitted, |m| m.halts),
                );
                Some(time? / halts?)
            };
            let times = all(SIZES.map(blocked))?;
            Some(times.windows(2).all(|pair| pair[0] < pair[1]))
        }),
        "7.1.1-12" => holds(|v| {
            let parts = HIGH_HOST.map(|p| part(v, p, Undercommitted, |m| m.reschedule + m.shootdown));
            Some(mean(parts)? > NEGLIGIBLE_OVERHEAD)
        }),
        "7.1.1-34" => holds(|v| {
            let cells = benchmarks().into_iter().flat_map(|p| SIZES.map(|c| (p, c)));
            let share = |(p, c)| Study(v).vm(p, c, Undercommitted).map(|m| m.kernel_spin() / m.cycles);
            Some(mean(cells.map(share))? <= NEGLIGIBLE_OVERHEAD)
        }),
        "7.1.1-35" => holds(|v| {
            let spun = |systems| {
                mean(HIGH_HOST.map(|p| Some(Study(v).vm_on(p, 64, Overcommitted, systems)?.lock_spin)))
            };
            let (with, without) = (spun(Systems::Study), spun(Systems::NoPvLocks));
            Some(with? <= without? / MUCH)
        }),
        _ => return None,
    })
}

fn halt_polling(id: &str) -> Option<Measure> {
    Some(match id {
        "6.2.1-29" => number(|v| Some(100.0 * polls_won(v, 4)?)),
        "6.2.1-30" => holds(|v| Some(polls_won(v, 64)? < 0.05)),
        "6.2.1-31" => holds(|v| {
            let [few, many] = [4, 64].map(|c| polls_won(v, c));
            Some(many? < few?)
        }),
        "6.2.1-37" => holds(|v| Some(polling_gain(v, Overcommitted, |g| g.time)? < 0.0)),
        "6.2.1-38" => holds(|v| {
            every(SIZES.map(|c| {
                let [uc, oc] = [Undercommitted, Overcommitted].map(|s| group(v, c, s, |m| m.polling));
                Some(oc? < uc?)
            }))
        }),
        "6.2.1-43" => holds(|v| {
            let of = |systems| {
                let cells = HIGH_HOST.into_iter().flat_map(|p| SIZES.map(|c| (p, c)));
                mean(cells.map(|(p, c)| {
                    let m = Study(v).vm_on(p, c, Overcommitted, systems)?;
                    Some(m.scheduling + m.polling)
                }))
            };
            let (with, without) = (of(Systems::Study), of(Systems::NoHaltPolling));
            Some(about(with?, without?))
        }),
        "7.1.1-02" => number(|v| {
            let cells = HIGH_HOST.into_iter().flat_map(|p| SIZES.map(|c| (p, c)));
            let most =
                largest(cells.map(|(p, c)| Study(v).polling_gain(p, c, Undercommitted).map(|g| g.time)));
            Some(100.0 * most?)
        }),
        "7.1.1-03" => holds(|v| Some(polling_gain(v, Undercommitted, |g| g.time)? > 0.0)),
        "7.1.1-04" => holds(|v| Some(polling_gain(v, Undercommitted, |g| g.cycles)? > NEGLIGIBLE_OVERHEAD)),
        "7.1.1-05" => holds(|v| {
            let (time, cycles) =
                (polling_gain(v, Undercommitted, |g| g.time), polling_gain(v, Undercommitted, |g| g.cycles));
            Some(time? < cycles?)
        }),
        "7.1.1-06" => holds(|v| {
            let [uc, oc] = [Undercommitted, Overcommitted].map(|s| polling_gain(v, s, |g| g.time));
            Some(uc? > 0.0 && oc? <= uc? / MUCH)
        }),
        "7.1.1-07" => holds(|v| {
            let [few, many] = [4, 64].map(|c| polling_gain_at(v, c));
            Some(few? > 0.0 && many? <= few? / MUCH)
        }),
        _ => return None,
    })
}

fn shootdowns(id: &str) -> Option<Measure> {
    fn each(m: &Measured) -> f64 {
        (m.shootdown + m.tlb_spin) / m.flushes
    }
    let many = |program: &'static str| {
        holds(move |v| {
            let own = part(v, program, Undercommitted, |m| m.shootdown);
            let others = largest(
                ["bodytrack", "facesim", "volrend"].map(|p| part(v, p, Undercommitted, |m| m.shootdown)),
            );
            let (own, others) = (own?, others?);
            Some(own > 0.0 && own >= MUCH * others)
        })
    };
    Some(match id {
        "6.2.2-01" => many("dedup"),
        "6.2.2-02" => many("vips"),
        "7.1.2-01" => holds(|v| {
            let spun = ["dedup", "vips"].map(|p| Study(v).native(p, 16, 1).map(|m| m.tlb_spin > 0.0));
            every(spun)
        }),
        "7.1.2-02" => holds(|v| {
            every(["dedup", "vips"].map(|p| {
                let (vm, native) = (Study(v).vm(p, 16, Undercommitted), Study(v).native(p, 16, 1));
                Some(each(&vm?) > each(&native?))
            }))
        }),
        "7.1.2-03" => holds(|v| {
            let parts = ["dedup", "vips"].map(|p| part(v, p, Undercommitted, |m| m.shootdown + m.tlb_spin));
            Some(largest(parts)? > NEGLIGIBLE_OVERHEAD)
        }),
        _ => return None,
    })
}

#[allow(clippy::too_many_lines, reason = "an arm for each row")]
fn pause_loops(id: &str) -> Option<Measure> {
    fn dedup(view: &View<'_>, scenario: Scenario) -> Option<f64> {
        Some(100.0 * Study(view).over_sizes("dedup", scenario, |o| o.time)?)
    }
    fn old_dedup(view: &View<'_>) -> Option<f64> {
        Some(100.0 * Study(view).overhead_on("dedup", 16, Overcommitted, Systems::Old)?.time)
    }
    let exits =
        |v: &View<'_>, p: &str| mean(SIZES.map(|c| Some(Study(v).vm(p, c, Overcommitted)?.pause_exits)));
    let scheduled = |v: &View<'_>, p: &str| part(v, p, Overcommitted, |m| m.scheduling);
    Some(match id {
        "6.2.3-02" => holds(|v| {
            let time =
                |systems| mean(SIZES.map(|c| Some(Study(v).vm_on("vips", c, Overcommitted, systems)?.time)));
            let (with, without) = (time(Systems::Study), time(Systems::NoPauseLoops));
            Some(with? <= without? / MUCH)
        }),
        "6.2.3-03" => holds(move |v| {
            let vips = exits(v, "vips");
            let others = largest(benchmarks().into_iter().filter(|p| *p != "vips").map(|p| exits(v, p)));
            let (vips, others) = (vips?, others?);
            Some(vips > 0.0 && vips >= MUCH * others)
        }),
        "6.2.3-04" => holds(|v| Some(part(v, "vips", Overcommitted, |m| m.pauses)? <= NEGLIGIBLE_OVERHEAD)),
        "6.2.3-05" => holds(move |v| Some(scheduled(v, "vips")? > NEGLIGIBLE_OVERHEAD)),
        "6.2.3-06" => holds(|v| {
            let halts = |p: &str| mean(SIZES.map(|c| Some(Study(v).vm(p, c, Overcommitted)?.halts)));
            let (vips, others) = (halts("vips"), super::super::measure::smallest(BUT_VIPS.map(halts)));
            Some(vips? <= others? / MUCH)
        }),
        "6.2.3-09" => holds(move |v| {
            let (vips, others) = (scheduled(v, "vips"), mean(BUT_VIPS.map(|p| scheduled(v, p))));
            Some(about(vips?, others?))
        }),
        "6.2.3-10" => holds(|v| {
            let of = |systems| {
                mean(SIZES.map(|c| Some(Study(v).vm_on("vips", c, Overcommitted, systems)?.scheduling)))
            };
            let (with, without) = (of(Systems::Study), of(Systems::NoPauseLoops));
            Some(about(without?, with?))
        }),
        "6.2.3-13" => number(old_dedup),
        "6.2.3-15" => number(|v| dedup(v, Overcommitted)),
        "6.2.3-16" => number(|v| dedup(v, OvercommittedBase2)),
        "6.2.3-17" => holds(|v| {
            let (now, then) = (dedup(v, Overcommitted), old_dedup(v));
            Some(1.0 + now? / 100.0 <= (1.0 + then? / 100.0) / MUCH)
        }),
        _ => return None,
    })
}
