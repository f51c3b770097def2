//! The vCPUs of consolidated workloads: how much of each is taken.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Arbiter, Member};
use crate::consolidation::OVERLOADED;
use crate::{CpuId, WorkloadId};

/// For so long a vCPU must be used up by several confined workloads before one of them leaves: each is sampled several
/// times in it, and shorter loads are the business of overload expansion.
const LONGEST_SHORTAGE: Duration = Duration::from_secs(2);

/// A vCPU that is used up by several confined workloads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shortage {
    cpu: CpuId,
    since: Duration,
}

impl Member {
    /// The vCPUs to which the workload is confined, and its load on each of them.
    fn confined(&self) -> impl Iterator<Item = (CpuId, f64)> {
        let set = self.policy.smaller_set().unwrap_or_default();
        let each = self.load / set.len().max(1) as f64;
        set.iter().map(|cpu| (cpu, each)).collect::<Vec<_>>().into_iter()
    }
}

impl Arbiter {
    /// The load (in vCPUs) that other workloads than `id` have confined to each vCPU.
    pub(super) fn confined_beside(&self, id: WorkloadId) -> BTreeMap<CpuId, f64> {
        let mut confined = BTreeMap::new();
        let others = self.members.iter().filter(|(other, _)| **other != id);
        for (cpu, load) in others.flat_map(|(_, member)| member.confined()) {
            *confined.entry(cpu).or_default() += load;
        }
        confined
    }

    /// Between trials: gives the workload that was consolidated last its vCPUs back if several need more than a vCPU
    /// has.
    pub(super) fn check_room(&mut self) {
        if self.slot.is_some() {
            return;
        }
        for member in self.members.values_mut() {
            let size = member.policy.smaller_set().map(|set| set.len());
            member.consolidated = match (member.consolidated, size) {
                (Some((before, since)), Some(size)) if size >= before => Some((size, since)),
                (_, size) => size.map(|size| (size, self.now)),
            };
        }
        let mut confined: BTreeMap<CpuId, (f64, u32)> = BTreeMap::new();
        for (cpu, load) in self.members.values().flat_map(Member::confined) {
            let (sum, workloads) = confined.entry(cpu).or_default();
            (*sum, *workloads) = (*sum + load, *workloads + 1);
        }
        let shared = confined.into_iter().filter(|(_, (_, workloads))| *workloads > 1);
        let fullest = shared.max_by(|(_, (a, _)), (_, (b, _))| a.total_cmp(b));
        let Some((cpu, (load, _))) = fullest.filter(|(_, (load, _))| *load >= OVERLOADED) else {
            self.shortage = None;
            return;
        };
        let since = match self.shortage {
            Some(shortage) if shortage.cpu == cpu => shortage.since,
            _ => self.now,
        };
        self.shortage = Some(Shortage { cpu, since });
        if self.now.saturating_sub(since) < LONGEST_SHORTAGE {
            return;
        }
        let there = |m: &Member| m.policy.smaller_set().is_some_and(|set| set.contains(cpu));
        let last =
            self.members.values_mut().filter(|m| there(m)).max_by_key(|m| m.consolidated.map(|(_, at)| at));
        if let Some(member) = last {
            member.policy.make_room(cpu, load, self.now, &mut member.events);
        }
        self.shortage = None;
    }
}
