//! Interrupts received, which the kernel counts exactly and at no cost.

use std::collections::BTreeMap;

use gleaner_kernel::interrupts::{InterruptCounters, InterruptSensor};
use gleaner_kernel::{KernelError, Root};
use gleaner_policy::CpuId;

/// What each vCPU received from the start of tracing to its end.
#[derive(Debug)]
pub(crate) struct Received {
    sensor: InterruptSensor,
    /// Counters at the start of tracing, or when a vCPU first came online after it.
    base: BTreeMap<CpuId, InterruptCounters>,
    last: BTreeMap<CpuId, InterruptCounters>,
    ended: bool,
}

impl Received {
    /// Starts counting.
    ///
    /// # Errors
    /// `/proc/interrupts` cannot be read.
    pub(crate) fn start(root: &Root) -> Result<Self, KernelError> {
        let mut sensor = InterruptSensor::new(root)?;
        let base = sensor.read()?.into_iter().collect();
        Ok(Self { sensor, base, last: BTreeMap::new(), ended: false })
    }

    /// Counts up to now, or up to the end of tracing.
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

    /// Stops counting.
    pub(crate) fn end(&mut self) {
        // If it cannot be read, the previous reading has to do.
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
