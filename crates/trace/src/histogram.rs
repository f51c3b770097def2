//! Histograms, as filled by the BPF programs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use gleaner_proto::histogram::Histogram;

/// How long a thread computes between two waits, in powers of two of nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunLengths {
    /// Number of stretches of 2^i to 2^(i+1) ns by `i`, without zeros.
    pub powers: BTreeMap<u8, u64>,
}

impl RunLengths {
    pub(crate) fn new(runs: &[u64]) -> Self {
        Self { powers: (0..).zip(runs.iter().copied()).filter(|(_, n)| *n > 0).collect() }
    }
}

#[cfg(test)]
mod tests {
    use gleaner_proto::histogram::{BUCKETS, SUB_BITS};

    use crate::skeleton::types::trace_format;

    #[test]
    fn both_sides_have_the_same_buckets() {
        assert_eq!(trace_format::HIST_SUB_BITS.0, SUB_BITS);
        assert_eq!(trace_format::HIST_BUCKETS.0, u32::from(BUCKETS));
    }
}
