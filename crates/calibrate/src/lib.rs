//! Measures once per boot what a wake-up costs under each retention method, and chooses the method.

mod blocked_signals;
mod choice;
mod confidence;
mod for_run;
mod switch;
pub mod wake;

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gleaner_engine::{LeaseBook, LeaseError, StateDir, StateError, UndoResult};
use gleaner_kernel::Root;
use gleaner_kernel::capability::{Lever, probe};
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::lever::{ThreadKey, haltpoll, pm_qos};
use gleaner_kernel::preempt::KernelVersion;
use gleaner_kernel::stat::StatSensor;
use gleaner_kernel::topology::Topology;
use gleaner_policy::{ASSUMED_HALT_COST, CpuId, CpuSet, Method, Placement, WakeCosts, assumed_waker_cost};
use gleaner_proto::doctor::{self, Cell};
use serde::{Deserialize, Serialize};

use blocked_signals::BlockedSignals;
use choice::choose_method;
pub use confidence::Confidence;
pub use for_run::{MethodChoice, for_run};
use switch::MethodSwitch;
use wake::{Case, MatrixPlan};

/// Version 1 can hold a method chosen from a disturbed measurement.
const VERSION: u32 = 2;

/// Enough for a few hundred wake-ups.
const QUICK_BLOCK: Duration = Duration::from_millis(25);
const FULL_BUDGET: Duration = Duration::from_secs(6);

/// How much to measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Depth {
    /// What a run needs: waking an idle vCPU under each method, a quarter of a second in total.
    Quick,
    /// The paper's Table 2 under each method, within 8 s.
    Full,
}

/// A calibration, valid until the next boot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    version: u32,
    boot_id: String,
    kernel: String,
    /// How much was measured.
    pub depth: Depth,
    /// Wake-up latency by method and placement.
    pub costs: WakeCosts,
    /// Cost of a halt and its wake-up: latency plus the waker's CPU time.
    pub halt_cost: Duration,
    /// The methods that this user can use here, [`Method::Halt`] included.
    pub available: Vec<Method>,
    /// Why the other methods are not available, as sentences.
    pub absent: Vec<String>,
    /// The retention method that pays most.
    pub method: Method,
    /// Why `method` was chosen, as a sentence.
    pub reason: String,
    /// The measurements, by pair of vCPUs.
    pub cells: Vec<Cell>,
    /// Steal during the measurement, as a share of the vCPUs' time (0..=1).
    pub steal_share: f64,
    /// Share of the samples between two measurements (0..=1) that found other programs running.
    pub disturbed: f64,
    /// Settings that could not be restored, as sentences; normally empty.
    pub left_behind: Vec<String>,
}

impl Calibration {
    /// How far it can be trusted.
    pub fn confidence(&self) -> Confidence {
        Confidence::of(self.disturbed)
    }

    /// CPU time that the waker spends on waking a halted vCPU. Other programs keep vCPUs from halting, so what was measured
    /// beside them counts only as far as it is more than what is assumed.
    pub fn waker_cost(&self) -> Duration {
        let is_known = self.confidence() == Confidence::Good && !self.cells.is_empty();
        let least = if is_known { Duration::ZERO } else { assumed_waker_cost(self.halt_cost) };
        waker_share(&self.cells).max(least)
    }

    /// What a user should know about a doubtful calibration: what is missing, and the remedy. `None` for a good one.
    pub fn doubt(&self) -> Option<String> {
        let Confidence::Doubtful { disturbed } = self.confidence() else { return None };
        Some(format!(
            "a reliable calibration: the one in use is doubtful, as other programs ran in {:.0} % of the samples while \
             it was measured; the next run that starts on a quiet machine measures again, and so does `gleaner doctor \
             --quick`",
            disturbed * 100.0
        ))
    }

    /// An earlier calibration, marked as such.
    fn marked_as_earlier(mut self) -> Self {
        let why =
            "another gleaner controls this machine: nothing was measured now, the costs are those of before";
        self.absent.insert(0, why.to_owned());
        self
    }
}

