//! What `run` and `attach` share: the policy's configuration, the journal and the engine's loop.

use anyhow::Context as _;
use gleaner_calibrate::MethodChoice;
use gleaner_engine::live::{ActiveSetLever, LiveMachine, MemberParts, Parts, ProcessFd};
use gleaner_engine::{Journal, Machine as _, Memory, MemoryDir, StateDir, UndoResult, unix_ms};
use gleaner_kernel::Root;
use gleaner_kernel::topology::Topology;
use gleaner_kernel::workload::WorkloadSensor;
use gleaner_policy::{CpuSet, Method, Mode, Policy, PolicyConfig, Strategy};
use gleaner_print::{Usage, say};
use gleaner_proto::journal::{self, Record, Summary};
use gleaner_trace::{Scope, lazy};
use nix::time::{ClockId, clock_gettime};

use crate::options::ControlArgs;

/// Checks that there are enough vCPUs for `--fixed`. Call it before anything is started or changed.
///
/// # Errors
/// Too few: wrong usage.
pub(crate) fn check_fixed(args: &ControlArgs, allowed: &CpuSet) -> Result<(), Usage> {
    let fits = args.fixed.map_or(Ok(()), |fixed| fixed.fits(allowed.len()));
    fits.map_err(|message| Usage(format!("--fixed: {message}")))
}

/// Reports at once what the user must know now: that the workload is no longer controlled, or the journal ends.
pub(crate) fn warn(sentence: &str) {
    say!("gleaner: {sentence}");
}

/// The method and the costs that these options ask for, by calibration.
pub(crate) fn calibrated(state: &StateDir, root: &Root, args: &ControlArgs) -> MethodChoice {
    gleaner_calibrate::for_run(state, root, args.strategy(), args.dry_run)
}

/// What the engine needs to control a workload, with the sensors that these options allow.
pub(crate) fn member_parts(
    args: &ControlArgs,
    choice: &MethodChoice,
    place: ActiveSetLever,
    workload: WorkloadSensor,
    allowed: CpuSet,
    heads: Vec<ProcessFd>,
) -> MemberParts {
    let members = workload.members();
    let scope = || Scope::of(members).pop();
    let judged = args.strategy() == Strategy::Adaptive && !args.dry_run;
    MemberParts {
        overloads: (!args.no_bpf).then(lazy::overload_watch),
        waiting: args.trace_waiting.then(scope).flatten().map(lazy::waiting_sensor),
        traffic: (judged && !args.no_bpf).then(|| lazy::traffic_sensor(members)),
        counter: args.progress.clone(),
        wake_cost: choice.wake_cost,
        place,
        workload,
        allowed,
        heads,
    }
}

/// The policy's configuration for this machine and these options.
///
/// # Errors
/// `--fixed` needs more vCPUs than there are.
pub(crate) fn configure(
    root: &Root,
    args: &ControlArgs,
    allowed: &CpuSet,
    choice: &MethodChoice,
) -> anyhow::Result<PolicyConfig> {
    let mode = match (args.dry_run, args.fixed, args.strategy()) {
        (true, ..) => Mode::DryRun,
        (false, Some(fixed), _) => Mode::Fixed(fixed.on(allowed).map_err(anyhow::Error::msg)?),
        (false, None, Strategy::Paper) => Mode::Paper,
        (false, None, _) => Mode::Adaptive,
    };
    // The paper retains with yield threads (§6), whatever calibration found to be fastest.
    let usual = if mode == Mode::Paper { Method::Yield } else { choice.method };
    let method = if args.no_retain { Method::Halt } else { args.method.unwrap_or(usual) };
    Ok(PolicyConfig {
        mode,
        consolidate: !args.no_consolidate,
        method,
        wake_cost: choice.wake_cost,
        waker_cost: choice.waker_cost,
        poll_price: args.objective.poll_price(),
        // Without a topology the policy treats every vCPU as a core of its own.
        places: Topology::read(root).map(|topology| topology.places()).unwrap_or_default(),
        counter_block: args.progress.as_ref().map(gleaner_engine::live::Counter::block),
        ..PolicyConfig::default()
    })
}

/// The journal that the user named, or else the one that holds the latest run. Call it only as the lock's holder:
/// another Gleaner could be writing the latter.
///
/// # Errors
/// The journal that the user named cannot be written.
pub(crate) fn open_journal(args: &ControlArgs, state: &StateDir) -> anyhow::Result<Journal> {
    match &args.journal {
        Some(path) => {
            Journal::create(path, false, warn).with_context(|| format!("cannot write {}", path.display()))
        }
        None => Ok(Journal::create(&state.journal(), true, warn).unwrap_or_else(|_| Journal::disabled())),
    }
}

/// What earlier runs learned of `program`, unless the user wants no memory.
fn memory_of(program: Option<String>, args: &ControlArgs, config: &PolicyConfig, vcpus: usize) -> Memory {
    let root = Root::system();
    let dir = MemoryDir::default_place(&root).filter(|_| !args.no_memory);
    let warn = if args.quiet { |_: &str| () } else { warn };
    match (dir, program) {
        (Some(dir), Some(program)) => Memory::open(&root, dir, config, program, vcpus, warn),
        _ => Memory::default(),
    }
}

/// Controls the workload of `parts` until it ends, then restores the machine. What the run learned is kept for the next
/// run of `program`.
pub(crate) fn control(
    parts: Parts,
    mut config: PolicyConfig,
    mut journal: Journal,
    program: Option<String>,
    args: &ControlArgs,
    workload: String,
    limits: Vec<String>,
) -> anyhow::Result<Summary> {
    let allowed = parts.member.allowed.clone();
    let strategy = config.mode.strategy();
    config.most_threads = parts.member.place.most_threads();
    let mut memory = memory_of(program, args, &config, allowed.len());
    config.known = memory.known();
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
    memory.take_note().into_iter().for_each(|note| journal.note(machine.now(), note));
    journal.flush();
    let mut summary = Summary { strategy, ..gleaner_engine::run(&mut machine, &mut policy, &mut journal) };
    let end = machine.now();
    for outcome in machine.close() {
        match outcome.undone {
            UndoResult::Failed => summary.left_behind.push(outcome.detail),
            UndoResult::Theirs => journal.note(end, outcome.detail),
            UndoResult::Restored | UndoResult::Unchanged | UndoResult::Gone => {}
        }
    }
    memory.keep(&policy.learned()).into_iter().for_each(|note| journal.note(end, note));
    // This thread is the engine. The process's CPU time would include yield threads, which count as retained time.
    summary.engine_cpu = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Into::into).unwrap_or_default();
    journal.write(&Record::End { at: end, summary: summary.clone() });
    journal.flush();
    Ok(summary)
}
