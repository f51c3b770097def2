//! Visits every thread of a workload while it starts new ones.

use std::collections::BTreeSet;

use super::{LeverError, Target, ThreadKey, Value, Write};
use crate::Root;

/// Upper bound on the passes of a [`walk`]: a workload that starts threads during every one of them is covered
/// by the next walk.
pub const MAX_PASSES: usize = 16;

/// The changes to some threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ThreadPlan {
    /// Changes to make, each under a lease.
    pub writes: Vec<Write>,
    /// Threads that have the changed value already, inherited from their parent. Nothing needs to be written,
    /// but undoing must restore what they would have without us.
    pub inherited: Vec<Inherited>,
    /// Threads that chose a value themselves; they are left alone.
    pub respected: Vec<ThreadKey>,
}

/// A lease without a write: the target has `now` because of an earlier change, and `original` is to be
/// restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inherited {
    /// A setting of the thread.
    pub target: Target,
    /// Its value without us.
    pub original: Value,
    /// Its inherited value.
    pub now: Value,
}

/// The outcome of a [`walk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WalkOutcome {
    /// Number of threads visited.
    pub threads: usize,
    /// Whether the last two passes found no new thread; false if [`MAX_PASSES`] were not enough.
    pub settled: bool,
}

/// Visits every thread in `list`, including new ones, until two consecutive passes find no new one.
///
/// Two are enough: a thread started after its parent was visited inherited the change, and one started before
/// is in the next listing. `visit` gets the new threads of one pass and must have applied their plan when it
/// returns; threads that ended meanwhile are ignored.
///
/// # Errors
/// Those of `list` and `visit`, at once; those of identifying a thread, unless it has ended.
pub fn walk<E: From<LeverError>>(
    root: &Root,
    mut list: impl FnMut() -> Result<Vec<u32>, E>,
    mut visit: impl FnMut(&[ThreadKey]) -> Result<(), E>,
) -> Result<WalkOutcome, E> {
    let mut seen = BTreeSet::new();
    let mut clean = 0;
    for _ in 0..MAX_PASSES {
        let mut new = Vec::new();
        for tid in list()? {
            // A TID is not given again before all others were (kernel/pid.c): within a walk it stays one thread's.
            if seen.contains(&tid) {
                continue;
            }
            match ThreadKey::of(root, tid) {
                Ok(key) => {
                    seen.insert(tid);
                    new.push(key);
                }
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(LeverError::from(error).into()),
            }
        }
        if new.is_empty() {
            clean += 1;
            if clean == 2 {
                return Ok(WalkOutcome { threads: seen.len(), settled: true });
            }
        } else {
            clean = 0;
            visit(&new)?;
        }
    }
    Ok(WalkOutcome { threads: seen.len(), settled: false })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn root_with(tids: std::ops::Range<u32>) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        for tid in tids {
            fs::create_dir_all(root.path(format!("/proc/{tid}/task/{tid}"))).unwrap();
            let stat = format!("{tid} (t) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {} 0", 100 + tid);
            fs::write(root.path(format!("/proc/{tid}/task/{tid}/stat")), stat).unwrap();
        }
        (dir, root)
    }

    #[test]
    fn visits_late_threads_and_stops_after_two_clean_passes() {
        let (_dir, root) = root_with(1..5);
        let mut pass = 0;
        let mut visited = Vec::new();
        let walked = walk::<LeverError>(
            &root,
            || {
                pass += 1;
                // Thread 4 appears after a clean pass; thread 9 has ended by the time it is identified.
                Ok(if pass < 3 { vec![1, 2, 3, 9] } else { vec![1, 2, 3, 4] })
            },
            |new| {
                visited.push(new.iter().map(|key| key.tid).collect::<Vec<_>>());
                Ok(())
            },
        );
        assert_eq!(walked.unwrap(), WalkOutcome { threads: 4, settled: true });
        assert_eq!(visited, [vec![1, 2, 3], vec![4]]);
        assert_eq!(pass, 5);
    }

    #[test]
    fn a_workload_that_never_settles_is_bounded() {
        let (_dir, root) = root_with(0..100);
        let mut next = 0..;
        let walked = walk::<LeverError>(&root, || Ok(next.next().into_iter().collect()), |_| Ok(()));
        assert_eq!(walked.unwrap(), WalkOutcome { threads: MAX_PASSES, settled: false });
    }
}
