//! The idle sensor: counters since boot, from files that stay open.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_policy::{CpuId, CpuSet};
use serde::Serialize;

use super::estimate::Estimator;
use super::{CPUS, POLL};
use crate::file::KernelFile;
use crate::{KernelError, Root};

/// Where idle counters come from, and so how reliable they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum IdleSource {
    /// Counted by the kernel at each idle period.
    Cpuidle,
    /// No cpuidle driver: times in ticks from `/proc/stat`, and an upper bound of the number of halts derived
    /// from context switches.
    Estimate,
}

/// What one CPU did while it had nothing to run. Counts only grow, except that [`IdleSource::Cpuidle`] starts
/// over when a driver is reloaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct IdleCounters {
    /// The CPU counted.
    pub cpu: CpuId,
    /// Number of halts.
    pub halts: u64,
    /// Total time halted, entry and exit overhead included.
    pub halt_time: Duration,
    /// Number of polls. Under the haltpoll governor one idle period can be a poll followed by a halt.
    pub polls: u64,
    /// Total time polled.
    pub poll_time: Duration,
    /// How reliable the counters are.
    pub source: IdleSource,
}

/// Reads the idle counters of each online CPU.
#[derive(Debug)]
pub struct IdleSensor(Source);

#[derive(Debug)]
enum Source {
    Cpuidle(Files),
    Estimate(Estimator),
}

#[derive(Debug)]
struct Files {
    root: Root,
    online: KernelFile,
    cpus: BTreeMap<CpuId, Vec<StateFiles>>,
}

#[derive(Debug)]
struct StateFiles {
    polls: bool,
    usage: KernelFile,
    time: KernelFile,
}

impl IdleSensor {
    /// Opens the files of each online CPU: cpuidle's if any CPU has them, else those of the estimate.
    pub fn new(root: &Root) -> Result<Self, KernelError> {
        let mut files = Files {
            root: root.clone(),
            online: KernelFile::open(root, format!("{CPUS}/online"))?,
            cpus: BTreeMap::new(),
        };
        files.follow_online()?;
        if files.cpus.is_empty() {
            Ok(Self(Source::Estimate(Estimator::new(root)?)))
        } else {
            Ok(Self(Source::Cpuidle(files)))
        }
    }

    /// The source of the counters.
    pub fn source(&self) -> IdleSource {
        match self.0 {
            Source::Cpuidle(_) => IdleSource::Cpuidle,
            Source::Estimate(_) => IdleSource::Estimate,
        }
    }

    /// The counters of each online CPU, in ascending order; offline CPUs are left out, new ones opened. About 1
    /// us per file, with four files per CPU under cpuidle-haltpoll.
    pub fn read(&mut self) -> Result<Vec<IdleCounters>, KernelError> {
        match &mut self.0 {
            Source::Estimate(estimator) => estimator.read(),
            Source::Cpuidle(files) => files.read(),
        }
    }
}

impl Files {
    fn read(&mut self) -> Result<Vec<IdleCounters>, KernelError> {
        self.follow_online()?;
        let mut counters = Vec::with_capacity(self.cpus.len());
        let mut missing = Vec::new();
        for (&cpu, states) in &self.cpus {
            match read_cpu(cpu, states) {
                Ok(read) => counters.push(read),
                // The CPU went offline after `online` was read, or its driver was replaced: reopened next time.
                Err(error) if error.is_gone() => missing.push(cpu),
                Err(error) => return Err(error),
            }
        }
        for cpu in missing {
            self.cpus.remove(&cpu);
        }
        Ok(counters)
    }

    /// Drops CPUs that went offline and opens new ones.
    fn follow_online(&mut self) -> Result<(), KernelError> {
        let mut buffer = [0; 4096];
        let text = self.online.read_short(&mut buffer)?;
        let online: CpuSet =
            text.parse().map_err(|_| KernelError::parse(self.online.path(), "a CPU list", text))?;
        self.cpus.retain(|cpu, _| online.contains(*cpu));
        for cpu in online.iter() {
            if !self.cpus.contains_key(&cpu) {
                let states = open_cpu(&self.root, cpu)?;
                if !states.is_empty() {
                    self.cpus.insert(cpu, states);
                }
            }
        }
        Ok(())
    }
}

