//! The files of `/proc` and `/sys` that sensors and levers read: a fake tree of them, read twice.

#![no_main]

use std::path::{Path, PathBuf};

use gleaner_fuzz::Tree;
use gleaner_kernel::capability::probe;
use gleaner_kernel::cgroup::{CgroupSetup, WorkloadGroup};
use gleaner_kernel::hypervisor::Hypervisor;
use gleaner_kernel::idle::{CpuIdle, IdleSensor};
use gleaner_kernel::interrupts::InterruptSensor;
use gleaner_kernel::lever::{Target, ThreadKey, haltpoll, pm_qos};
use gleaner_kernel::preempt::{KernelVersion, Preemption};
use gleaner_kernel::stat::StatSensor;
use gleaner_kernel::topology::Topology;
use gleaner_kernel::workload::{Members, WorkloadSensor};
use libfuzzer_sys::fuzz_target;

const GROUP: &str = "/sys/fs/cgroup/g";

fuzz_target!(|bytes: &[u8]| {
    let Some(tree) = Tree::new(bytes) else { return };
    let root = tree.root();
    let (mut idle, mut stat) = (IdleSensor::new(&root), StatSensor::new(&root));
    let mut interrupts = InterruptSensor::new(&root);
    let members = [Members::Tree(10), Members::Family(10), Members::Cgroup(PathBuf::from(GROUP))];
    let mut workloads: Vec<_> =
        members.into_iter().filter_map(|members| WorkloadSensor::new(&root, members).ok()).collect();
    let accounted = WorkloadSensor::new(&root, Members::Tree(10));
    workloads.extend(accounted.and_then(|sensor| sensor.with_accounting(Path::new(GROUP))));
    for _ in 0..2 {
        if let Ok(idle) = &mut idle {
            let _ = idle.read();
        }
        if let Ok(stat) = &mut stat {
            let _ = (stat.read(), stat.runnable());
        }
        if let Ok(interrupts) = &mut interrupts {
            let _ = interrupts.read();
        }
        for workload in &mut workloads {
            let _ = (workload.sample(), workload.throttled(), workload.has_sockets(), workload.exists());
        }
        tree.change();
    }
    let _ = (Topology::read(&root), CpuIdle::read(&root));
    let _ = (Hypervisor::read(&root), Preemption::read(&root), KernelVersion::read(&root));
    let _ = probe(&root);
    let _ = (
        haltpoll::is_in_use(&root),
        haltpoll::available(&root),
        haltpoll::limit(&root),
        pm_qos::available(&root),
    );
    let _ = ThreadKey::of(&root, 10);
    let _ = Target::File(PathBuf::from(GROUP).join("cpuset.cpus")).read(&root);
    for setup in [CgroupSetup::detect(&root), CgroupSetup::of_process(&root, 10)].into_iter().flatten() {
        let _ = (setup.quota_dirs(), setup.find(&root, Path::new("g")));
        let _ = WorkloadGroup::existing(&root, &setup, Path::new("/g"));
    }
});
