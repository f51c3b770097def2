use std::fs;

use super::*;
use crate::testing::{fake, put};
use crate::{KernelError, Root};

const CPU: &str = "/sys/devices/system/cpu";

/// A KVM guest with cpuidle-haltpoll and all other features.
fn put_machine(root: &Root) {
    put(root, &format!("{CPU}/online"), "0-1\n");
    put(root, &format!("{CPU}/cpuidle/current_driver"), "haltpoll\n");
    put(root, &format!("{CPU}/cpuidle/current_governor"), "haltpoll\n");
    put(root, &format!("{CPU}/cpu0/power/pm_qos_resume_latency_us"), "0\n");
    put(root, "/sys/module/haltpoll/parameters/guest_halt_poll_ns", "200000\n");
    put(root, "/dev/cpu_dma_latency", "");
    put(root, "/proc/stat", "cpu  1 2 3 4 5 6 7 8 9 10\n");
    put(root, "/proc/interrupts", "  CPU0\nRES:  1  Rescheduling interrupts\n");
    put(root, "/proc/self/schedstat", "1 2 3\n");
    put(root, "/proc/self/io", "rchar: 1\n");
    put(root, "/proc/pressure/cpu", "some avg10=0.00\n");
    put(
        root,
        "/proc/mounts",
        "cgroup /v1/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\ncgroup /v1/cpuset cgroup rw,cpuset 0 0\ncgroup2 /v2 cgroup2 rw 0 0\n",
    );
    put(root, "/v1/cpuset/cpuset.cpus", "0-1\n");
    put(root, "/v1/cpu,cpuacct/cpuacct.stat", "user 1\nsystem 1\n");
    put(root, "/v2/cgroup.controllers", "cpuset cpu\n");
}

fn why_sensor(root: &Root, sensor: Sensor) -> String {
    probe(root).sensors[&sensor].as_ref().unwrap().to_string()
}

fn why_lever(root: &Root, lever: Lever) -> String {
    probe(root).levers[&lever].as_ref().unwrap().to_string()
}

#[test]
fn a_machine_with_everything_can_do_everything() {
    let (_dir, root) = fake();
    put_machine(&root);
    let found = probe(&root);
    assert!(found.sensors.values().chain(found.levers.values()).all(Option::is_none), "{found:?}");
    assert!(Sensor::ALL.iter().all(|s| found.can_see(*s)) && Lever::ALL.iter().all(|l| found.can_use(*l)));
}

#[test]
fn an_empty_machine_has_a_reason_for_everything_that_needs_a_file() {
    let (_dir, root) = fake();
    let found = probe(&root);
    assert!(found.sensors.values().all(Option::is_some), "{found:?}");
    let left: Vec<_> = Lever::ALL.into_iter().filter(|l| found.can_use(*l)).collect();
    assert_eq!(left, [Lever::Affinity, Lever::YieldThreads, Lever::SchedulingPolicy]);
}

#[test]
fn without_a_cpuidle_driver_nothing_acts_on_idle() {
    let (_dir, root) = fake();
    put_machine(&root);
    put(&root, &format!("{CPU}/cpuidle/current_driver"), "none\n");
    for lever in [Lever::Haltpoll, Lever::PmQos, Lever::DmaLatency] {
        let why = why_lever(&root, lever);
        assert!(why.contains("current_driver = none") && why.contains("modprobe"), "{lever}: {why}");
    }
    assert!(!probe(&root).can_see(Sensor::Cpuidle));
}

#[test]
fn reasons_say_what_is_missing() {
    let (_dir, root) = fake();
    put_machine(&root);
    put(&root, &format!("{CPU}/cpuidle/current_governor"), "menu\n");
    assert!(why_lever(&root, Lever::Haltpoll).contains("`menu`"));
    put(&root, "/v2/cgroup.controllers", "\n");
    assert!(why_lever(&root, Lever::CpusetV2).contains("/v2 has no cpuset controller"));
    put(&root, "/proc/self/schedstat", "0 0 0\n");
    assert!(why_sensor(&root, Sensor::Schedstat).contains("CONFIG_SCHED_INFO"));
    put(&root, "/proc/interrupts", "  CPU0\nIPI0: 1\n");
    assert!(why_sensor(&root, Sensor::Interrupts).contains("/proc/interrupts"));
    fs::remove_file(root.path("/proc/self/io")).unwrap();
    assert!(why_sensor(&root, Sensor::IoAccounting).contains("CONFIG_TASK_IO_ACCOUNTING"));
    put(&root, "/proc/mounts", "sysfs /sys sysfs rw 0 0\ngarbled\n");
    assert_eq!(why_lever(&root, Lever::CpusetV1), "cgroup v1 cpuset is not mounted");
    assert!(why_lever(&root, Lever::CpusetV2).contains("mount -t cgroup2"));
    assert!(why_sensor(&root, Sensor::CgroupAccounting).contains("cpuacct"));
}

#[test]
fn the_kernels_refusals_are_distinguished() {
    let refusal =
        |errno| Absence::from(&KernelError::write("/sys/x", "1", std::io::Error::from_raw_os_error(errno)));
    assert!(refusal(libc::EACCES).to_string().contains("run as root"));
    assert!(refusal(libc::EROFS).to_string().contains("read-only"));
    assert!(refusal(libc::EIO).to_string().contains("cannot write `1` to /sys/x"));
}

#[test]
fn this_machine_can_always_set_affinity() {
    let found = probe(&Root::system());
    assert!(found.can_use(Lever::Affinity) && found.can_use(Lever::YieldThreads));
    for (lever, absence) in &found.levers {
        assert!(absence.as_ref().is_none_or(|a| !a.to_string().is_empty()), "{lever}");
    }
}
