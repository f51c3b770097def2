//! Claim 3: two machines of 4 vCPUs on the same two CPUs. Gleaner in the one that waits for wake-ups makes it faster, and
//! the other, which computes, keeps its share.

use std::time::Duration;

use crate::claims::measure::{Mode, Sample, ratios, sample};
use crate::claims::{Checks, Claim, Place, Target, journal};
use crate::error::Result;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, VmSpec};

pub(super) const CLAIM: Claim = Claim {
    name: "overcommit",
    group: 3,
    says: "two VMs with 4 vCPUs each on two CPUs: Gleaner in one makes it faster and takes nothing from the other",
    quick: false,
    place: Place::Emulated,
    prove,
};

const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(6);

fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let boot =
        |name| lab.boot(VmSpec::new(name, Image::Tiny, Kernel::V6_12, Cpus::flat(4)).pinned_to(&[0, 1]));
    let (first, second) = (boot("overcommit-1")?, boot("overcommit-2")?);
    pair(&first, &second, checks, &["pipeline", "--kind", "dedup"], "dedup")?;
    pair(&first, &second, checks, &["request-response"], "request-response")?;
    first.power_off()?;
    second.power_off()
}

/// Both machines at the same time, the first one untouched and under Gleaner in turns.
fn pair(first: &Guest, second: &Guest, checks: &mut Checks, workload: &[&str], name: &str) -> Result<()> {
    let mut ours = [Vec::new(), Vec::new()];
    let mut theirs = [Vec::new(), Vec::new()];
    let mut settled = Vec::new();
    for round in 0..ROUNDS {
        for turn in 0..2 {
            let mode = (round + turn) % 2;
            let prefix = [Mode::UNTOUCHED, Mode::JOURNALLED][mode];
            let (one, other) = side_by_side(first, prefix, workload, second)?;
            ours[mode].push(one);
            if mode == 1 {
                settled.push(journal::active_mostly(&journal::summary(&journal::records(first)?)?));
            }
            theirs[mode].push(other);
        }
    }
    let throughput = |sample: &Sample| sample.throughput;
    let faster = ratios(&ours[1], &ours[0], throughput);
    let share = ratios(&theirs[1], &theirs[0], throughput);
    checks.ratios(format!("{name}: throughput, to untouched"), &faster, "×", Target::AtLeast(1.5));
    checks.ratios(format!("matmul beside {name}: throughput, to untouched"), &share, "×", Target::Told);
    // §7.2.1: the mean of both machines' speed-ups.
    let both: Vec<f64> = faster.iter().zip(&share).map(|(a, b)| f64::midpoint(*a, *b)).collect();
    checks.ratios(format!("{name} and matmul: weighted speed-up"), &both, "×", Target::AtLeast(0.97));
    checks.values(
        format!("{name}: active vCPUs for most of the time, of 4"),
        &settled,
        "vCPUs",
        Target::Told,
    );
    Ok(())
}

fn side_by_side(first: &Guest, mode: Mode, workload: &[&str], second: &Guest) -> Result<(Sample, Sample)> {
    std::thread::scope(|scope| {
        let other = scope.spawn(|| sample(second, Mode::UNTOUCHED, &["matmul"], TIME));
        let one = sample(first, mode, workload, TIME);
        let other = other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((one?, other?))
    })
}
