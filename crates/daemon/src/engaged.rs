//! One engaged workload, apart from its sensors and levers (the fleet's) and its decisions (the arbiter's).

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gleaner_discover::Key;
use gleaner_engine::{Account, Journal, Memory};
use gleaner_policy::{CpuSet, Decision, Observation, Policy, PolicyConfig, Setting, Watch};
use gleaner_proto::journal::{Names, Record, Summary};

/// How often what is learned is saved, so that a killed daemon loses little of it.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Who a workload is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Unique among the engaged ones; stands in the journal's file name.
    pub(crate) name: String,
    /// What discovery knows it by; none if somebody attached to it.
    pub(crate) key: Option<Key>,
    /// Its systemd unit.
    pub(crate) unit: Option<String>,
    /// Its control group.
    pub(crate) group: Option<PathBuf>,
    /// Its main process.
    pub(crate) pid: Option<u32>,
}

/// What the daemon keeps of an engaged workload.
#[derive(Debug)]
pub(crate) struct Engaged {
    pub(crate) identity: Identity,
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
    /// Whether somebody attached to it and somebody else has changed its set of vCPUs, which is theirs now. The daemon
    /// has a list of its own for what it found itself.
    pub(crate) is_set_theirs: bool,
    /// The latest interval long enough to show rates.
    pub(crate) latest: Option<Observation>,
    saved: Instant,
}

impl Engaged {
    pub(crate) fn new(
        identity: Identity,
        config: PolicyConfig,
        allowed: CpuSet,
        journal: Journal,
        memory: Memory,
        due: Instant,
    ) -> Self {
        let now = Instant::now();
        Self {
            identity,
            config,
            in_force: Setting::untouched(&allowed),
            allowed,
            journal,
            memory,
            account: Account::new(None),
            due,
            watch: None,
            since: now,
            is_set_theirs: false,
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
