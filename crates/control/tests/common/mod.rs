//! A small daemon that serves a control socket: it does what it is asked, and keeps count.

#![allow(dead_code, reason = "each test uses a part")]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::fd::{AsFd as _, FromRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use gleaner_control::{
    AttachReply, AttachRequest, Call, CallId, Client, Error, Event, ForgetReply, Limits, MetricsReply, Mode,
    Nothing, ReloadReply, Server, Status, StatusReply, To, WhyReply, WhyRequest,
};
use gleaner_policy::{CpuSet, PolicyConfig};
use gleaner_proto::journal::{Record, Summary, VERSION};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// What happened in the daemon.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) refusals: Vec<String>,
    /// Calls, by the name of their method.
    pub(crate) calls: BTreeMap<&'static str, usize>,
    pub(crate) paused: Option<String>,
    /// Workloads that are attached to.
    pub(crate) attached: Vec<String>,
    /// Records taken from the journal so far.
    pub(crate) records: usize,
}

/// What the daemon is made of.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub(crate) limits: Limits,
    pub(crate) group: Option<&'static str>,
    pub(crate) status: Status,
    /// Number of records in a journal after the start record.
    pub(crate) journal: u64,
    /// The name of a workload that is given none; without one such an `Attach` is refused.
    pub(crate) default_name: Option<&'static str>,
}

impl Default for Setup {
    fn default() -> Self {
        Self { limits: Limits::default(), group: None, status: status(), journal: 3, default_name: None }
    }
}

/// A daemon on a thread of its own. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) note: Option<String>,
    seen: Arc<Mutex<Seen>>,
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::with(Setup::default())
    }

    pub(crate) fn with(setup: Setup) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        let (server, note) = Server::bind(&path, setup.group).unwrap();
        let server = server.with_limits(setup.limits);
        let (stop, stopped) = UnixStream::pair().unwrap();
        let seen = Arc::default();
        let mut state = Loop { server, setup, seen: Arc::clone(&seen), attached: BTreeMap::new() };
        let thread = std::thread::spawn(move || state.run(&stopped));
        Self { dir, path, note, seen, stop, thread: Some(thread) }
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.path).unwrap()
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    /// Waits until `check` holds.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, check: impl Fn(&Seen) -> bool) {
        let end = Instant::now() + Duration::from_secs(20);
        while !check(&self.seen()) {
            assert!(Instant::now() < end, "not in time: {what}: {:?}", self.seen());
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Ends the daemon, and fails if it panicked.
    pub(crate) fn stop(mut self) -> PathBuf {
        self.end().unwrap();
        self.path.clone()
    }

    fn end(&mut self) -> std::thread::Result<()> {
        let _ = (&self.stop).write_all(b"x");
        self.thread.take().map_or(Ok(()), JoinHandle::join)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let ended = self.end();
        assert!(ended.is_ok() || std::thread::panicking(), "the daemon panicked");
    }
}

struct Loop {
    server: Server,
    setup: Setup,
    seen: Arc<Mutex<Seen>>,
    attached: BTreeMap<CallId, Attached>,
}

struct Attached {
    workload: String,
    /// Ends with this process.
    process: Option<OwnedFd>,
    to: To<AttachReply>,
}

impl Loop {
    fn run(&mut self, stopped: &UnixStream) {
        loop {
            while let Some(event) = self.server.serve() {
                self.handle(event);
            }
            let left = self.server.due().map(|due| due.saturating_duration_since(Instant::now()));
            let timeout = left.map_or(PollTimeout::NONE, |left| {
                PollTimeout::try_from(left + Duration::from_millis(1)).unwrap()
            });
            let mut fds = vec![stopped.as_fd()];
            fds.extend(self.server.fds());
            let watched =
                self.attached.iter().filter_map(|(id, at)| Some((*id, at.process.as_ref()?.as_fd())));
            let (ids, processes): (Vec<_>, Vec<_>) = watched.unzip();
            fds.extend(processes);
            let mut fds: Vec<_> = fds.into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
            poll(&mut fds, timeout).unwrap();
            let ready: Vec<_> = fds.iter().map(|fd| fd.any() == Some(true)).collect();
            if ready[0] {
                return;
            }
            let ended = ids.iter().zip(&ready[fds.len() - ids.len()..]).filter(|(_, ready)| **ready);
            ended.map(|(id, _)| *id).collect::<Vec<_>>().into_iter().for_each(|id| self.end(id));
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Refused(refusal) => self.seen.lock().unwrap().refusals.push(refusal.to_string()),
            Event::HungUp(id) => self.end(id),
            Event::Call { call, .. } => self.call(call),
        }
    }

