//! Claim 2, in a guest with 8 vCPUs on two CPUs: fine-grained work settles on fewer active vCPUs and gets faster and
//! cheaper, coarse work keeps all of them and loses nothing.

use std::time::Duration;

use gleaner_proto::journal::{self, Record, Summary};

use crate::claims::measure::{Mode, interleaved, ratios};
use crate::claims::{Checks, Claim, Place, Target};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, VmSpec};

pub(super) const FINE: Claim = Claim {
    name: "consolidation-fine",
    group: 2,
    says: "with 8 vCPUs, fine-grained work settles on fewer of them, faster and for less CPU time",
    quick: false,
    place: Place::Emulated,
    prove: |lab, checks| {
        let guest = boot(lab)?;
        for workload in [&["pipeline"][..], &["request-response"], &["task-queue"]] {
            let settled =
                measure(&guest, checks, workload, Bounds { faster: 1.2, cost: Target::AtMost(1.0) })?;
            let what = format!("{}: active vCPUs for most of the time, of 8", workload[0]);
            checks.values(what, &settled, "vCPUs", Target::AtMost(4.0));
        }
        guest.power_off()
    },
};

pub(super) const COARSE: Claim = Claim {
    name: "consolidation-coarse",
    group: 2,
    says: "with 8 vCPUs, coarse work keeps all of them and loses nothing",
    quick: false,
    place: Place::Emulated,
    prove: |lab, checks| {
        let guest = boot(lab)?;
        for workload in [&["matmul"][..], &["barrier", "--set", "granularity=10ms"]] {
            let settled = measure(&guest, checks, workload, Bounds { faster: 0.97, cost: Target::Told })?;
            let what = format!("{}: active vCPUs for most of the time, of 8", workload[0]);
            checks.values(what, &settled, "vCPUs", Target::AtLeast(8.0));
        }
        guest.power_off()
    },
};

const ROUNDS: usize = 3;
const TIME: Duration = Duration::from_secs(8);
const JOURNAL: &str = "/tmp/journal";
const JOURNALLED: Mode =
    Mode { name: "gleaner", prefix: &["gleaner", "run", "-q", "--journal", JOURNAL, "--"] };

#[derive(Clone, Copy)]
struct Bounds {
    faster: f64,
    cost: Target,
}

fn boot(lab: &Lab) -> Result<Guest> {
    lab.boot(VmSpec::new("consolidation", Image::Tiny, Kernel::V6_12, Cpus::flat(8)))
}

/// Measures a workload untouched and under Gleaner; returns how many vCPUs were active for most of each run.
fn measure(guest: &Guest, checks: &mut Checks, workload: &[&str], bounds: Bounds) -> Result<Vec<f64>> {
    let name = workload[0];
    let mut settled = Vec::new();
    let mut samples = vec![Vec::new(); 2];
    for _ in 0..ROUNDS {
        let round = interleaved(guest, 1, &[Mode::UNTOUCHED, JOURNALLED], workload, TIME)?;
        for (all, one) in samples.iter_mut().zip(round) {
            all.extend(one);
        }
        settled.push(active_mostly(&summary(guest)?));
    }
    let [untouched, gleaner] = &samples[..] else { return Ok(settled) };
    let faster = ratios(gleaner, untouched, |sample| sample.throughput);
    checks.ratios(format!("{name}: throughput, to untouched"), &faster, "×", Target::AtLeast(bounds.faster));
    let cost = ratios(gleaner, untouched, |sample| sample.busy_per_operation);
    checks.ratios(format!("{name}: CPU time of an operation, to untouched"), &cost, "×", bounds.cost);
    Ok(settled)
}

/// The account of the latest run under [`JOURNALLED`].
fn summary(guest: &Guest) -> Result<Summary> {
    let local = tempfile::NamedTempFile::new().map_err(Error::system("make a temporary file"))?;
    std::fs::write(local.path(), guest.read(JOURNAL)?).map_err(Error::file("write", local.path()))?;
    let misread =
        |what: String| Error::Protocol { who: format!("the journal in VM `{}`", guest.spec().name), what };
    let records = journal::read(local.path()).map_err(|error| misread(error.to_string()))?;
    let end = records.into_iter().find_map(|record| match record {
        Record::End { summary, .. } => Some(summary),
        _ => None,
    });
    end.ok_or_else(|| misread("it has no end".to_owned()))
}

/// How many vCPUs the setting has that was in force for most of the time.
fn active_mostly(summary: &Summary) -> f64 {
    let longest = summary.settings.iter().max_by_key(|setting| setting.time);
    longest.map_or(0.0, |longest| longest.setting.active.len() as f64)
}
