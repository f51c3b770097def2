//! Which workloads to engage and which to release: pure, without I/O and clock.

mod standing;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Key;

pub use standing::{Release, Standing};

/// A trial starts when wake-ups cost this share of one vCPU's time...
const WORTH_A_TRIAL: f64 = 0.05;
/// ...or this share of the workload's, which counts as so many vCPUs at least (policy: `TRIAL_THRESHOLD` and
/// `MOSTLY_IDLE_LOAD`).
const MOSTLY_IDLE_LOAD: f64 = 0.5;
/// A workload that uses less than this is idle, in vCPUs.
const IDLE_LOAD: f64 = 0.005;
/// For so long nothing can be won before a workload is released. If nothing ever paid, it is left alone for as long...
const NOTHING_TO_WIN: Duration = Duration::from_secs(30);
/// ...which doubles up to this from time to time...
const LONGEST_AWAY: Duration = Duration::from_secs(32 * 60);
/// ...and ends at once where waking costs so many times what it did when nothing paid.
const OTHER_LOAD: f64 = 2.0;
/// Engaged workloads can lose so much less than the threshold before there is nothing to win: the cost of a load at the
/// threshold goes up and down.
const HYSTERESIS: f64 = 0.5;

/// What decides beside the readings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngageConfig {
    /// What waking a thread on a halted vCPU costs here.
    pub wake_cost: Duration,
    /// The most workloads engaged at the same time.
    pub most_workloads: usize,
}

/// What is known of one workload at this time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seen<'a> {
    /// The workload.
    pub key: &'a Key,
    /// Its CPU time per time, in vCPUs.
    pub load: f64,
    /// How often its threads were put on a vCPU, per second; `None` if unknown. Only a known program is engaged
    /// without.
    pub switches_per_s: Option<f64>,
    /// Whether a setting paid for this program in an earlier run.
    pub known: bool,
    /// Whether a setting is kept in force for it, other than in a trial; only for an engaged one.
    pub in_force: bool,
}

impl Seen<'_> {
    /// What waking idle vCPUs can cost the workload, in vCPUs: a thread is woken at most once per time that it was put
    /// on a vCPU, and other idle periods of the machine belong to others.
    pub fn lost(&self, wake_cost: Duration, idle_periods_per_s: f64) -> f64 {
        self.switches_per_s.unwrap_or(f64::INFINITY).min(idle_periods_per_s) * wake_cost.as_secs_f64()
    }

    /// From which cost on a trial starts for it, in vCPUs.
    fn threshold(&self) -> f64 {
        WORTH_A_TRIAL * self.load.clamp(MOSTLY_IDLE_LOAD, 1.0)
    }
}

/// Whom to engage and whom to release now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// To be engaged, those that can lose most first.
    pub engage: Vec<Key>,
    /// To be released, with the reason.
    pub release: Vec<(Key, Release)>,
    /// Whether another step decides about somebody: what waking costs it was seen once, or is not known yet.
    pub is_undecided: bool,
}

/// Whom the daemon has engaged, and whom it leaves alone for how long.
#[derive(Debug)]
pub struct Engagement {
    config: EngageConfig,
    workloads: BTreeMap<Key, Workload>,
}

