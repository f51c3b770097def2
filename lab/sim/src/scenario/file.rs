//! The file's keys, and the scenario that they describe.

use std::collections::BTreeMap;
use std::path::Path;

use gleaner_coordination::{UrgentConfig, VcpuPlacement};
use gleaner_proto::source_text::SourceText;
use serde::Deserialize;
use toml::Spanned;

use super::error::{At as _, hint};
use super::program::{self, ObjectFile, ThreadFile};
use super::units::{quota, time};
use super::{Control, Scenario, ScenarioError};
use crate::coscheduling::Coscheduling;
use crate::cost::{Costs, NAMES};
use crate::directed_yield::DirectedYield;
use crate::ids::Ns;
use crate::library::{self, Parameters, Variant};
use crate::program::Program;
use crate::recorded::{Recorded, Replay};
use crate::sched::Fair;
use crate::spec::{HostSpec, MAX_THREADS, PauseLoops, Spec, TaskSpec, UrgentRules, VmSpec};
use crate::tuning::{POLICY_PARAMETERS, Tuning};

type Words = Option<Spanned<String>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: Option<String>,
    #[serde(default = "one")]
    seed: u64,
    /// End of simulated time.
    time: Words,
    /// Maximum number of events.
    events: Option<u64>,
    #[serde(default)]
    host: Host,
    #[serde(default)]
    vm: Vec<VmFile>,
    /// Policy parameters that replace the defaults.
    #[serde(default)]
    policy: BTreeMap<Spanned<String>, Spanned<f64>>,
    /// The axes of `gleaner sim sweep`.
    #[serde(default, rename = "sweep")]
    _sweep: toml::Table,
    /// Cost tables defined in the file.
    #[serde(default)]
    costs: BTreeMap<String, Costs>,
}

/// Most VMs of one kind.
const MAX_VMS: u32 = 1024;

const fn one() -> u64 {
    1
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Host {
    sockets: Option<u32>,
    cores: Option<u32>,
    smt: Option<u32>,
    smt_speed: Option<f64>,
    numa_speed: Option<f64>,
    scheduler: Words,
    placement: Option<VcpuPlacement>,
    directed_yield: Option<DirectedYield>,
    urgent: Option<Urgent>,
    cosched: Option<CoschedFile>,
    pause_loops: Option<PauseLoops>,
}

/// The ASPLOS'13 paper's urgency rules to enable; `true` is the value of its §4.1.1. A VM's rules that are left out are
/// the host's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Urgent {
    resched_dp: Option<Spanned<Switch>>,
    early: Option<bool>,
    tlb_co: Option<bool>,
    tlb_wait: Option<bool>,
    resched_co: Option<Spanned<Switch>>,
    slice: Words,
    allowance: Words,
}

/// On, off, or on for a time.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Switch {
    On(bool),
    Time(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CoschedFile {
    strict: Words,
    relaxed: Words,
}

#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VmFile {
    name: Spanned<String>,
    /// Number of VMs like this.
    #[serde(default = "one_vm")]
    count: u32,
    vcpus: u32,
    costs: Spanned<String>,
    policy: Words,
    shares: Option<u64>,
    #[serde(default)]
    pinned: bool,
    scheduler: Words,
    halt_poll: Words,
    #[serde(default)]
    pv_tlb: bool,
    #[serde(default)]
    lazy_tlb: bool,
    #[serde(default)]
    halted_is_preempted: bool,
    #[serde(default)]
    pv_lock: bool,
    #[serde(default)]
    wake_queue: bool,
    #[serde(default = "yes")]
    requeue: bool,
    #[serde(default = "yes")]
    ple: bool,
    /// What differs from the host's.
    urgent: Option<Urgent>,
    /// CPU time, and the period in which its programs may use it.
    cpu_max: Words,
    #[serde(default)]
    program: Vec<ProgramFile>,
}

const fn one_vm() -> u32 {
    1
}

const fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramFile {
    name: Spanned<String>,
    /// Whose account of the library's program it follows.
    variant: Option<Spanned<Variant>>,
    threads: Option<Spanned<u32>>,
    /// Total CPU time; without it the program never ends.
    work: Words,
    /// Computation between two synchronisations.
    grain: Words,
    /// Whether it restarts when it ends.
    #[serde(default)]
    repeat: bool,
    /// A recorded trace to replay; the path is relative to the scenario file.
    trace: Words,
    /// Objects of a program defined in the file.
    #[serde(default)]
    objects: BTreeMap<Spanned<String>, ObjectFile>,
    /// Threads of a program defined in the file.
    #[serde(default)]
    thread: Vec<ThreadFile>,
}

/// Parses a scenario.
pub(super) fn parse(text: &SourceText, grains: &[(&str, Ns)]) -> Result<Scenario, ScenarioError> {
    let file: File = toml::from_str(text.text).map_err(|e| text.syntax(&e))?;
    let host = host(text, &file.host)?;
    let mut vms = Vec::with_capacity(file.vm.len());
    let mut control = Vec::with_capacity(file.vm.len());
    for vm in &file.vm {
        if file.vm.iter().any(|o| o.name.get_ref() == vm.name.get_ref() && o.name.span() != vm.name.span()) {
            return Err(text.wrong(&vm.name.span(), format!("two VMs are called `{}`", vm.name.get_ref())));
        }
        let spec = vm_spec(text, vm, &file, host.urgent, grains)?;
        let policy = policy(text, vm)?;
        // Before that many are built.
        if vm.count > MAX_VMS {
            let message = format!("{} VMs are too many: {MAX_VMS} are possible", vm.count);
            return Err(text.wrong(&vm.name.span(), message));
        }
        for number in 1..=vm.count {
            let name = if vm.count == 1 { spec.name.clone() } else { format!("{}{number}", spec.name) };
            vms.push(VmSpec { name, ..spec.clone() });
            control.push(policy);
        }
    }
    if let Some(twice) = (1..vms.len()).find(|i| vms[..*i].iter().any(|vm| vm.name == vms[*i].name)) {
        let message = format!("two VMs are called `{}`", vms[twice].name);
        return Err(text.wrong(&file.vm[0].name.span(), message));
    }
    let tuning = tuning(text, &file.policy)?;
    let mut spec = Spec::new(host, vms);
    spec.seed = file.seed;
    spec.time_limit = of(text, &file.time)?.unwrap_or(spec.time_limit);
    spec.event_limit = file.events.unwrap_or(spec.event_limit);
    spec.check().map_err(|source| ScenarioError::Spec { file: text.name.to_owned(), source })?;
    Ok(Scenario { title: file.title, source: file.source, spec, control, tuning })
}

pub(super) fn of(text: &SourceText, words: &Words) -> Result<Option<Ns>, ScenarioError> {
    let parse = |w: &Spanned<String>| time(w.get_ref()).map_err(|message| text.wrong(&w.span(), message));
    words.as_ref().map(parse).transpose()
}

fn scheduler(text: &SourceText, words: &Words) -> Result<Fair, ScenarioError> {
    let Some(words) = words else { return Ok(Fair::CFS) };
    match words.get_ref().as_str() {
        "cfs" => Ok(Fair::CFS),
        "eevdf" => Ok(Fair::EEVDF),
        other => Err(text.wrong(&words.span(), format!("`{other}` is not a scheduler; use cfs or eevdf"))),
    }
}

/// `base` with what `rules` change of it.
fn urgent(text: &SourceText, rules: &Urgent, base: UrgentRules) -> Result<UrgentRules, ScenarioError> {
    let long = |switch: &Option<Spanned<Switch>>, on: Ns, otherwise: Ns| match switch
        .as_ref()
        .map(|s| (s.get_ref(), s.span()))
    {
        None => Ok(otherwise),
        Some((Switch::On(false), _)) => Ok(0),
        Some((Switch::On(true), _)) => Ok(on),
        Some((Switch::Time(words), span)) => time(words).map_err(|message| text.wrong(&span, message)),
    };
    let (paper, other) = (UrgentConfig::PAPER, base.on_send);
    let on_send = UrgentConfig {
        resched_dp_ns: long(&rules.resched_dp, paper.resched_dp_ns, other.resched_dp_ns)?,
        resched_co_ns: long(&rules.resched_co, paper.slice_ns, other.resched_co_ns)?,
        slice_ns: of(text, &rules.slice)?.unwrap_or(other.slice_ns),
        allowance_ns: of(text, &rules.allowance)?.unwrap_or(other.allowance_ns),
        tlb_co: rules.tlb_co.unwrap_or(other.tlb_co),
        tlb_wait: rules.tlb_wait.unwrap_or(other.tlb_wait),
    };
    Ok(UrgentRules { on_send, early: rules.early.unwrap_or(base.early) })
}

