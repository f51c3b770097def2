//! Statements in the paper's text.

use super::super::{Basis, Reproduction};
use super::machine::{Measured, Setup};
use super::study::{
    HIGH_HOST, HIGH_OVERCOMMITTED, NEGLIGIBLE, Overhead, SIZES, Scenario, Study, benchmarks,
    blocking_volrend, dedup_without_ple, largest, mean, patched, quantile, without_halt_polling,
};

use Scenario::{Overcommitted, OvercommittedBase2, Undercommitted};

/// δη up to this is called negligible here; the paper only gives a variance of 5 % between runs (§8).
const NEGLIGIBLE_OVERHEAD: f64 = 0.1;

pub(super) fn numbers(study: &Study, out: &mut Reproduction) {
    let mut number = |place, what: &str, paper, found| out.number(place, what, paper, found, Basis::HeldOut);
    let all = || SIZES.into_iter().flat_map(|c| [Undercommitted, Overcommitted].map(|s| (c, s)));
    let most = largest(all().flat_map(|(c, s)| study.over_benchmarks(c, s, |o| o.cycles)));
    number("§5.2", "largest δη_r of a benchmark, factor", 2.5, most.map(|m| 1.0 + m));
    let impact = |program, scenario| mean(&study.over_sizes(program, scenario, Overhead::impact));
    number("§5.2", "bodytrack, UC: ω", 1.1, impact("bodytrack", Undercommitted));
    number("§5.2", "ocean_cp, OC: ω", 0.6, impact("ocean_cp", Overcommitted));

    let tick = largest(HIGH_HOST.into_iter().flat_map(|p| {
        SIZES.map(|c| {
            let native = study.get(Setup::native(p, c, false)).map_or(f64::NAN, |n| n.cycles);
            study.vm(p, c, Undercommitted).map_or(f64::NAN, |v| 100.0 * v.tick / native)
        })
    }));
    number("§6.2.1", "largest δη_r by TSC_DEADLINE writes, %", 10.0, tick);
    number("§6.2.1", "halt polls that succeed, 4 vCPUs, UC, %", 30.0, polls_won(study, 4).map(|s| 100.0 * s));

    let dedup = |scenario| mean(&study.over_sizes("dedup", scenario, |o| 1.0 + o.time));
    number("§6.2.3", "dedup, OC: δη_t, factor", 0.8, dedup(Overcommitted));
    let before = study.overhead_of(dedup_without_ple(), Overcommitted).map(|o| 1.0 + o.time);
    number("§6.2.3", "dedup, OC, without pause-loop exits: δη_t, factor", 6.0, before);

    // What `Ray_Trace` calls computes; its own cycles are those of the barrier's loop (Listing 1).
    let traced = |s| study.vm("volrend", 64, s).map(|m| m.user_spin);
    let times = traced(Overcommitted).zip(traced(Undercommitted)).map(|(oc, uc)| oc / uc);
    number("§6.3.2", "volrend's ray tracing, 64 vCPUs: cycles OC / UC", 10.0, times);

    let gains = HIGH_HOST.into_iter().flat_map(|p| SIZES.map(|c| polling_gain(study, p, c, false)));
    let gain = largest(gains.flatten().map(|g| g.time));
    number("§7.1.1", "most that halt polling takes off δη_t, points", 14.0, gain.map(|g| 100.0 * g));
    let blocking = study.get(blocking_volrend()).zip(study.vm("volrend", 64, Overcommitted));
    let less = |of: fn(&Measured) -> f64| blocking.map(|(b, s)| 100.0 * (1.0 - of(b) / of(s)));
    number("§7.1.1", "volrend that blocks, OC, 64 vCPUs: less time, %", 25.0, less(|m| m.time));
    let what = "volrend that blocks, OC, 64 vCPUs: fewer cycles, %";
    out.number("§7.1.1", what, 60.0, less(|m| m.cycles), Basis::Fitted);
    out.number("§6.2.3", "dedup, OC2: δη_t, factor", 1.5, dedup(OvercommittedBase2), Basis::Fitted);
}

