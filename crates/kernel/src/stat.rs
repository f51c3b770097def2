//! CPU times and context switches from `/proc/stat`, and the number of runnable threads.

use std::time::Duration;

use gleaner_policy::CpuId;
use serde::Serialize;

use crate::file::KernelFile;
use crate::{KernelError, Root};

/// One CPU's times since boot. The kernel counts in ticks of 1/`USER_HZ` (10 ms).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct CpuTimes {
    /// User mode, nice ≤ 0, guests included.
    pub user: Duration,
    /// User mode, nice > 0.
    pub nice: Duration,
    /// Kernel mode.
    pub system: Duration,
    /// Nothing to run.
    pub idle: Duration,
    /// Nothing to run while a task that slept here waits for a disk; counts as idle.
    pub iowait: Duration,
    /// Interrupt handlers.
    pub irq: Duration,
    /// Softirq handlers.
    pub softirq: Duration,
    /// The vCPU was runnable but the hypervisor ran something else.
    pub steal: Duration,
}

impl CpuTimes {
    /// Time in which the CPU had nothing to run: `idle` + `iowait`.
    pub fn not_busy(&self) -> Duration {
        self.idle + self.iowait
    }

    /// Time in which the CPU ran something: all but `not_busy` and steal.
    pub fn busy(&self) -> Duration {
        self.total().saturating_sub(self.not_busy() + self.steal)
    }

    /// All accounted time, steal included.
    pub fn total(&self) -> Duration {
        self.user + self.nice + self.system + self.idle + self.iowait + self.irq + self.softirq + self.steal
    }
}

/// `/proc/stat` at one time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SystemStat {
    /// Times of each online CPU, in ascending order.
    pub cpus: Vec<(CpuId, CpuTimes)>,
    /// Context switches of all CPUs since boot (`ctxt`).
    pub switches: u64,
}

/// Reads `/proc/stat` and `/proc/loadavg`, which stay open.
#[derive(Debug)]
pub struct StatSensor {
    stat: KernelFile,
    loadavg: KernelFile,
    tick: Duration,
    buffer: Vec<u8>,
}

impl StatSensor {
    /// Opens the files.
    pub fn new(root: &Root) -> Result<Self, KernelError> {
        Ok(Self {
            stat: KernelFile::open(root, "/proc/stat")?,
            loadavg: KernelFile::open(root, "/proc/loadavg")?,
            tick: user_tick(),
            buffer: Vec::new(),
        })
    }

    /// Times and context switches since boot. About 10 us on a small guest; grows with CPUs and interrupt
    /// lines, which the kernel adds up each time.
    pub fn read(&mut self) -> Result<SystemStat, KernelError> {
        let text = self.stat.read_all(&mut self.buffer)?;
        parse_stat(text, self.tick).map_err(|line| {
            KernelError::parse(self.stat.path(), "a `cpuN` line of numbers and a `ctxt` line", line)
        })
    }

    /// The number of runnable threads of the whole system at this moment, the caller included: the numerator of
    /// field 4 of `/proc/loadavg` (kernel: `nr_running`). About 1 us: the cheapest sign of pressure.
    pub fn runnable(&self) -> Result<u32, KernelError> {
        let mut buffer = [0; 128];
        let text = self.loadavg.read_short(&mut buffer)?;
        text.split_ascii_whitespace()
            .nth(3)
            .and_then(|field| field.split_once('/')?.0.parse().ok())
            .ok_or_else(|| KernelError::parse(self.loadavg.path(), "`runnable/threads` in field 4", text))
    }
}

/// The unit of times in `/proc/stat` and `/proc/PID/stat`: 1/`USER_HZ` seconds, 10 ms on every Linux so far.
pub fn user_tick() -> Duration {
    let hz = nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten();
    // The value is part of the kernel's ABI; sysconf only fails for unknown names.
    let hz = hz.and_then(|hz| u32::try_from(hz).ok()).filter(|hz| *hz > 0).unwrap_or(100);
    Duration::from_secs(1) / hz
}

/// The length of `ticks` ticks.
pub fn ticks(ticks: u64, tick: Duration) -> Duration {
    let tick_ns = u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(ticks.saturating_mul(tick_ns))
}

/// Fails with the line that is malformed.
fn parse_stat(text: &str, tick: Duration) -> Result<SystemStat, &str> {
    let mut cpus = Vec::new();
    let mut switches = None;
    for line in text.lines() {
        let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
        if key == "ctxt" {
            switches = Some(rest.trim().parse().map_err(|_| line)?);
            break;
        }
        // `cpu` alone is the sum of all CPUs.
        if let Some(number) = key.strip_prefix("cpu").filter(|number| !number.is_empty()) {
            let cpu = CpuId(number.parse().map_err(|_| line)?);
            cpus.push((cpu, parse_times(rest, tick).ok_or(line)?));
        }
    }
    if cpus.is_empty() {
        return Err("no cpuN line");
    }
    Ok(SystemStat { cpus, switches: switches.ok_or("no ctxt line")? })
}

fn parse_times(fields: &str, tick: Duration) -> Option<CpuTimes> {
    let mut fields = fields.split_ascii_whitespace().map(|field| field.parse().ok().map(|n| ticks(n, tick)));
    let mut next = || fields.next().flatten();
    Some(CpuTimes {
        user: next()?,
        nice: next()?,
        system: next()?,
        idle: next()?,
        iowait: next()?,
        irq: next()?,
        softirq: next()?,
        steal: next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake, put};

    const STAT: &str = include_str!("../tests/fixtures/stat-2cpu");

    #[test]
    fn reads_times_and_switches() {
        let (_dir, root) = fake();
        put(&root, "/proc/stat", STAT);
        put(&root, "/proc/loadavg", "0.60 0.38 0.67 3/106 8196\n");
        let mut sensor = StatSensor::new(&root).unwrap();
        let stat = sensor.read().unwrap();
        assert_eq!(stat.switches, 129_905_984);
        let (cpu, times) = stat.cpus[1];
        assert_eq!((stat.cpus.len(), cpu), (2, CpuId(1)));
        assert_eq!(times.user, Duration::from_millis(97_260));
        assert_eq!(times.steal, Duration::from_millis(760));
        assert_eq!(times.not_busy(), Duration::from_millis(1_923_510));
        assert_eq!(times.total(), Duration::from_millis(2_263_350));
        assert_eq!(times.busy() + times.not_busy() + times.steal, times.total());
        assert_eq!(sensor.runnable().unwrap(), 3);
    }

    #[test]
    fn garbled_files_are_errors() {
        let (_dir, root) = fake();
        assert!(StatSensor::new(&root).unwrap_err().is_gone());
        put(&root, "/proc/loadavg", "0.60 0.38\n");
        for text in ["", "cpu0 1 2 3\nctxt 1\n", "cpu0 1 2 3 4 5 6 7 x\nctxt 1\n", "cpu0 1 2 3 4 5 6 7 8\n"] {
            put(&root, "/proc/stat", text);
            assert!(StatSensor::new(&root).unwrap().read().is_err(), "{text}");
        }
        assert!(StatSensor::new(&root).unwrap().runnable().is_err());
    }

    #[test]
    fn this_machine_counts_on() {
        let mut sensor = StatSensor::new(&Root::system()).unwrap();
        let before = sensor.read().unwrap();
        std::thread::yield_now();
        let after = sensor.read().unwrap();
        assert!(after.switches >= before.switches && before.switches > 0);
        assert!(sensor.runnable().unwrap() >= 1, "the reader itself runs");
    }
}
