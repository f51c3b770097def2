//! Workloads that wake each other are placed together where idle vCPUs cannot poll: one workload on fewer vCPUs, since
//! neither gains anything on fewer vCPUs alone.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use gleaner_discover::{Key, Partnership, Woken, groups, partnerships};
use gleaner_engine::live::Found;
use gleaner_policy::{Method, WorkloadId};
use gleaner_trace::Wakeups;
use gleaner_trace::lazy::{WakerCount, count_wakers};
use tracing::{info, warn};

use super::Daemon;
use crate::engaged::{Engaged, Engagement, Identity, Part};

/// How long wake-ups are counted.
const SPAN: Duration = Duration::from_millis(200);
/// The shortest time from one count to the next...
const PAUSE: Duration = Duration::from_secs(5);
/// ...which doubles up to this while there are workloads that could be partners, and nobody is engaged.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// As many are placed together at most.
const MOST: usize = 8;

/// When wake-ups are counted.
#[derive(Debug)]
pub(super) struct Partners {
    /// The count under way.
    count: Option<WakerCount>,
    /// When the next one is due.
    next: Option<Instant>,
    /// No count before that.
    from: Instant,
    /// From the latest count to the next, if nothing changes.
    pause: Duration,
    /// Counting is not possible here.
    is_unavailable: bool,
    /// What could not be controlled together with its partners, until the configuration is read again or `gleaner resume`.
    apart: BTreeSet<Key>,
}

impl Partners {
    /// Nothing is known at `now`.
    pub(super) fn new(now: Instant) -> Self {
        let apart = BTreeSet::new();
        Self { count: None, next: None, from: now, pause: PAUSE, is_unavailable: false, apart }
    }

    /// Somebody was engaged, or can be a partner from now on.
    pub(super) fn ask(&mut self) {
        (self.next, self.pause) = ((!self.is_unavailable).then_some(self.from), PAUSE);
    }

    /// These are not placed together again for now.
    pub(super) fn keep_apart<'k>(&mut self, keys: impl Iterator<Item = &'k Key>) {
        self.apart.extend(keys.cloned());
    }

    /// What was kept apart can be placed together again.
    pub(super) fn retry(&mut self) {
        self.apart.clear();
        self.ask();
    }

    /// When something is to be done.
    pub(super) fn due(&self) -> Option<Instant> {
        self.count.as_ref().map_or(self.next, |count| Some(count.due()))
    }

    fn start(&mut self, now: Instant) -> std::io::Result<()> {
        self.count = Some(count_wakers(SPAN)?);
        (self.from, self.next) = (now + PAUSE, Some(now + self.pause));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Ok(())
    }
}

impl Daemon {
    /// Counts who wakes whom, if that can show something new, and places together who belongs together.
    pub(super) fn look_for_partners(&mut self) {
        if let Err(error) = self.count_wakeups() {
            (self.partners.count, self.partners.next, self.partners.is_unavailable) = (None, None, true);
            let limit = format!("{error}: workloads that wake each other are not placed together");
            warn!("{limit}");
            self.limits.push(limit);
        }
    }

    fn count_wakeups(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let now = Instant::now();
        if self.partners.due().is_none_or(|due| now < due) {
            return Ok(());
        }
        if let Some(count) = &mut self.partners.count {
            if let Some(wakeups) = count.advance()? {
                self.partners.count = None;
                self.place_together(&wakeups);
            }
        } else if self.possible_partners().count() > 1 {
            self.partners.start(now)?;
        } else {
            self.partners.next = None;
        }
        Ok(())
    }

    fn possible_partners(&self) -> impl Iterator<Item = WorkloadId> {
        let is_apart = |e: &Engaged| e.identity.keys().any(|key| self.partners.apart.contains(key));
        let possible = self.engaged.iter().filter(move |(_, e)| can_be_partner(e) && !is_apart(e));
        possible.map(|(id, _)| *id)
    }

    fn place_together(&mut self, wakeups: &[Wakeups]) {
        let ids: Vec<WorkloadId> = self.possible_partners().collect();
        let parts: Vec<(WorkloadId, Vec<u32>)> =
            ids.iter().flat_map(|id| self.fleet.processes(*id).into_iter().map(|pids| (*id, pids))).collect();
        let ids: Vec<WorkloadId> = parts.iter().map(|(id, _)| *id).collect();
        let woken = woken(wakeups, parts.into_iter().map(|(_, pids)| pids).collect());
        let mut pairs = partnerships(&woken);
        pairs.retain(|pair| self.can_be_one(ids[pair.one], ids[pair.other]));
        for group in groups(&pairs) {
            let why = self.describe(&group, &pairs, &ids);
            let workloads: BTreeSet<WorkloadId> = group.into_iter().map(|part| ids[part]).collect();
            if workloads.len() > 1
                && let Err(error) = self.unite(&workloads, &why)
            {
                let note = format!("not placed together: {error:#} ({why})");
                info!("{note}");
                self.note(None, note);
            }
        }
    }

    /// Whether they have the same terms and no processes in common, or are one already.
    fn can_be_one(&self, one: WorkloadId, other: WorkloadId) -> bool {
        let (Some(one), Some(other)) = (self.engaged.get(&one), self.engaged.get(&other)) else {
            return false;
        };
        let apart = !one.identity.overlaps(&other.identity, &self.root);
        one.identity == other.identity || (apart && one.engagement.agrees(&other.engagement))
    }

