//! What clients of the control socket ask for.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_control::{
    AttachReply, AttachRequest, Call, CallId, Error, Event, ForgetReply, MetricsReply, Nothing, Peer,
    ReloadReply, StatusReply, To, WhyReply, WhyRequest,
};
use gleaner_discover::Key;
use gleaner_engine::live::Found;
use gleaner_engine::{MemoryDir, unix_ms};
use gleaner_kernel::lever::ThreadKey;
use gleaner_policy::WorkloadId;
use gleaner_proto::LineError;
use gleaner_proto::journal::{self, Record, Summary};
use gleaner_proto::source_text::nearest;
use tracing::{info, warn};

use super::Daemon;
use super::overlap::groups;
use crate::engaged::{Engaged, Engagement, Identity, Part};
use crate::paused::Paused;

/// Clients that wait for the end of a workload that they attached to.
#[derive(Debug, Default)]
pub(super) struct Attachments(BTreeMap<WorkloadId, To<AttachReply>>);

impl Attachments {
    fn of(&self, call: CallId) -> Option<WorkloadId> {
        self.0.iter().find(|(_, to)| to.id() == call).map(|(id, _)| *id)
    }
}

impl Daemon {
    /// Answers every client that has something to say, and scrapes.
    pub(super) fn serve(&mut self) {
        while let Some(event) = self.server.serve() {
            match event {
                Event::Call { peer, call } => self.called(peer, call),
                Event::HungUp(call) => {
                    if let Some(id) = self.attachments.of(call) {
                        self.leave(id, "its caller hung up");
                    }
                }
                Event::Refused(refusal) => warn!("{refusal}"),
            }
        }
        if let Some(mut exporter) = self.exporter.take() {
            exporter.serve(&mut || self.exposition());
            self.exporter = Some(exporter);
        }
    }

    fn exposition(&mut self) -> String {
        self.refresh_metrics();
        self.metrics.encode(self.start.elapsed())
    }

    fn called(&mut self, peer: Peer, call: Call) {
        match call {
            Call::Status(to) => {
                let status = self.status();
                self.server.answer(to, Ok(StatusReply { status }));
            }
            Call::Why(asked, to) => self.why(&asked, to),
            Call::Attach(asked, to) => self.attach(&asked, to),
            Call::Detach(asked, to) => {
                let answer = self.detach(&asked.workload, peer);
                self.server.answer(to, answer.map(|()| Nothing {}));
            }
            Call::Pause(asked, to) => {
                let why = asked.reason.as_ref().map_or_else(String::new, |why| format!(": {why}"));
                info!("paused by {peer}{why}");
                self.note(None, format!("paused{why}"));
                let paused = Paused { reason: asked.reason };
                paused.save(&self.paths.state);
                self.paused = Some(paused);
                self.leave_all("paused");
                self.apply_rests();
                self.server.answer(to, Ok(Nothing {}));
            }
            Call::Resume(to) => {
                info!("resumed by {peer}");
                self.note(None, "resumed".to_owned());
                self.resume();
                self.server.answer(to, Ok(Nothing {}));
            }
            Call::Forget(asked, to) => {
                let answer = self.forget(asked.program.as_deref());
                self.server.answer(to, answer);
            }
            Call::Reload(to) => {
                let answer = self.reload().map_err(|reason| Error::InvalidConfiguration { reason });
                let files = || self.loaded.files.iter().map(|file| file.display().to_string()).collect();
                let answer = answer.map(|()| ReloadReply { files: files() });
                self.server.answer(to, answer);
            }
            Call::Metrics(to) => {
                let text = self.exposition();
                self.server.answer(to, Ok(MetricsReply { text }));
            }
        }
    }

    /// Ends a pause, and everything from which Gleaner has stepped back.
    fn resume(&mut self) {
        self.paused = None;
        Paused::remove(&self.paths.state);
        (self.rests.taken_over, self.rests.failed) = (None, None);
        self.refused.clear();
        self.sets_of_others.clear();
        self.known.clear();
        self.partners.retry();
        self.follow_configuration();
        self.apply_rests();
    }

    fn detach(&mut self, name: &str, peer: Peer) -> Result<(), Error> {
        let part_of = |e: &Engaged| e.identity.parts().find(|part| part.name == name).cloned();
        let found = self.engaged.iter().find_map(|(id, e)| Some((*id, part_of(e)?)));
        let survey = self.lookout.survey();
        let keys: Vec<Key> = match &found {
            Some((_, part)) => vec![part.key.clone()],
            None => survey.candidates().filter(|c| c.name == name).map(|c| c.key.clone()).collect(),
        };
        if found.is_none() && keys.is_empty() {
            return Err(self.no_workload(name));
        }
        let why = "detached until it is attached to, or `gleaner resume`";
        self.refused.extend(keys.into_iter().map(|key| (key, why.to_owned())));
        let by = format!("detached by {peer}");
        if let Some((id, _)) = found {
            self.leave(id, &by);
        } else {
            info!(workload = name, "{name}: {by}");
            self.note(Some(name.to_owned()), by);
        }
        Ok(())
    }

