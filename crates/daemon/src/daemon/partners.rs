//! Workloads that wake each other are placed together where idle vCPUs cannot poll: one workload on fewer vCPUs, since
//! neither gains anything on fewer vCPUs alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use gleaner_discover::{Key, Partnership, Woken, circles, partnerships};
use gleaner_engine::live::Found;
use gleaner_policy::{Method, WorkloadId};
use gleaner_trace::lazy::{WakerCount, count_wakers};
use gleaner_trace::{Scope, Wakeups};
use tracing::{info, warn};

use super::Daemon;
use crate::engaged::{Engaged, Identity, Part};

/// For so long it is counted who wakes whom: a thousand wake-ups, where they are worth a trial...
const SPAN: Duration = Duration::from_millis(200);
/// ...and not again before that.
const PAUSE: Duration = Duration::from_secs(5);

/// What is known about who wakes whom.
#[derive(Debug)]
pub(super) struct Partners {
    /// Whether somebody has been engaged since the last count.
    asked: bool,
    /// The count under way.
    count: Option<WakerCount>,
    /// No count before that.
    from: Instant,
    /// Counting is not possible here.
    is_unavailable: bool,
}

impl Partners {
    /// Nothing is known at `now`.
    pub(super) fn new(now: Instant) -> Self {
        Self { asked: false, count: None, from: now, is_unavailable: false }
    }

    /// Somebody has been engaged.
    pub(super) fn ask(&mut self) {
        self.asked = !self.is_unavailable;
    }

    /// When to go on.
    pub(super) fn due(&self) -> Option<Instant> {
        match &self.count {
            Some(count) => Some(count.due()),
            None => self.asked.then_some(self.from),
        }
    }

    fn fail(&mut self, error: &dyn std::fmt::Display) -> String {
        (self.asked, self.count, self.is_unavailable) = (false, None, true);
        format!("{error}: workloads that wake each other are not placed together")
    }
}

impl Daemon {
    /// Counts who wakes whom, if that can show something new, and places together who belongs together.
    pub(super) fn look_for_partners(&mut self) {
        if let Err(limit) = self.count_wakeups() {
            warn!("{limit}");
            self.limits.push(limit);
        }
    }

    fn count_wakeups(&mut self) -> Result<(), String> {
        let now = Instant::now();
        if self.partners.due().is_none_or(|due| now < due) {
            return Ok(());
        }
        if let Some(count) = &mut self.partners.count {
            let counted = count.advance().map_err(|error| self.partners.fail(&error))?;
            if let Some(wakeups) = counted {
                self.partners.count = None;
                self.place_together(&wakeups);
            }
        } else {
            self.partners.asked = false;
            if self.possible_partners().count() > 1 {
                let count = count_wakers(SPAN).map_err(|error| self.partners.fail(&error))?;
                (self.partners.count, self.partners.from) = (Some(count), now + PAUSE);
            }
        }
        Ok(())
    }

    fn possible_partners(&self) -> impl Iterator<Item = WorkloadId> {
        self.engaged.iter().filter(|(_, engaged)| can_be_partner(engaged)).map(|(id, _)| *id)
    }

    fn place_together(&mut self, wakeups: &[Wakeups]) {
        let mut workload_of = BTreeMap::new();
        for id in self.possible_partners().collect::<Vec<_>>() {
            workload_of.extend(self.fleet.processes(id).into_iter().map(|pid| (pid, id)));
        }
        let of = |pid: u32| workload_of.get(&pid).copied();
        let woken: Vec<_> = wakeups
            .iter()
            .filter_map(|w| Some(Woken { wakee: of(w.wakee)?, waker: of(w.waker), number: w.number }))
            .collect();
        let pairs = partnerships(&woken);
        for circle in circles(&pairs) {
            let why = self.describe(&circle, &pairs);
            if let Err(error) = self.unite(&circle, &why) {
                info!("not placed together: {error:#} ({why})");
            }
        }
    }

    fn describe(&self, circle: &BTreeSet<WorkloadId>, pairs: &[Partnership<WorkloadId>]) -> String {
        let name = |id| self.engaged.get(&id).map_or("", |engaged| engaged.identity.name());
        let sentence = |pair: &Partnership<WorkloadId>| {
            let (one, other) = (name(pair.one), name(pair.other));
            let (of_one, of_other) = (pair.of_one * 100.0, pair.of_other * 100.0);
            format!(
                "{other} causes {of_one:.0} % of the wake-ups of {one}, and {one} {of_other:.0} % of those of {other}"
            )
        };
        let own = pairs.iter().filter(|pair| circle.contains(&pair.one));
        own.map(sentence).collect::<Vec<_>>().join("; ")
    }

    /// Makes one workload of several, if they are engaged on the same terms.
    fn unite(&mut self, circle: &BTreeSet<WorkloadId>, why: &str) -> anyhow::Result<()> {
        let engaged = || circle.iter().filter_map(|id| self.engaged.get(id));
        let Some(engagement) = engaged().next().map(|first| first.engagement.clone()) else { return Ok(()) };
        if engaged().any(|other| other.engagement != engagement) {
            anyhow::bail!("they are configured differently");
        }
        let mut parts: Vec<Part> = engaged().flat_map(|one| one.identity.parts().cloned()).collect();
        // A server is there before its clients.
        parts.sort_by_key(|part| match &part.key {
            Key::Process { pid, start_ticks } => (*start_ticks, *pid),
            Key::Group(_) => (0, 0),
        });
        if parts.len() > Scope::MOST_TREES {
            anyhow::bail!("they are too many");
        }
        let pids: Vec<u32> = parts.iter().filter_map(|part| part.pid).collect();
        let found = Found::processes(&self.root, &pids)?;
        let group = engaged().find(|one| one.identity.first.key == parts[0].key);
        let group = group.and_then(|one| one.identity.group.clone());
        for id in circle {
            self.dismiss(*id, "it is placed together with its partners");
        }
        let first = parts.remove(0);
        let name = first.name.clone();
        let others: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let note = format!("placed together with {}: {why}", others.join(", "));
        let keys: Vec<Key> = parts.iter().chain([&first]).map(|part| part.key.clone()).collect();
        let identity = Identity { first, partners: parts, is_attached: false, unit: None, group };
        match self.engage(identity, found, engagement) {
            Ok(id) => {
                info!(workload = name, "{name}: {note}");
                let now = self.fleet.now();
                if let Some(engaged) = self.engaged.get_mut(&id) {
                    engaged.journal.note(now, note.clone());
                }
                self.note(Some(name), note);
                Ok(())
            }
            Err(error) => {
                for key in &keys {
                    self.lookout.failed(key);
                }
                Err(error)
            }
        }
    }
}

/// Whether it can be placed together with others: a process with its workers, which idle vCPUs that poll cannot help, and
/// whose set of vCPUs is ours to choose.
fn can_be_partner(engaged: &Engaged) -> bool {
    let Engaged { identity, engagement, config, .. } = engaged;
    let is_process = |part: &Part| matches!(part.key, Key::Process { .. });
    identity.parts().all(is_process)
        && !identity.is_attached
        && config.method == Method::Halt
        && config.consolidate
        && engagement.bpf
}