    fn call(&mut self, call: Call) {
        let method = match call {
            Call::Status(_) => "Status",
            Call::Why(..) => "Why",
            Call::Attach(..) => "Attach",
            Call::Detach(..) => "Detach",
            Call::Pause(..) => "Pause",
            Call::Resume(..) => "Resume",
            Call::Forget(..) => "Forget",
            Call::Reload(..) => "Reload",
            Call::Metrics(..) => "Metrics",
        };
        *self.seen.lock().unwrap().calls.entry(method).or_default() += 1;
        match call {
            Call::Status(to) => {
                let mut status = self.setup.status.clone();
                if let Some(reason) = &self.seen.lock().unwrap().paused {
                    (status.mode, status.mode_reason) = (Mode::Paused, Some(reason.clone()));
                    status.leases = 0;
                }
                self.server.answer(to, Ok(StatusReply { status }));
            }
            Call::Why(request, to) => self.why(&request, to),
            Call::Attach(request, to) => self.attach(request, to),
            Call::Detach(request, to) => {
                let found = self.attached.iter().find(|(_, other)| other.workload == request.workload);
                let Some(id) = found.map(|(id, _)| *id) else {
                    return self
                        .server
                        .answer(to, Err(Error::not_found("workload", &request.workload, None)));
                };
                self.end(id);
                self.server.answer(to, Ok(Nothing {}));
            }
            Call::Pause(request, to) => {
                self.seen.lock().unwrap().paused = Some(request.reason.unwrap_or_default());
                self.server.answer(to, Ok(Nothing {}));
            }
            Call::Resume(to) => {
                self.seen.lock().unwrap().paused = None;
                self.server.answer(to, Ok(Nothing {}));
            }
            Call::Forget(request, to) => {
                let programs =
                    request.program.map_or_else(|| vec!["/bin/a".into(), "/bin/b".into()], |p| vec![p]);
                self.server.answer(to, Ok(ForgetReply { programs }));
            }
            Call::Reload(to) => {
                let reason = "/etc/gleaner/gleaner.toml: line 3: `objektive` is not a key".to_owned();
                self.server.answer(to, Err::<ReloadReply, _>(Error::InvalidConfiguration { reason }));
            }
            Call::Metrics(to) => {
                self.server.answer(to, Ok(MetricsReply { text: "# EOF\n".to_owned() }));
            }
        }
    }

    fn why(&mut self, request: &WhyRequest, to: To<WhyReply>) {
        match request.workload.as_deref() {
            None | Some("redis-server") => {
                let seen = Arc::clone(&self.seen);
                let since = request.since_ms.map_or(0, |_| 2);
                let records = journal(self.setup.journal, since).inspect(move |_| {
                    seen.lock().unwrap().records += 1;
                });
                self.server.answer_records(to, records);
            }
            Some("idle") => self.server.answer_records(to, std::iter::empty()),
            Some(other) => {
                let nearest = Some("redis-server".to_owned());
                self.server.answer(to, Err::<WhyReply, _>(Error::not_found("workload", other, nearest)));
            }
        }
    }

    fn attach(&mut self, request: AttachRequest, to: To<AttachReply>) {
        let default = self.setup.default_name.map(str::to_owned);
        let Some(workload) = request.name.or(default) else {
            let reason = "this test attaches to names only".to_owned();
            return self.server.answer(to, Err(Error::NotSupported { reason }));
        };
        if self.attached.values().any(|other| other.workload == workload) {
            return self.server.answer(to, Err(Error::AlreadyControlled { workload }));
        }
        let limits = vec!["no control group".to_owned()];
        let reply = AttachReply { workload: workload.clone(), limits, summary: None };
        self.seen.lock().unwrap().attached.push(workload.clone());
        self.server.push(&to, &reply);
        let process = request.pid.map(process_fd);
        self.attached.insert(to.id(), Attached { workload, process, to });
    }

    /// Ends the attachment of this call.
    fn end(&mut self, id: CallId) {
        let Some(Attached { workload, to, .. }) = self.attached.remove(&id) else { return };
        self.seen.lock().unwrap().attached.retain(|name| *name != workload);
        let summary = Some(Summary { elapsed: Duration::from_secs(3), proven: 2, ..Summary::default() });
        self.server.answer(to, Ok(AttachReply { workload, limits: Vec::new(), summary }));
    }
}

/// A descriptor that becomes readable when the process ends.
fn process_fd(pid: u32) -> OwnedFd {
    // SAFETY: pidfd_open takes two integers and returns a new descriptor, owned by nothing else, or -1.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(i32::try_from(fd).unwrap())
    }
}

/// A journal with a start record and notes from number `since` up to `notes`.
fn journal(notes: u64, since: u64) -> impl Iterator<Item = WhyReply> {
    let start = Record::Start {
        version: VERSION,
        unix_ms: 1_700_000_000_000,
        workload: "redis-server".to_owned(),
        vcpus: CpuSet::first(2),
        config: Box::new(PolicyConfig::default()),
        limits: Vec::new(),
    };
    let note = |n| Record::Note { at: Duration::from_millis(n), text: format!("note {n}") };
    let records = std::iter::once(start).chain((1..=notes).filter(move |n| *n >= since).map(note));
    records.map(|record| WhyReply { workload: "redis-server".to_owned(), record })
}

/// A status with three workloads.
pub(crate) fn status() -> Status {
    serde_json::from_str(include_str!("../status.json")).unwrap()
}

/// Sends raw bytes on a connection of its own.
pub(crate) fn raw(path: &Path, bytes: &[u8]) -> UnixStream {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let _ = (&stream).write_all(bytes);
    stream
}
