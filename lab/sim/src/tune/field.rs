//! The built-in scenarios for the search: library programs on machines of several sizes.

use crate::cost::Costs;
use crate::ids::Ns;
use crate::library::{self, Parameters};
use crate::scenario::{Control, Scenario};
use crate::sched::Fair;
use crate::spec::{HostSpec, Spec, VmSpec};
use crate::tuning::Tuning;

/// Programs with different kinds of synchronisation, and two with hardly any.
const PROGRAMS: [&str; 12] = [
    "ping-pong",
    "request-response",
    "pipeline",
    "barrier",
    "convoy",
    "matmul",
    "freqsleep",
    "dedup",
    "streamcluster",
    "facesim",
    "cholesky",
    "volrend",
];

/// Machines: number of vCPUs, and the program of a second VM of that size on the same pCPUs.
const MACHINES: [(u32, Option<&str>); 4] = [(2, None), (4, None), (8, None), (4, Some("matmul"))];

/// Every program on every machine for `time` ns each, with the policy controlling the first VM: the scenarios
/// to search on, then those held out. Every other program is held out, shifted by one from machine to
/// machine, so that each program and each machine is in both sets.
pub fn field(time: Ns) -> (Vec<Scenario>, Vec<Scenario>) {
    let mut sides = (Vec::new(), Vec::new());
    for (m, (vcpus, beside)) in MACHINES.into_iter().enumerate() {
        for (p, program) in PROGRAMS.into_iter().enumerate() {
            let side = if (m + p) % 2 == 0 { &mut sides.0 } else { &mut sides.1 };
            side.extend(scenario(program, vcpus, beside, time));
        }
    }
    sides
}

fn scenario(program: &str, vcpus: u32, beside: Option<&str>, time: Ns) -> Option<Scenario> {
    let endless = Parameters { threads: 0, work: 0, grain: 0 };
    let vm = |name: &str| VmSpec { fair: Fair::EEVDF, ..VmSpec::new(name, vcpus, Costs::THIS_VM) };
    let mut vms = vec![vm("governed").running(library::make(program, endless, vcpus)?)];
    if let Some(other) = beside {
        vms.push(vm("beside").repeating(library::make(other, endless, vcpus)?));
    }
    let mut control = vec![Control::GLEANER];
    control.resize(vms.len(), Control::HALT);
    let host = HostSpec { cores: vcpus, fair: Fair::EEVDF, ..HostSpec::default() };
    let mut spec = Spec::new(host, vms);
    spec.time_limit = time;
    let title = match beside {
        None => format!("{program} on {vcpus} vCPUs"),
        Some(other) => format!("{program} on {vcpus} vCPUs beside {other}"),
    };
    Some(Scenario { title, source: None, spec, control, tuning: Tuning::default() })
}
