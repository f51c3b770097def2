//! Probes the machine without writing anything.

use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};

use super::{Absence, Capabilities, Lever, Sensor};
use crate::hypervisor::{Hypervisor, HypervisorKind};
use crate::{KernelError, Root};

const CPU: &str = "/sys/devices/system/cpu";

type Probe = Result<(), Absence>;

/// What works here, for this user, from some twenty files.
pub fn probe(root: &Root) -> Capabilities {
    let mounts = Mounts::read(root);
    let sensor = |sensor| match sensor {
        Sensor::Cpuidle => cpuidle(root),
        Sensor::Steal => steal(root),
        Sensor::Schedstat => schedstat(root),
        Sensor::Interrupts => has_line(root, "/proc/interrupts", "RES:", "CONFIG_SMP"),
        Sensor::CgroupAccounting => cgroup_accounting(root, &mounts),
        Sensor::IoAccounting => io_accounting(root),
        Sensor::Psi => psi(root),
    };
    let lever = |lever| match lever {
        Lever::CpusetV2 => cpuset_v2(root, &mounts),
        Lever::CpusetV1 => cpuset_v1(root, &mounts),
        // System calls of every Linux, which need no privilege for the caller's own threads.
        Lever::Affinity | Lever::YieldThreads | Lever::SchedulingPolicy => Ok(()),
        Lever::Haltpoll => haltpoll(root),
        Lever::PmQos => pm_qos(root),
        Lever::DmaLatency => dma_latency(root),
    };
    Capabilities {
        sensors: Sensor::ALL.into_iter().map(|s| (s, sensor(s).err())).collect(),
        levers: Lever::ALL.into_iter().map(|l| (l, lever(l).err())).collect(),
    }
}

/// A file's text, or why it cannot be read; `option` is what the kernel lacks if the file is missing.
fn read(root: &Root, path: &str, option: &'static str) -> Result<String, Absence> {
    root.read_opt(path)
        .map_err(|error| Absence::from(&error))?
        .ok_or_else(|| Absence::NotBuilt { option, path: root.path(path) })
}

/// Whether the file is writable; `option` as in [`read`].
fn writable(root: &Root, path: impl AsRef<Path>, option: &'static str) -> Probe {
    let path = root.path(path);
    match access(&path, AccessFlags::W_OK) {
        Ok(()) => Ok(()),
        Err(Errno::ENOENT) => Err(Absence::NotBuilt { option, path }),
        Err(errno) => Err(Absence::from(&KernelError::write(path, "", io::Error::from(errno)))),
    }
}

fn has_line(root: &Root, path: &str, start: &str, option: &'static str) -> Probe {
    let found = read(root, path, option)?.lines().any(|line| line.trim_start().starts_with(start));
    if found { Ok(()) } else { Err(Absence::NotBuilt { option, path: root.path(path) }) }
}

fn cpuidle(root: &Root) -> Probe {
    match root.read_opt(format!("{CPU}/cpuidle/current_driver")).map_err(|error| Absence::from(&error))? {
        Some(driver) if driver != "none" && !driver.is_empty() => Ok(()),
        _ => Err(Absence::NoCpuidleDriver),
    }
}

fn steal(root: &Root) -> Probe {
    has_line(root, "/proc/stat", "cpu ", "CONFIG_PROC_FS")?;
    let hypervisor = Hypervisor::read(root);
    // Only KVM says whether it reports steal; a fake root has no CPUID features.
    let silent = hypervisor.kind == HypervisorKind::Kvm && root.is_system() && !hypervisor.kvm.steal_time;
    if silent && cfg!(target_arch = "x86_64") { Err(Absence::NoStealTime) } else { Ok(()) }
}

fn schedstat(root: &Root) -> Probe {
    const PATH: &str = "/proc/self/schedstat";
    const OPTION: &str = "CONFIG_SCHED_INFO";
    // Without SCHED_INFO the file exists but holds zeros, although its reader must have run.
    match read(root, PATH, OPTION)?.as_str() {
        "0 0 0" => Err(Absence::NotBuilt { option: OPTION, path: root.path(PATH) }),
        _ => Ok(()),
    }
}

