//! VMs that share the pCPUs: a parallel one beside small ones (§4.1.2 of the paper), and two parallel ones (§4.1.3). Each has a
//! control group of the same weight, so that the kernel's scheduler, too, shares between VMs.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{Scheduler, Still, endless, groups, guest};
use crate::claims::measure::outcome;
use crate::claims::{Checks, Target};
use crate::error::Result;
use crate::vm::{Cpus, Guest, Job, Lab, Step, VmSpec};

const ROUNDS: usize = 3;
/// How long a measurement takes.
const BLOCK: Duration = Duration::from_millis(500);
const SMALL_VMS: usize = 4;
/// Of the host, and vCPUs of the parallel VM: as in the paper, a fair share is more than a small VM can use.
pub(super) const PCPUS_BESIDE_SMALL: u32 = 6;

/// Threads that wait for each other at barriers, and threads that change their address space.
const PARALLEL: [Workload; 2] = [&["barrier", "--kind", "spin-then-block"], &["tlb"]];
/// Run beside each other.
const PAIRS: [[Workload; 2]; 3] =
    [[PARALLEL[0], &["matmul"]], [PARALLEL[1], &["matmul"]], [PARALLEL[0], PARALLEL[1]]];

type Workload = &'static [&'static str];

/// What schedules the host: the kernel, or ours with these options.
type Setting = Option<&'static [&'static str]>;

const KERNEL: Setting = None;
const BALANCE: Setting = Some(&["--placement", "balance"]);
const LOAD_CONSCIOUS: Setting = Some(&["--placement", "load-conscious"]);

/// A parallel VM beside four with one vCPU.
pub(super) fn beside_small(lab: &Lab, checks: &mut Checks) -> Result<()> {
    groups::enable()?;
    let parallel = boot(lab, VmSpec { cpus: Cpus::flat(PCPUS_BESIDE_SMALL), ..guest("parallel") })?;
    let small = |n| boot(lab, VmSpec { cpus: Cpus::flat(1), ..guest(&format!("small-{n}")) });
    let small = (1..=SMALL_VMS).map(small).collect::<Result<Vec<_>>>()?;
    let all: Vec<&Guest> = std::iter::once(&parallel).chain(&small).collect();
    let jobs = small.iter().map(|guest| guest.start(endless(&["matmul"]))).collect::<Result<Vec<_>>>()?;
    for workload in PARALLEL {
        let name = workload[0];
        let measure = |setting| under(setting, &all, || progress(&parallel, workload, &small));
        let [mut faster, mut longer, mut balanced, mut conscious] = [const { Vec::new() }; 4];
        for _ in 0..lab.rounds(ROUNDS) {
            let [kernel, balance, load_conscious] =
                [measure(KERNEL)?, measure(BALANCE)?, measure(LOAD_CONSCIOUS)?];
            faster.push(load_conscious.operations / kernel.operations);
            longer.push(load_conscious.pcpus / kernel.pcpus);
            balanced.push(balance.small_pcpus / kernel.small_pcpus);
            conscious.push(load_conscious.small_pcpus / kernel.small_pcpus);
        }
        let what = |what| format!("{name} beside small VMs: {what}");
        checks.ratios(what("its progress with load-conscious balance"), &faster, "×", Target::AtLeast(1.0));
        checks.ratios(what("its pCPU time with load-conscious balance"), &longer, "×", Target::Reported);
        checks.ratios(
            what("their pCPU time with load-conscious balance"),
            &conscious,
            "×",
            Target::AtLeast(0.95),
        );
        checks.ratios(what("their pCPU time with balance"), &balanced, "×", Target::Reported);
    }
    for job in jobs {
        job.signal(Signal::SIGKILL)?;
        job.wait()?;
    }
    parallel.power_off()?;
    small.into_iter().try_for_each(Guest::power_off)
}