/// The saved calibration, if it is from this boot and the available methods are still the same.
pub fn load(state: &StateDir, root: &Root) -> Option<Calibration> {
    let text = fs::read(state.calibration()).ok()?;
    let saved: Calibration = serde_json::from_slice(&text).ok()?;
    let valid = saved.version == VERSION
        && Some(&saved.boot_id) == boot_id(root).ok().as_ref()
        && saved.available == methods(root).0;
    valid.then_some(saved)
}

/// The calibration to use: this boot's, or a quick one made now if there is none. A doubtful one is measured again if
/// the machine is quiet now, and the better of the two is used.
///
/// # Errors
/// As for [`calibrate`], if there is no saved calibration.
pub fn in_use(state: &StateDir, root: &Root) -> anyhow::Result<Calibration> {
    let Some(saved) = load(state, root) else { return calibrate(state, root, Depth::Quick, &mut |_| ()) };
    if saved.confidence() == Confidence::Good || !is_quiet(root) {
        return Ok(saved);
    }
    let anew = calibrate(state, root, Depth::Quick, &mut |_| ()).ok();
    Ok(anew.filter(|new| new.confidence().replaces(Some(saved.confidence()))).unwrap_or(saved))
}

/// How far a measurement is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The method that is measured now.
    pub method: Method,
    /// Number of this step, from 1.
    pub step: u64,
    /// Number of steps in all.
    pub steps: u64,
}

/// Whether next to nothing else runs, sampled over 20 ms.
fn is_quiet(root: &Root) -> bool {
    const SAMPLES: u32 = 10;
    const INTERVAL: Duration = Duration::from_millis(2);
    let Ok(stat) = StatSensor::new(root) else { return false };
    let busy = (0..SAMPLES).filter(|_| {
        thread::sleep(INTERVAL);
        stat.runnable().map_or(true, |running| running > 1)
    });
    Confidence::of(busy.count() as f64 / f64::from(SAMPLES)) == Confidence::Good
}

/// Measures and returns what a wake-up costs here. Saves the result unless a better one is already saved. Restores the
/// machine's settings afterwards, even if the measurement fails; signals are held back until then. `progress` is called
/// at the start of each step.
///
/// While another Gleaner controls the machine, [`Depth::Quick`] returns the saved calibration, or the assumed cost and
/// the first available method.
///
/// # Errors
/// Another Gleaner controls the machine ([`Depth::Full`] only), a lever fails, or a thread cannot be started.
pub fn calibrate(
    state: &StateDir,
    root: &Root,
    how: Depth,
    progress: &mut dyn FnMut(Progress),
) -> anyhow::Result<Calibration> {
    let signals = BlockedSignals::block()?;
    let book = match LeaseBook::open(state, root.clone()) {
        Ok((book, _)) => book,
        Err(LeaseError::State(StateError::Busy { .. })) if how == Depth::Quick => {
            return load(state, root).map_or_else(|| assumed(root), |saved| Ok(saved.marked_as_earlier()));
        }
        Err(error) => return Err(error.into()),
    };
    // After taking the lease book: what a dead holder left behind would hide levers.
    let (available, absent) = methods(root);
    let vcpus = measurable(root)?;
    let plans = plans(root, &vcpus, &available, how)?;
    let key = ThreadKey::of(root, nix::unistd::gettid().as_raw().unsigned_abs())?;
    let mut stat = StatSensor::new(root)?;
    let cpus = stat.read()?.cpus.len();
    let (before, started) = (stolen(&mut stat)?, Instant::now());
    let mut switch = MethodSwitch::new(book, vcpus, available.clone(), key)?;
    let measured = measure(&plans, &mut switch, &signals, progress);
    let disturbed = switch.disturbed();
    let outcomes = switch.close();
    let cells = measured?;
    let available_time = started.elapsed().as_secs_f64() * cpus as f64;
    let steal_share = (stolen(&mut stat)?.saturating_sub(before)).as_secs_f64() / available_time;
    let costs = doctor::costs(&cells);
    let measured_cost = costs.halt_cost() + waker_share(&cells);
    let (method, reason, halt_cost) = choose(&costs, &available, measured_cost, Confidence::of(disturbed));
    let calibration = Calibration {
        version: VERSION,
        boot_id: boot_id(root)?,
        kernel: KernelVersion::read(root)?.release,
        depth: how,
        halt_cost,
        costs,
        available,
        absent,
        method,
        reason,
        cells,
        steal_share,
        disturbed,
        left_behind: outcomes
            .into_iter()
            .filter(|o| o.undone == UndoResult::Failed)
            .map(|o| o.detail)
            .collect(),
    };
    if calibration.confidence().replaces(load(state, root).map(|saved| saved.confidence())) {
        save(state, &calibration)?;
    }
    Ok(calibration)
}