fn io_accounting(root: &Root) -> Probe {
    read(root, "/proc/self/io", "CONFIG_TASK_IO_ACCOUNTING").map(drop)
}

fn psi(root: &Root) -> Probe {
    const PATH: &str = "/proc/pressure/cpu";
    match root.read(PATH) {
        Err(error) if error.errno() == Some(libc::EOPNOTSUPP) => {
            Err(Absence::SwitchedOff { parameter: "psi=1" })
        }
        _ => read(root, PATH, "CONFIG_PSI").map(drop),
    }
}

fn haltpoll(root: &Root) -> Probe {
    cpuidle(root)?;
    let governor = ["current_governor", "current_governor_ro"]
        .iter()
        .find_map(|name| root.read(format!("{CPU}/cpuidle/{name}")).ok())
        .unwrap_or_else(|| "none".to_owned());
    if governor != "haltpoll" {
        return Err(Absence::OtherGovernor { governor });
    }
    writable(root, "/sys/module/haltpoll/parameters/guest_halt_poll_ns", "CONFIG_CPU_IDLE_GOV_HALTPOLL")
}

fn pm_qos(root: &Root) -> Probe {
    cpuidle(root)?;
    // CPU 0 is always online on x86; elsewhere any CPU will do.
    let cpu = root.read(format!("{CPU}/online")).ok();
    let first = cpu.and_then(|list| list.split([',', '-']).next().map(str::to_owned)).unwrap_or_default();
    writable(root, format!("{CPU}/cpu{first}/power/pm_qos_resume_latency_us"), "CONFIG_PM")
}

fn dma_latency(root: &Root) -> Probe {
    cpuidle(root)?;
    writable(root, "/dev/cpu_dma_latency", "CONFIG_CPU_IDLE")
}

fn cpuset_v1(root: &Root, mounts: &Mounts) -> Probe {
    let dir = mounts.v1("cpuset").ok_or(Absence::NoCgroupV1 { controller: "cpuset" })?;
    writable(root, dir, "CONFIG_CPUSETS_V1")
}

fn cpuset_v2(root: &Root, mounts: &Mounts) -> Probe {
    let dir = mounts.v2.as_ref().ok_or(Absence::NoCgroupV2)?;
    let controllers = root.read(dir.join("cgroup.controllers")).map_err(|error| Absence::from(&error))?;
    if !controllers.split_ascii_whitespace().any(|name| name == "cpuset") {
        return Err(Absence::ControllerMissing { path: dir.clone(), controller: "cpuset" });
    }
    writable(root, dir, "CONFIG_CGROUPS")
}

fn cgroup_accounting(root: &Root, mounts: &Mounts) -> Probe {
    // Version 2 accounts CPU time in every cgroup, whatever its controllers.
    let v2 = mounts.v2.as_ref().map(|dir| dir.join("cpu.stat"));
    let v1 = mounts.v1("cpuacct").map(|dir| dir.join("cpuacct.stat"));
    let found = [v2, v1].into_iter().flatten().any(|path| root.exists(path));
    if found { Ok(()) } else { Err(Absence::NoCgroupAccounting) }
}

/// Mount points of the cgroup hierarchies.
#[derive(Debug, Default)]
struct Mounts {
    v2: Option<PathBuf>,
    /// Mount points, and mount options, which include the controllers.
    v1: Vec<(PathBuf, String)>,
}

impl Mounts {
    /// Empty without `/proc/mounts`.
    fn read(root: &Root) -> Self {
        let mut mounts = Self::default();
        for line in root.read("/proc/mounts").unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split_ascii_whitespace().collect();
            match fields[..] {
                [_, dir, "cgroup2", ..] if mounts.v2.is_none() => mounts.v2 = Some(dir.into()),
                [_, dir, "cgroup", options, ..] => mounts.v1.push((dir.into(), options.to_owned())),
                _ => {}
            }
        }
        mounts
    }

    fn v1(&self, controller: &str) -> Option<&Path> {
        let has = |options: &str| options.split(',').any(|option| option == controller);
        self.v1.iter().find(|(_, options)| has(options)).map(|(dir, _)| dir.as_path())
    }
}
