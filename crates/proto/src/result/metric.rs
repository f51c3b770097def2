//! What a run is measured by: each metric defined once, with its unit and which way is better.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One metric of one run of a command. The serialised name is [`Metric::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// From the start of the command to its end.
    WallS,
    /// Units of work per second, as the program itself says.
    Throughput,
    /// Units of work done.
    Operations,
    /// Units of work per second of all co-runners together, where they are built-in workloads of one kind.
    CoThroughput,
    /// How much the command and its co-runners got done together: the mean of the programs' speeds, each as a ratio to
    /// the median of the first mode (the weighted speedup of Gleaner, ATC'14, §7.2.1).
    SystemThroughput,
    /// Mean latency, as the program says.
    MeanUs,
    /// Median latency, as the program says.
    P50Us,
    /// 90th percentile of latency, as the program says.
    P90Us,
    /// 95th percentile of latency, as the program says.
    P95Us,
    /// 99th percentile of latency, as the program says.
    P99Us,
    /// 99.9th percentile of latency, as the program says.
    P999Us,
    /// The longest latency, as the program says.
    MaxUs,
    /// CPU time of the command and its descendants in user mode (`getrusage`).
    CpuUserS,
    /// The same in the kernel.
    CpuSystemS,
    /// Time of all vCPUs in cpuidle's POLL state: idle for the guest, but the physical CPU is in use.
    CpuPollingS,
    /// CPU time of Gleaner itself: its yield threads, and its own work.
    CpuYieldS,
    /// What all vCPUs together were busy with, ours and everybody else's, polling excluded (`/proc/stat`).
    CpuBusyS,
    /// User, system, polling and Gleaner's CPU seconds per unit of work; per run where there is no unit.
    CpuSPerOp,
    /// Entries into any idle state per second, mean over the vCPUs.
    IdlePerS,
    /// Entries into a halting idle state per second, mean over the vCPUs: each costs a wake-up from the hypervisor.
    HaltsPerS,
    /// Rescheduling interrupts (`RES`) per second, all vCPUs.
    ResPerS,
    /// Function-call interrupts (`CAL`) per second, all vCPUs; those of TLB shootdowns are part of them on x86.
    CalPerS,
    /// Context switches per second, all vCPUs.
    SwitchesPerS,
    /// Time in which at least one runnable thread waited for a vCPU (`/proc/pressure/cpu`, `some`).
    RunDelayS,
    /// Time of all vCPUs that the hypervisor gave to others (`/proc/stat`).
    StealS,
}

/// Which way a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// It explains, and does not judge.
    Neither,
}

impl Metric {
    /// Every metric, in the order of the tables.
    pub const ALL: [Self; 25] = [
        Self::WallS,
        Self::Throughput,
        Self::Operations,
        Self::CoThroughput,
        Self::SystemThroughput,
        Self::MeanUs,
        Self::P50Us,
        Self::P90Us,
        Self::P95Us,
        Self::P99Us,
        Self::P999Us,
        Self::MaxUs,
        Self::CpuUserS,
        Self::CpuSystemS,
        Self::CpuPollingS,
        Self::CpuYieldS,
        Self::CpuBusyS,
        Self::CpuSPerOp,
        Self::IdlePerS,
        Self::HaltsPerS,
        Self::ResPerS,
        Self::CalPerS,
        Self::SwitchesPerS,
        Self::RunDelayS,
        Self::StealS,
    ];

    /// Name in files, unit, better direction, and what it is for people.
    const fn definition(self) -> (&'static str, &'static str, Better, &'static str) {
        use Better::{Higher, Lower, Neither};
        match self {
            Self::WallS => ("wall_s", "s", Lower, "wall time"),
            Self::Throughput => ("throughput", "1/s", Higher, "throughput"),
            Self::Operations => ("operations", "1", Neither, "units of work"),
            Self::CoThroughput => ("co_throughput", "1/s", Higher, "co-runners' work"),
            Self::SystemThroughput => ("system_throughput", "1", Higher, "system throughput"),
            Self::MeanUs => ("mean_us", "µs", Lower, "mean latency"),
            Self::P50Us => ("p50_us", "µs", Lower, "median latency"),
            Self::P90Us => ("p90_us", "µs", Lower, "p90 latency"),
            Self::P95Us => ("p95_us", "µs", Lower, "p95 latency"),
            Self::P99Us => ("p99_us", "µs", Lower, "p99 latency"),
            Self::P999Us => ("p999_us", "µs", Lower, "p99.9 latency"),
            Self::MaxUs => ("max_us", "µs", Lower, "longest latency"),
            Self::CpuUserS => ("cpu_user_s", "s", Lower, "CPU, user"),
            Self::CpuSystemS => ("cpu_system_s", "s", Lower, "CPU, system"),
            Self::CpuPollingS => ("cpu_polling_s", "s", Lower, "CPU, polling when idle"),
            Self::CpuYieldS => ("cpu_yield_s", "s", Lower, "CPU, Gleaner and its yield threads"),
            Self::CpuBusyS => ("cpu_busy_s", "s", Lower, "CPU, whole machine busy"),
            Self::CpuSPerOp => ("cpu_s_per_op", "s", Lower, "CPU per unit of work"),
            Self::IdlePerS => ("idle_per_s", "1/s", Neither, "idle entries per vCPU"),
            Self::HaltsPerS => ("halts_per_s", "1/s", Neither, "halts per vCPU"),
            Self::ResPerS => ("res_per_s", "1/s", Neither, "RES interrupts"),
            Self::CalPerS => ("cal_per_s", "1/s", Neither, "CAL interrupts"),
            Self::SwitchesPerS => ("switches_per_s", "1/s", Neither, "context switches"),
            Self::RunDelayS => ("run_delay_s", "s", Lower, "time with runnable threads waiting"),
            Self::StealS => ("steal_s", "s", Lower, "steal"),
        }
    }

    /// The name in result files and scenarios.
    pub const fn name(self) -> &'static str {
        self.definition().0
    }

    /// The unit of its values.
    pub const fn unit(self) -> &'static str {
        self.definition().1
    }

    /// Which way is better.
    pub const fn better(self) -> Better {
        self.definition().2
    }

    /// What it is, in few words, for tables and axes.
    pub const fn about(self) -> &'static str {
        self.definition().3
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|metric| metric.name() == name).ok_or_else(|| {
            format!("`{name}` is not a metric; use one of {}", Self::ALL.map(Self::name).join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_serialised_name_is_the_name() {
        for metric in Metric::ALL {
            assert_eq!(serde_json::to_value(metric).unwrap(), metric.name());
            assert_eq!(metric.name().parse(), Ok(metric));
        }
        assert!("speed".parse::<Metric>().unwrap_err().contains("throughput"));
    }

    #[test]
    fn every_metric_is_listed_once_in_order() {
        assert!(Metric::ALL.windows(2).all(|pair| pair[0] < pair[1]));
        let last = serde_json::to_value(Metric::StealS).unwrap();
        assert_eq!(last, Metric::ALL[Metric::ALL.len() - 1].name());
    }
}
