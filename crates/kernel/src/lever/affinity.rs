//! Consolidation by plain CPU affinity, where no cpuset is available.

use gleaner_policy::CpuSet;

use super::{Inherited, LeverError, Target, ThreadKey, ThreadPlan, Value, Write, thread};
use crate::Root;

/// The affinity of a workload's threads. Keeps the masks that it set, to distinguish them from masks that
/// threads chose themselves.
#[derive(Debug, Clone)]
pub struct Affinity {
    default: CpuSet,
    /// The latest mask and the one before: while threads are moved from one to the other, new ones start with
    /// either.
    applied: [Option<CpuSet>; 2],
}

impl Affinity {
    /// `default` is the original mask of the workload's threads: that of its first thread.
    pub fn new(default: CpuSet) -> Self {
        Self { default, applied: [None, None] }
    }

    /// The mask of the calling thread, which its children inherit.
    pub fn of_caller() -> std::io::Result<CpuSet> {
        thread::affinity(0)
    }

    /// Sets the mask of the calling thread.
    ///
    /// # Errors
    /// None of the CPUs is online or allowed.
    pub fn set_caller(cpus: &CpuSet) -> std::io::Result<()> {
        thread::set_affinity(0, cpus)
    }

    /// Selects `active`, limited to the default mask, as the target of [`Affinity::plan`]. Returns the mask to
    /// set: the default if no CPU would be left.
    pub fn set_active(&mut self, active: &CpuSet) -> CpuSet {
        let mut mask = active.intersection(&self.default);
        if mask.is_empty() {
            mask.clone_from(&self.default);
        }
        if self.applied[0].as_ref() != Some(&mask) {
            self.applied[1] = self.applied[0].replace(mask.clone());
        }
        mask
    }

    /// Plans the moves of these threads. A thread whose mask is neither the default nor one of ours chose it
    /// itself.
    ///
    /// # Errors
    /// Those of [`Target::read`]; threads that ended are left out.
    pub fn plan(&self, root: &Root, threads: &[ThreadKey]) -> Result<ThreadPlan, LeverError> {
        let mut plan = ThreadPlan::default();
        let Some(wanted) = &self.applied[0] else { return Ok(plan) };
        for &key in threads {
            match Target::Affinity(key).read(root) {
                Ok(Value::Cpus(now)) => self.plan_one(key, &now, wanted, &mut plan),
                Ok(_) => {}
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(plan)
    }

    fn plan_one(&self, key: ThreadKey, now: &CpuSet, wanted: &CpuSet, plan: &mut ThreadPlan) {
        let ours = self.applied.iter().flatten().any(|mask| mask == now);
        if *now != self.default && !ours {
            plan.respected.push(key);
            return;
        }
        let target = Target::Affinity(key);
        if *now != self.default {
            // Redundant for a thread that is already leased: its lease has the same original.
            plan.inherited.push(Inherited {
                target: target.clone(),
                original: Value::Cpus(self.default.clone()),
                now: Value::Cpus(now.clone()),
            });
        }
        if now != wanted {
            plan.writes.push(Write { target, value: Value::Cpus(wanted.clone()) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    fn plan_for(affinity: &Affinity, now: &str) -> ThreadPlan {
        let mut plan = ThreadPlan::default();
        let key = ThreadKey { tid: 1, start_time_ticks: 1 };
        affinity.plan_one(key, &set(now), affinity.applied[0].as_ref().unwrap(), &mut plan);
        plan
    }

    #[test]
    fn threads_with_the_default_move_and_others_are_respected() {
        let mut affinity = Affinity::new(set("0-3"));
        assert_eq!(affinity.set_active(&set("0-1,9")), set("0-1"));
        let plan = plan_for(&affinity, "0-3");
        assert_eq!(plan.writes[0].value, Value::Cpus(set("0-1")));
        assert!(plan.inherited.is_empty() && plan.respected.is_empty());
        assert_eq!(plan_for(&affinity, "2").respected.len(), 1);
        assert!(plan_for(&affinity, "2").writes.is_empty());
    }

    #[test]
    fn threads_born_during_consolidation_go_back_to_the_default() {
        let mut affinity = Affinity::new(set("0-3"));
        affinity.set_active(&set("0-1"));
        let plan = plan_for(&affinity, "0-1");
        assert!(plan.writes.is_empty());
        assert_eq!(plan.inherited[0].original, Value::Cpus(set("0-3")));
        affinity.set_active(&set("0"));
        affinity.set_active(&set("0"));
        let plan = plan_for(&affinity, "0-1");
        assert_eq!((plan.inherited.len(), plan.writes.len()), (1, 1));
    }

    #[test]
    fn an_active_set_outside_the_default_changes_nothing() {
        let mut affinity = Affinity::new(set("0-1"));
        assert_eq!(affinity.set_active(&set("7")), set("0-1"));
        assert_eq!(plan_for(&affinity, "0-1"), ThreadPlan::default());
    }
}
