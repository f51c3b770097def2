//! What is wrong or surprising on a machine.

use std::path::Path;
use std::time::Duration;

use gleaner_engine::StateDir;
use gleaner_kernel::Root;
use gleaner_kernel::idle::CpuIdle;
use gleaner_kernel::lever::{dma_latency, haltpoll, pm_qos};
use gleaner_kernel::preempt::{PreemptMode, Preemption};
use gleaner_kernel::topology::Topology;
use gleaner_proto::doctor::Finding;
use gleaner_proto::lease::{self, LeaseRecord};

use gleaner_calibrate::{Calibration, Confidence};

/// Share of steal above which the measured costs are those of a busy host.
const BUSY_HOST_STEAL: f64 = 0.05;
/// Value of `/dev/cpu_dma_latency` without a request (kernel: `PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const NO_REQUEST_LATENCY: Duration = Duration::from_secs(2000);

/// Findings that need no measurement. Files that cannot be read are skipped.
pub(super) fn without_measurement(root: &Root, state: &StateDir) -> Vec<Finding> {
    let idle = CpuIdle::read(root).unwrap_or_default();
    let mut findings = Vec::new();
    if idle.driver.is_none() {
        findings.extend(requests(root).into_iter().map(|request| Finding::LatencyRequestIgnored { request }));
    } else if idle.governor.as_deref() == Some("haltpoll") {
        if haltpoll::limit(root).is_ok_and(|limit| limit.is_zero()) {
            findings.push(Finding::HaltpollOff);
        }
        findings.extend(disabled_states(&idle));
    }
    let preemption = Preemption::read(root);
    match preemption.mode {
        PreemptMode::Unknown => findings.push(Finding::PreemptionUnknown { why: preemption.source }),
        PreemptMode::Lazy => findings.push(Finding::PreemptionLazy),
        PreemptMode::None | PreemptMode::Voluntary | PreemptMode::Full | PreemptMode::Rt => {}
    }
    findings.extend(leases_left(state));
    findings
}

/// Findings from the measurement. `in_use` is the calibration that runs use from now on.
pub(super) fn measured(calibration: &Calibration, in_use: Option<&Calibration>) -> Vec<Finding> {
    let disturbed = match calibration.confidence() {
        Confidence::Doubtful { disturbed } => Some(Finding::Disturbed { share: disturbed }),
        Confidence::Good => None,
    };
    let kept = in_use.filter(|kept| *kept != calibration && kept.confidence() == Confidence::Good);
    let kept = kept.map(|kept| Finding::EarlierKept {
        method: kept.method,
        halt_cost_ns: u64::try_from(kept.halt_cost.as_nanos()).unwrap_or(u64::MAX),
    });
    let share = calibration.steal_share;
    let steal = (share > BUSY_HOST_STEAL).then_some(Finding::Steal { share });
    let left = calibration.left_behind.iter().map(|detail| Finding::LeftBehind { detail: detail.clone() });
    disturbed.into_iter().chain(kept).chain(steal).chain(left).collect()
}

/// Programs that rely on latency requests.
fn requests(root: &Root) -> Vec<String> {
    let mut requests = Vec::new();
    let online = Topology::read(root).map(|topology| topology.online).unwrap_or_default();
    for cpu in online.iter() {
        if let Ok(value) = root.read(pm_qos::file(cpu))
            && value != pm_qos::FREE
        {
            requests.push(format!("vCPU {cpu} has the PM QoS latency request `{value}`"));
        }
    }
    if let Ok(latency) = dma_latency::DmaLatency::in_force(root)
        && latency < NO_REQUEST_LATENCY
    {
        let us = latency.as_micros();
        requests.push(format!("a program holds {} open with a request of {us} us", dma_latency::DEVICE));
    }
    requests.extend(tuned(root));
    requests
}

/// `force_latency` of tuned's active profile.
fn tuned(root: &Root) -> Option<String> {
    let profile = root.read("/etc/tuned/active_profile").ok()?;
    profile.split_whitespace().find_map(|name| {
        let dirs = ["/etc/tuned", "/etc/tuned/profiles", "/usr/lib/tuned", "/usr/lib/tuned/profiles"];
        let text =
            dirs.iter().find_map(|dir| root.read(Path::new(dir).join(name).join("tuned.conf")).ok())?;
        let sets = |line: &str| line.split('=').next().is_some_and(|key| key.trim() == "force_latency");
        let line = text.lines().find(|line| sets(line))?.trim();
        Some(format!("the tuned profile `{name}` says `{line}`"))
    })
}

/// Each disabled idle state once, with the first vCPU on which it is disabled.
fn disabled_states(idle: &CpuIdle) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    for (cpu, states) in &idle.states {
        for state in states.iter().filter(|state| state.disabled) {
            let known =
                |f: &Finding| matches!(f, Finding::DisabledStateIgnored { state: s, .. } if *s == state.name);
            if !found.iter().any(known) {
                found.push(Finding::DisabledStateIgnored { state: state.name.clone(), cpu: *cpu });
            }
        }
    }
    found
}

