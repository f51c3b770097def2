//! TEMPORARY
use gleaner_policy::{CpuSet, Decision, Observation, Policy, Retention, Setting, WorkloadId};
use std::collections::BTreeMap;
pub(crate) struct ArbiterConfig {
    pub vcpus: CpuSet,
    pub polling_share: f64,
}
#[derive(Clone, Copy)]
pub(crate) enum Forbidden {
    LeverTaken,
    QuietHours,
    FewCredits,
}
#[derive(Clone, Copy)]
#[allow(dead_code)]
pub(crate) enum Stake {
    Helped,
    Tolerates,
    Objects,
}
pub(crate) struct Step {
    pub decision: Decision,
    pub reset_poll_limits: bool,
    pub sample: Vec<WorkloadId>,
}
pub(crate) struct Arbiter {
    members: BTreeMap<WorkloadId, Policy>,
    config: ArbiterConfig,
    forbidden: bool,
}
impl Arbiter {
    pub fn new(config: ArbiterConfig) -> Self {
        Self { members: BTreeMap::new(), config, forbidden: false }
    }
    pub fn reconfigure(&mut self, config: ArbiterConfig) {
        self.config = config;
    }
    pub fn join(&mut self, id: WorkloadId, p: Policy) {
        self.members.insert(id, p);
    }
    pub fn leave(&mut self, id: WorkloadId) -> Option<Policy> {
        self.members.remove(&id)
    }
    pub fn policy(&self, id: WorkloadId) -> Option<&Policy> {
        self.members.get(&id)
    }
    pub fn step(&mut self, id: WorkloadId, o: &Observation) -> Step {
        let d = self.members.get_mut(&id).map(|p| p.step(o)).unwrap_or_default();
        let r = d.reset_poll_limits;
        Step { decision: d, reset_poll_limits: r, sample: Vec::new() }
    }
    pub fn setting(&self, id: WorkloadId) -> Setting {
        self.members.get(&id).map(Policy::setting).unwrap_or_default()
    }
    pub fn retention(&self) -> Retention {
        if self.forbidden {
            return Retention::NONE;
        }
        self.members
            .values()
            .map(|p| p.setting().retention)
            .max_by_key(|r| r.limit)
            .unwrap_or(Retention::NONE)
    }
    pub fn forbid_polling(&mut self, f: Option<Forbidden>) -> bool {
        std::mem::replace(&mut self.forbidden, f.is_some()) != f.is_some()
    }
    pub fn stake(&self, _id: WorkloadId) -> Option<Stake> {
        None
    }
    pub fn trial(&self, _id: WorkloadId) -> Option<Setting> {
        None
    }
    pub fn polling_share(&self) -> f64 {
        0.0
    }
}
