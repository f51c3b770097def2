//! One engaged workload, apart from its sensors and levers (the fleet's) and its decisions (the arbiter's).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gleaner_config::Terms;
use gleaner_discover::Key;
use gleaner_engine::{Account, Journal, Memory};
use gleaner_policy::{CpuSet, Decision, Observation, Policy, PolicyConfig, Setting, Watch};
use gleaner_proto::journal::{Names, Record, Summary};

/// How often what is learned is saved, so that a killed daemon loses little of it.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// A workload of discovery's, or of whoever attached to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// Unique among the engaged ones.
    pub(crate) name: String,
    /// What discovery knows it by.
    pub(crate) key: Key,
    /// Its main process.
    pub(crate) pid: Option<u32>,
    /// Its systemd unit.
    pub(crate) unit: Option<String>,
    /// Its control group.
    pub(crate) group: Option<PathBuf>,
}

/// Who an engaged workload is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Gives it its name, which stands in the journal's file name.
    pub(crate) first: Part,
    /// What is placed together with the first one.
    pub(crate) partners: Vec<Part>,
    /// Whether somebody attached to it, so that discovery neither engages nor releases it.
    pub(crate) is_attached: bool,
}

impl Identity {
    /// Everything that it is made of.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Part> {
        std::iter::once(&self.first).chain(&self.partners)
    }

    /// What discovery knows its parts by.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.parts().map(|part| &part.key)
    }

    /// Whether it is, or is made of, what discovery knows by this.
    pub(crate) fn has(&self, key: &Key) -> bool {
        self.keys().any(|own| own == key)
    }

    /// The names of its parts.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.parts().map(|part| part.name.as_str())
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.first.name
    }
}

/// On which terms a workload is engaged.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Engagement {
    pub(crate) terms: Terms,
    pub(crate) memory: bool,
    pub(crate) bpf: bool,
}

impl Engagement {
    /// Whether the two are the same, whichever rules they come from.
    pub(crate) fn agrees(&self, other: &Self) -> bool {
        let plain = |one: &Self| Self { terms: Terms { rule: None, ..one.terms.clone() }, ..one.clone() };
        plain(self) == plain(other)
    }

    /// Whether a workload on these other terms has to be observed in another way.
    pub(crate) fn senses_otherwise(&self, other: &Self) -> bool {
        self.terms.progress != other.terms.progress || self.memory != other.memory || self.bpf != other.bpf
    }
}

/// What the daemon keeps of an engaged workload.
#[derive(Debug)]
pub(crate) struct Engaged {
    pub(crate) identity: Identity,
    pub(crate) engagement: Engagement,
    pub(crate) config: PolicyConfig,
    pub(crate) allowed: CpuSet,
    pub(crate) journal: Journal,
    pub(crate) memory: Memory,
    account: Account,
    /// What is in force for it: its set, and the machine's retention.
    pub(crate) in_force: Setting,
    /// When to observe it next...
    pub(crate) due: Instant,
    /// ...unless this happens first.
    pub(crate) watch: Option<Watch>,
    pub(crate) since: Instant,
    /// The latest interval long enough to show rates.
    pub(crate) latest: Option<Observation>,
    saved: Instant,
}

impl Engaged {
    pub(crate) fn new(
        identity: Identity,
        engagement: Engagement,
        config: PolicyConfig,
        allowed: CpuSet,
        journal: Journal,
        memory: Memory,
        due: Instant,
    ) -> Self {
        let now = Instant::now();
        Self {
            identity,
            engagement,
            config,
            in_force: Setting::untouched(&allowed),
            allowed,
            journal,
            memory,
            account: Account::new(None),
            due,
            watch: None,
            since: now,
            latest: None,
            saved: now,
        }
    }

    /// Takes notes of one step, and plans the next.
    pub(crate) fn stepped(&mut self, o: &Observation, decision: &Decision, names: &Names) {
        const SHORTEST: Duration = Duration::from_millis(10);
        self.account.interval(&self.in_force, o);
        self.account.events(&decision.events);
        self.journal.step(&self.in_force, o, &decision.events, names);
        self.due = Instant::now() + decision.next;
        self.watch = decision.watch;
        if o.period >= SHORTEST {
            self.latest = Some(o.clone());
        }
    }

    /// Saves what its policy has learned, from time to time.
    pub(crate) fn save(&mut self, policy: &Policy, now: Duration) {
        if self.saved.elapsed() >= SAVE_INTERVAL {
            self.saved = Instant::now();
            self.keep(policy, now);
        }
    }

    /// Saves what its policy has learned.
    pub(crate) fn keep(&mut self, policy: &Policy, now: Duration) {
        if let Some(note) = self.memory.keep(&policy.learned()) {
            self.journal.note(now, note);
        }
    }

    /// The best evidence for what was kept so far, as a sentence.
    pub(crate) fn evidence(&self) -> Option<String> {
        self.account.evidence()
    }

    /// Closes the journal at `now`; `left_behind` are changes that could not be undone.
    pub(crate) fn close(mut self, now: Duration, left_behind: Vec<String>) -> Summary {
        let strategy = self.config.mode.strategy();
        let summary = Summary { strategy, left_behind, ..self.account.close() };
        self.journal.write(&Record::End { at: now, summary: summary.clone() });
        self.journal.flush();
        summary
    }
}
