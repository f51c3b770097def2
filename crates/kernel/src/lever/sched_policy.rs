//! Makes wake-ups send no IPI: `SCHED_BATCH` beside a yield thread in `SCHED_OTHER`.

use std::collections::BTreeSet;

use super::{Inherited, LeverError, SchedAttr, SchedPolicy, Target, ThreadKey, ThreadPlan, Value, Write};
use crate::Root;

/// Moves the `SCHED_OTHER` threads of a workload to `SCHED_BATCH` and leaves all others alone.
///
/// Nice values are kept. A woken thread in `SCHED_BATCH` does not preempt the running one (kernel/sched/fair.c,
/// `wakeup_preempt_fair`), so the kernel does not send the IPI that would interrupt a yield thread.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    changed: BTreeSet<ThreadKey>,
    respected: BTreeSet<ThreadKey>,
    /// The latest start among the first threads seen; later ones in `SCHED_BATCH` inherited it from their
    /// parents.
    first_seen_until: Option<u64>,
}

impl Batch {
    /// A batch of no threads.
    pub fn new() -> Self {
        Self::default()
    }

    /// Plans the changes of these threads. Threads in `SCHED_BATCH` at the first call chose it themselves;
    /// those that appear later inherited it, unless their parent was one of the former.
    ///
    /// # Errors
    /// Those of [`Target::read`]; threads that ended are left out.
    pub fn plan(&mut self, root: &Root, threads: &[ThreadKey]) -> Result<ThreadPlan, LeverError> {
        let mut plan = ThreadPlan::default();
        for &key in threads {
            match Target::Scheduling(key).read(root) {
                Ok(Value::Scheduling(now)) => self.plan_one(key, now, &mut plan),
                Ok(_) => {}
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        let latest = threads.iter().map(|key| key.start_time_ticks).max();
        self.first_seen_until = self.first_seen_until.or(latest);
        Ok(plan)
    }

    fn plan_one(&mut self, key: ThreadKey, now: SchedAttr, plan: &mut ThreadPlan) {
        let target = Target::Scheduling(key);
        match now.policy {
            SchedPolicy::Other => {
                self.changed.insert(key);
                let value = Value::Scheduling(SchedAttr { policy: SchedPolicy::Batch, ..now });
                plan.writes.push(Write { target, value });
            }
            SchedPolicy::Batch if self.changed.contains(&key) => {}
            SchedPolicy::Batch if self.inherits(key) => {
                self.changed.insert(key);
                let original = Value::Scheduling(SchedAttr { policy: SchedPolicy::Other, ..now });
                plan.inherited.push(Inherited { target, original, now: Value::Scheduling(now) });
            }
            _ => {
                self.respected.insert(key);
                plan.respected.push(key);
            }
        }
    }

    fn inherits(&self, key: ThreadKey) -> bool {
        !self.respected.contains(&key)
            && self.first_seen_until.is_some_and(|until| key.start_time_ticks >= until)
            && !self.changed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(tid: u32, start_time_ticks: u64) -> ThreadKey {
        ThreadKey { tid, start_time_ticks }
    }

    fn attr(policy: SchedPolicy) -> SchedAttr {
        SchedAttr { policy, nice: 5, rt_priority: 0, reset_on_fork: false }
    }

    fn plan_one(batch: &mut Batch, key: ThreadKey, policy: SchedPolicy) -> ThreadPlan {
        let mut plan = ThreadPlan::default();
        batch.plan_one(key, attr(policy), &mut plan);
        plan
    }

    #[test]
    fn only_default_threads_change_and_keep_their_nice_value() {
        let mut batch = Batch::new();
        let plan = plan_one(&mut batch, key(1, 1), SchedPolicy::Other);
        assert_eq!(plan.writes[0].value, Value::Scheduling(attr(SchedPolicy::Batch)));
        for policy in [SchedPolicy::Batch, SchedPolicy::Idle, SchedPolicy::Fifo, SchedPolicy::Unknown(6)] {
            let plan = plan_one(&mut batch, key(2, 1), policy);
            assert!(plan.writes.is_empty() && plan.respected.len() == 1, "{policy}");
        }
    }

    #[test]
    fn later_threads_in_batch_inherited_it() {
        let mut batch = Batch::new();
        plan_one(&mut batch, key(1, 10), SchedPolicy::Other);
        plan_one(&mut batch, key(2, 11), SchedPolicy::Batch);
        batch.first_seen_until = Some(11);
        let plan = plan_one(&mut batch, key(3, 20), SchedPolicy::Batch);
        assert_eq!(plan.inherited[0].original, Value::Scheduling(attr(SchedPolicy::Other)));
        assert_eq!(plan_one(&mut batch, key(3, 20), SchedPolicy::Batch), ThreadPlan::default());
        assert_eq!(plan_one(&mut batch, key(1, 10), SchedPolicy::Batch), ThreadPlan::default());
        assert_eq!(plan_one(&mut batch, key(2, 11), SchedPolicy::Batch).respected.len(), 1);
    }
}
