//! The file's keys, and the scenario that they describe.

use gleaner_policy::host::{Coscheduling, DirectedYield, UrgentConfig, VcpuPlacement};
use serde::Deserialize;
use toml::Spanned;

use super::error::{Text, hint};
use super::units::time;
use super::{Control, Scenario, ScenarioError};
use crate::cost::{Costs, NAMES};
use crate::ids::Ns;
use crate::library::{self, Parameters};
use crate::sched::Fair;
use crate::spec::{HostSpec, Spec, TaskSpec, VmSpec};

type Words = Option<Spanned<String>>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    title: String,
    source: Option<String>,
    #[serde(default = "one")]
    seed: u64,
    /// The end of simulated time.
    time: Words,
    /// The most events.
    events: Option<u64>,
    #[serde(default)]
    host: Host,
    #[serde(default)]
    vm: Vec<VmFile>,
    /// Cost tables of the file's own.
    #[serde(default)]
    costs: std::collections::BTreeMap<String, Costs>,
}

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
}

/// Which of the ASPLOS'13 paper's urgent rules are on, with the values of its §4.1.1.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Urgent {
    #[serde(default)]
    resched_dp: bool,
    #[serde(default)]
    tlb_co: bool,
    #[serde(default)]
    resched_co: bool,
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
    #[serde(default = "yes")]
    ple: bool,
    #[serde(default)]
    program: Vec<ProgramFile>,
}

const fn yes() -> bool {
    true
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramFile {
    name: Spanned<String>,
    #[serde(default)]
    threads: u32,
    /// CPU time until it ends; without it the program never ends.
    work: Words,
    /// Computation between two synchronisations.
    grain: Words,
    /// Whether it starts again at its end.
    #[serde(default)]
    repeat: bool,
}

/// The scenario in `text`.
pub(super) fn parse(text: &Text) -> Result<Scenario, ScenarioError> {
    let file: File = toml::from_str(text.text).map_err(|e| text.syntax(&e))?;
    let host = host(text, &file.host)?;
    let mut vms = Vec::with_capacity(file.vm.len());
    let mut control = Vec::with_capacity(file.vm.len());
    for vm in &file.vm {
        if file.vm.iter().any(|o| o.name.get_ref() == vm.name.get_ref() && o.name.span() != vm.name.span()) {
            return Err(text.wrong(&vm.name.span(), format!("two VMs are called `{}`", vm.name.get_ref())));
        }
        vms.push(vm_spec(text, vm, &file)?);
        control.push(policy(text, &vm.policy)?);
    }
    let mut spec = Spec::new(host, vms);
    spec.seed = file.seed;
    spec.time_limit = of(text, &file.time)?.unwrap_or(spec.time_limit);
    spec.event_limit = file.events.unwrap_or(spec.event_limit);
    spec.check().map_err(|source| ScenarioError::Spec { file: text.name.to_owned(), source })?;
    Ok(Scenario { title: file.title, source: file.source, spec, control })
}

fn of(text: &Text, words: &Words) -> Result<Option<Ns>, ScenarioError> {
    let parse = |w: &Spanned<String>| time(w.get_ref()).map_err(|message| text.wrong(&w.span(), message));
    words.as_ref().map(parse).transpose()
}

fn scheduler(text: &Text, words: &Words) -> Result<Fair, ScenarioError> {
    let Some(words) = words else { return Ok(Fair::CFS) };
    match words.get_ref().as_str() {
        "cfs" => Ok(Fair::CFS),
        "eevdf" => Ok(Fair::EEVDF),
        other => Err(text.wrong(&words.span(), format!("`{other}` is not a scheduler; use cfs or eevdf"))),
    }
}

fn host(text: &Text, file: &Host) -> Result<HostSpec, ScenarioError> {
    let default = HostSpec::default();
    let urgent = match &file.urgent {
        None => UrgentConfig::OFF,
        Some(on) => UrgentConfig {
            resched_dp_ns: if on.resched_dp { UrgentConfig::PAPER.resched_dp_ns } else { 0 },
            tlb_co: on.tlb_co,
            resched_co_ns: if on.resched_co { UrgentConfig::PAPER.slice_ns } else { 0 },
            ..UrgentConfig::OFF
        },
    };
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
        balance_every: default.balance_every,
    })
}

fn vm_spec(text: &Text, vm: &VmFile, file: &File) -> Result<VmSpec, ScenarioError> {
    let name = vm.costs.get_ref();
    let known = || NAMES.into_iter().chain(file.costs.keys().map(String::as_str));
    let costs = file.costs.get(name).copied().or_else(|| Costs::named(name)).ok_or_else(|| {
        let message = format!("there is no cost table `{name}`{}", hint(name, known()));
        text.wrong(&vm.costs.span(), message)
    })?;
    let mut spec = VmSpec::new(vm.name.get_ref(), vm.vcpus, costs);
    spec.fair = scheduler(text, &vm.scheduler)?;
    spec.shares = vm.shares.unwrap_or(spec.shares);
    spec.pinned = vm.pinned;
    spec.halt_poll_max = of(text, &vm.halt_poll)?.unwrap_or(0);
    spec.pv_tlb = vm.pv_tlb;
    spec.lazy_tlb = vm.lazy_tlb;
    spec.ple = vm.ple;
    for program in &vm.program {
        spec.tasks.push(task(text, program, vm.vcpus)?);
    }
    Ok(spec)
}

fn task(text: &Text, file: &ProgramFile, vcpus: u32) -> Result<TaskSpec, ScenarioError> {
    let name = file.name.get_ref();
    let parameters = Parameters {
        threads: file.threads,
        work: of(text, &file.work)?.unwrap_or(0),
        grain: of(text, &file.grain)?.unwrap_or(0),
    };
    let program = library::make(name, parameters, vcpus).ok_or_else(|| {
        let message = format!(
            "there is no program `{name}`{}; `gleaner sim list` names them",
            hint(name, library::names())
        );
        text.wrong(&file.name.span(), message)
    })?;
    Ok(TaskSpec { program, looping: file.repeat })
}

fn policy(text: &Text, words: &Words) -> Result<Control, ScenarioError> {
    let Some(words) = words else {
        return Ok(Control::Fixed("halt".parse().map_err(|m| text.wrong(&(0..0), m))?));
    };
    if words.get_ref() == "gleaner" {
        return Ok(Control::Gleaner);
    }
    let wrong = |message: String| {
        text.wrong(&words.span(), format!("{message}; or `gleaner` for the policy of `gleaner run`"))
    };
    words.get_ref().parse().map(Control::Fixed).map_err(wrong)
}
