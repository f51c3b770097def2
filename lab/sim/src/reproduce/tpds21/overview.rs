//! The abstract, §1, §5 and §10: all benchmarks.

use super::super::measure::{
    MUCH, Measure, View, all, deviation, every, holds, largest, mean, number, quantile, smallest, some,
};
use super::{
    HIGH_HOST, HIGH_OVERCOMMITTED, Measured, NEGLIGIBLE_OVERHEAD, Overcommitted, OvercommittedBase2,
    Overhead, SIZES, Scenario, Study, Systems, Undercommitted, benchmarks,
};

type Part = fn(Overhead) -> f64;
const TIME: Part = |o| o.time;
const CYCLES: Part = |o| o.cycles;

/// Whether something holds at every size.
fn at_every_size(holds: impl Fn(u32) -> Option<bool>) -> Option<bool> {
    every(SIZES.map(holds))
}

fn mean_over(study: Study<'_>, cpus: u32, scenario: Scenario, of: Part) -> Option<f64> {
    mean(study.over_benchmarks(cpus, scenario, of)?.into_iter().map(Some))
}

fn median_over(study: Study<'_>, cpus: u32, scenario: Scenario, of: Part) -> Option<f64> {
    quantile(&study.over_benchmarks(cpus, scenario, of)?, 0.5)
}

/// Every overhead of every benchmark at every size, in these scenarios.
fn every_overhead(study: Study<'_>, scenarios: &[Scenario], of: Part) -> Option<Vec<f64>> {
    let cells = SIZES.into_iter().flat_map(|cpus| scenarios.iter().map(move |s| (cpus, *s)));
    Some(all(cells.map(|(cpus, s)| study.over_benchmarks(cpus, s, of)))?.concat())
}