/// A workload that something must be known of beyond this step.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Workload {
    /// Waking cost it enough at the last step.
    Watched,
    /// It is engaged.
    Engaged(Engaged),
    /// It was engaged in vain.
    Away(Away),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Engaged {
    /// When there was last something to win.
    worth_at: Duration,
    /// Whether nothing is in force, and since when.
    is_untouched: bool,
    untouched_since: Duration,
    /// Whether anything was in force at all.
    was_useful: bool,
    /// The most that waking could cost it meanwhile, in vCPUs.
    most_lost: f64,
    /// What it could lose at the last step.
    lost: f64,
    /// How long it was left alone before.
    away_before: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Away {
    until: Duration,
    /// How long that is.
    length: Duration,
    /// The most that waking could cost it while nothing paid, in vCPUs.
    most_lost: f64,
}

impl Engagement {
    /// Nobody is engaged.
    pub fn new(config: EngageConfig) -> Self {
        Self { config, workloads: BTreeMap::new() }
    }

    /// From now on with this configuration.
    pub fn reconfigure(&mut self, config: EngageConfig) {
        self.config = config;
    }

    /// Whether it is engaged.
    pub fn is_engaged(&self, key: &Key) -> bool {
        matches!(self.workloads.get(key), Some(Workload::Engaged(_)))
    }

    /// How many are engaged.
    pub fn engaged(&self) -> usize {
        self.all_engaged().count()
    }

    fn all_engaged(&self) -> impl Iterator<Item = (&Key, &Engaged)> {
        self.workloads.iter().filter_map(|(key, workload)| match workload {
            Workload::Engaged(engaged) => Some((key, engaged)),
            Workload::Watched | Workload::Away(_) => None,
        })
    }

    /// The daemon could not engage it, or had to release it: it is left alone for a while.
    pub fn failed(&mut self, key: &Key, now: Duration) {
        if let Some(Workload::Engaged(engaged)) = self.workloads.get(key) {
            let away = engaged.in_vain(now);
            self.workloads.insert(key.clone(), away);
        }
    }

    /// The daemon released it for a reason of its own: it is engaged again once there is something to win.
    pub fn released(&mut self, key: &Key) {
        if self.is_engaged(key) {
            self.workloads.insert(key.clone(), Workload::Watched);
        }
    }

    /// Decides by what was seen at `now`, a time since any fixed moment. `idle_periods_per_s` is the machine's, and
    /// `seen` holds every workload that there is, once.
    pub fn step(&mut self, now: Duration, idle_periods_per_s: f64, seen: &[Seen<'_>]) -> Changes {
        let mut changes = Changes::default();
        self.drop_missing(now, seen, &mut changes);
        let mut waiting = Vec::new();
        for one in seen {
            let lost = one.lost(self.config.wake_cost, idle_periods_per_s);
            match self.workloads.get_mut(one.key) {
                Some(Workload::Engaged(engaged)) => {
                    engaged.see(now, one, lost);
                    if let Some(why) = engaged.nothing_to_win(now, one) {
                        let was_useful = engaged.was_useful;
                        let away = engaged.in_vain(now);
                        self.release(one.key, why, (!was_useful).then_some(away), &mut changes);
                    }
                }
                Some(Workload::Away(away)) if away.holds(now, lost) => {}
                before if one.load >= IDLE_LOAD && lost >= one.threshold() => {
                    if one.known || (one.switches_per_s.is_some() && before.is_some()) {
                        waiting.push((one, lost));
                    } else {
                        self.workloads.insert(one.key.clone(), Workload::Watched);
                        changes.is_undecided = true;
                    }
                }
                Some(Workload::Watched) => drop(self.workloads.remove(one.key)),
                // How long it was left alone counts if it is engaged in vain again.
                Some(Workload::Away(_)) | None => {}
            }
        }
        self.enforce_limit(&mut changes);
        self.engage(now, waiting, &mut changes);
        changes
    }

    /// How the workload stands, by the same numbers as in [`Engagement::step`].
    pub fn standing(&self, now: Duration, idle_periods_per_s: f64, seen: &Seen<'_>) -> Standing {
        let lost = seen.lost(self.config.wake_cost, idle_periods_per_s);
        match self.workloads.get(seen.key) {
            Some(Workload::Engaged(_)) => Standing::Engaged { lost },
            _ if seen.load < IDLE_LOAD => Standing::Idle { load: seen.load },
            _ if lost < seen.threshold() => Standing::Cheap { lost },
            Some(Workload::Away(away)) if away.holds(now, lost) => {
                Standing::Away { remaining: away.until.saturating_sub(now) }
            }
            _ if self.engaged() >= self.config.most_workloads => {
                Standing::Full { lost, most: self.config.most_workloads }
            }
            _ => Standing::Watched { lost },
        }
    }

    /// What is not there any more leaves nothing behind, except that a group which was engaged in vain can come back.
    fn drop_missing(&mut self, now: Duration, seen: &[Seen<'_>], changes: &mut Changes) {
        let present: BTreeSet<&Key> = seen.iter().map(|one| one.key).collect();
        self.workloads.retain(|key, workload| {
            if present.contains(key) {
                return true;
            }
            if matches!(workload, Workload::Engaged(_)) {
                changes.release.push((key.clone(), Release::Gone));
            }
            matches!(workload, Workload::Away(away) if now < away.until)
        });
    }

    fn release(&mut self, key: &Key, why: Release, then: Option<Workload>, changes: &mut Changes) {
        match then {
            Some(away) => self.workloads.insert(key.clone(), away),
            None => self.workloads.remove(key),
        };
        changes.release.push((key.clone(), why));
    }

    /// After the limit was lowered: those leave first for which nothing is in force, then those that can lose least.
    fn enforce_limit(&mut self, changes: &mut Changes) {
        let most = self.config.most_workloads;
        let excess = self.engaged().saturating_sub(most);
        let mut engaged: Vec<(&Key, &Engaged)> = self.all_engaged().collect();
        engaged.sort_by(|(_, one), (_, other)| {
            let first = one.is_untouched.cmp(&other.is_untouched).reverse();
            first.then_with(|| one.lost.total_cmp(&other.lost))
        });
        let leaving: Vec<Key> = engaged.into_iter().take(excess).map(|(key, _)| key.clone()).collect();
        for key in leaving {
            self.release(&key, Release::TooMany { most }, None, changes);
        }
    }

    fn engage(&mut self, now: Duration, mut waiting: Vec<(&Seen<'_>, f64)>, changes: &mut Changes) {
        waiting.sort_by(|(_, one), (_, other)| other.total_cmp(one));
        for (one, lost) in waiting {
            if self.engaged() < self.config.most_workloads || self.make_room(now, lost, changes) {
                let away_before = match self.workloads.get(one.key) {
                    Some(Workload::Away(away)) => away.length,
                    _ => Duration::ZERO,
                };
                let engaged = Workload::Engaged(Engaged::new(now, lost, away_before));
                self.workloads.insert(one.key.clone(), engaged);
                changes.engage.push(one.key.clone());
            } else {
                self.workloads.entry(one.key.clone()).or_insert(Workload::Watched);
            }
        }
    }

    /// Releases the engaged workload that can lose least, if nothing paid for it for a while and the one that waits can
    /// lose much more.
    fn make_room(&mut self, now: Duration, lost: f64, changes: &mut Changes) -> bool {
        let in_vain = self.all_engaged().filter(|(_, engaged)| {
            engaged.is_untouched
                && now.saturating_sub(engaged.untouched_since) >= NOTHING_TO_WIN
                && lost > OTHER_LOAD * engaged.lost
        });
        let least = in_vain.min_by(|(_, one), (_, other)| one.lost.total_cmp(&other.lost));
        let Some((key, engaged)) = least.map(|(key, engaged)| (key.clone(), *engaged)) else { return false };
        self.release(&key, Release::Displaced, Some(engaged.in_vain(now)), changes);
        true
    }
}

impl Engaged {
    fn new(now: Duration, lost: f64, away_before: Duration) -> Self {
        Self {
            worth_at: now,
            untouched_since: now,
            was_useful: false,
            is_untouched: true,
            most_lost: lost,
            lost,
            away_before,
        }
    }

    fn see(&mut self, now: Duration, one: &Seen<'_>, lost: f64) {
        (self.lost, self.most_lost) = (lost, self.most_lost.max(lost));
        self.is_untouched = !one.in_force;
        if one.in_force {
            self.was_useful = true;
            self.untouched_since = now;
        }
        // What is in force can be the reason that the machine has few idle periods.
        if one.load >= IDLE_LOAD && (one.in_force || lost >= HYSTERESIS * one.threshold()) {
            self.worth_at = now;
        }
    }

    fn nothing_to_win(&self, now: Duration, one: &Seen<'_>) -> Option<Release> {
        let after = now.saturating_sub(self.worth_at);
        let why =
            if one.load < IDLE_LOAD { Release::Idle { after } } else { Release::NothingToWin { after } };
        (after >= NOTHING_TO_WIN).then_some(why)
    }

    /// Left alone from `now` on, twice as long as before.
    fn in_vain(&self, now: Duration) -> Workload {
        let length = (self.away_before * 2).clamp(NOTHING_TO_WIN, LONGEST_AWAY);
        Workload::Away(Away { until: now + length, length, most_lost: self.most_lost })
    }
}

impl Away {
    fn holds(&self, now: Duration, lost: f64) -> bool {
        now < self.until && lost <= OTHER_LOAD * self.most_lost
    }
}