    fn no_workload(&self, name: &str) -> Error {
        let engaged = self.engaged.values().flat_map(|e| e.identity.names());
        let names = engaged.chain(self.lookout.survey().candidates().map(|c| c.name.as_str()));
        Error::not_found("workload", name, nearest(name, names).map(str::to_owned))
    }

    fn attach(&mut self, asked: &AttachRequest, to: To<AttachReply>) {
        match self.try_attach(asked) {
            Ok(id) => {
                let workload =
                    self.engaged.get(&id).map(|e| e.identity.name().to_owned()).unwrap_or_default();
                let limits = self.facts.limits.clone();
                self.server.push(&to, &AttachReply { workload, limits, summary: None });
                self.attachments.0.insert(id, to);
            }
            Err(error) => self.server.answer(to, Err::<AttachReply, _>(error)),
        }
    }

    fn try_attach(&mut self, asked: &AttachRequest) -> Result<WorkloadId, Error> {
        if let Some(paused) = &self.paused {
            let why = paused.reason.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
            return Err(Error::Busy {
                reason: format!("gleanerd is paused{why}: `gleaner resume` ends that"),
            });
        }
        let found = match (asked.pid, &asked.cgroup) {
            (Some(pid), None) => Found::process(&self.root, pid, false),
            (None, Some(path)) => Found::group(&self.root, Path::new(path)),
            _ => return Err(Error::InvalidRequest { reason: "name either a pid or a cgroup".to_owned() }),
        };
        let found = found.map_err(|error| Error::InvalidRequest { reason: error.to_string() })?;
        let (key, group) = self.identify(asked.pid, &found)?;
        let executable = asked.pid.and(found.program.clone()).map(std::path::PathBuf::from);
        let unit = gleaner_discover::unit_of(&group);
        let subject = gleaner_config::Subject {
            unit: unit.as_deref(),
            group: &group,
            executable: executable.as_deref(),
        };
        let mut terms = self.loaded.config.terms(&subject);
        if let Some(name) = &asked.objective {
            let unknown = |reason| Error::InvalidRequest { reason };
            terms.objective = name.parse().map_err(unknown)?;
        }
        terms.consolidate = asked.consolidate.unwrap_or(terms.consolidate);
        terms.retain = asked.retain.unwrap_or(terms.retain);
        terms.progress = asked.progress.clone().or(terms.progress);
        // Somebody asks for it.
        terms.engage = true;
        let engagement = self.engagement(terms);
        let memory = asked.memory.unwrap_or(engagement.memory);
        let mut identity = Identity {
            first: Part { name: String::new(), key, pid: asked.pid, unit, group: found.group.clone() },
            partners: Vec::new(),
            is_attached: true,
        };
        self.make_way(&identity)?;
        identity.first.name = self.free_name(asked.name.as_deref().unwrap_or(&found.name));
        self.engage(identity, found, Engagement { memory, ..engagement }).map_err(Error::failed)
    }

    /// What discovery would know a workload by, and its group.
    fn identify(&self, pid: Option<u32>, found: &Found) -> Result<(Key, PathBuf), Error> {
        if let Some(group) = &found.group {
            return Ok((Key::Group(group.clone()), group.clone()));
        }
        let pid = pid.unwrap_or_default();
        let start_ticks = ThreadKey::of(&self.root, pid).map_err(Error::failed)?.start_time_ticks;
        let groups = groups(&self.root, pid).into_iter().map(PathBuf::from);
        // In version 1 it has one in each hierarchy, most of them the root.
        let group = groups.max_by_key(|group| group.components().count()).unwrap_or_else(|| "/".into());
        Ok((Key::Process { pid, start_ticks }, group))
    }

    /// Releases what is engaged of the same processes without having been asked for.
    fn make_way(&mut self, identity: &Identity) -> Result<(), Error> {
        let same = |other: &Identity| other.overlaps(identity, &self.root);
        let (attached, found): (Vec<_>, Vec<_>) =
            self.engaged.iter().filter(|(_, e)| same(&e.identity)).partition(|(_, e)| e.identity.is_attached);
        if let Some((_, engaged)) = attached.first() {
            return Err(Error::AlreadyControlled { workload: engaged.identity.name().to_owned() });
        }
        for id in found.into_iter().map(|(id, _)| *id).collect::<Vec<_>>() {
            self.leave(id, "somebody attaches to it");
        }
        Ok(())
    }

