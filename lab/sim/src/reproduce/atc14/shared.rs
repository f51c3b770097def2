//! Rows about VMs that share the machine.

use super::super::measure::{ABOUT, MUCH, Measure, View, all, every, holds, largest, mean, number, rate};
use super::{beside, ratio, seconds, shared_dedup, slower, time_alone, time_beside};
use crate::reproduce::runs::Run;

/// What the text calls "only 21 % longer" and "similar".
const SIMILAR: f64 = 0.25;

/// Two database servers by their connections (Figure 8).
fn servers(system: &str, connections: u32) -> Run {
    Run::of("atc14-figure8").with("system", system).with("vm.a.program.0.threads", connections.to_string())
}

/// VMs that all run the same (Figure 9).
fn several(program: &str, system: &str, vms: u32) -> Run {
    Run::of("atc14-figure9")
        .with("program", program)
        .with("system", system)
        .with("vm.a.count", vms.to_string())
}

/// Operations per second of all VMs.
fn total(view: &View<'_>, run: Run) -> Option<f64> {
    let report = view.report(run)?;
    (0..report.vms.len()).map(|vm| rate(&report, vm)).sum()
}

/// Gain of throughput by Gleaner in all VMs, in per cent.
fn gain(view: &View<'_>, of: impl Fn(&str) -> Run) -> Option<f64> {
    slower(total(view, of(view.gleaner())), total(view, of("vm")))
}

fn gain_by_connections(view: &View<'_>, connections: u32) -> Option<f64> {
    gain(view, |system| servers(system, connections))
}

fn gain_by_vms(view: &View<'_>, program: &str, vms: u32) -> Option<f64> {
    gain(view, |system| several(program, system, vms))
}

/// Times per second that a vCPU leaves its pCPU, in all VMs.
fn switches(view: &View<'_>, run: Run) -> Option<f64> {
    let report = view.report(run)?;
    Some(report.vms.iter().map(|vm| vm.count(|c| c.halts + c.preempted)).sum::<u64>() as f64)
}

/// Speed-up of dedup beside matmul by Gleaner.
fn dedup_speed_up(view: &View<'_>) -> Option<f64> {
    ratio(shared_dedup(view, "matmul", 16), time_beside(view, "dedup", view.gleaner(), "matmul", 16))
}

/// dedup's time beside matmul by that beside freqsleep.
fn dedup_by_neighbour(view: &View<'_>, system: &str) -> Option<f64> {
    let [matmul, freqsleep] =
        ["matmul", "freqsleep"].map(|other| time_beside(view, "dedup", system, other, 16));
    ratio(matmul, freqsleep)
}

/// Run time of streamcluster beside another VM by the native one.
fn streamcluster(view: &View<'_>, other: &str) -> Option<f64> {
    let native = view.report(super::alone("streamcluster", "native", 16, super::WORK));
    let beside = time_beside(view, "streamcluster", "vm", other, 16);
    Some(beside? / seconds(&*native?)?)
}

/// Time beside matmul with Gleaner by that without.
fn beside_matmul(view: &View<'_>, program: &str) -> Option<f64> {
    let with = time_beside(view, program, view.gleaner(), "matmul", 16);
    ratio(with, time_beside(view, program, "vm", "matmul", 16))
}

pub(super) fn measure(id: &str) -> Option<Measure> {
    beside_one(id).or_else(|| many_vms(id))
}

fn beside_one(id: &str) -> Option<Measure> {
    let no_slower = |program: &'static str| holds(move |v| Some(beside_matmul(v, program)? < 1.03));
    Some(match id {
        "3.2-07" => holds(|v| {
            let time = |work| {
                let native = v.report(super::alone("streamcluster", "native", 16, work));
                let shared = v.report(beside("streamcluster", "vm", "matmul", 16, work, 1));
                Some(seconds(&*shared?)? / seconds(&*native?)?)
            };
            let (long, short) = (time(super::WORK), time(super::DEDUP));
            Some((long? / short? - 1.0).abs() <= ABOUT)
        }),
        "3.2-09" => holds(|v| {
            let differ = ratio(streamcluster(v, "matmul"), streamcluster(v, "freqsleep"))?;
            Some((differ - 1.0).abs() > ABOUT)
        }),
        "3.2-12" => holds(|v| {
            let alone = ratio(time_alone(v, "streamcluster", "vm"), time_alone(v, "streamcluster", "native"));
            let [matmul, freqsleep] = ["matmul", "freqsleep"].map(|other| streamcluster(v, other));
            let (alone, least) = (alone?, matmul?.min(freqsleep?));
            Some(alone < MUCH && least >= MUCH * alone)
        }),
        "3.2-13" => number(|v| super::slowdown(v, "streamcluster", "vm")),
        "3.2-14" => number(|v| Some(100.0 * (streamcluster(v, "matmul")? - 1.0))),
        "3.2-15" => number(|v| Some(100.0 * (streamcluster(v, "freqsleep")? - 1.0))),
        "0-05" | "7.2.1-09" => number(dedup_speed_up),
        "7.2-03" => holds(|v| Some(dedup_speed_up(v)? > 1.0)),
        "7.2.1-03" => holds(|v| Some(dedup_speed_up(v)? >= MUCH)),
        "7.2.1-10" => no_slower("blackscholes"),
        "7.2.1-11" => no_slower("ferret"),
        "7.2.1-12" => no_slower("freqmine"),
        "7.2.1-35" => holds(|v| Some((dedup_by_neighbour(v, v.gleaner())? - 1.0).abs() <= SIMILAR)),
        "7.2.1-37" => number(|v| dedup_by_neighbour(v, "vm")),
        "7.2.1-38" => number(|v| Some(100.0 * (dedup_by_neighbour(v, v.gleaner())? - 1.0))),
        "9-04" => holds(|v| {
            let (with, without) = (dedup_by_neighbour(v, v.gleaner()), dedup_by_neighbour(v, "vm"));
            Some((with? - 1.0).abs() < (without? - 1.0).abs())
        }),
        _ => return None,
    })
}

