//! How long the BPF programs run, from the kernel's own statistics.

use std::fs;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::{Duration, Instant};

use gleaner_kernel::Root;
use gleaner_kernel::stat::StatSensor;
use libbpf_rs::libbpf_sys;

use crate::budget::{Cost, RunTimes, cost};

/// How long a measurement takes. `/proc/stat` counts in 10 ms.
const WINDOW: Duration = Duration::from_millis(200);
/// From the end of one to the begin of the next: the statistics themselves cost two looks at the clock per run.
const PAUSE: Duration = Duration::from_millis(800);

/// Measures in short windows what programs cost.
#[derive(Debug)]
pub(crate) struct Meter {
    stat: Option<StatSensor>,
    state: State,
}

#[derive(Debug)]
enum State {
    Paused {
        until: Instant,
    },
    /// The kernel counts for as long as the descriptor is open.
    Counting {
        _statistics: OwnedFd,
        since: Instant,
        before: RunTimes,
        busy: Duration,
    },
}

impl Meter {
    pub(crate) fn new() -> Self {
        Self { stat: StatSensor::new(&Root::system()).ok(), state: State::Paused { until: Instant::now() } }
    }

    /// The next step, when it is time for it. The cost at the end of each window. `empty` measures what the kernel takes
    /// a program to run that does nothing.
    pub(crate) fn step(
        &mut self,
        programs: impl Fn() -> RunTimes,
        empty: impl Fn() -> Duration,
    ) -> Option<Cost> {
        let now = Instant::now();
        match &self.state {
            State::Paused { until } if now < *until => None,
            State::Paused { .. } => {
                self.state = match enable_statistics() {
                    Some(statistics) => State::Counting {
                        _statistics: statistics,
                        since: now,
                        before: programs(),
                        busy: self.busy(),
                    },
                    None => State::Paused { until: now + PAUSE },
                };
                None
            }
            State::Counting { since, .. } if now < *since + WINDOW => None,
            State::Counting { since, before, busy, .. } => {
                let (since, before, busy) = (*since, before.clone(), *busy);
                let (after, busy) = (programs(), self.busy().saturating_sub(busy));
                // The kernel still measures.
                let found = cost(&before, &after, now - since, busy, empty());
                self.state = State::Paused { until: now + PAUSE };
                Some(found)
            }
        }
    }

    /// Measures again at once: something was changed because of the last cost.
    pub(crate) fn hurry(&mut self) {
        self.state = State::Paused { until: Instant::now() };
    }

    /// How long all vCPUs together were busy since boot; zero where that cannot be read.
    fn busy(&mut self) -> Duration {
        let stat = self.stat.as_mut().and_then(|stat| stat.read().ok());
        stat.map(|stat| stat.cpus.iter().map(|(_, times)| times.busy()).sum()).unwrap_or_default()
    }
}

/// Has the kernel count the run time of BPF programs. `None` before Linux 5.8.
fn enable_statistics() -> Option<OwnedFd> {
    // SAFETY: the call takes a number and returns a new descriptor, or a negative number.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    // SAFETY: the descriptor is open, and nobody else knows of it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// How long a program ran since statistics were first enabled, and how often.
pub(crate) fn run_time(program: &impl AsFd) -> (Duration, u64) {
    let path = format!("/proc/self/fdinfo/{}", program.as_fd().as_raw_fd());
    let text = fs::read_to_string(path).unwrap_or_default();
    let number = |key: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or_default()
    };
    (Duration::from_nanos(number("run_time_ns")), number("run_cnt"))
}
