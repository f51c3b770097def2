//! Shared by the tests: a result and a diagnosis with everything that a page can show, and an SVG checker.

#![allow(dead_code, unused_imports, reason = "every test binary uses its own part of this")]

mod bench;
mod diagnosis;
mod host;
mod reproduction;
mod svg;

use std::collections::BTreeMap;

use gleaner_proto::result::Environment;

pub(crate) use bench::{ROUNDS, result};
pub(crate) use diagnosis::diagnosis;
pub(crate) use host::host;
pub(crate) use reproduction::reproduction;
pub(crate) use svg::check;

/// A small guest.
pub(crate) fn environment() -> Environment {
    let knob = |path: &str, value: &str| (path.to_owned(), value.to_owned());
    Environment {
        date: "2026-01-02T03:04:05Z".to_owned(),
        gleaner: "0.1.0".to_owned(),
        kernel: "6.18.44".to_owned(),
        kernel_version: "#1 SMP PREEMPT_DYNAMIC".to_owned(),
        hypervisor: "KVM".to_owned(),
        virtualised: true,
        cpu_model: "AMD EPYC".to_owned(),
        vcpus: 2,
        memory_bytes: 8 << 30,
        cpuidle_driver: "haltpoll".to_owned(),
        cpuidle_governor: "haltpoll".to_owned(),
        preemption: "none (chosen at boot)".to_owned(),
        knobs: BTreeMap::from([
            knob("/sys/module/haltpoll/parameters/guest_halt_poll_ns", "0"),
            knob("/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us", "0"),
        ]),
    }
}

/// Numbers between −1 and 1 that look like noise but are the same in every run.
pub(crate) fn noise(seed: usize) -> f64 {
    let x = (seed as f64 * 12.9898).sin() * 43_758.545_3;
    2.0 * (x - x.floor()) - 1.0
}
