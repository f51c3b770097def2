//! The daemon: one loop, one thread.

mod membership;
mod overlap;
mod partners;
mod requests;
mod rest;
mod status;
mod steps;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gleaner_config::{Config, Loaded};
use gleaner_control::Server;
use gleaner_discover::{EngageConfig, Key};
use gleaner_engine::live::{Fleet, Signals};
use gleaner_engine::{LeaseBook, UndoResult, unix_ms};
use gleaner_kernel::Root;
use gleaner_metrics::{Exporter, Metrics};
use gleaner_policy::{Arbiter, ArbiterConfig, Retention, WorkloadId};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::{TimeSpec, TimeValLike as _};
use tracing::{info, warn};

use crate::engaged::Engaged;
use crate::facts::Facts;
use crate::heap;
use crate::lookout::Lookout;
use crate::notify::Notify;
use crate::paths::Paths;
use crate::paused::Paused;
use crate::polling::Rests;

use self::partners::Partners;
use self::requests::Attachments;

/// Everything that the loop drives.
pub(crate) struct Daemon {
    root: Root,
    paths: Paths,
    loaded: Loaded,
    facts: Facts,
    /// What is not available here, as sentences.
    limits: Vec<String>,
    /// What tuned's active profile sets that Gleaner sets, too.
    tuned: Option<String>,
    signals: Signals,
    fleet: Fleet,
    arbiter: Arbiter,
    lookout: Lookout,
    engaged: BTreeMap<WorkloadId, Engaged>,
    partners: Partners,
    next_id: u64,
    /// The machine's retention in force.
    retention: Retention,
    /// Everything is untouched because somebody said so.
    paused: Option<Paused>,
    rests: Rests,
    /// When the reasons to rest are looked at again.
    rests_due: Instant,
    /// Workloads that are not engaged again, and why, until somebody says `gleaner resume`.
    refused: BTreeMap<Key, String>,
    /// Workloads whose set of vCPUs somebody else has changed: it is theirs.
    sets_of_others: BTreeSet<Key>,
    /// Which programs a setting has paid for in an earlier run.
    known: BTreeMap<Key, bool>,
    server: Server,
    attachments: Attachments,
    exporter: Option<Exporter>,
    metrics: Metrics,
    notify: Notify,
    memory_users: heap::Users,
    /// The latest decisions, newest last.
    recent: VecDeque<(Instant, Option<String>, String)>,
    start: Instant,
    /// When the clock that decisions are timed by started, in milliseconds since the Unix epoch.
    clock_start_ms: u64,
}

impl Daemon {
    /// Prepares everything. What fails here leaves the machine as it is.
    pub(crate) fn start(paths: Paths, listener: Option<std::net::TcpListener>) -> anyhow::Result<Self> {
        let root = Root::system();
        // Blocked before anything is changed, so that no signal can end this process halfway.
        let signals = Signals::block()?;
        let loaded = Config::load(&paths.config)?;
        for problem in &loaded.warnings {
            warn!("{problem}");
        }
        for outcome in gleaner_engine::restore(&paths.state, &root)? {
            warn!("restored what a killed Gleaner left: {}", outcome.detail);
        }
        let facts = Facts::measure(&paths.state, &root)?;
        let (book, _) = LeaseBook::open(&paths.state, root.clone())?;
        let fleet = Fleet::new(book, facts.vcpus.clone(), &signals, crate::log::warn_sentence)?;
        let clock_start_ms = unix_ms().saturating_sub(u64::try_from(fleet.now().as_millis()).unwrap_or(0));
        let config = &loaded.config;
        let (lookout, no_alarm) = Lookout::new(&root, engage_config(&facts, config))?;
        let (server, no_group) = Server::bind(&paths.socket, Some(&config.control.group))?;
        let (exporter, no_exporter) = match exporter(listener, config) {
            Ok(exporter) => (exporter, None),
            Err(error) => (None, Some(format!("metrics over TCP: {error:#}"))),
        };
        let metrics =
            Metrics::new(crate::VERSION, std::time::SystemTime::now(), config.most_workloads as usize);
        let mut limits = facts.limits.clone();
        limits.extend(no_alarm.into_iter().chain(no_group).chain(no_exporter));
        limits.extend(gleaner_discover::Surroundings::detect(&root).limits());
        limits.extend(facts.nothing_to_win());
        for limit in &limits {
            info!("{limit}");
        }
        let paused = Paused::load(&paths.state);
        if paused.is_some() {
            info!("still paused: `gleaner resume` ends that");
        }
        let now = Instant::now();
        let mut daemon = Self {
            arbiter: Arbiter::new(arbiter_config(&facts, config)),
            root,
            paths,
            loaded,
            facts,
            limits,
            tuned: None,
            signals,
            fleet,
            lookout,
            engaged: BTreeMap::new(),
            partners: Partners::new(now),
            next_id: 1,
            retention: Retention::NONE,
            paused,
            rests: Rests::default(),
            rests_due: now,
            refused: BTreeMap::new(),
            sets_of_others: BTreeSet::new(),
            known: BTreeMap::new(),
            server,
            attachments: Attachments::default(),
            exporter,
            metrics,
            notify: Notify::from_environment(),
            memory_users: heap::Users::default(),
            recent: VecDeque::new(),
            start: now,
            clock_start_ms,
        };
        daemon.describe_machine();
        daemon.look_at_tuned();
        Ok(daemon)
    }

