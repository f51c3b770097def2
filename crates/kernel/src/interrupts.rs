//! Inter-processor and timer interrupts per CPU, from `/proc/interrupts`.

use gleaner_policy::CpuId;
use serde::{Deserialize, Serialize};

use crate::file::KernelFile;
use crate::{KernelError, Root};

/// Interrupts that one CPU received since boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptCounters {
    /// `RES`: rescheduling interrupts, sent to wake an idle CPU or to preempt a busy one.
    pub reschedule: u64,
    /// `CAL`: function calls, which since Linux 5.8 also carry wake-ups across last-level caches. On x86 they
    /// include `TLB`, which is also listed separately.
    pub call: u64,
    /// `LOC`: local timer interrupts.
    pub timer: u64,
    /// `TLB`: shootdowns that arrived as interrupts.
    pub tlb: u64,
}

impl InterruptCounters {
    /// The interrupts since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let of = |field: fn(&Self) -> u64| field(self).saturating_sub(field(earlier));
        Self {
            reschedule: of(|c| c.reschedule),
            call: of(|c| c.call),
            timer: of(|c| c.timer),
            tlb: of(|c| c.tlb),
        }
    }
}

/// Reads `/proc/interrupts`, which stays open.
#[derive(Debug)]
pub struct InterruptSensor {
    file: KernelFile,
    buffer: Vec<u8>,
}

impl InterruptSensor {
    /// Opens the file.
    pub fn new(root: &Root) -> Result<Self, KernelError> {
        Ok(Self { file: KernelFile::open(root, "/proc/interrupts")?, buffer: Vec::new() })
    }

    /// Counters of each online CPU, in ascending order. A kind that this kernel does not count is 0.
    pub fn read(&mut self) -> Result<Vec<(CpuId, InterruptCounters)>, KernelError> {
        let text = self.file.read_all(&mut self.buffer)?;
        parse(text).map_err(|line| {
            KernelError::parse(self.file.path(), "a header of CPUs and one number for each of them", line)
        })
    }
}

/// Fails with the line that is malformed.
fn parse(text: &str) -> Result<Vec<(CpuId, InterruptCounters)>, &str> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or_default();
    let mut counters = header
        .split_ascii_whitespace()
        .map(|name| {
            Ok((
                CpuId(name.strip_prefix("CPU").and_then(|n| n.parse().ok()).ok_or(header)?),
                InterruptCounters::default(),
            ))
        })
        .collect::<Result<Vec<_>, &str>>()?;
    if counters.is_empty() {
        return Err(header);
    }
    for line in lines {
        let Some((name, numbers)) = line.split_once(':') else { continue };
        let field: fn(&mut InterruptCounters) -> &mut u64 = match name.trim() {
            "RES" => |c| &mut c.reschedule,
            "CAL" => |c| &mut c.call,
            "LOC" => |c| &mut c.timer,
            "TLB" => |c| &mut c.tlb,
            _ => continue,
        };
        let mut numbers = numbers.split_ascii_whitespace();
        for (_, counter) in &mut counters {
            *field(counter) = numbers.next().and_then(|n| n.parse().ok()).ok_or(line)?;
        }
    }
    Ok(counters)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake, put};

    const INTERRUPTS: &str = include_str!("../tests/fixtures/interrupts-2cpu");

    #[test]
    fn reads_the_four_kinds() {
        let (_dir, root) = fake();
        put(&root, "/proc/interrupts", INTERRUPTS);
        let read = InterruptSensor::new(&root).unwrap().read().unwrap();
        let cpu1 = InterruptCounters { reschedule: 312_952, call: 3_283_623, timer: 171_185, tlb: 8330 };
        assert_eq!(read.len(), 2);
        assert_eq!(read[1], (CpuId(1), cpu1));
    }

    #[test]
    fn follows_the_header_where_a_cpu_is_offline() {
        let read = parse("           CPU0       CPU3\nRES:         5         7   Rescheduling interrupts\n")
            .unwrap();
        assert_eq!(read[1].0, CpuId(3));
        assert_eq!((read[0].1.reschedule, read[1].1.reschedule), (5, 7));
    }

    #[test]
    fn garbled_files_are_errors() {
        for text in ["", "   \n", "CPU0 what\n", "CPU0 CPU1\nRES: 5\n", "CPU0\nCAL: x\n"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn this_machine_has_timer_interrupts() {
        let read = InterruptSensor::new(&Root::system()).unwrap().read().unwrap();
        assert!(read.iter().any(|(_, counters)| counters.timer > 0));
    }
}