    /// The name with a number behind it if another workload has it.
    pub(super) fn free_name(&self, wanted: &str) -> String {
        let clean: String = wanted
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "._@:+-".contains(c) { c } else { '-' })
            .collect();
        let taken = |name: &str| self.engaged.values().any(|e| e.identity.names().any(|taken| taken == name));
        let numbered = (2..).map(|n| format!("{clean}-{n}"));
        std::iter::once(clean.clone()).chain(numbered).find(|name| !taken(name)).unwrap_or(clean)
    }

    /// Reports the end of a workload to whoever attached to it.
    pub(super) fn end_attachment(&mut self, id: WorkloadId, name: &str, summary: &Summary) {
        if let Some(to) = self.attachments.0.remove(&id) {
            let reply =
                AttachReply { workload: name.to_owned(), limits: Vec::new(), summary: Some(summary.clone()) };
            self.server.answer(to, Ok(reply));
        }
    }

    fn why(&mut self, asked: &WhyRequest, to: To<WhyReply>) {
        for engaged in self.engaged.values_mut() {
            engaged.journal.flush();
        }
        let since = asked.since_ms.map(|ms| unix_ms().saturating_sub(ms));
        let names = match self.paths.state.workloads() {
            Ok(names) => names,
            Err(error) => return self.server.answer(to, Err::<WhyReply, _>(Error::failed(error))),
        };
        let Some(name) = &asked.workload else {
            let paths = self.paths.clone();
            let records = names.into_iter().flat_map(move |workload| {
                // The others have something to say all the same.
                let records =
                    journal::records(&paths.journal(&workload)).map_err(|error| warn!("{error}")).ok();
                records.into_iter().flat_map(move |records| replies(workload.clone(), records, since))
            });
            return self.server.answer_records(to, records);
        };
        let records = if names.contains(name) {
            journal::records(&self.paths.journal(name)).map_err(Error::failed)
        } else {
            let near = nearest(name, names.iter().map(String::as_str)).map(str::to_owned);
            Err(Error::not_found("workload", name, near))
        };
        match records {
            Ok(records) => self.server.answer_records(to, replies(name.clone(), records, since)),
            Err(error) => self.server.answer(to, Err::<WhyReply, _>(error)),
        }
    }

    fn forget(&mut self, program: Option<&str>) -> Result<ForgetReply, Error> {
        let Some(dir) = MemoryDir::default_place(&self.root) else {
            return Err(Error::NotSupported { reason: "no memory is kept here".to_owned() });
        };
        // Also what was learned since it was saved last.
        let now = self.fleet.now();
        for (id, engaged) in &mut self.engaged {
            if let Some(policy) = self.arbiter.policy(*id) {
                engaged.keep(policy, now);
            }
        }
        let (known, _) = dir.list().map_err(Error::failed)?;
        let named: Vec<_> = known.iter().filter(|p| program.is_none_or(|name| p.is_called(name))).collect();
        if let (Some(name), true) = (program, named.is_empty()) {
            let near = nearest(name, known.iter().map(|p| p.program.as_str())).map(str::to_owned);
            return Err(Error::not_found("program", name, near));
        }
        let mut programs: Vec<String> = named.iter().map(|p| p.program.clone()).collect();
        programs.dedup();
        named.into_iter().try_for_each(|program| dir.forget(program)).map_err(Error::failed)?;
        self.known.clear();
        // What is engaged would write it again.
        let forgotten =
            |program: Option<&str>| program.is_some_and(|name| programs.iter().any(|p| p == name));
        for engaged in self.engaged.values_mut().filter(|e| forgotten(e.memory.program())) {
            engaged.memory = gleaner_engine::Memory::default();
        }
        Ok(ForgetReply { programs })
    }
}

/// The records of a journal that are not older than `since` (milliseconds since the Unix epoch), behind its start,
/// without observations: they are most of it, and nobody reads them. Each is read when the client can take it; what
/// comes after a damage is left out, with a warning.
fn replies(
    workload: String,
    records: impl Iterator<Item = Result<Record, LineError>> + Send + 'static,
    since: Option<u64>,
) -> impl Iterator<Item = WhyReply> + Send + 'static {
    let mut from = Duration::ZERO;
    let keep = move |record: &Record| match record {
        Record::Start { unix_ms, .. } => {
            from = Duration::from_millis(since.unwrap_or(0).saturating_sub(*unix_ms));
            true
        }
        Record::Observation { .. } => false,
        Record::Decision { at, .. } | Record::Note { at, .. } | Record::End { at, .. } => *at >= from,
    };
    let readable = records.map_while(|record| record.map_err(|error| warn!("{error}")).ok());
    readable.filter(keep).map(move |record| WhyReply { workload: workload.clone(), record })
}

#[cfg(test)]
mod tests {
    use gleaner_policy::{CpuSet, PolicyConfig};

    use super::*;

    #[test]
    fn old_records_are_left_out_but_for_the_start() {
        let start = Record::Start {
            version: journal::VERSION,
            unix_ms: 1000,
            workload: "x".to_owned(),
            vcpus: CpuSet::first(2),
            config: Box::new(PolicyConfig::default()),
            limits: Vec::new(),
        };
        let note = |ms| Record::Note { at: Duration::from_millis(ms), text: String::new() };
        let all = [start.clone(), note(100), note(200)];
        let recent = |since| {
            let records = all.clone().map(Ok).into_iter();
            replies("x".to_owned(), records, since).map(|reply| reply.record).collect::<Vec<_>>()
        };
        assert_eq!(recent(None), all);
        assert_eq!(recent(Some(1150)), [start.clone(), note(200)]);
        assert_eq!(recent(Some(5000)), [start]);
    }
}