/// The method that `costs` suggest, the reason, and the cost of a halt to assume. A doubtful measurement cannot show
/// which method pays: a vCPU that other programs keep busy does not halt, as if yield threads kept it awake.
fn choose(
    costs: &WakeCosts,
    available: &[Method],
    halt_cost: Duration,
    confidence: Confidence,
) -> (Method, String, Duration) {
    let (measured, reason) = choose_method(costs, available);
    if confidence == Confidence::Good {
        return (measured, reason, halt_cost);
    }
    let method = untested(available);
    let reason = format!("other programs ran during the measurement, so {method} is only assumed ({reason})");
    (method, reason, halt_cost.max(ASSUMED_HALT_COST))
}

/// The methods that this user can use here, [`Method::Halt`] included, and why the others are missing.
fn methods(root: &Root) -> (Vec<Method>, Vec<String>) {
    let levers = probe(root).levers;
    let (mut available, mut absent) = (Vec::new(), Vec::new());
    for method in Method::ALL {
        let (lever, usable) = match method {
            Method::Haltpoll => (Lever::Haltpoll, haltpoll::available(root)),
            Method::QosPoll => (Lever::PmQos, pm_qos::available(root)),
            Method::Halt | Method::Yield | Method::YieldIpiFree => (Lever::YieldThreads, Ok(())),
        };
        match (levers.get(&lever), usable) {
            (Some(Some(absence)), _) => absent.push(format!("{method}: {absence}")),
            (_, Err(error)) => absent.push(format!("{method}: {error}")),
            (_, Ok(())) => available.push(method),
        }
    }
    (available, absent)
}

fn measurable(root: &Root) -> anyhow::Result<CpuSet> {
    let allowed = Affinity::of_caller().context("cannot read the CPU affinity")?;
    Ok(allowed.intersection(&Topology::read(root)?.online))
}

/// One pair of vCPUs for each topological relation (core, LLC, node).
fn pairs(root: &Root, vcpus: &CpuSet) -> anyhow::Result<Vec<(CpuId, CpuId)>> {
    let topology = Topology::read(root)?;
    let relation = |a: CpuId, b: CpuId| {
        let place = topology.cpus.get(&a);
        let same_core = place.is_some_and(|p| p.siblings.contains(b));
        let node = |cpu| topology.cpus.get(cpu).and_then(|p| p.node);
        (node(&a) != node(&b), !topology.share_llc(a, b), !same_core)
    };
    Ok(wake::representative_pairs(vcpus, relation))
}

/// Which cases to measure, under which methods, between which vCPUs.
fn plans(root: &Root, vcpus: &CpuSet, methods: &[Method], how: Depth) -> anyhow::Result<Vec<MatrixPlan>> {
    let mut pairs = pairs(root, vcpus)?;
    let Some(first) = vcpus.iter().next() else { bail!("this process may use no online vCPU") };
    let alone = MatrixPlan {
        cases: vec![Case::SameVcpu],
        blocks: 1,
        block: QUICK_BLOCK,
        ..MatrixPlan::new(vec![(first, first)], vec![Method::Halt])
    };
    Ok(match (pairs.is_empty(), how) {
        // A single vCPU has no wake-ups across vCPUs.
        (true, _) => vec![alone],
        (false, Depth::Quick) => {
            pairs.truncate(1);
            let across = MatrixPlan {
                cases: vec![Case::Halting],
                blocks: 1,
                block: QUICK_BLOCK,
                ..MatrixPlan::new(pairs, methods.to_vec())
            };
            vec![across, alone]
        }
        (false, Depth::Full) => {
            vec![MatrixPlan { budget: FULL_BUDGET, ..MatrixPlan::new(pairs, methods.to_vec()) }]
        }
    })
}

