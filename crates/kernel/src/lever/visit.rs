//! Runs code on a given vCPU, at once.

use gleaner_policy::CpuSet;

use super::thread::{self, SchedAttr, SchedPolicy};

/// Runs `errand` on the vCPUs `there`, ahead of every normal thread, and returns. It should take microseconds:
/// if the caller can be real-time, nothing else runs on that vCPU meanwhile.
///
/// If the caller is not allowed to run there, `errand` runs where it is; if it is not allowed to be real-time,
/// it waits its turn.
pub fn visit<R>(there: &CpuSet, errand: impl FnOnce() -> R) -> R {
    let _home = CallerState::leave(there);
    errand()
}

/// The caller's affinity and scheduling, restored on drop.
struct CallerState {
    cpus: Option<CpuSet>,
    scheduling: Option<SchedAttr>,
}

impl CallerState {
    fn leave(there: &CpuSet) -> Self {
        // Scheduling first: the move itself must not queue behind others.
        let scheduling = thread::scheduling(0).ok().filter(|was| {
            let ahead = SchedAttr { policy: SchedPolicy::Fifo, rt_priority: 1, ..*was };
            thread::set_scheduling(0, ahead).is_ok()
        });
        let cpus = thread::affinity(0).ok().filter(|_| thread::set_affinity(0, there).is_ok());
        Self { cpus, scheduling }
    }
}

impl Drop for CallerState {
    fn drop(&mut self) {
        // In force a moment ago, so it is not refused; and if it is, there is no better value.
        if let Some(cpus) = &self.cpus {
            let _ = thread::set_affinity(0, cpus);
        }
        if let Some(scheduling) = self.scheduling {
            let _ = thread::set_scheduling(0, scheduling);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_caller_is_there_and_comes_back_as_it_was() {
        let before = (thread::affinity(0).unwrap(), thread::scheduling(0).unwrap());
        for cpu in before.0.iter() {
            let there: CpuSet = [cpu].into_iter().collect();
            let seen = visit(&there, || thread::affinity(0).unwrap());
            assert_eq!(seen, there);
            assert_eq!((thread::affinity(0).unwrap(), thread::scheduling(0).unwrap()), before);
        }
    }

    #[test]
    fn where_the_caller_may_not_run_it_stays() {
        let before = thread::affinity(0).unwrap();
        let seen =
            visit(&[gleaner_policy::CpuId(8000)].into_iter().collect(), || thread::affinity(0).unwrap());
        assert_eq!((seen, thread::affinity(0).unwrap()), (before.clone(), before));
    }
}
