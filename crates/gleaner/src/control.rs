//! What `run` and `attach` share: the policy's configuration, the journal, the engine's loop, the account.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use gleaner_engine::live::{LiveMachine, Parts};
use gleaner_engine::{Journal, Machine as _, StateDir, Undone};
use gleaner_kernel::Root;
use gleaner_kernel::topology::Topology;
use gleaner_policy::{CpuId, CpuSet, Mode, Policy, PolicyConfig, VcpuPlace};
use gleaner_proto::journal::{self, Record, Summary};
use nix::time::{ClockId, clock_gettime};

use crate::choice::Choice;
use crate::cli::{self, ControlArgs};

/// Ends the program as for any other wrong value of an option where `--fixed` asks for what cannot be on these vCPUs.
/// Comes before anything is started or changed.
pub(crate) fn check_fixed(args: &ControlArgs, allowed: &CpuSet) {
    if let Some(Err(message)) = args.fixed.map(|fixed| fixed.fits(allowed.len())) {
        cli::refuse(format!("invalid value for '--fixed <SETTING>': {message}"));
    }
}

/// Says at once that nothing is controlled any more, and why.
pub(crate) fn warn(sentence: &str) {
    eprintln!("gleaner: {sentence}");
}

/// The policy's configuration for this machine and these options.
///
/// # Errors
/// `--fixed` needs more vCPUs than there are.
pub(crate) fn configure(
    root: &Root,
    args: &ControlArgs,
    allowed: &CpuSet,
    choice: &Choice,
) -> anyhow::Result<PolicyConfig> {
    let method =
        if args.no_retain { gleaner_policy::Method::Halt } else { args.method.unwrap_or(choice.method) };
    Ok(PolicyConfig {
        mode: match (args.dry_run, args.fixed) {
            (true, _) => Mode::DryRun,
            (false, Some(fixed)) => Mode::Fixed(fixed.on(allowed).map_err(anyhow::Error::msg)?),
            (false, None) => Mode::Adaptive,
        },
        consolidate: !args.no_consolidate,
        method,
        wake_cost: choice.wake_cost,
        waker_cost: choice.waker_cost,
        places: places(root),
        counter_block: args.progress.as_ref().map(gleaner_engine::live::Counter::block),
        ..PolicyConfig::default()
    })
}

fn places(root: &Root) -> Vec<VcpuPlace> {
    let first = |cpus: &CpuSet, own: CpuId| cpus.iter().next().unwrap_or(own);
    // Without a topology the policy takes every vCPU for a core of its own.
    let topology = Topology::read(root).map(|t| t.cpus).unwrap_or_default();
    let place = |(cpu, at): (&CpuId, &gleaner_kernel::topology::CpuTopology)| VcpuPlace {
        cpu: *cpu,
        core: first(&at.siblings, *cpu),
        llc: first(&at.llc, *cpu),
    };
    topology.iter().map(place).collect()
}

/// Controls the workload of `parts` until it ends, and puts the machine back.
pub(crate) fn control(
    parts: Parts,
    mut config: PolicyConfig,
    args: &ControlArgs,
    state: &StateDir,
    workload: String,
    limits: Vec<String>,
) -> anyhow::Result<Summary> {
    let mut journal = match &args.journal {
        Some(path) => {
            Journal::create(path, false).with_context(|| format!("cannot write {}", path.display()))?
        }
        None => Journal::create(&state.journal(), true).unwrap_or_else(|_| Journal::nowhere()),
    };
    let mut limits = limits;
    if let Some(Err(error)) = parts.counter.as_ref().map(gleaner_engine::live::Counter::read) {
        let text = format!("{error}; until it can be read, other signals are used");
        gleaner_print::say!("gleaner: {text}");
        limits.push(text);
    }
    let allowed = parts.allowed.clone();
    config.most_threads = parts.place.most_threads();
    let mut machine = LiveMachine::new(parts)?;
    let mut policy = Policy::new(config.clone(), allowed.clone())?;
    journal.write(&Record::Start {
        version: journal::VERSION,
        unix_ms: unix_ms(),
        workload,
        vcpus: allowed,
        config: Box::new(config),
        limits,
    });
    journal.flush();
    let mut summary = gleaner_engine::run(&mut machine, &mut policy, &mut journal);
    let end = machine.now();
    for outcome in machine.close() {
        match outcome.undone {
            Undone::Failed => summary.left_behind.push(outcome.detail),
            Undone::Theirs => journal.note(end, outcome.detail),
            Undone::Restored | Undone::Unchanged | Undone::Gone => {}
        }
    }
    // This thread is the engine; the process' time would hold that of yield threads, which is retained time.
    summary.engine_cpu = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Into::into).unwrap_or_default();
    journal.write(&Record::End { at: end, summary: summary.clone() });
    journal.flush();
    Ok(summary)
}

/// Now, in milliseconds since the Unix epoch.
pub(crate) fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