fn host(text: &SourceText, file: &Host) -> Result<HostSpec, ScenarioError> {
    let default = HostSpec::default();
    let off = UrgentRules::OFF;
    let urgent = file.urgent.as_ref().map_or(Ok(off), |rules| urgent(text, rules, off))?;
    let cosched = match &file.cosched {
        None => Coscheduling::None,
        Some(CoschedFile { strict, relaxed }) => match (of(text, strict)?, of(text, relaxed)?) {
            (Some(slot_ns), _) => Coscheduling::Strict { slot_ns },
            (None, Some(skew_ns)) => Coscheduling::Relaxed { skew_ns },
            (None, None) => Coscheduling::None,
        },
    };
    Ok(HostSpec {
        sockets: file.sockets.unwrap_or(default.sockets),
        cores: file.cores.unwrap_or(default.cores),
        smt: file.smt.unwrap_or(default.smt),
        smt_speed: file.smt_speed.unwrap_or(default.smt_speed),
        numa_speed: file.numa_speed.unwrap_or(default.numa_speed),
        fair: scheduler(text, &file.scheduler)?,
        placement: file.placement.unwrap_or_default(),
        urgent,
        yielding: file.directed_yield.unwrap_or(default.yielding),
        cosched,
        pause_loops: file.pause_loops.unwrap_or(default.pause_loops),
        ..default
    })
}

fn vm_spec(
    text: &SourceText,
    vm: &VmFile,
    file: &File,
    of_host: UrgentRules,
    grains: &[(&str, Ns)],
) -> Result<VmSpec, ScenarioError> {
    let name = vm.costs.get_ref();
    let known = || NAMES.into_iter().chain(file.costs.keys().map(String::as_str));
    let costs = file.costs.get(name).copied().or_else(|| Costs::named(name)).ok_or_else(|| {
        let message = format!("there is no cost table `{name}`{}", hint(name, known()));
        text.wrong(&vm.costs.span(), message)
    })?;
    let mut spec = VmSpec::new(vm.name.get_ref(), vm.vcpus, costs);
    // Before programs are built for that many vCPUs.
    spec.check_vcpus().map_err(|source| ScenarioError::Spec { file: text.name.to_owned(), source })?;
    spec.fair = scheduler(text, &vm.scheduler)?;
    spec.shares = vm.shares.unwrap_or(spec.shares);
    spec.pinned = vm.pinned;
    spec.halt_poll_max = of(text, &vm.halt_poll)?.unwrap_or(0);
    spec.pv_tlb = vm.pv_tlb;
    spec.lazy_tlb = vm.lazy_tlb;
    spec.halted_is_preempted = vm.halted_is_preempted;
    spec.pv_lock = vm.pv_lock;
    spec.wake_queue = vm.wake_queue;
    spec.requeue = vm.requeue;
    spec.ple = vm.ple;
    spec.urgent = vm.urgent.as_ref().map(|rules| urgent(text, rules, of_host)).transpose()?;
    spec.quota =
        vm.cpu_max.as_ref().map(|w| quota(w.get_ref()).map_err(|m| text.wrong(&w.span(), m))).transpose()?;
    for program in &vm.program {
        spec.tasks.push(task(text, program, vm.vcpus, grains)?);
    }
    Ok(spec)
}

fn task(
    text: &SourceText,
    file: &ProgramFile,
    vcpus: u32,
    grains: &[(&str, Ns)],
) -> Result<TaskSpec, ScenarioError> {
    let program = match &file.trace {
        Some(trace) => {
            of_library_only(text, file, "this one is recorded")?;
            recorded(text, trace)?
        }
        None if file.thread.is_empty() => library_program(text, file, vcpus, grains)?,
        None => {
            of_library_only(text, file, "this one has its own code")?;
            program::program(text, file.name.get_ref(), &file.objects, &file.thread)?
        }
    };
    let program = Program { name: file.name.get_ref().clone(), ..program };
    Ok(TaskSpec { program, looping: file.repeat })
}

