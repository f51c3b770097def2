//! Counters of the machine. They are read before and after a sample but never during it, so that measuring
//! does not disturb it.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gleaner_kernel::idle::IdleSensor;
use gleaner_kernel::interrupts::InterruptSensor;
use gleaner_kernel::stat::{CpuTimes, StatSensor};
use gleaner_kernel::{KernelError, Root};
use gleaner_proto::result::{Metric, Warning};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

const PRESSURE: &str = "/proc/pressure/cpu";

/// All sensors that this machine has.
pub struct Sensors {
    root: Root,
    stat: StatSensor,
    idle: IdleSensor,
    interrupts: Option<InterruptSensor>,
}

/// All counters at one moment.
#[derive(Debug, Clone)]
pub struct Counters {
    at: Instant,
    vcpus: usize,
    busy: Duration,
    steal: Duration,
    switches: u64,
    idle: Vec<Idle>,
    polling: Duration,
    interrupts: Option<Interrupts>,
    run_delay: Option<Duration>,
    children: CpuTime,
}

/// Idle counts of one vCPU.
#[derive(Debug, Clone, Copy)]
struct Idle {
    halts: u64,
    polls: u64,
}

#[derive(Debug, Clone, Copy)]
struct Interrupts {
    res: u64,
    cal: u64,
}

/// CPU time in user mode and in the kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl CpuTime {
    /// Both together.
    pub fn total(self) -> Duration {
        self.user + self.system
    }

    /// What is left without `other`.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self { user: self.user.saturating_sub(other.user), system: self.system.saturating_sub(other.system) }
    }
}

impl Sensors {
    /// Opens the sensors under `root`.
    ///
    /// # Errors
    /// If `/proc/stat` or the list of CPUs cannot be read; all other sensors are optional.
    pub fn new(root: &Root) -> Result<Self, KernelError> {
        Ok(Self {
            root: root.clone(),
            stat: StatSensor::new(root)?,
            idle: IdleSensor::new(root)?,
            interrupts: InterruptSensor::new(root).ok(),
        })
    }

    /// What cannot be measured here, and why.
    pub fn missing(&mut self) -> Vec<Warning> {
        let mut missing = Vec::new();
        let mut report = |metric, why: String| missing.push(Warning::NotMeasured { metric, why });
        if self.idle.source() == gleaner_kernel::idle::IdleSource::Estimate {
            let why = "there is no cpuidle driver that counts it; halts are estimated from context switches";
            report(Metric::CpuPollingS, why.to_owned());
        }
        if let Err(error) = run_delay(&self.root) {
            report(Metric::RunDelayS, format!("{error}; booting with `psi=1` turns it on"));
        }
        if self.interrupts.as_mut().is_none_or(|sensor| sensor.read().is_err()) {
            report(Metric::ResPerS, "/proc/interrupts cannot be read or is not understood".to_owned());
        }
        missing
    }

    /// Reads every counter.
    ///
    /// # Errors
    /// If one of `/proc/stat` or cpuidle cannot be read any more.
    pub fn read(&mut self) -> Result<Counters, KernelError> {
        let at = Instant::now();
        let stat = self.stat.read()?;
        let times: Vec<&CpuTimes> = stat.cpus.iter().map(|(_, times)| times).collect();
        let idle = self.idle.read()?;
        let interrupts = self.interrupts.as_mut().and_then(|sensor| sensor.read().ok());
        let interrupts = interrupts.map(|cpus| Interrupts {
            res: cpus.iter().map(|(_, c)| c.reschedule).sum(),
            cal: cpus.iter().map(|(_, c)| c.call).sum(),
        });
        Ok(Counters {
            at,
            vcpus: times.len(),
            busy: times.iter().map(|t| t.busy()).sum(),
            steal: times.iter().map(|t| t.steal).sum(),
            switches: stat.switches,
            idle: idle.iter().map(|c| Idle { halts: c.halts, polls: c.polls }).collect(),
            polling: idle.iter().map(|c| c.poll_time).sum(),
            interrupts,
            run_delay: run_delay(&self.root).ok(),
            children: children(),
        })
    }
}

