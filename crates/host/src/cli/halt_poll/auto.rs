//! `halt-poll auto`: the VMs of this host, on which [`drive`] decides.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use gleaner_engine::live::Signals;
use gleaner_host::halt_poll::journal::{self, Journal, Record, VERSION};
use gleaner_host::halt_poll::{Auto, Config, Decision, Parameters, Sample, Vms, drive};
use gleaner_host::{HostSetup, HostTracer, Options, Reading, Report};
use gleaner_kernel::Root;
use gleaner_print::{outln, say};
use nix::time::{ClockId, clock_gettime};

use super::AutoArgs;
use super::hold::{close, open, stepped_back, wait};

pub(super) fn run(args: &AutoArgs) -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let setup = HostSetup::read(&root)?;
    Parameters::read(&root)?;
    let (mut holding, signals) = open(&root)?;
    let started = Instant::now();
    let mut host = Host {
        setup,
        signals,
        started,
        end: args.time.map(|time| started + time),
        followed: None,
        journal: None,
        json: args.json,
        said: false,
    };
    // What a killed one left is restored by now.
    let result = Parameters::read(&root).map_err(anyhow::Error::from).and_then(|found| {
        for caveat in found.caveats() {
            say!("{}: {caveat}", crate::NAME);
        }
        host.begin_journal(args, found.halt_poll_ns);
        let config = Config { found_ns: found.halt_poll_ns, objective: args.objective };
        drive(Auto::new(config), &mut holding, &mut host)
    });
    let left_behind = close(holding);
    let all = left_behind.is_empty();
    let failure = result.as_ref().err().map(|error| format!("{error:#}"));
    host.record(Record::End { at: host.now(), failure, left_behind });
    result.map_err(stepped_back)?;
    Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Host {
    setup: HostSetup,
    signals: Signals,
    started: Instant,
    end: Option<Instant>,
    /// With the latest reading.
    followed: Option<(HostTracer, Reading)>,
    /// None if it could not be written, which was said.
    journal: Option<Journal>,
    json: bool,
    /// Whether it was said what this kernel does not show.
    said: bool,
}

impl Host {
    fn begin_journal(&mut self, args: &AutoArgs, found_ns: u32) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let start = Record::Start {
            version: VERSION,
            unix_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
            pid: std::process::id(),
            objective: args.objective.to_string(),
            found_ns,
        };
        let created = Journal::create(&journal::path(), start);
        self.journal = created.map_err(|error| say!("{}: no journal is written: {error}", crate::NAME)).ok();
    }

    /// A full disk does not end what is decided.
    fn record(&mut self, record: Record) {
        let Some(journal) = &mut self.journal else { return };
        if let Err(error) = journal.write(record) {
            say!("{}: the journal ends here: {error}", crate::NAME);
            self.journal = None;
        }
    }
}

impl Vms for Host {
    type Error = anyhow::Error;

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn follow(&mut self) -> anyhow::Result<()> {
        let mut tracer = HostTracer::start(self.setup.isa, Options::default())?;
        if !std::mem::replace(&mut self.said, true) {
            for missing in tracer.missing() {
                say!("{}: {missing}", crate::NAME);
            }
        }
        let reading = tracer.read()?;
        self.followed = Some((tracer, reading));
        Ok(())
    }

    fn leave(&mut self) {
        self.followed = None;
    }

    fn wait(&mut self, time: Duration) -> anyhow::Result<bool> {
        let until = Instant::now() + time;
        let end = self.end.unwrap_or(until);
        Ok(wait(&mut self.signals, until.min(end))? && self.end.is_none_or(|end| Instant::now() < end))
    }

    fn sample(&mut self, limit_ns: u32) -> anyhow::Result<Sample> {
        let (tracer, earlier) = self.followed.as_mut().context("the VMs are not followed")?;
        let before = cpu_time();
        tracer.forget_ended();
        let later = tracer.read()?;
        // Names are of no interest.
        let report = Report::between(&self.setup, &[], earlier, &later, None);
        *earlier = later;
        Ok(Sample::of(&report, limit_ns, cpu_time().saturating_sub(before)))
    }

    fn report(&mut self, decision: &Decision) -> anyhow::Result<()> {
        self.record(Record::Decision(decision.clone()));
        if self.json {
            outln!("{}", serde_json::to_string(decision)?)?;
        } else {
            outln!("{decision}")?;
        }
        Ok(())
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    // Every Linux has this clock.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