fn many_vms(id: &str) -> Option<Measure> {
    const CONNECTIONS: [u32; 4] = [16, 20, 32, 48];
    let each_vm = |v: &View<'_>, program: &str, vms: u32| {
        let report = v.report(several(program, "vm", vms))?;
        mean((0..report.vms.len()).map(|vm| rate(&report, vm)))
    };
    Some(match id {
        "0-06" | "1-14" => number(|v| {
            let most = largest([2, 3, 4, 5].map(|vms| gain_by_vms(v, "dedup", vms)))?;
            Some(1.0 + most / 100.0)
        }),
        "7.2.2-02" => holds(|v| {
            every(["dedup", "mysql"].map(|program| {
                let (with, without) =
                    (switches(v, several(program, v.gleaner(), 2)), switches(v, several(program, "vm", 2)));
                Some(with? < without?)
            }))
        }),
        "7.2.2-03" => holds(|v| every(["dedup", "mysql"].map(|p| Some(gain_by_vms(v, p, 2)? > 0.0)))),
        "7.2.2-06" => holds(|v| {
            let halts = |connections| {
                let report = v.report(servers("vm", connections))?;
                Some(report.vms[0].halts_per_s(report.elapsed))
            };
            let (few, many) = (halts(16), halts(48));
            Some(few? > many?)
        }),
        "7.2.2-07" => number(|v| largest(CONNECTIONS.map(|c| gain_by_connections(v, c)))),
        "7.2.2-08" => holds(|v| {
            let (few, many) = (gain_by_connections(v, 20), gain_by_connections(v, 48));
            Some(few? > many?)
        }),
        "7.2.2-10" => number(|v| {
            let gains = all(CONNECTIONS.map(|c| gain_by_connections(v, c)))?;
            // Equal gains have no peak.
            let most = gains.iter().copied().reduce(f64::max)?;
            let peak: Vec<u32> =
                CONNECTIONS.into_iter().zip(&gains).filter(|(_, g)| **g >= most).map(|(c, _)| c).collect();
            (peak.len() == 1).then(|| f64::from(peak[0]))
        }),
        "7.2.2-12" => holds(move |v| {
            every(["dedup", "mysql"].map(|program| {
                let (one, five) = (each_vm(v, program, 1), each_vm(v, program, 5));
                Some(one? >= MUCH * five?)
            }))
        }),
        "7.2.2-13" => number(move |v| ratio(each_vm(v, "mysql", 1), each_vm(v, "mysql", 5))),
        "7.2.2-14" => holds(|v| {
            let cells = ["dedup", "mysql"].into_iter().flat_map(|p| [2, 3, 4, 5].map(|vms| (p, vms)));
            every(cells.map(|(p, vms)| Some(gain_by_vms(v, p, vms)? >= 100.0 * (MUCH - 1.0))))
        }),
        "7.2.2-16" => number(|v| mean([2, 3, 4, 5].map(|vms| gain_by_vms(v, "dedup", vms)))),
        "7.2.2-17" => number(|v| mean([2, 3, 4, 5].map(|vms| gain_by_vms(v, "mysql", vms)))),
        "7.2.2-19" => holds(|v| {
            let [two, three, four] = [2, 3, 4].map(|vms| gain_by_vms(v, "dedup", vms));
            Some(two? < three? && three? < four?)
        }),
        "7.2.2-21" => holds(|v| {
            let [two, three, four, five] = [2, 3, 4, 5].map(|vms| gain_by_vms(v, "mysql", vms));
            Some(two? > three? && three? > four? && four? > five?)
        }),
        _ => return None,
    })
}