impl Counters {
    /// CPU time of the children that ended since `before`.
    pub fn children_since(&self, before: &Self) -> CpuTime {
        self.children.minus(before.children)
    }

    /// Time since `before`.
    pub fn elapsed_since(&self, before: &Self) -> Duration {
        self.at.duration_since(before.at)
    }

    /// Share of the vCPUs' time since `before` spent on other programs than the children that ended.
    pub fn others_since(&self, before: &Self) -> f64 {
        let busy = self.busy.saturating_sub(before.busy);
        let others = busy.saturating_sub(self.children_since(before).total());
        others.as_secs_f64() / (self.elapsed_since(before).as_secs_f64() * self.vcpus as f64)
    }

    /// The machine's activity since `before`.
    pub fn since(&self, before: &Self) -> BTreeMap<Metric, f64> {
        let wall = self.elapsed_since(before).as_secs_f64().max(f64::MIN_POSITIVE);
        let time = |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64();
        let rate = |now: u64, then: u64| now.saturating_sub(then) as f64 / wall;
        let vcpus = self.vcpus.max(1) as f64;
        let (mut halts, mut periods) = (0, 0);
        for (now, then) in self.idle.iter().zip(&before.idle) {
            let (halted, polled) =
                (now.halts.saturating_sub(then.halts), now.polls.saturating_sub(then.polls));
            halts += halted;
            // A poll that times out is followed by a halt, so the larger of the two is the number of periods.
            periods += halted.max(polled);
        }
        let mut metrics = BTreeMap::from([
            (Metric::CpuBusyS, time(self.busy, before.busy)),
            (Metric::CpuPollingS, time(self.polling, before.polling)),
            (Metric::StealS, time(self.steal, before.steal)),
            (Metric::SwitchesPerS, rate(self.switches, before.switches)),
            (Metric::HaltsPerS, rate(halts, 0) / vcpus),
            (Metric::IdlePerS, rate(periods, 0) / vcpus),
        ]);
        if let Some((now, then)) = self.interrupts.zip(before.interrupts) {
            metrics.insert(Metric::ResPerS, rate(now.res, then.res));
            metrics.insert(Metric::CalPerS, rate(now.cal, then.cal));
        }
        if let Some((now, then)) = self.run_delay.zip(before.run_delay) {
            metrics.insert(Metric::RunDelayS, time(now, then));
        }
        metrics
    }
}

/// `some avg10=0.00 avg60=0.00 avg300=0.00 total=MICROSECONDS` (kernel: Documentation/accounting/psi.rst).
fn run_delay(root: &Root) -> Result<Duration, KernelError> {
    let text = root.read(PRESSURE)?;
    let some = text.lines().find_map(|line| line.strip_prefix("some ")?.split_once("total="));
    let total = some.and_then(|(_, total)| total.trim().parse().ok());
    let what = "a line `some … total=MICROSECONDS`";
    total.map(Duration::from_micros).ok_or_else(|| KernelError::parse(root.path(PRESSURE), what, &text))
}

/// CPU time of all children that have been waited for, including their descendants.
fn children() -> CpuTime {
    // getrusage(2) only fails for a bad address or an unknown `who`.
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return CpuTime::default() };
    CpuTime { user: duration(usage.user_time()), system: duration(usage.system_time()) }
}

