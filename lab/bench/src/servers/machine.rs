//! CPU use of the whole machine over a time: busy, polling in the idle loop, stolen by the hypervisor.

use std::time::{Duration, Instant, SystemTime};

use gleaner_kernel::Root;
use gleaner_kernel::idle::IdleSensor;
use gleaner_kernel::stat::{CpuTimes, StatSensor};
use serde::{Deserialize, Serialize};

use super::error::Result;

/// CPU time per wall-clock time, summed over all vCPUs: 1.0 is one vCPU all the time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuUse {
    /// User, nice, system and interrupt time (`/proc/stat`; sampled by the timer tick).
    pub busy: f64,
    /// Time in cpuidle's POLL state: idle for the guest, but occupying the physical CPU. It is counted when
    /// an idle period ends, so one across the window's edge belongs to the side on which it ends.
    pub polling: f64,
    /// Steal time (`/proc/stat`).
    pub steal: f64,
}

/// Measures from its start on.
#[derive(Debug)]
pub(crate) struct Meter {
    stat: StatSensor,
    idle: IdleSensor,
    began: Instant,
    began_at: SystemTime,
    before: Totals,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Totals {
    busy: Duration,
    polling: Duration,
    steal: Duration,
}

impl Meter {
    /// Reads the initial counters.
    pub(crate) fn start(root: &Root) -> Result<Self> {
        let (mut stat, mut idle) = (StatSensor::new(root)?, IdleSensor::new(root)?);
        let before = totals(&mut stat, &mut idle)?;
        Ok(Self { stat, idle, began: Instant::now(), began_at: SystemTime::now(), before })
    }

    /// Start time, in milliseconds since the Unix epoch.
    pub(crate) fn began_unix_ms(&self) -> u64 {
        let since = self.began_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    /// Reads the counters again; returns the time since the start and the CPU use in it.
    pub(crate) fn stop(mut self) -> Result<(Duration, CpuUse)> {
        let wall = self.began.elapsed();
        let (now, then) = (totals(&mut self.stat, &mut self.idle)?, self.before);
        let share =
            |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() / wall.as_secs_f64();
        let cpu = CpuUse {
            busy: share(now.busy, then.busy),
            polling: share(now.polling, then.polling),
            steal: share(now.steal, then.steal),
        };
        Ok((wall, cpu))
    }
}

fn totals(stat: &mut StatSensor, idle: &mut IdleSensor) -> Result<Totals> {
    let times: Vec<_> = stat.read()?.cpus.into_iter().map(|(_, times)| times).collect();
    Ok(Totals {
        busy: times.iter().map(CpuTimes::busy).sum(),
        polling: idle.read()?.iter().map(|cpu| cpu.poll_time).sum(),
        steal: times.iter().map(|t| t.steal).sum(),
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A machine of one vCPU whose counters have these values.
    fn tree(stat: &str, poll_us: u32) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("proc/stat", &format!("cpu  {stat}\ncpu0 {stat}\nctxt 9\n"));
        write("proc/loadavg", "0.00 0.00 0.00 1/100 1234\n");
        write("sys/devices/system/cpu/online", "0\n");
        for (state, name, time) in [(0, "POLL", poll_us), (1, "haltpoll idle", 900_000)] {
            let dir = format!("sys/devices/system/cpu/cpu0/cpuidle/state{state}");
            for (file, text) in [("name", name), ("time", &time.to_string()), ("usage", "1")] {
                write(&format!("{dir}/{file}"), &format!("{text}\n"));
            }
        }
        root
    }

    #[test]
    fn busy_is_everything_but_idle_waiting_and_steal() {
        let root = tree("1 2 4 1000 2000 8 16 32 0 0", 5_000);
        let root = Root::at(root.path());
        let (mut stat, mut idle) = (StatSensor::new(&root).unwrap(), IdleSensor::new(&root).unwrap());
        let ms = Duration::from_millis;
        let expected = Totals { busy: ms(310), polling: ms(5), steal: ms(320) };
        assert_eq!(totals(&mut stat, &mut idle).unwrap(), expected);
    }

    #[test]
    fn this_machine_can_be_measured() {
        let mut meter = Meter::start(&Root::system()).unwrap();
        let began = Instant::now();
        // This test alone keeps a CPU busy until a tick has noticed.
        while totals(&mut meter.stat, &mut meter.idle).unwrap().busy == meter.before.busy {
            assert!(began.elapsed() < Duration::from_secs(60), "no tick came");
        }
        let took = began.elapsed();
        let (wall, cpu) = meter.stop().unwrap();
        assert!(wall >= took);
        assert!(cpu.busy > 0.0, "{cpu:?}");
    }
}