    /// The shares by which the parts of a group belong together. `ids` has the workload of each part.
    fn describe(&self, group: &BTreeSet<usize>, pairs: &[Partnership<usize>], ids: &[WorkloadId]) -> String {
        let name = |part: usize| {
            let before = ids[..part].iter().filter(|id| **id == ids[part]).count();
            self.engaged
                .get(&ids[part])
                .and_then(|engaged| engaged.identity.names().nth(before))
                .unwrap_or("")
        };
        let sentence = |pair: &Partnership<usize>| {
            let (one, other) = (name(pair.one), name(pair.other));
            let (of_one, of_other) = (pair.of_one * 100.0, pair.of_other * 100.0);
            format!(
                "{other} causes {of_one:.0} % of the wake-ups of {one}, and {one} {of_other:.0} % of the wake-ups of {other}"
            )
        };
        let own = pairs.iter().filter(|pair| group.contains(&pair.one));
        own.map(sentence).collect::<Vec<_>>().join("; ")
    }

    /// Makes one workload of several.
    fn unite(&mut self, group: &BTreeSet<WorkloadId>, why: &str) -> anyhow::Result<()> {
        let ids: Vec<WorkloadId> = group.iter().copied().collect();
        let engaged: Vec<&Engaged> = ids.iter().filter_map(|id| self.engaged.get(id)).collect();
        let Some(engagement) = engaged.first().map(|first| first.engagement.clone()) else { return Ok(()) };
        if engaged.len() < ids.len() || ids.iter().any(|id| self.fleet.ended(*id)) {
            bail!("one of them has ended");
        }
        let mut parts: Vec<Part> = engaged.iter().flat_map(|one| one.identity.parts().cloned()).collect();
        if parts.len() > MOST {
            bail!("they are more than {MOST}");
        }
        let overlap = |one: &&Engaged, other: &&Engaged| one.identity.overlaps(&other.identity, &self.root);
        if (1..engaged.len()).any(|n| engaged[..n].iter().any(|one| overlap(one, &engaged[n]))) {
            bail!("they have processes in common");
        }
        let threads: u32 = engaged.iter().filter_map(|e| Some(e.latest.as_ref()?.workload.threads)).sum();
        if engaged.iter().any(|e| e.config.most_threads < threads) {
            bail!("they have {threads} threads, and some would have to be moved one by one");
        }
        // A server is there before its clients.
        let started = |part: &Part| Some(self.lookout.get(&part.key)?.main.as_ref()?.start_ticks);
        parts.sort_by_key(|part| (started(part), part.pid));
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let others = names[1..].join(", ");
        // Before they are looked at again: a smaller set of ours is not their own choice.
        self.dismiss(&ids, &format!("placed together, see `gleaner why {}`", names[0]));
        let keys: Vec<Key> = parts.iter().map(|part| part.key.clone()).collect();
        let united = self.engage_together(parts, engagement);
        let id = united.inspect_err(|_| {
            self.partners.keep_apart(keys.iter());
            for key in &keys {
                self.lookout.released(key);
            }
        })?;
        if let Some(engaged) = self.engaged.get_mut(&id) {
            let (name, note) =
                (engaged.identity.name().to_owned(), format!("placed together with {others}: {why}"));
            engaged.journal.note(self.fleet.now(), note.clone());
            info!(workload = name, "{name}: {note}");
            self.note(Some(name), note);
        }
        Ok(())
    }

    fn engage_together(&mut self, parts: Vec<Part>, engagement: Engagement) -> anyhow::Result<WorkloadId> {
        let found = parts.iter().map(|part| self.find(&part.key)).collect::<anyhow::Result<Vec<_>>>()?;
        let found = Found::together(&self.root, found)?;
        let mut parts = parts.into_iter();
        let first = parts.next().context("nobody is named")?;
        let identity = Identity { first, partners: parts.collect(), is_attached: false };
        self.engage(identity, found, engagement)
    }
}

/// Which part wakes which, by their numbers; `parts` has the processes of each.
fn woken(wakeups: &[Wakeups], parts: Vec<Vec<u32>>) -> Vec<Woken<usize>> {
    let mut parts: Vec<(usize, Vec<u32>)> = parts.into_iter().enumerate().collect();
    // What a process has started can be a workload of its own: then it belongs to that one, which is smaller.
    parts.sort_by_key(|(_, pids)| Reverse(pids.len()));
    let mut part_of = BTreeMap::new();
    for (part, pids) in parts {
        part_of.extend(pids.into_iter().map(|pid| (pid, part)));
    }
    let of = |pid: u32| part_of.get(&pid).copied();
    let woken = |w: &Wakeups| Some(Woken { wakee: of(w.wakee)?, waker: of(w.waker), number: w.number });
    wakeups.iter().filter_map(woken).collect()
}

/// Whether it can be placed together with others: idle vCPUs cannot poll for it, its set of vCPUs is ours to choose, and its
/// progress is seen as that of others.
fn can_be_partner(engaged: &Engaged) -> bool {
    let Engaged { identity, engagement, config, .. } = engaged;
    let is_helped_alone = config.method != Method::Halt || engagement.terms.progress.is_some();
    !identity.is_attached && !is_helped_alone && config.consolidate && engagement.bpf
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_belongs_to_the_smallest_of_the_workloads_that_have_it() {
        let wakeups = [(0, 10, 5), (11, 10, 7), (20, 11, 9), (10, 99, 1)]
            .map(|(waker, wakee, number)| Wakeups { waker, wakee, number });
        // A shell, 1, that has started a server with a worker and a client.
        let parts = vec![vec![10, 11], vec![1, 10, 11, 20], vec![20]];
        let expected = [(0, None, 5), (0, Some(0), 7), (0, Some(2), 9)].map(|(wakee, waker, number)| Woken {
            wakee,
            waker,
            number,
        });
        assert_eq!(woken(&wakeups, parts), expected);
    }
}