/// Changes in a lease file whose holder is gone.
fn leases_left(state: &StateDir) -> Option<Finding> {
    let path = state.leases();
    // While the holder lives, nothing is left behind.
    let _nobody = state.lock().ok()?;
    if !path.exists() {
        return None;
    }
    let (pid, records) = match lease::read(&path) {
        Ok(leases) => leases?,
        Err(error) => return Some(Finding::LeasesUnreadable { error: error.to_string() }),
    };
    let mut open = std::collections::BTreeSet::new();
    for record in records {
        match record {
            LeaseRecord::Change { target, .. } => drop(open.insert(target)),
            LeaseRecord::Released { target } => drop(open.remove(&target)),
            LeaseRecord::Holder { .. } => {}
        }
    }
    (!open.is_empty()).then_some(Finding::LeasesLeft { pid, changes: open.len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gleaner_policy::CpuId;
    use std::fs;

    fn put(root: &Root, path: &str, text: impl AsRef<[u8]>) {
        let path = root.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    const CPU: &str = "/sys/devices/system/cpu";

    fn machine(driver: &str, governor: &str) -> (tempfile::TempDir, Root, StateDir) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path().join("root"));
        put(&root, &format!("{CPU}/online"), "0-1\n");
        put(&root, &format!("{CPU}/cpu0/power/pm_qos_resume_latency_us"), "0\n");
        put(&root, &format!("{CPU}/cpuidle/current_driver"), driver);
        put(&root, &format!("{CPU}/cpuidle/current_governor"), governor);
        put(&root, "/proc/sys/kernel/version", "#1 SMP PREEMPT_RT");
        let state = StateDir::at(dir.path().join("state")).unwrap();
        (dir, root, state)
    }

    #[test]
    fn latency_requests_without_a_driver_are_reported() {
        let (_dir, root, state) = machine("none", "menu");
        assert_eq!(without_measurement(&root, &state), []);
        put(&root, "/dev/cpu_dma_latency", 2_000_000_000_i32.to_ne_bytes());
        assert_eq!(without_measurement(&root, &state), [], "the device without a request");
        put(&root, "/dev/cpu_dma_latency", 1_i32.to_ne_bytes());
        put(&root, "/sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us", "n/a\n");
        put(&root, "/etc/tuned/active_profile", "latency-performance\n");
        put(&root, "/usr/lib/tuned/latency-performance/tuned.conf", "[cpu]\nforce_latency = cstate.id:1|3\n");
        let texts: Vec<_> = without_measurement(&root, &state).iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), 3, "{texts:?}");
        for (text, part) in
            texts.iter().zip(["vCPU 1 has", "request of 1 us", "force_latency = cstate.id:1|3"])
        {
            assert!(text.contains(part) && text.contains("changes nothing"), "{text}");
        }
    }

    #[test]
    fn haltpoll_that_is_off_and_states_that_it_ignores_are_reported() {
        let (_dir, root, state) = machine("haltpoll", "haltpoll");
        put(&root, "/sys/module/haltpoll/parameters/guest_halt_poll_ns", "0\n");
        for (file, text) in [("name", "haltpoll idle"), ("latency", "1"), ("disable", "1")] {
            put(&root, &format!("/sys/devices/system/cpu/cpu1/cpuidle/state0/{file}"), text);
        }
        let state_1 = Finding::DisabledStateIgnored { state: "haltpoll idle".into(), cpu: CpuId(1) };
        assert_eq!(without_measurement(&root, &state), [Finding::HaltpollOff, state_1]);
        put(&root, "/sys/devices/system/cpu/cpuidle/current_governor", "menu");
        assert_eq!(without_measurement(&root, &state), [], "menu reads both");
    }

    #[test]
    fn leases_of_a_dead_holder_are_counted_and_a_live_one_is_left_alone() {
        let (_dir, root, state) = machine("none", "menu");
        let change =
            r#"{"record":"change","target":{"file":"/sys/a"},"old":{"text":"0"},"new":{"text":"1"}}"#;
        let other = change.replace("/sys/a", "/sys/b");
        let released = r#"{"record":"released","target":{"file":"/sys/b"}}"#;
        let holder = r#"{"record":"holder","version":1,"pid":77}"#;
        fs::write(state.leases(), format!("{holder}\n{change}\n{change}\n{other}\n{released}\n")).unwrap();
        assert_eq!(without_measurement(&root, &state), [Finding::LeasesLeft { pid: 77, changes: 1 }]);
        let holder = state.lock().unwrap();
        assert_eq!(without_measurement(&root, &state), []);
        drop(holder);
        fs::write(state.leases(), "garbled\n").unwrap();
        assert!(matches!(without_measurement(&root, &state)[..], [Finding::LeasesUnreadable { .. }]));
    }
}