/// Two parallel VMs: the sum of their speed-ups relative to each alone.
pub(super) fn pairs(lab: &Lab, checks: &mut Checks) -> Result<()> {
    groups::enable()?;
    let guests = [boot(lab, guest("first"))?, boot(lab, guest("second"))?];
    for pair in PAIRS {
        let [first, second] = [0, 1].map(|n| throughput(start(&guests[n], pair[n])?));
        let alone = [first?, second?];
        let measure = |setting| under(setting, &guests.each_ref(), || speed_up(&guests, pair, alone));
        let (mut times, mut ratios) = ([Vec::new(), Vec::new()], Vec::new());
        for _ in 0..lab.rounds(ROUNDS) {
            let [kernel, ours] = [measure(KERNEL)?, measure(LOAD_CONSCIOUS)?];
            times[0].push(kernel);
            times[1].push(ours);
            ratios.push(ours / kernel);
        }
        let name = format!("{} beside {}", pair[0][0], pair[1][0]);
        for (times, scheduler) in times.iter().zip(["the kernel's scheduler", "scx_gleaner"]) {
            checks.values(
                format!("{name}: weighted speed-up under {scheduler}"),
                times,
                "",
                Target::Reported,
            );
        }
        checks.ratios(format!("{name}: weighted speed-up"), &ratios, "×", Target::AtLeast(1.0));
    }
    guests.into_iter().try_for_each(Guest::power_off)
}

/// With paravirtual TLB flushes a guest would leave preempted vCPUs out.
fn boot(lab: &Lab, spec: VmSpec) -> Result<Guest> {
    let guest = lab.boot(spec.without("kvm-pv-tlb-flush"))?;
    groups::give_own(&guest)?;
    Ok(guest)
}

/// Runs this while the host is scheduled by that. The guests stand still while the scheduler is loaded and ended.
fn under<T>(setting: Setting, guests: &[&Guest], run: impl FnOnce() -> Result<T>) -> Result<T> {
    let still = Still::keep(guests);
    let scheduler = setting.map(Scheduler::start).transpose()?;
    drop(still);
    let found = run();
    let _still = Still::keep(guests);
    if let Some(mut scheduler) = scheduler {
        scheduler.end(Signal::SIGTERM)?;
    }
    found
}

struct Progress {
    /// Of the parallel VM, per second.
    operations: f64,
    /// That the parallel VM has on average.
    pcpus: f64,
    /// That the small VMs, which only compute, have together.
    small_pcpus: f64,
}

fn progress(parallel: &Guest, workload: Workload, small: &[Guest]) -> Result<Progress> {
    let ran = || Ok((groups::ran(parallel)?, small.iter().map(groups::ran).sum::<Result<f64>>()?));
    let (before, started) = (ran()?, Instant::now());
    let operations = throughput(start(parallel, workload)?)?;
    let (after, elapsed) = (ran()?, started.elapsed().as_nanos() as f64);
    let [pcpus, small_pcpus] = [(after.0 - before.0) / elapsed, (after.1 - before.1) / elapsed];
    Ok(Progress { operations, pcpus, small_pcpus })
}

fn speed_up(guests: &[Guest; 2], pair: [Workload; 2], alone: [f64; 2]) -> Result<f64> {
    let [first, second] = guests;
    let jobs = [start(first, pair[0])?, start(second, pair[1])?];
    jobs.into_iter().zip(alone).map(|(job, alone)| Ok(throughput(job)? / alone)).sum()
}

fn start(guest: &Guest, workload: Workload) -> Result<Job<'_>> {
    let time = format!("{}ms", BLOCK.as_millis());
    let words = [&["gleaner", "workload", "--json", "--for", &time], workload].concat();
    guest.start(Step::new(&words).timeout(20 * BLOCK))
}

/// Operations per second, once it has ended.
fn throughput(job: Job<'_>) -> Result<f64> {
    Ok(outcome("a workload", &job.wait()?.text())?.throughput())
}
