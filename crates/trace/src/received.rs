//! Interrupts received since the start: the kernel counts them itself, to the last one and at no cost.

use std::collections::BTreeMap;

use gleaner_kernel::interrupts::{InterruptCounters, InterruptSensor};
use gleaner_kernel::{KernelError, Root};
use gleaner_policy::CpuId;

/// What each vCPU received since tracing began, until it ended.
#[derive(Debug)]
pub(crate) struct Received {
    sensor: InterruptSensor,
    /// When tracing began, or when a vCPU was first seen after that: before it was offline, so that nothing is left out.
    base: BTreeMap<CpuId, InterruptCounters>,
    last: BTreeMap<CpuId, InterruptCounters>,
    ended: bool,
}

impl Received {
    /// Begins now.
    ///
    /// # Errors
    /// `/proc/interrupts` cannot be read.
    pub(crate) fn start(root: &Root) -> Result<Self, KernelError> {
        let mut sensor = InterruptSensor::new(root)?;
        let base = sensor.read()?.into_iter().collect();
        Ok(Self { sensor, base, last: BTreeMap::new(), ended: false })
    }

    /// Up to now, or up to the end.
    ///
    /// # Errors
    /// `/proc/interrupts` cannot be read.
    pub(crate) fn read(&mut self) -> Result<&BTreeMap<CpuId, InterruptCounters>, KernelError> {
        if !self.ended {
            for (cpu, now) in self.sensor.read()? {
                self.last.insert(cpu, now.since(self.base.entry(cpu).or_insert(now)));
            }
        }
        Ok(&self.last)
    }

    /// What comes from now on does not count.
    pub(crate) fn end(&mut self) {
        // Where it cannot be read, what was read last is the best there is.
        let _ = self.read();
        self.ended = true;
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_came_before_and_what_comes_after_does_not_count_nor_does_a_vcpus_past() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let file = root.path("/proc/interrupts");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        let say = |text: &str| fs::write(&file, text).unwrap();
        let timers = |received: &mut Received| -> Vec<(u32, u64)> {
            received.read().unwrap().iter().map(|(cpu, counted)| (cpu.0, counted.timer)).collect()
        };
        say("  CPU0\nLOC: 100 timer\n");
        let mut received = Received::start(&root).unwrap();
        say("  CPU0 CPU1\nLOC: 107 5000 timer\n");
        assert_eq!(timers(&mut received), [(0, 7), (1, 0)]);
        say("  CPU0 CPU1\nLOC: 109 5003 timer\n");
        received.end();
        say("  CPU0 CPU1\nLOC: 200 6000 timer\n");
        assert_eq!(timers(&mut received), [(0, 9), (1, 3)]);
    }
}
