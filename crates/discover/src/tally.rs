//! What the threads of a candidate did between two surveys.

use std::collections::BTreeMap;

use gleaner_kernel::Root;

use crate::file::{numbers, read_short};

/// Time on a vCPU, and how often a thread was put on one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Used {
    pub(crate) run_ns: u64,
    pub(crate) switches: u64,
}

/// The counters of each thread at the last count. About 10 us per thread: files are not kept open, since candidates
/// can have thousands of threads, and what matters is engaged soon and then followed by the engine's own sensor.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    threads: BTreeMap<u32, Used>,
}

impl Tally {
    /// Counts the threads `tids`, ascending: what they did since the call before. `None` at the first call, and where
    /// the kernel does not count.
    pub(crate) fn advance(&mut self, root: &Root, tids: &[u32]) -> Option<Used> {
        let is_first = self.threads.is_empty();
        let mut sum = Used::default();
        let before = std::mem::take(&mut self.threads);
        for tid in tids {
            let mut buffer = [0; 96];
            // It ended meanwhile.
            let Ok(text) = read_short(root, format!("/proc/{tid}/schedstat"), &mut buffer) else { continue };
            let mut fields = numbers(text);
            let (Some(run_ns), Some(switches)) = (fields.next(), fields.nth(1)) else { continue };
            let now = Used { run_ns, switches };
            // A thread that was not there at the last count has done all of it since. A decrease means a reused TID.
            let then = before.get(tid).filter(|then| then.run_ns <= run_ns).copied().unwrap_or_default();
            sum.run_ns += run_ns - then.run_ns;
            sum.switches += switches.saturating_sub(then.switches);
            self.threads.insert(*tid, now);
        }
        (!is_first && !self.threads.is_empty()).then_some(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake, put};

    #[test]
    fn threads_that_start_count_whole_and_those_that_end_are_dropped() {
        let (_dir, root) = fake();
        let mut tally = Tally::default();
        let set = |tid: u32, run: u64, switches: u64| {
            put(&root, &format!("/proc/{tid}/schedstat"), &format!("{run} 5 {switches}\n"));
        };
        set(10, 1000, 100);
        set(11, 2000, 200);
        assert_eq!(tally.advance(&root, &[10, 11]), None, "the first count is the baseline");
        set(10, 1500, 107);
        set(12, 30, 3);
        let used = tally.advance(&root, &[10, 12, 13]).unwrap();
        assert_eq!(used, Used { run_ns: 530, switches: 10 });
        assert_eq!(tally.threads.len(), 2);
        set(10, 40, 4);
        let used = tally.advance(&root, &[10]).unwrap();
        assert_eq!(used, Used { run_ns: 40, switches: 4 }, "10 is another thread now");
    }

    #[test]
    fn without_the_kernels_counters_nothing_is_known() {
        let (_dir, root) = fake();
        let mut tally = Tally::default();
        put(&root, "/proc/10/stat", "");
        assert_eq!(tally.advance(&root, &[10]), None);
        assert_eq!(tally.advance(&root, &[10]), None);
    }
}