/// Share of the halts in which polling succeeded, for benchmarks with high host overhead.
fn polls_won(study: &Study, cpus: u32) -> Option<f64> {
    let share = |p| {
        let m = study.vm(p, cpus, Undercommitted)?;
        (m.halts > 0.0).then(|| m.polls.0 as f64 / m.halts)
    };
    mean(&HIGH_HOST.into_iter().filter_map(share).collect::<Vec<_>>())
}

/// What halt polling subtracts from `δη_t` and adds to `δη_r`.
pub(super) fn polling_gain(study: &Study, program: &'static str, cpus: u32, pair: bool) -> Option<Overhead> {
    let scenario = if pair { Overcommitted } else { Undercommitted };
    let with = study.overhead(program, cpus, scenario)?;
    let without = study.overhead_of(without_halt_polling(program, cpus, pair), scenario)?;
    Some(Overhead { time: without.time - with.time, cycles: with.cycles - without.cycles })
}

pub(super) fn directions(study: &Study, out: &mut Reproduction) {
    sequential(study, out);
    multithreaded(study, out);
    categories(study, out);
    high_host(study, out);
    high_overcommitted(study, out);
}

fn sequential(study: &Study, out: &mut Reproduction) {
    for (what, of) in [("δη_t", (|o| o.time) as fn(Overhead) -> f64), ("δη_r", |o| o.cycles)] {
        let uc = mean(&study.over_benchmarks(1, Undercommitted, of));
        out.direction(
            format!("§5.1: sequential: {what} is negligible on average"),
            uc.map(|m| m.abs() <= NEGLIGIBLE_OVERHEAD),
        );
    }
}

fn multithreaded(study: &Study, out: &mut Reproduction) {
    let time = |c, s| mean(&study.over_benchmarks(c, s, |o| o.time));
    let median = |c, s| quantile(&study.over_benchmarks(c, s, |o| o.time), 0.5);
    let at_every_size = |holds: &dyn Fn(u32) -> Option<bool>| {
        SIZES.into_iter().map(holds).collect::<Option<Vec<_>>>().map(|all| all.into_iter().all(|h| h))
    };
    out.direction(
        "§5.2: OC: δη_t is negative for most benchmarks",
        at_every_size(&|c| median(c, Overcommitted).map(|m| m < 0.0)),
    );
    out.direction(
        "§5.2: OC: δη_t becomes more negative with more vCPUs",
        median(64, Overcommitted).zip(median(4, Overcommitted)).map(|(many, few)| many < few),
    );
    out.direction(
        "§5.2: OC2: δη_t is positive on average",
        at_every_size(&|c| time(c, OvercommittedBase2).map(|m| m > 0.0)),
    );
    out.direction(
        "§5.2: overhead is higher than for sequential programs",
        at_every_size(&|c| Some(time(c, Undercommitted)? > time(1, Undercommitted)?)),
    );
    out.direction(
        "§5.2: overhead increases with the number of vCPUs",
        time(64, Undercommitted).zip(time(4, Undercommitted)).map(|(many, few)| many > few),
    );
    let spread = |c| {
        let values = study.over_benchmarks(c, Undercommitted, |o| o.time);
        Some(quantile(&values, 1.0)? - quantile(&values, 0.0)?)
    };
    out.direction(
        "§5.2: benchmarks differ more from each other than sequential programs do",
        at_every_size(&|c| Some(spread(c)? > spread(1)?)),
    );
    for program in ["fft", "radiosity", "s.raytrace"] {
        let cycles = mean(&study.over_sizes(program, Overcommitted, |o| o.cycles));
        out.direction(format!("§5.2: OC: δη_r of {program} is negative"), cycles.map(|c| c < 0.0));
    }
    let impacts: Vec<f64> =
        SIZES.into_iter().flat_map(|c| study.over_benchmarks(c, Undercommitted, Overhead::impact)).collect();
    out.direction(
        "§5.2: ω varies from below 0.9 to above 1.1",
        quantile(&impacts, 0.0).zip(quantile(&impacts, 1.0)).map(|(low, high)| low < 0.9 && high > 1.1),
    );
}