/// The files of one CPU; empty if it has no cpuidle directory or is going offline.
fn open_cpu(root: &Root, cpu: CpuId) -> Result<Vec<StateFiles>, KernelError> {
    let mut states = Vec::new();
    for index in 0.. {
        let dir = format!("{CPUS}/cpu{cpu}/cpuidle/state{index}");
        let state = (|| {
            Ok(StateFiles {
                polls: root.read(format!("{dir}/name"))? == POLL,
                usage: KernelFile::open(root, format!("{dir}/usage"))?,
                time: KernelFile::open(root, format!("{dir}/time"))?,
            })
        })();
        match state {
            Ok(state) => states.push(state),
            Err(error) if KernelError::is_gone(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(states)
}

fn read_cpu(cpu: CpuId, states: &[StateFiles]) -> Result<IdleCounters, KernelError> {
    let mut counters = IdleCounters {
        cpu,
        halts: 0,
        halt_time: Duration::ZERO,
        polls: 0,
        poll_time: Duration::ZERO,
        source: IdleSource::Cpuidle,
    };
    for state in states {
        let usage = state.usage.number()?;
        let time = Duration::from_micros(state.time.number()?);
        if state.polls {
            counters.polls += usage;
            counters.poll_time += time;
        } else {
            counters.halts += usage;
            counters.halt_time += time;
        }
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::super::tests::put_haltpoll;
    use super::*;
    use crate::testing::{fake, put};

    #[test]
    fn polling_and_halting_states_are_distinguished() {
        let (_dir, root) = fake();
        put_haltpoll(&root);
        // A second halting state is added to the first.
        let dir = format!("{CPUS}/cpu1/cpuidle/state2");
        for (name, text) in [("name", "C2"), ("usage", "5"), ("time", "7")] {
            put(&root, &format!("{dir}/{name}"), text);
        }
        let mut sensor = IdleSensor::new(&root).unwrap();
        assert_eq!(sensor.source(), IdleSource::Cpuidle);
        let read = sensor.read().unwrap();
        let expected = IdleCounters {
            cpu: CpuId(1),
            halts: 116,
            halt_time: Duration::from_micros(111_007),
            polls: 110,
            poll_time: Duration::from_millis(110),
            source: IdleSource::Cpuidle,
        };
        assert_eq!((read.len(), read[1]), (2, expected));
        put(&root, &format!("{dir}/usage"), "6");
        assert_eq!(sensor.read().unwrap()[1].halts, 117, "open files are read again");
    }

    #[test]
    fn cpus_come_and_go() {
        let (_dir, root) = fake();
        put_haltpoll(&root);
        let mut sensor = IdleSensor::new(&root).unwrap();
        put(&root, &format!("{CPUS}/online"), "0\n");
        assert_eq!(sensor.read().unwrap().len(), 1);
        put(&root, &format!("{CPUS}/online"), "0-2\n");
        let cpus: Vec<u32> = sensor.read().unwrap().iter().map(|c| c.cpu.0).collect();
        assert_eq!(cpus, [0, 1], "cpu2 has no states");
    }

    #[test]
    fn garbled_counters_are_errors() {
        let (_dir, root) = fake();
        put_haltpoll(&root);
        put(&root, &format!("{CPUS}/cpu0/cpuidle/state0/usage"), "often\n");
        let error = IdleSensor::new(&root).unwrap().read().unwrap_err().to_string();
        assert!(error.contains("cpu0/cpuidle/state0/usage"), "{error}");
    }

    #[test]
    fn this_machine_counts_on() {
        let mut sensor = IdleSensor::new(&Root::system()).unwrap();
        let before = sensor.read().unwrap();
        let after = sensor.read().unwrap();
        assert!(!before.is_empty());
        for (b, a) in before.iter().zip(&after) {
            assert!(a.cpu == b.cpu && a.halts >= b.halts && a.halt_time >= b.halt_time, "{b:?} {a:?}");
        }
    }
}
