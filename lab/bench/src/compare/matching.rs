//! Matches rows of a virtualised and a native result to the paper's scenarios UC, OC and OC2.
//!
//! Rows with the same command belong to one workload, whatever their names. A row has one instance if nothing
//! runs beside it, and two if its only co-runner runs the same. The paper's second instance is in a second
//! virtual machine; a co-runner in the same one shares not only the CPUs but also the guest's scheduler.

use gleaner_proto::result::{BenchResult, Cell, Metric, Row, Sample};

use super::RowOverhead;
use super::host::Join;
use super::overhead::{Overhead, Scenario, Side};

/// The overheads of every row and mode of `virtualised` over the first mode of `native`; with what the host recorded, if
/// that is known.
pub(super) fn overheads(
    virtualised: &BenchResult,
    native: &BenchResult,
    host: Option<&Join<'_>>,
) -> Vec<RowOverhead> {
    let mut found = Vec::new();
    for row in &virtualised.rows {
        let (Some(work), Some(instances)) = (work(row), instances(row)) else { continue };
        for cell in &row.cells {
            for scenario in Scenario::ALL {
                let (ours, theirs) = scenario.rows();
                let same = |other: &&Row| {
                    self::work(other).as_ref() == Some(&work)
                        && self::instances(other) == Some(theirs)
                        && has_throughput(other) == has_throughput(row)
                };
                if ours != instances {
                    continue;
                }
                let Some((base_row, base)) =
                    native.rows.iter().find(same).and_then(|row| Some((row, row.cells.first()?)))
                else {
                    continue;
                };
                let mut virtual_side = side(row, cell, virtualised.environment.vcpus);
                if let Some(host) = host {
                    // The samples vary as the guest saw it; their level is the host's.
                    virtual_side.cpu_s.iter_mut().for_each(|cpu_s| *cpu_s *= host.ratio());
                }
                let native_side = side(base_row, base, native.environment.vcpus);
                let overhead = Overhead::new(scenario, &virtual_side, &native_side);
                found.extend(overhead.map(|overhead| RowOverhead {
                    row: row.name.clone(),
                    mode: cell.mode.clone(),
                    cycles: host.map(|host| {
                        host.cycles(overhead.delta_eta_r.value, instances as f64, (base_row, base))
                    }),
                    overhead,
                }));
            }
        }
    }
    found
}

impl Scenario {
    /// Number of instances in the virtualised and the native row.
    const fn rows(self) -> (usize, usize) {
        match self {
            Self::Uc => (1, 1),
            Self::Oc => (2, 1),
            Self::Oc2 => (2, 2),
        }
    }
}

/// The words of the row's command, from its first mode, which has no wrapper.
fn work(row: &Row) -> Option<Vec<&str>> {
    row.cells.first().map(|cell| words(&cell.command))
}

/// Number of instances in the row; `None` if something else runs beside it.
fn instances(row: &Row) -> Option<usize> {
    match row.co_runners.as_slice() {
        [] => Some(1),
        [one] => {
            let command = &row.cells.first()?.command;
            // A shell loop repeats the command.
            (words(one) == words(command) || one.contains(command.as_str())).then_some(2)
        }
        _ => None,
    }
}

/// The words of a command line, except a workload's duration: a co-runner runs for as long as needed.
fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.split_whitespace();
    while let Some(word) = rest.next() {
        if matches!(word, "--seconds" | "--operations") {
            rest.next();
        } else {
            words.push(word);
        }
    }
    words
}

fn has_throughput(row: &Row) -> bool {
    row.cells.first().is_some_and(|cell| !cell.values(Metric::Throughput).is_empty())
}

/// Time, and CPU seconds of the whole system, of the samples that have both: per unit of work if units are counted, else of
/// the whole run.
fn side(row: &Row, cell: &Cell, cpus: usize) -> Side {
    let both = cell.samples.iter().filter_map(|sample| {
        let value = |metric| sample.metrics.get(&metric).copied();
        let time = value(Metric::Throughput).map(f64::recip).or_else(|| value(Metric::WallS))?;
        Some((time, cpu_s(row, sample)? / units(sample)))
    });
    let (times, costs) = both.unzip();
    Side { time_s: times, cpu_s: costs, cpus }
}

/// Units of work that a sample did; 1 if there is no unit.
pub(super) fn units(sample: &Sample) -> f64 {
    let value = |metric| sample.metrics.get(&metric).copied();
    value(Metric::Operations)
        .or_else(|| Some(value(Metric::Throughput)? * value(Metric::WallS)?))
        .filter(|units| *units > 0.0)
        .unwrap_or(1.0)
}

/// How often the CPU time of a sample's command was used: a co-runner that does the same is no child of the command, and
/// uses as much. A server's sample has the whole machine's.
fn repeated(row: &Row) -> f64 {
    if row.server.is_some() { 1.0 } else { instances(row).unwrap_or(1) as f64 }
}

/// CPU seconds of the row's instances during a sample, as their system accounts them.
pub(super) fn cpu_s(row: &Row, sample: &Sample) -> Option<f64> {
    let measured = sample.metrics.get(&Metric::CpuSPerOp)? * units(sample);
    // Polling is the whole machine's in any case.
    let polling = sample.metrics.get(&Metric::CpuPollingS).copied().unwrap_or_default().min(measured);
    Some((measured - polling) * repeated(row) + polling)
}

/// The same in user mode.
pub(super) fn user_s(row: &Row, sample: &Sample) -> Option<f64> {
    Some(sample.metrics.get(&Metric::CpuUserS)? * repeated(row))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_the_same_however_long_it_runs() {
        let row = "gleaner workload barrier --json --seconds 1 --set threads=4";
        assert_eq!(words(row), words("gleaner workload barrier --json --seconds 3600 --set threads=4"));
        assert_eq!(words(row), words("gleaner workload barrier --json --operations 10 --set threads=4"));
        assert_ne!(words(row), words("gleaner workload barrier --json --seconds 1 --set threads=2"));
    }
}