fn categories(study: &Study, out: &mut Reproduction) {
    let cycles = |p, s| mean(&study.over_sizes(p, s, |o| o.cycles));
    for program in NEGLIGIBLE {
        let both = cycles(program, Undercommitted).zip(cycles(program, OvercommittedBase2));
        out.direction(
            format!("§6: {program} has negligible overhead (δη_r, UC and OC2)"),
            both.map(|(uc, oc)| uc <= NEGLIGIBLE_OVERHEAD && oc <= NEGLIGIBLE_OVERHEAD),
        );
    }
    for program in HIGH_HOST {
        let uc = cycles(program, Undercommitted);
        out.direction(
            format!("§6: {program} has high overhead (δη_r, UC)"),
            uc.map(|c| c > NEGLIGIBLE_OVERHEAD),
        );
    }
}

fn high_host(study: &Study, out: &mut Reproduction) {
    growth_with_vcpus(study, out);
    scheduling(study, out);
    halt_polling(study, out);
    shootdowns(study, out);
    pause_loops(study, out);
}

fn growth_with_vcpus(study: &Study, out: &mut Reproduction) {
    let overhead = |c, of: fn(Overhead) -> f64| {
        mean(
            &HIGH_HOST
                .into_iter()
                .filter_map(|p| study.overhead(p, c, Undercommitted))
                .map(of)
                .collect::<Vec<_>>(),
        )
    };
    let cycles = |c| overhead(c, |o| o.cycles);
    out.direction("§6.2: δη_r rises until 32 vCPUs", cycles(32).zip(cycles(4)).map(|(b, a)| b > a));
    out.direction("§6.2: δη_r drops at 64 vCPUs", cycles(64).zip(cycles(32)).map(|(b, a)| b < a));
    for program in ["bodytrack", "dedup", "facesim", "volrend"] {
        let times = study.over_sizes(program, Undercommitted, |o| o.time);
        let rises = times.len() == SIZES.len() && times[4] > times[0];
        out.direction(format!("§6.2: δη_t of {program} rises with the number of vCPUs"), Some(rises));
    }
}

fn scheduling(study: &Study, out: &mut Reproduction) {
    let group = |c, s, of: &dyn Fn(&Measured) -> f64| {
        mean(&HIGH_HOST.into_iter().filter_map(|p| study.vm(p, c, s)).map(of).collect::<Vec<_>>())
    };
    let parts = |of: fn(&Measured) -> f64| {
        mean(&SIZES.into_iter().filter_map(|c| group(c, Undercommitted, &of)).collect::<Vec<_>>())
    };
    let scheduling = parts(|m| m.scheduling + m.polling);
    out.direction(
        "§6.2.1: scheduling costs the host more than wake-up interrupts or the tick",
        scheduling.and_then(|s| Some(s > parts(|m| m.reschedule)? && s > parts(|m| m.tick)?)),
    );
    out.direction(
        "§6.2.1: halt polling hardly ever succeeds on 64 vCPUs (below 5 %), less than on 4",
        polls_won(study, 64).zip(polls_won(study, 4)).map(|(many, few)| many < 0.05 && many < few),
    );
    let polling = |s| group(16, s, &|m| m.polling);
    out.direction(
        "§6.2.1: the host polls less when it is overcommitted",
        polling(Overcommitted).zip(polling(Undercommitted)).map(|(oc, uc)| oc < uc),
    );
}

fn halt_polling(study: &Study, out: &mut Reproduction) {
    let gains = |pair| -> Option<(f64, f64)> {
        let gain = |p| mean_gain(study, p, pair);
        let gains: Vec<Overhead> = HIGH_HOST.into_iter().filter_map(gain).collect();
        let mean = |of: fn(&Overhead) -> f64| mean(&gains.iter().map(of).collect::<Vec<_>>());
        Some((mean(|g| g.time)?, mean(|g| g.cycles)?))
    };
    let (uc, oc) = (gains(false), gains(true));
    out.direction("§6.2.1, Figure 12: halt polling lowers δη_t, UC", uc.map(|(time, _)| time > 0.0));
    out.direction("§6.2.1, Figure 12: and raises δη_r, UC", uc.map(|(_, cycles)| cycles > 0.0));
    out.direction("§7.1.1: it is less effective overcommitted", uc.zip(oc).map(|(uc, oc)| oc.0 < uc.0));
}

