//! What Gleaner can measure and change on this machine, and otherwise the reason and the remedy.

mod absence;
mod probe;

pub use absence::Absence;
pub use probe::probe;

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// Something that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sensor {
    /// Idle periods, counted by cpuidle; estimated without it.
    Cpuidle,
    /// Time that the hypervisor took from the vCPUs.
    Steal,
    /// Run time, run-queue delay and switches of every thread.
    Schedstat,
    /// Inter-processor interrupts per CPU.
    Interrupts,
    /// CPU time of a cgroup in one read.
    CgroupAccounting,
    /// Bytes read and written by a process.
    IoAccounting,
    /// Pressure stall information.
    Psi,
}

impl Sensor {
    /// Every sensor.
    pub const ALL: [Self; 7] = [
        Self::Cpuidle,
        Self::Steal,
        Self::Schedstat,
        Self::Interrupts,
        Self::CgroupAccounting,
        Self::IoAccounting,
        Self::Psi,
    ];

    /// The name shown to users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpuidle => "cpuidle",
            Self::Steal => "steal",
            Self::Schedstat => "schedstat",
            Self::Interrupts => "interrupts",
            Self::CgroupAccounting => "cgroup-accounting",
            Self::IoAccounting => "io-accounting",
            Self::Psi => "psi",
        }
    }
}

impl fmt::Display for Sensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Something that can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lever {
    /// Consolidation by a cpuset of the v2 hierarchy.
    CpusetV2,
    /// Consolidation by a v1 cpuset.
    CpusetV1,
    /// Consolidation by the affinity of each thread.
    Affinity,
    /// Retention by the haltpoll governor's parameters.
    Haltpoll,
    /// Retention by a latency request per CPU.
    PmQos,
    /// Retention by a latency request for all CPUs, bound to a file descriptor.
    DmaLatency,
    /// Retention by yield threads.
    YieldThreads,
    /// `SCHED_BATCH` for the workload, which makes yield threads free of IPIs.
    SchedulingPolicy,
}

impl Lever {
    /// Every lever.
    pub const ALL: [Self; 8] = [
        Self::CpusetV2,
        Self::CpusetV1,
        Self::Affinity,
        Self::Haltpoll,
        Self::PmQos,
        Self::DmaLatency,
        Self::YieldThreads,
        Self::SchedulingPolicy,
    ];

    /// The name shown to users.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpusetV2 => "cpuset-v2",
            Self::CpusetV1 => "cpuset-v1",
            Self::Affinity => "affinity",
            Self::Haltpoll => "haltpoll",
            Self::PmQos => "pm-qos",
            Self::DmaLatency => "dma-latency",
            Self::YieldThreads => "yield-threads",
            Self::SchedulingPolicy => "scheduling-policy",
        }
    }
}

impl fmt::Display for Lever {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The result of [`probe`]: `None` means available, else the reason why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Every sensor.
    pub sensors: BTreeMap<Sensor, Option<Absence>>,
    /// Every lever.
    pub levers: BTreeMap<Lever, Option<Absence>>,
}

impl Capabilities {
    /// Whether the sensor works here.
    pub fn can_see(&self, sensor: Sensor) -> bool {
        matches!(self.sensors.get(&sensor), Some(None))
    }

    /// Whether the lever works here.
    pub fn can_use(&self, lever: Lever) -> bool {
        matches!(self.levers.get(&lever), Some(None))
    }
}

#[cfg(test)]
mod tests;