/// How much of the growth of the cycles over native a part of them makes up, over programs and sizes together.
fn part_of_growth(
    study: Study<'_>,
    programs: &[&'static str],
    scenario: Scenario,
    of: impl Fn(&Measured) -> f64,
) -> Option<f64> {
    let cells = programs.iter().flat_map(|p| SIZES.map(|cpus| (*p, cpus)));
    let growth = cells.map(|(p, cpus)| {
        let (vm, native) = (study.vm(p, cpus, scenario), study.native(p, cpus, 1));
        let (vm, native) = (vm?, native?);
        Some((of(&vm) - of(&native), vm.cycles - native.cycles))
    });
    let growth = all(growth)?;
    let (part, whole) = growth.iter().fold((0.0, 0.0), |sum, g| (sum.0 + g.0, sum.1 + g.1));
    (whole > 0.0).then(|| part / whole)
}

pub(super) fn measure(id: &str) -> Option<Measure> {
    causes(id).or_else(|| multithreaded(id)).or_else(|| impact(id))
}

fn causes(id: &str) -> Option<Measure> {
    Some(match id {
        "abs-01" => holds(|v| {
            let all = every_overhead(Study(v), &[Undercommitted], CYCLES)?;
            Some(largest(all.into_iter().map(Some))? >= MUCH - 1.0)
        }),
        "abs-03" => holds(|v| {
            let share = part_of_growth(Study(v), &HIGH_HOST, Undercommitted, |m| {
                m.host() + m.user_spin + m.kernel_spin()
            });
            Some(share? > 0.5)
        }),
        "abs-04" => holds(|v| {
            Some(part_of_growth(Study(v), &HIGH_OVERCOMMITTED, Overcommitted, |m| m.user_spin)? >= 0.25)
        }),
        "1.2-03" => holds(|v| {
            let [now, then] = [Systems::Study, Systems::Old]
                .map(|systems| Study(v).overhead_on("dedup", 16, Overcommitted, systems));
            Some(now?.time < then?.time && now?.cycles < then?.cycles)
        }),
        "1.2-05" => holds(|v| {
            let [uc, oc] = [Undercommitted, Overcommitted]
                .map(|s| mean(every_overhead(Study(v), &[s], CYCLES)?.into_iter().map(Some)));
            Some(oc? > uc?)
        }),
        "1.2-09" => holds(|v| {
            let part = |of: fn(&Measured) -> f64| {
                let programs = benchmarks();
                part_of_growth(Study(v), &programs, Overcommitted, of)
            };
            let (these, others) =
                (part(|m| m.user_spin + m.blocking()), part(|m| m.shootdown + m.pauses + m.kernel_spin()));
            Some(these? > others?)
        }),
        "2.2-01" => holds(|v| {
            Some(mean(every_overhead(Study(v), &[Undercommitted], TIME)?.into_iter().map(Some))? > 0.0)
        }),
        "2.2-03" => holds(|v| {
            let exits = part_of_growth(Study(v), &HIGH_HOST, Undercommitted, |m| {
                m.reschedule + m.shootdown + m.tick + m.pauses
            });
            Some(exits? >= 0.25)
        }),
        "10-05" => holds(|v| {
            let means = |of: Part| {
                let cells = SIZES.into_iter().flat_map(|c| Scenario::ALL.map(|s| (c, s)));
                all(cells.map(|(c, s)| mean_over(Study(v), c, s, of)))
            };
            let spread = |values: Vec<f64>| Some(quantile(&values, 1.0)? - quantile(&values, 0.0)?);
            let (time, cycles) = (means(TIME), means(CYCLES));
            Some(spread(time?)? > NEGLIGIBLE_OVERHEAD && spread(cycles?)? > NEGLIGIBLE_OVERHEAD)
        }),
        _ => return None,
    })
}

#[allow(clippy::too_many_lines, reason = "an arm for each row")]
fn multithreaded(id: &str) -> Option<Measure> {
    const CONSOLIDATED: [&str; 3] = ["fft", "radiosity", "s.raytrace"];
    let sequential = |of: Part| {
        holds(move |v| {
            let means = [Undercommitted, OvercommittedBase2].map(|s| mean_over(Study(v), 1, s, of));
            Some(all(means)?.into_iter().all(|m| m.abs() <= NEGLIGIBLE_OVERHEAD))
        })
    };
    let consolidated =
        |program: &'static str| holds(move |v| Some(Study(v).cycles(program, Overcommitted)? < 0.0));
    Some(match id {
        "5.1-01" => sequential(TIME),
        "5.1-02" => sequential(CYCLES),
        "5.2-01" => holds(|v| {
            Some(quantile(&every_overhead(Study(v), &[Undercommitted], TIME)?, 0.5)? <= NEGLIGIBLE_OVERHEAD)
        }),
        "5.2-02" => holds(|v| {
            at_every_size(|c| median_over(Study(v), c, Overcommitted, TIME).map(|m| m <= 1.0 / MUCH - 1.0))
        }),
        "5.2-03" => holds(|v| {
            let [few, many] = [4, 64].map(|c| median_over(Study(v), c, Overcommitted, TIME));
            Some(many? < few?)
        }),
        "5.2-06" => {
            holds(|v| at_every_size(|c| mean_over(Study(v), c, OvercommittedBase2, TIME).map(|m| m > 0.0)))
        }
        "5.2-07" => holds(|v| {
            at_every_size(|c| {
                every([TIME, CYCLES].map(|of| {
                    let [many, one] = [c, 1].map(|c| mean_over(Study(v), c, Undercommitted, of));
                    Some(many? > one?)
                }))
            })
        }),
        "5.2-08" => holds(|v| {
            every([TIME, CYCLES].map(|of| {
                let [many, few] = [64, 4].map(|c| mean_over(Study(v), c, Undercommitted, of));
                Some(many? > 0.0 && many? >= MUCH * few?)
            }))
        }),
        "5.2-10" => number(|v| {
            let most = [TIME, CYCLES]
                .map(|of| largest(every_overhead(Study(v), &Scenario::ALL, of)?.into_iter().map(Some)));
            Some(100.0 * largest(most)?)
        }),
        "5.2-11" => holds(|v| {
            at_every_size(|c| {
                every([TIME, CYCLES].map(|of| {
                    let [many, one] = [c, 1].map(|c| Study(v).over_benchmarks(c, Undercommitted, of));
                    Some(deviation(&many?) >= MUCH * deviation(&one?))
                }))
            })
        }),
        "5.2-12" => holds(|v| some(CONSOLIDATED.map(|p| Study(v).cycles(p, Overcommitted).map(|c| c < 0.0)))),
        "5.2-13" => number(|v| {
            Some(100.0 * largest(every_overhead(Study(v), &Scenario::ALL, CYCLES)?.into_iter().map(Some))?)
        }),
        "5.2-14" => consolidated("fft"),
        "5.2-15" => consolidated("radiosity"),
        "5.2-16" => consolidated("s.raytrace"),
        "5.2-17" => holds(|v| {
            every(CONSOLIDATED.map(|p| {
                let [oc, oc2] = [Overcommitted, OvercommittedBase2].map(|s| Study(v).cycles(p, s));
                Some(oc2? > oc?)
            }))
        }),
        "5.2-18" => holds(|v| {
            every(CONSOLIDATED.map(|p| {
                let cycles = |instances| mean(SIZES.map(|c| Some(Study(v).native(p, c, instances)?.cycles)));
                let (one, two) = (cycles(1), cycles(2));
                Some(two? < one?)
            }))
        }),
        "5.2-19" => holds(|v| less_overcommitted(v, |m| m.lock_spin)),
        "5.2-21" => holds(|v| less_overcommitted(v, |m| m.idle_periods)),
        _ => return None,
    })
}

/// Whether a quantity of all benchmarks at all sizes is less in OC than in UC.
fn less_overcommitted(view: &View<'_>, of: fn(&Measured) -> f64) -> Option<bool> {
    let sum = |scenario| {
        let cells = benchmarks().into_iter().flat_map(|p| SIZES.map(|c| (p, c)));
        mean(cells.map(|(p, c)| Some(of(&Study(view).vm(p, c, scenario)?))))
    };
    let (uc, oc) = (sum(Undercommitted), sum(Overcommitted));
    Some(oc? < uc?)
}

/// §5.2 on ω.
fn impact(id: &str) -> Option<Measure> {
    /// By how much the vCPUs' growth over native differs, relative to the mean execution time.
    fn by_vcpu(view: &View<'_>, program: &str) -> Option<f64> {
        let (vm, native) = (Study(view).vm(program, 64, Undercommitted), Study(view).native(program, 64, 1));
        let (vm, native) = (vm?, native?);
        let growth: Vec<f64> = vm.by_cpu.iter().zip(&native.by_cpu).map(|(vm, native)| vm - native).collect();
        Some(deviation(&growth) / (native.by_cpu.iter().sum::<f64>() / native.by_cpu.len() as f64))
    }
    let of = |program: &'static str, scenario| {
        move |v: &View<'_>| Study(v).over_sizes(program, scenario, Overhead::impact)
    };
    Some(match id {
        "5.2-22" => holds(|v| {
            let off_one = |c| {
                mean(
                    Study(v)
                        .over_benchmarks(c, Undercommitted, |o| (o.impact() - 1.0).abs())?
                        .into_iter()
                        .map(Some),
                )
            };
            let (one, many) = (off_one(1), mean(SIZES.map(off_one)));
            Some(many? > one?)
        }),
        "5.2-23" => holds(|v| {
            let impacts = every_overhead(Study(v), &[Undercommitted], Overhead::impact);
            let sequential = Study(v).over_benchmarks(1, Undercommitted, Overhead::impact);
            let (many, one) = (deviation(&impacts?), deviation(&sequential?));
            Some(many > NEGLIGIBLE_OVERHEAD && many >= MUCH * one)
        }),
        "5.2-24" => number(of("bodytrack", Undercommitted)),
        "5.2-25" => number(of("ocean_cp", Overcommitted)),
        "5.2-30" => number(|v| {
            let (vm, native) =
                (Study(v).vm("bodytrack", 64, Undercommitted), Study(v).native("bodytrack", 64, 1));
            let (vm, native) = (vm?, native?);
            let growth: Vec<f64> = vm.by_cpu.iter().zip(&native.by_cpu).map(|(v, n)| v - n).collect();
            let most = growth.iter().copied().fold(0.0, f64::max);
            // Those with at least half of the largest growth.
            Some(growth.iter().filter(|g| **g > 0.0 && **g >= most / 2.0).count() as f64)
        }),
        "5.2-32" => holds(|v| {
            let (ocean, bodytrack) = (by_vcpu(v, "ocean_cp"), by_vcpu(v, "bodytrack"));
            Some(ocean? <= bodytrack? / MUCH)
        }),
        "5.2-33" => holds(move |v| {
            let cells = smallest([of("ocean_cp", Undercommitted)(v), of("ocean_cp", Overcommitted)(v)]);
            let bodytrack = of("bodytrack", Undercommitted)(v);
            Some(cells? <= bodytrack? / MUCH)
        }),
        _ => return None,
    })
}