fn shootdowns(study: &Study, out: &mut Reproduction) {
    let spent = |of: fn(&Measured) -> f64| move |p| study.vm(p, 16, Undercommitted).map(of);
    let shootdown = spent(|m| m.shootdown);
    let others = largest(["bodytrack", "facesim", "volrend"].into_iter().filter_map(shootdown));
    for program in ["dedup", "vips"] {
        out.direction(
            format!("§6.2.2: {program} spends more on shootdowns than bodytrack, facesim and volrend"),
            shootdown(program).zip(others).map(|(own, others)| own > others),
        );
    }
}

fn pause_loops(study: &Study, out: &mut Reproduction) {
    let exits = |p, s| Some(SIZES.into_iter().filter_map(|c| study.vm(p, c, s)).map(|m| m.pause_exits).sum());
    let vips: Option<f64> = exits("vips", Overcommitted);
    let rest = benchmarks().into_iter().filter(|p| *p != "vips").filter_map(|p| exits(p, Overcommitted));
    out.direction(
        "§6.2.3: no benchmark has more pause-loop exits than vips, OC",
        vips.zip(largest(rest)).map(|(vips, rest)| vips > rest),
    );
}

fn mean_gain(study: &Study, program: &'static str, pair: bool) -> Option<Overhead> {
    let gains: Vec<Overhead> =
        SIZES.into_iter().filter_map(|c| polling_gain(study, program, c, pair)).collect();
    let mean = |of: fn(&Overhead) -> f64| mean(&gains.iter().map(of).collect::<Vec<_>>());
    Some(Overhead { time: mean(|g| g.time)?, cycles: mean(|g| g.cycles)? })
}

fn high_overcommitted(study: &Study, out: &mut Reproduction) {
    let base2 = |p| mean(&study.over_sizes(p, OvercommittedBase2, |o| o.cycles));
    for program in HIGH_OVERCOMMITTED {
        let positive = ["lu_cb", "vips", "x264"].contains(&program);
        let sign = if positive { "positive" } else { "negative" };
        out.direction(
            format!("§6.3: OC2: δη_r of {program} is {sign}"),
            base2(program).map(|c| (c > 0.0) == positive),
        );
    }
    let grows = |p, of: fn(&Measured) -> f64| {
        let at = |s| study.vm(p, 64, s).map(of);
        at(Overcommitted).zip(at(Undercommitted)).map(|(oc, uc)| oc > uc)
    };
    for program in ["lu_cb", "vips", "x264"] {
        out.direction(
            format!("§6.3.1: {program} waits longer for acknowledgements of shootdowns, OC"),
            grows(program, |m| m.tlb_spin),
        );
    }
    for program in ["streamcluster", "volrend"] {
        out.direction(
            format!("§6.3.2: {program} spins more in user mode, OC"),
            grows(program, |m| m.user_spin),
        );
    }
    out.direction(
        "§6.3.2: streamcluster blocks and spins in the kernel less, OC",
        grows("streamcluster", |m| m.lock_spin + m.halts * 1e-6).map(|grows| !grows),
    );
    let spin = |c| study.vm("volrend", c, Overcommitted).map(|m| m.user_spin / m.user);
    out.direction(
        "§6.3.2: user-level spinning increases with the number of vCPUs",
        spin(64).zip(spin(4)).map(|(many, few)| many > few),
    );
    let times = |s| mean(&study.over_sizes("volrend", s, |o| o.cycles));
    out.direction(
        "§6.3.2: volrend's δη_r is high against one native instance, negative against two",
        times(Overcommitted)
            .zip(times(OvercommittedBase2))
            .map(|(one, two)| one > NEGLIGIBLE_OVERHEAD && two < 0.0),
    );
    let (before, after) = (study.vm("x264", 64, Overcommitted), study.get(patched("x264")));
    let alone = study.vm("x264", 64, Undercommitted);
    out.direction(
        "§8: when shootdowns leave preempted vCPUs out, overcommitting adds no waiting to x264",
        before.zip(after).zip(alone).map(|((before, after), alone)| {
            after.tlb_spin - alone.tlb_spin < NEGLIGIBLE_OVERHEAD * (before.tlb_spin - alone.tlb_spin)
        }),
    );
}