fn measure(
    plans: &[MatrixPlan],
    switch: &mut MethodSwitch,
    signals: &BlockedSignals,
    progress: &mut dyn FnMut(Progress),
) -> anyhow::Result<Vec<Cell>> {
    let steps = plans.iter().map(|plan| plan.methods.len() as u64 * u64::from(plan.blocks)).sum();
    let mut step = 0;
    let mut cells = Vec::new();
    for plan in plans {
        let found = wake::matrix(plan, |method| {
            if signals.pending() {
                return Err("interrupted by a signal".into());
            }
            step += 1;
            progress(Progress { method, step, steps });
            Ok(switch.switch_to(method)?)
        })?;
        cells.extend(found.iter().map(cell));
    }
    // Learned poll limits are invisible, so clear them before the parameters are restored.
    switch.switch_to(Method::Halt)?;
    Ok(cells)
}

fn cell(measured: &wake::Cell) -> Cell {
    let summary = measured.samples.summary();
    Cell {
        placement: match measured.case {
            Case::SameVcpu => Placement::SameVcpu,
            Case::Awake => Placement::AcrossAwake,
            Case::Halting => Placement::AcrossHalting,
            Case::Contended => Placement::AcrossBusy,
        },
        method: measured.method,
        waker: measured.pair.0,
        wakee: measured.pair.1,
        n: u32::try_from(summary.n).unwrap_or(u32::MAX),
        min_ns: summary.min_ns,
        median_ns: summary.median_ns,
        p99_ns: summary.p99_ns,
        waker_cpu_ns: summary.waker_cpu_ns,
    }
}

/// What waking a halted vCPU costs the waker: the costliest of the pairs.
fn waker_share(cells: &[Cell]) -> Duration {
    let halted = |c: &&Cell| c.method == Method::Halt && c.placement == Placement::AcrossHalting;
    Duration::from_nanos(cells.iter().filter(halted).map(|c| c.waker_cpu_ns).max().unwrap_or_default())
}

/// The first available method at the assumed cost, for when nothing can be measured.
fn assumed(root: &Root) -> anyhow::Result<Calibration> {
    let (available, absent) = methods(root);
    let method = untested(&available);
    Ok(Calibration {
        version: VERSION,
        boot_id: boot_id(root)?,
        kernel: KernelVersion::read(root)?.release,
        depth: Depth::Quick,
        costs: WakeCosts::default(),
        halt_cost: ASSUMED_HALT_COST,
        reason: format!(
            "another gleaner controls this machine, so nothing was measured and {method} is assumed"
        ),
        method,
        available,
        absent,
        cells: Vec::new(),
        steal_share: 0.0,
        disturbed: 0.0,
        left_behind: Vec::new(),
    })
}

/// The method to start with if no measurement can be trusted. A run proves it before keeping it.
fn untested(available: &[Method]) -> Method {
    let worth_a_trial = [Method::Haltpoll, Method::YieldIpiFree];
    worth_a_trial.into_iter().find(|method| available.contains(method)).unwrap_or(Method::Halt)
}

/// Replaces the saved calibration atomically.
fn save(state: &StateDir, calibration: &Calibration) -> anyhow::Result<()> {
    let path = state.calibration();
    let new = path.with_extension("json.new");
    fs::write(&new, serde_json::to_vec_pretty(calibration)?)
        .and_then(|()| fs::rename(&new, &path))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn boot_id(root: &Root) -> anyhow::Result<String> {
    Ok(root.read("/proc/sys/kernel/random/boot_id")?)
}

fn stolen(stat: &mut StatSensor) -> anyhow::Result<Duration> {
    Ok(stat.read()?.cpus.iter().map(|(_, times)| times.steal).sum())
}

#[cfg(test)]
mod tests;
