//! The metrics of a run, each defined once, with its unit and which direction is better.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One metric of one run of a command. The serialised name is [`Metric::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Wall time from the start of the command to its end.
    WallS,
    /// Units of work per second, as reported by the program.
    Throughput,
    /// Units of work done.
    Operations,
    /// Units of work per second of all co-runners together, if they are built-in workloads of one kind.
    CoThroughput,
    /// Work done by the command and its co-runners together: the mean of the programs' speeds, each as a ratio
    /// to the median of the first mode (the weighted speedup of Gleaner, ATC'14, §7.2.1).
    SystemThroughput,
    /// Mean latency, as reported by the program.
    MeanUs,
    /// Median latency, as reported by the program.
    P50Us,
    /// 90th percentile of latency, as reported by the program.
    P90Us,
    /// 95th percentile of latency, as reported by the program.
    P95Us,
    /// 99th percentile of latency, as reported by the program.
    P99Us,
    /// 99.9th percentile of latency, as reported by the program.
    P999Us,
    /// The longest latency, as reported by the program.
    MaxUs,
    /// Mean latency in an open loop from when a request was due; includes the client's own delay.
    DueMeanUs,
    /// 99th percentile of the same.
    DueP99Us,
    /// CPU time of the command and its descendants in user mode (`getrusage`).
    CpuUserS,
    /// CPU time of the command and its descendants in kernel mode (`getrusage`).
    CpuSystemS,
    /// Time of all vCPUs in cpuidle's POLL state: idle for the guest, but occupying the physical CPU.
    CpuPollingS,
    /// CPU time of Gleaner: its yield threads, and its own work.
    CpuYieldS,
    /// CPU time of an open loop's client.
    CpuClientS,
    /// Busy time of all vCPUs, for ours and other programs, without polling (`/proc/stat`).
    CpuBusyS,
    /// User, system, polling and Gleaner's CPU seconds per unit of work, or per run if there is no unit.
    CpuSPerOp,
    /// Entries into any idle state per second, mean over the vCPUs.
    IdlePerS,
    /// Entries into a halting idle state per second, mean over the vCPUs: each costs a wake-up by the
    /// hypervisor.
    HaltsPerS,
    /// Rescheduling interrupts (`RES`) per second, all vCPUs.
    ResPerS,
    /// Function-call interrupts (`CAL`) per second, all vCPUs; on x86 these include TLB shootdowns.
    CalPerS,
    /// Context switches per second, all vCPUs.
    SwitchesPerS,
    /// Time in which at least one runnable thread waited for a vCPU (`/proc/pressure/cpu`, `some`).
    RunDelayS,
    /// Steal time of all vCPUs (`/proc/stat`).
    StealS,
}

/// Which direction of a metric is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Explains other metrics, but is not judged.
    Neither,
}

impl Metric {
    /// Every metric, in the order of the tables.
    pub const ALL: [Self; 28] = [
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
        Self::DueMeanUs,
        Self::DueP99Us,
        Self::CpuUserS,
        Self::CpuSystemS,
        Self::CpuPollingS,
        Self::CpuYieldS,
        Self::CpuClientS,
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

    /// Name in files, unit, better direction, and description.
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
            Self::DueMeanUs => ("due_mean_us", "µs", Lower, "mean latency from due"),
            Self::DueP99Us => ("due_p99_us", "µs", Lower, "p99 latency from due"),
            Self::CpuUserS => ("cpu_user_s", "s", Lower, "CPU, user"),
            Self::CpuSystemS => ("cpu_system_s", "s", Lower, "CPU, system"),
            Self::CpuPollingS => ("cpu_polling_s", "s", Lower, "CPU, polling when idle"),
            Self::CpuYieldS => ("cpu_yield_s", "s", Lower, "CPU, Gleaner and its yield threads"),
            Self::CpuClientS => ("cpu_client_s", "s", Neither, "CPU, client of the open loop"),
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

    /// The unit of the values.
    pub const fn unit(self) -> &'static str {
        self.definition().1
    }

    /// Which direction is better.
    pub const fn better(self) -> Better {
        self.definition().2
    }

    /// A short description for tables and axes.
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