    /// Runs until a signal ends it, then puts everything back. True if everything could be.
    pub(crate) fn run(mut self) -> anyhow::Result<bool> {
        info!(
            "gleanerd {} on {} vCPUs: {} where it pays; waking a halted vCPU costs {:.1} us",
            crate::VERSION,
            self.facts.vcpus.len(),
            self.facts.method,
            self.facts.wake_cost.as_secs_f64() * 1e6
        );
        self.notify.ready();
        loop {
            self.wait()?;
            match self.signal()? {
                Some(Asked::Stop) => break,
                Some(Asked::Reload) => drop(self.reload()),
                None => {}
            }
            self.serve();
            self.rest_if_due();
            self.look();
            self.look_for_partners();
            self.step_due();
            self.memory_users.now_are(heap::Users {
                engaged: !self.engaged.is_empty(),
                clients: self.server.has_clients(),
            });
            self.notify_service_manager();
            self.notify.watchdog();
        }
        Ok(self.close())
    }

    /// Waits until something is due or readable.
    fn wait(&self) -> anyhow::Result<()> {
        let left = self.deadline().saturating_duration_since(Instant::now());
        let mut fds: Vec<PollFd<'_>> =
            self.fds().into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
        let timeout = TimeSpec::nanoseconds(i64::try_from(left.as_nanos()).unwrap_or(i64::MAX));
        match ppoll(&mut fds, Some(timeout), None) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno).context("cannot wait"),
        }
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        let mut fds = vec![self.signals.as_fd()];
        fds.extend(self.lookout.fd());
        fds.extend(self.fleet.fds());
        fds.extend(self.server.fds());
        fds.extend(self.exporter.iter().flat_map(Exporter::fds));
        fds
    }

    fn deadline(&self) -> Instant {
        let engaged = self.engaged.values().map(|e| e.due);
        let looks = self.looks_out().then(|| self.lookout.next());
        let others = [
            self.fleet.next_sample(),
            looks,
            self.server.due(),
            self.notify.next_watchdog(),
            self.has_rests().then_some(self.rests_due),
            self.partners.due(),
        ];
        let far = Instant::now() + Duration::from_secs(3600);
        engaged.chain(others.into_iter().flatten()).min().unwrap_or(far)
    }

    /// Whether workloads are engaged that nobody has attached to.
    fn looks_out(&self) -> bool {
        self.paused.is_none() && self.facts.nothing_to_win().is_none()
    }

    /// What the signals that have arrived ask for.
    fn signal(&mut self) -> anyhow::Result<Option<Asked>> {
        let mut asked = None;
        while let Some(number) = self.signals.take()? {
            match number {
                libc::SIGTERM | libc::SIGINT | libc::SIGQUIT => return Ok(Some(Asked::Stop)),
                libc::SIGHUP => asked = Some(Asked::Reload),
                _ => {}
            }
        }
        Ok(asked)
    }

    /// Reads the configuration again. If there is something wrong with it, the old one stays.
    fn reload(&mut self) -> Result<(), String> {
        self.notify.reloading();
        let result = Config::load(&self.paths.config);
        let result = match result {
            Ok(loaded) => {
                for problem in &loaded.warnings {
                    warn!("{problem}");
                }
                self.reconfigure(loaded);
                info!("the configuration was read again");
                Ok(())
            }
            Err(error) => {
                warn!("the configuration stays as it was: {error}");
                Err(error.to_string())
            }
        };
        self.metrics.reloaded(result.is_ok());
        self.notify.ready();
        result
    }

    fn reconfigure(&mut self, loaded: Loaded) {
        let (old, new) = (&self.loaded.config, &loaded.config);
        for (key, changes) in [
            ("metrics.listen", old.metrics.listen != new.metrics.listen),
            ("control.group", old.control.group != new.control.group),
        ] {
            if changes {
                warn!("{key} is as it was until gleanerd is restarted");
            }
        }
        self.loaded = loaded;
        self.known.clear();
        self.partners.retry();
        self.arbiter.reconfigure(arbiter_config(&self.facts, &self.loaded.config));
        self.lookout.reconfigure(engage_config(&self.facts, &self.loaded.config));
        self.follow_configuration();
        self.rests_due = Instant::now();
        self.describe_machine();
    }

    fn describe_machine(&mut self) {
        self.metrics.machine(self.facts.vcpus.len(), self.loaded.config.polling_share);
        self.metrics.wake_cost(gleaner_policy::Method::Halt, self.facts.wake_cost);
    }

    /// Puts everything back.
    fn close(mut self) -> bool {
        self.notify.stopping();
        self.leave_all("gleanerd stops");
        let mut restored = true;
        for outcome in self.fleet.close() {
            match outcome.undone {
                UndoResult::Failed => {
                    restored = false;
                    warn!("could not be put back: {}", outcome.detail);
                }
                UndoResult::Theirs => info!("{}", outcome.detail),
                UndoResult::Restored | UndoResult::Unchanged | UndoResult::Gone => {}
            }
        }
        restored
    }
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Stop,
    Reload,
}

fn engage_config(facts: &Facts, config: &Config) -> EngageConfig {
    EngageConfig { wake_cost: facts.wake_cost, most_workloads: config.most_workloads as usize }
}

fn arbiter_config(facts: &Facts, config: &Config) -> ArbiterConfig {
    ArbiterConfig { vcpus: facts.vcpus.clone(), polling_share: config.polling_share }
}

/// The listener for metrics: systemd's, or one of the configuration.
fn exporter(listener: Option<std::net::TcpListener>, config: &Config) -> anyhow::Result<Option<Exporter>> {
    let listener = match (listener, config.metrics.listen) {
        (Some(activated), _) => Some(activated),
        (None, Some(address)) => {
            let bound = std::net::TcpListener::bind(address);
            Some(bound.with_context(|| format!("cannot listen on {address} for metrics"))?)
        }
        (None, None) => None,
    };
    if let Some(address) = listener.as_ref().and_then(|listener| listener.local_addr().ok()) {
        info!("metrics: http://{address}/metrics");
    }
    Ok(listener.map(Exporter::new).transpose()?)
}