fn duration(time: TimeVal) -> Duration {
    let seconds = Duration::from_secs(u64::try_from(time.tv_sec()).unwrap_or_default());
    seconds + Duration::from_micros(u64::try_from(time.tv_usec()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn put(root: &Root, path: &str, text: &str) {
        let path = root.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A machine of two vCPUs with all counters at `n` times what they count per second.
    fn set(root: &Root, n: u64) {
        let cpu = format!("{} 0 {} {} 0 0 0 {} 0 0", 10 * n, 5 * n, 80 * n, n);
        put(root, "/proc/stat", &format!("cpu  {cpu}\ncpu0 {cpu}\ncpu1 {cpu}\nctxt {}\n", 3000 * n));
        put(root, "/proc/loadavg", "0.00 0.00 0.00 1/100 1234\n");
        put(root, "/proc/pressure/cpu", &format!("some avg10=0.00 total={}\nfull total=0\n", 250_000 * n));
        let (a, b) = (10 * n, 20 * n);
        put(
            root,
            "/proc/interrupts",
            &format!("      CPU0 CPU1\nRES: {a} {b} Resched\nCAL: {b} {b} Function\n"),
        );
        put(root, "/sys/devices/system/cpu/online", "0-1\n");
        for cpu in 0..2 {
            for (state, name, usage, time) in
                [(0, "POLL", 400 * n, 100_000 * n), (1, "haltpoll idle", 100 * n, 0)]
            {
                let dir = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle/state{state}");
                put(root, &format!("{dir}/name"), name);
                put(root, &format!("{dir}/usage"), &usage.to_string());
                put(root, &format!("{dir}/time"), &time.to_string());
            }
        }
    }

    #[test]
    fn counters_become_metrics() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        set(&root, 1);
        let mut sensors = Sensors::new(&root).unwrap();
        assert!(sensors.missing().is_empty());
        let before = sensors.read().unwrap();
        set(&root, 3);
        let mut after = sensors.read().unwrap();
        after.at = before.at + Duration::from_secs(2);
        let metrics = after.since(&before);
        let expected = [
            (Metric::CpuBusyS, 0.6),
            (Metric::CpuPollingS, 0.4),
            (Metric::StealS, 0.04),
            (Metric::SwitchesPerS, 3000.0),
            (Metric::HaltsPerS, 100.0),
            (Metric::IdlePerS, 400.0),
            (Metric::ResPerS, 30.0),
            (Metric::CalPerS, 40.0),
            (Metric::RunDelayS, 0.5),
        ];
        assert_eq!(metrics.len(), expected.len());
        for (metric, value) in expected {
            assert!((metrics[&metric] - value).abs() < 1e-9, "{metric}: {}", metrics[&metric]);
        }
    }

    #[test]
    fn busy_is_everything_but_idle_waiting_and_steal() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        set(&root, 0);
        let mut sensors = Sensors::new(&root).unwrap();
        let before = sensors.read().unwrap();
        let (one, other) = ("1 2 4 1000 2000 8 16 32 0 0", "0 0 0 0 0 0 0 0 0 0");
        put(&root, "/proc/stat", &format!("cpu  {one}\ncpu0 {one}\ncpu1 {other}\nctxt 9\n"));
        let metrics = sensors.read().unwrap().since(&before);
        for (metric, value) in [(Metric::CpuBusyS, 0.31), (Metric::StealS, 0.32)] {
            assert!((metrics[&metric] - value).abs() < 1e-9, "{metric}: {}", metrics[&metric]);
        }
    }

    #[test]
    fn what_a_machine_lacks_is_reported_and_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        set(&root, 1);
        for file in ["/proc/pressure/cpu", "/proc/interrupts"] {
            fs::remove_file(root.path(file)).unwrap();
        }
        let mut sensors = Sensors::new(&root).unwrap();
        let missing: Vec<String> = sensors.missing().iter().map(Warning::to_string).collect();
        assert_eq!(missing.len(), 2, "{missing:?}");
        assert!(missing[0].contains("psi=1"), "{missing:?}");
        let before = sensors.read().unwrap();
        let metrics = sensors.read().unwrap().since(&before);
        assert!(!metrics.contains_key(&Metric::ResPerS) && !metrics.contains_key(&Metric::RunDelayS));
    }

    #[test]
    fn children_are_counted_when_they_have_ended() {
        let mut sensors = Sensors::new(&Root::system()).unwrap();
        let before = sensors.read().unwrap();
        let script = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
        assert!(std::process::Command::new("sh").args(["-c", script]).status().unwrap().success());
        let after = sensors.read().unwrap();
        assert!(after.children_since(&before).total() > Duration::ZERO);
    }
}
