//! `gleaner doctor`: what a wake-up costs on this machine, and what can be done about it.

mod findings;
mod table;

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_kernel::capability::{Capabilities, probe};
use gleaner_kernel::hypervisor::Hypervisor;
use gleaner_kernel::idle::CpuIdle;
use gleaner_kernel::preempt::{KernelVersion, Preemption};
use gleaner_kernel::topology::Topology;
use gleaner_policy::{Method, Placement};
use gleaner_print::{out, outln, write_err};
use gleaner_proto::doctor::{Capability, Finding, Machine, Report, VERSION, costs};
use gleaner_trace::OverloadSensor;

use gleaner_calibrate::{self as calibrate, Calibration, Confidence, Depth, Progress, calibrate};

/// Measure what a wake-up costs on this machine, and say what Gleaner can do about it
///
/// Two threads wake each other under each retention method, in the settings of Table 2 of the paper: on one vCPU (A),
/// on two vCPUs that are kept awake (B), on two that go idle (C), and on two that are busy with other work (D). The
/// machine's settings are changed for it, for about 8 s, and put back. What was measured is kept until the next boot
/// and used by `gleaner run`. What other programs disturbed is doubtful: it never replaces what was measured on a quiet
/// machine, and the next run that starts on one measures again. Without root, only what needs none is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Measure only what `gleaner run` needs (A and C), in about a quarter of a second
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let state = StateDir::default_place()?;
    // Before the measurement, which restores what a dead holder left behind.
    let mut findings = findings::without_measurement(&root, &state);
    let calibration = measure(&state, &root, if args.quick { Depth::Quick } else { Depth::Full })?;
    let in_use = calibrate::load(&state, &root);
    findings.extend(findings::measured(&calibration, in_use.as_ref()));
    let report = report(&root, calibration, findings)?;
    if args.json {
        outln!("{}", serde_json::to_string_pretty(&report)?)?;
    } else {
        out!("{}", table::text(&report))?;
    }
    let left_behind = report.findings.iter().any(|f| matches!(f, Finding::LeftBehind { .. }));
    Ok(if left_behind { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Measures, and shows on a terminal how far it is.
fn measure(state: &StateDir, root: &Root, how: Depth) -> anyhow::Result<Calibration> {
    let shown = how == Depth::Full && std::io::stderr().is_terminal();
    let line = |text: &str| {
        if shown {
            write_err(format_args!("\r\x1b[K{text}"));
        }
    };
    let calibration = calibrate(state, root, how, &mut |p: Progress| {
        line(&format!("measuring wake-ups with {} ({} of {})", p.method, p.step, p.steps));
    });
    line("");
    calibration
}

fn report(root: &Root, calibration: Calibration, findings: Vec<Finding>) -> anyhow::Result<Report> {
    let preemption = Preemption::read(root);
    let idle = CpuIdle::read(root)?;
    let vcpus = Topology::read(root)?.online;
    let count = vcpus.len();
    Ok(Report {
        version: VERSION,
        machine: Machine {
            kernel: KernelVersion::read(root)?.release,
            hypervisor: Hypervisor::read(root).kind.to_string(),
            vcpus,
            preemption: preemption.mode.to_string(),
            preemption_source: preemption.source,
            cpuidle_driver: idle.driver,
            cpuidle_governor: idle.governor,
        },
        capabilities: capabilities(&probe(root)),
        gain: gain(&calibration, count),
        cells: calibration.cells,
        not_measured: calibration.absent,
        method: calibration.method,
        reason: calibration.reason,
        steal_share: calibration.steal_share,
        findings,
    })
}

fn capabilities(found: &Capabilities) -> Vec<Capability> {
    let entry = |kind: &str, name: &str, absent: Option<String>| Capability {
        kind: kind.to_owned(),
        name: name.to_owned(),
        absent,
    };
    let text =
        |absence: &Option<gleaner_kernel::capability::Absence>| absence.as_ref().map(ToString::to_string);
    let sensors = found.sensors.iter().map(|(s, absence)| entry("sensor", s.name(), text(absence)));
    // Loaded only to see whether it can be; it watches nothing until it is armed.
    let expand = OverloadSensor::load().err().map(|missing| missing.why.to_string());
    let sensors = sensors.chain([entry("sensor", "fast-expansion", expand)]);
    let levers = found.levers.iter().map(|(l, absence)| entry("lever", l.name(), text(absence)));
    sensors.chain(levers).collect()
}

/// What Gleaner can gain here, from the ratio of an untouched wake-up to one under the chosen method.
fn gain(calibration: &Calibration, vcpus: usize) -> String {
    let costs = costs(&calibration.cells);
    if costs.is_empty() {
        return "Nothing was measured, so what Gleaner can win here is not known".to_owned();
    }
    let Some(halt) = costs.across(Method::Halt) else {
        if vcpus > 1 {
            return "No wake-up of a halted vCPU could be measured in the time that there was, so what Gleaner can win \
                    here is not known: `gleaner doctor` without `--quick` takes longer, and a host with less to do helps"
                .to_owned();
        }
        return "There is only one vCPU, so no wake-up crosses vCPUs and there is nothing to win".to_owned();
    };
    if calibration.confidence() != Confidence::Good {
        return "The measurement is doubtful, so what Gleaner can win here is not known: other programs kept vCPUs from \
                halting. Run `gleaner doctor` again when the machine is idle"
            .to_owned();
    }
    let own = costs.get(Method::Halt, Placement::SameVcpu).map(|cost| cost.median);
    match costs.across(calibration.method).filter(|_| calibration.method != Method::Halt) {
        Some(best) => format!(
            "A thread that is woken on an idle vCPU starts after {} here; with {} after {}: programs whose threads \
             hand work to each other can make up to ~{:.0} times as many hand-offs",
            us(halt),
            calibration.method,
            us(best),
            ratio(halt, best)
        ),
        None => match own.filter(|own| ratio(halt, *own) >= 1.5) {
            Some(own) => format!(
                "Keeping idle vCPUs awake does not pay here, but a wake-up takes {} across vCPUs and {} within one: \
                 programs whose threads hand work to each other can gain when Gleaner consolidates them on fewer vCPUs",
                us(halt),
                us(own)
            ),
            None => format!(
                "A thread that is woken on an idle vCPU starts after {} here, and no method makes that much \
                 cheaper: there is little to win",
                us(halt)
            ),
        },
    }
}

fn ratio(a: Duration, b: Duration) -> f64 {
    a.as_secs_f64() / b.as_secs_f64().max(1e-9)
}

fn us(time: Duration) -> String {
    format!("{:.1} us", time.as_secs_f64() * 1e6)
}
