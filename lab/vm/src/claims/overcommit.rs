//! Claim 3: two machines with 4 vCPUs share two CPUs. Gleaner speeds up the one that waits for wake-ups, and the other
//! one, which computes, keeps its share.

use std::time::Duration;

use crate::claims::measure::{Mode, Sample, ratios, sample};
use crate::claims::{Checks, Claim, ClaimHost, Target, journal};
use crate::error::Result;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, Step, VmSpec};

pub(super) const CLAIM: Claim = Claim {
    name: "overcommit",
    group: 3,
    says: "two VMs with 4 vCPUs each on two CPUs: Gleaner in one makes it faster and takes nothing from the other",
    quick: false,
    place: ClaimHost::Emulated,
    prove,
};

const ROUNDS: usize = 5;
const TIME: Duration = Duration::from_secs(10);

/// Without retention: an emulated guest sees no steal, so nothing would stop Gleaner from polling on vCPUs that the
/// neighbour needs. Claim `haltpoll` proves the veto where there is steal.
const SETS_ONLY: Mode = Mode {
    name: "gleaner",
    prefix: &["gleaner", "run", "-q", "--no-memory", "--no-retain", "--journal", journal::PATH, "--"],
};
/// The best that a smaller active set can gain.
const CONSOLIDATED: Mode =
    Mode { name: "consolidated", prefix: &["gleaner", "run", "-q", "--fixed", "consolidate:1", "--"] };
const MODES: [Mode; 3] = [Mode::UNTOUCHED, SETS_ONLY, CONSOLIDATED];

fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let boot =
        |name| lab.boot(VmSpec::new(name, Image::Tiny, Kernel::V6_12, Cpus::flat(4)).pinned_to(&[0, 1]));
    let (first, second) = (boot("overcommit-1")?, boot("overcommit-2")?);
    calibrate(&first, &second)?;
    pair(&first, &second, checks, &["pipeline", "--kind", "dedup"], "dedup")?;
    pair(&first, &second, checks, &["request-response"], "request-response")?;
    first.power_off()?;
    second.power_off()
}

/// Measures the cost of a wake-up beside the neighbour, as an operator would.
fn calibrate(first: &Guest, second: &Guest) -> Result<()> {
    let hog =
        second.start(Step::new(&["gleaner", "workload", "matmul", "--for", "120s"]).timeout(TIME * 40))?;
    first.succeed(Step::new(&["gleaner", "doctor"]).timeout(TIME * 10))?;
    hog.signal(nix::sys::signal::Signal::SIGKILL)?;
    hog.wait().map(drop)
}

/// Runs both machines at once, with the first one in each mode in turn.
fn pair(first: &Guest, second: &Guest, checks: &mut Checks, workload: &[&str], name: &str) -> Result<()> {
    let mut ours = [const { Vec::new() }; MODES.len()];
    let mut theirs = [const { Vec::new() }; MODES.len()];
    let mut settled = Vec::new();
    for round in 0..ROUNDS {
        for turn in 0..MODES.len() {
            let mode = (round + turn) % MODES.len();
            let (one, other) = side_by_side(first, MODES[mode], workload, second)?;
            ours[mode].push(one);
            if mode == 1 {
                settled.push(journal::longest_active(&journal::summary(&journal::records(first)?)?));
            }
            theirs[mode].push(other);
        }
    }
    let throughput = |sample: &Sample| sample.throughput;
    let faster = ratios(&ours[1], &ours[0], throughput);
    let share = ratios(&theirs[1], &theirs[0], throughput);
    checks.ratios(format!("{name}: throughput, to untouched"), &faster, "×", Target::AtLeast(1.5));
    checks.ratios(format!("matmul beside {name}: throughput, to untouched"), &share, "×", Target::Reported);
    let by_hand = ratios(&ours[2], &ours[0], throughput);
    checks.ratios(
        format!("{name}: throughput on 1 vCPU by hand, to untouched"),
        &by_hand,
        "×",
        Target::Reported,
    );
    // §7.2.1: the mean of both machines' speed-ups.
    let both: Vec<f64> = faster.iter().zip(&share).map(|(a, b)| f64::midpoint(*a, *b)).collect();
    checks.ratios(format!("{name} and matmul: weighted speed-up"), &both, "×", Target::AtLeast(0.97));
    checks.values(
        format!("{name}: active vCPUs for most of the time, of 4"),
        &settled,
        "vCPUs",
        Target::Reported,
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
