//! What the whole machine spent over a time: busy, polling in the idle loop, stolen by the hypervisor.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{Error, Result};

/// CPU time per wall-clock time, summed over all vCPUs: 1.0 is one vCPU the whole time.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct CpuUse {
    /// User, nice, system and interrupt time (`/proc/stat`; sampled by the timer tick).
    pub busy: f64,
    /// Time in cpuidle's POLL state: idle for the guest, but the physical CPU is in use.
    pub polling: f64,
    /// Time that the hypervisor gave to somebody else (`/proc/stat`).
    pub steal: f64,
}

/// The counters at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    at: Instant,
    busy_ticks: u64,
    steal_ticks: u64,
    polling_us: u64,
}

impl Reading {
    /// Reads the counters under `/proc` and `/sys`.
    pub(super) fn now() -> Result<Self> {
        let path = Path::new("/proc/stat");
        let stat = fs::read_to_string(path).map_err(Error::file("read", path))?;
        let (busy_ticks, steal_ticks) = ticks(&stat)
            .ok_or_else(|| Error::Answer { program: "/proc/stat", answer: first_line(&stat).to_owned() })?;
        let polling_us = polling_us(Path::new("/sys/devices/system/cpu"));
        Ok(Self { at: Instant::now(), busy_ticks, steal_ticks, polling_us })
    }

    /// What was spent since then.
    pub(super) fn until_now(&self) -> Result<(Duration, CpuUse)> {
        let now = Self::now()?;
        let wall = now.at.duration_since(self.at);
        // USER_HZ is 100 on every Linux architecture that runs KVM guests; see proc_stat(5).
        let share = |ticks: u64| ticks as f64 / 100.0 / wall.as_secs_f64();
        let polling = Duration::from_micros(now.polling_us.saturating_sub(self.polling_us));
        let cpu = CpuUse {
            busy: share(now.busy_ticks.saturating_sub(self.busy_ticks)),
            polling: polling.as_secs_f64() / wall.as_secs_f64(),
            steal: share(now.steal_ticks.saturating_sub(self.steal_ticks)),
        };
        Ok((wall, cpu))
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Busy and steal ticks: `cpu user nice system idle iowait irq softirq steal …`.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let fields = first_line(stat).strip_prefix("cpu ")?.split_whitespace();
    let ticks: Vec<u64> = fields.map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
    let busy = [0, 1, 2, 5, 6].map(|i| ticks.get(i).copied());
    let busy = busy.into_iter().sum::<Option<u64>>()?;
    Some((busy, *ticks.get(7)?))
}

/// The time of every CPU's idle states named POLL. None without a cpuidle driver, and then nothing polls.
fn polling_us(cpus: &Path) -> u64 {
    let number = |dir: &Path| -> Option<u64> {
        let name = fs::read_to_string(dir.join("name")).ok()?;
        (name.trim() == "POLL").then_some(())?;
        fs::read_to_string(dir.join("time")).ok()?.trim().parse().ok()
    };
    let list = |dir: &Path| fs::read_dir(dir).into_iter().flatten().filter_map(|e| Some(e.ok()?.path()));
    list(cpus).flat_map(|cpu| list(&cpu.join("cpuidle"))).filter_map(|state| number(&state)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_is_everything_but_idle_waiting_and_steal() {
        assert_eq!(ticks("cpu  1 2 4 1000 2000 8 16 32 64 0\ncpu0 9 9 9\n"), Some((31, 32)));
        assert_eq!(ticks("cpu0 1 2"), None);
    }

    #[test]
    fn only_poll_states_count() {
        let root = tempfile::tempdir().unwrap();
        for (state, name, time) in [("cpu0", "POLL", 5), ("cpu1", "POLL", 7), ("cpu2", "haltpoll", 900)] {
            let dir = root.path().join(state).join("cpuidle/state0");
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("name"), format!("{name}\n")).unwrap();
            fs::write(dir.join("time"), format!("{time}\n")).unwrap();
        }
        assert_eq!(polling_us(root.path()), 12);
    }

    #[test]
    fn this_machine_can_be_read() {
        let before = Reading::now().unwrap();
        while before.at.elapsed() < Duration::from_millis(30) {}
        let (wall, cpu) = before.until_now().unwrap();
        assert!(wall >= Duration::from_millis(30));
        assert!(cpu.busy > 0.0, "this test alone kept a CPU busy for three ticks: {cpu:?}");
    }
}
