//! How often and how long each CPU was idle, halted or polling: cpuidle's counters, or an estimate without
//! them.

mod counters;
mod estimate;

pub use counters::{IdleCounters, IdleSensor, IdleSource};

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_policy::{CpuId, CpuSet};
use serde::Serialize;

use crate::{KernelError, Root};

const CPUS: &str = "/sys/devices/system/cpu";

/// The idle loop's polling state (kernel: `drivers/cpuidle/poll_state.c`).
const POLL: &str = "POLL";

/// One idle state of one CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct IdleState {
    /// The N of `stateN`.
    pub index: u32,
    /// E.g. `POLL`, `haltpoll idle`, `C1`.
    pub name: String,
    /// The exit latency given by the driver; a latency request below it forbids the state.
    pub latency: Duration,
    /// Whether user space disabled the state, which the haltpoll governor ignores.
    pub disabled: bool,
}

impl IdleState {
    /// Whether the CPU polls in this state instead of halting.
    pub fn is_poll(&self) -> bool {
        self.name == POLL
    }
}

/// The cpuidle driver, its governors and states.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CpuIdle {
    /// `current_driver`; `None` if it is `none` or the kernel lacks cpuidle. An idle CPU then just halts, and
    /// latency requests have no effect.
    pub driver: Option<String>,
    /// The governor in use.
    pub governor: Option<String>,
    /// The available governors.
    pub governors: Vec<String>,
    /// The states of each online CPU, in order; CPUs without states have no entry.
    pub states: BTreeMap<CpuId, Vec<IdleState>>,
}

impl CpuIdle {
    /// Reads `/sys/devices/system/cpu/cpuidle` and each CPU's states.
    ///
    /// # Errors
    /// The online CPUs are unknown, or a file is malformed.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        let word = |name: &str| -> Result<Option<String>, KernelError> {
            let text = root.read_opt(format!("{CPUS}/cpuidle/{name}"))?;
            Ok(text.filter(|text| !text.is_empty() && text != "none"))
        };
        // Before Linux 5.9 the governor has the second name, except with the boot parameter
        // `cpuidle_sysfs_switch`.
        let governor = match word("current_governor")? {
            Some(governor) => Some(governor),
            None => word("current_governor_ro")?,
        };
        let governors = word("available_governors")?.unwrap_or_default();
        let mut states = BTreeMap::new();
        let online: CpuSet = root.parse(format!("{CPUS}/online"), "a CPU list")?;
        for cpu in online.iter() {
            let found = read_states(root, cpu)?;
            if !found.is_empty() {
                states.insert(cpu, found);
            }
        }
        Ok(Self {
            driver: word("current_driver")?,
            governor,
            governors: governors.split_ascii_whitespace().map(str::to_owned).collect(),
            states,
        })
    }
}

/// The states of one CPU; empty if it has no cpuidle directory or went offline.
fn read_states(root: &Root, cpu: CpuId) -> Result<Vec<IdleState>, KernelError> {
    let mut states = Vec::new();
    for index in 0.. {
        let dir = format!("{CPUS}/cpu{cpu}/cpuidle/state{index}");
        let Some(name) = root.read_opt(format!("{dir}/name"))? else { break };
        let state = (|| {
            let latency_us = root.parse(format!("{dir}/latency"), "a latency in us")?;
            let disabled = root.read(format!("{dir}/disable"))? != "0";
            Ok(IdleState { index, name, latency: Duration::from_micros(latency_us), disabled })
        })();
        match state {
            Ok(state) => states.push(state),
            Err(error) if KernelError::is_gone(&error) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        }
    }
    Ok(states)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::testing::{fake, put};

    /// Two CPUs with a polling and a halting state each, as under cpuidle-haltpoll.
    pub(crate) fn put_haltpoll(root: &Root) {
        put(root, &format!("{CPUS}/online"), "0-1\n");
        put(root, &format!("{CPUS}/cpuidle/current_driver"), "haltpoll\n");
        put(root, &format!("{CPUS}/cpuidle/current_governor"), "haltpoll\n");
        put(root, &format!("{CPUS}/cpuidle/available_governors"), "ladder menu haltpoll \n");
        for cpu in 0..2 {
            for (state, name) in [(0, "POLL"), (1, "haltpoll idle")] {
                let dir = format!("{CPUS}/cpu{cpu}/cpuidle/state{state}");
                put(root, &format!("{dir}/name"), &format!("{name}\n"));
                put(root, &format!("{dir}/latency"), &format!("{state}\n"));
                put(root, &format!("{dir}/disable"), "0\n");
                put(root, &format!("{dir}/usage"), &format!("{}\n", 100 * cpu + 10 + state));
                put(root, &format!("{dir}/time"), &format!("{}\n", 1000 * (100 * cpu + 10 + state)));
            }
        }
    }

    #[test]
    fn reads_driver_governor_and_states() {
        let (_dir, root) = fake();
        put_haltpoll(&root);
        put(&root, &format!("{CPUS}/cpu1/cpuidle/state1/disable"), "1\n");
        let idle = CpuIdle::read(&root).unwrap();
        assert_eq!(idle.driver.as_deref(), Some("haltpoll"));
        assert_eq!(idle.governor.as_deref(), Some("haltpoll"));
        assert_eq!(idle.governors, ["ladder", "menu", "haltpoll"]);
        let states = &idle.states[&CpuId(1)];
        assert!(states[0].is_poll() && !states[1].is_poll());
        assert_eq!(states[1].latency, Duration::from_micros(1));
        assert!(states[1].disabled && !idle.states[&CpuId(0)][1].disabled);
    }

    #[test]
    fn no_driver_is_none_and_no_states() {
        let (_dir, root) = fake();
        put(&root, &format!("{CPUS}/online"), "0\n");
        assert_eq!(CpuIdle::read(&root).unwrap(), CpuIdle::default());
        put(&root, &format!("{CPUS}/cpuidle/current_driver"), "none\n");
        put(&root, &format!("{CPUS}/cpuidle/current_governor_ro"), "menu\n");
        let idle = CpuIdle::read(&root).unwrap();
        assert_eq!((idle.driver, idle.governor.as_deref()), (None, Some("menu")));
        assert!(idle.states.is_empty());
    }

    #[test]
    fn garbled_states_are_errors_and_half_removed_ones_are_skipped() {
        let (_dir, root) = fake();
        put_haltpoll(&root);
        put(&root, &format!("{CPUS}/cpu0/cpuidle/state1/latency"), "fast\n");
        let error = CpuIdle::read(&root).unwrap_err().to_string();
        assert!(error.contains("cpu0/cpuidle/state1/latency"), "{error}");
        std::fs::remove_file(root.path(format!("{CPUS}/cpu0/cpuidle/state1/latency"))).unwrap();
        assert_eq!(CpuIdle::read(&root).unwrap().states.len(), 1, "cpu0 is going offline");
    }
}
