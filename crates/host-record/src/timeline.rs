//! Where the pCPUs' time went over time.

use serde::{Deserialize, Serialize};

use crate::reading::Pcpu;

/// The pCPUs' counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PcpuSample {
    /// When, in ns of the clock of [`Reading::at_ns`](crate::Reading::at_ns).
    pub at_ns: u64,
    /// Time since the start, by pCPU.
    pub pcpus: Vec<Pcpu>,
}

/// Where the pCPUs' time went in one interval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// The interval's end, in ns since the start of the span. It starts where the one before it ends.
    pub end_ns: u64,
    /// By the pCPU's number. What is missing to the interval's length is not known.
    pub pcpus: Vec<Pcpu>,
}

/// The intervals between samples, but for those in which nothing was followed.
pub fn intervals(samples: &[PcpuSample]) -> Vec<Interval> {
    let start = samples.first().map_or(0, |first| first.at_ns);
    let between = |pair: &[PcpuSample]| {
        let [earlier, later] = pair else { return None };
        if later.at_ns <= earlier.at_ns {
            return None;
        }
        let old = |number: usize| earlier.pcpus.get(number).copied().unwrap_or_default();
        let pcpus = later.pcpus.iter().enumerate().map(|(number, pcpu)| pcpu.since(&old(number)));
        Some(Interval { end_ns: later.at_ns.saturating_sub(start), pcpus: pcpus.collect() })
    };
    samples.windows(2).filter_map(between).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_has_what_passed_in_it() {
        let sample = |at_ns, vcpu_ns, idle_ns| PcpuSample {
            at_ns,
            pcpus: vec![Pcpu { vcpu_ns, other_ns: 0, idle_ns }, Pcpu::default()],
        };
        let found = intervals(&[sample(1000, 300, 50), sample(1100, 390, 60), sample(1300, 390, 260)]);
        let expected = |end_ns, vcpu_ns, idle_ns| Interval {
            end_ns,
            pcpus: vec![Pcpu { vcpu_ns, other_ns: 0, idle_ns }, Pcpu::default()],
        };
        assert_eq!(found, [expected(100, 90, 10), expected(300, 0, 200)]);
        assert_eq!(intervals(&[sample(1, 2, 3)]), []);
        let paused = sample(1100, 390, 60);
        let found = intervals(&[sample(1000, 300, 50), paused.clone(), paused, sample(1300, 390, 260)]);
        assert_eq!(found, [expected(100, 90, 10), expected(300, 0, 200)]);
    }
}