/// Fails if `file` has keys that only apply to library programs.
fn of_library_only(text: &SourceText, file: &ProgramFile, but: &str) -> Result<(), ScenarioError> {
    let threads = file.threads.as_ref().map(Spanned::span);
    let words = [&file.work, &file.grain].into_iter().filter_map(|w| w.as_ref().map(Spanned::span));
    let variant = file.variant.as_ref().map(Spanned::span);
    match words.chain(threads).chain(variant).min_by_key(|span| span.start) {
        Some(span) => {
            let message =
                format!("`threads`, `work`, `grain` and `variant` are for the library's programs: {but}");
            Err(text.wrong(&span, message))
        }
        None => Ok(()),
    }
}

/// The trace at `path`, relative to the scenario file.
fn recorded(text: &SourceText, path: &Spanned<String>) -> Result<Program, ScenarioError> {
    let beside = Path::new(text.name).parent().unwrap_or(Path::new(""));
    let trace = Recorded::read(&beside.join(path.get_ref())).map_err(|source| ScenarioError::Trace {
        file: text.name.to_owned(),
        line: text.line(path.span().start),
        source,
    })?;
    Ok(trace.program(Replay::default()))
}

fn library_program(
    text: &SourceText,
    file: &ProgramFile,
    vcpus: u32,
    grains: &[(&str, Ns)],
) -> Result<Program, ScenarioError> {
    let name = file.name.get_ref();
    if let Some((object, _)) = file.objects.iter().next() {
        let message = "a program with objects needs threads that use them: [[vm.program.thread]]";
        return Err(text.wrong(&object.span(), message));
    }
    if let Some(threads) = file.threads.as_ref().filter(|threads| *threads.get_ref() > MAX_THREADS) {
        let message = format!("{} threads are too many: {MAX_THREADS} are possible", threads.get_ref());
        return Err(text.wrong(&threads.span(), message));
    }
    let grain = grains.iter().find(|(program, _)| program == name).map_or(0, |(_, ns)| *ns);
    let parameters = Parameters {
        threads: file.threads.as_ref().map_or(0, |t| *t.get_ref()),
        work: of(text, &file.work)?.unwrap_or(0),
        grain: of(text, &file.grain)?.unwrap_or(grain),
    };
    let variant = file.variant.as_ref().map_or_else(Variant::default, |v| *v.get_ref());
    library::make_variant(variant, name, parameters, vcpus).ok_or_else(|| {
        let message = format!(
            "there is no program `{name}`{}; `gleaner sim list` names them, or write it here with [[vm.program.thread]]",
            hint(name, library::names())
        );
        text.wrong(&file.name.span(), message)
    })
}

fn tuning(
    text: &SourceText,
    values: &BTreeMap<Spanned<String>, Spanned<f64>>,
) -> Result<Tuning, ScenarioError> {
    let mut tuning = Tuning::default();
    for (key, value) in values {
        let Some(parameter) = POLICY_PARAMETERS.iter().find(|parameter| parameter.key == key.get_ref())
        else {
            let message = format!(
                "the policy has no `{}`{}",
                key.get_ref(),
                hint(key.get_ref(), POLICY_PARAMETERS.iter().map(|k| k.key))
            );
            return Err(text.wrong(&key.span(), message));
        };
        tuning.set(parameter, *value.get_ref()).map_err(|message| text.wrong(&value.span(), message))?;
    }
    Ok(tuning)
}

fn policy(text: &SourceText, vm: &VmFile) -> Result<Control, ScenarioError> {
    let Some(words) = &vm.policy else { return Ok(Control::HALT) };
    let wrong = |message: String| {
        text.wrong(
            &words.span(),
            format!(
                "{message}; or `gleaner` for the policy of `gleaner run` (`gleaner:METHOD` names its method), `paper` for its \
                 --strategy paper"
            ),
        )
    };
    let control = words.get_ref().parse().map_err(wrong)?;
    if let Control::Fixed(fixed) = control {
        fixed.fits(vm.vcpus as usize).map_err(|message| text.wrong(&words.span(), message))?;
    }
    Ok(control)
}
