//! `halt-poll auto`: takes the samples that [`Auto`] asks for, and puts in force what it answers.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::anyhow;
use gleaner_engine::live::Signals;
use gleaner_host::halt_poll::{Auto, Change, Config, Decision, Holding, Next, Parameters, Sample, Step};
use gleaner_host::{HostSetup, HostTracer, Options, Report};
use gleaner_kernel::Root;
use gleaner_print::{outln, say};
use nix::time::{ClockId, clock_gettime};

use super::AutoArgs;
use super::hold::{CHECK_INTERVAL, close, open, wait};

pub(super) fn run(args: &AutoArgs) -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let setup = HostSetup::read(&root)?;
    Parameters::read(&root)?;
    let (holding, signals) = open(&root)?;
    // What a killed one left is restored by now.
    let found = Parameters::read(&root);
    let started = Instant::now();
    let mut driver = Driver {
        setup,
        holding,
        signals,
        started,
        end: args.time.map(|time| started + time),
        json: args.json,
        said: false,
    };
    let result = found.map_err(anyhow::Error::from).and_then(|found| {
        for caveat in found.caveats() {
            say!("{}: {caveat}", crate::NAME);
        }
        driver.rounds(Auto::new(Config { found_ns: found.halt_poll_ns, objective: args.objective }))
    });
    let restored = close(driver.holding);
    result?;
    Ok(if restored { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Driver {
    setup: HostSetup,
    holding: Holding,
    signals: Signals,
    started: Instant,
    end: Option<Instant>,
    json: bool,
    /// Whether it was said what this kernel does not show.
    said: bool,
}

impl Driver {
    /// One round after another, until the end. Between them nothing is followed.
    fn rounds(&mut self, mut auto: Auto) -> anyhow::Result<()> {
        while let Some(rest) = self.round(&mut auto)? {
            let until = Instant::now() + rest;
            while Instant::now() < until {
                if !self.wait((Instant::now() + CHECK_INTERVAL).min(until))? {
                    return Ok(());
                }
                self.holding.check().map_err(stepped_back)?;
            }
        }
        Ok(())
    }

    /// One round: how long to rest after it; `None` at the end.
    fn round(&mut self, auto: &mut Auto) -> anyhow::Result<Option<Duration>> {
        let mut step = auto.start();
        self.carry_out(&step)?;
        let mut tracer = HostTracer::start(&self.setup, Options::default())?;
        if !std::mem::replace(&mut self.said, true) {
            for missing in tracer.missing() {
                say!("{}: {missing}", crate::NAME);
            }
        }
        let mut earlier = tracer.read()?;
        loop {
            let time = match step.next {
                Next::Rest(time) => return Ok(Some(time)),
                Next::Sample(time) => time,
            };
            if !self.wait(Instant::now() + time)? {
                return Ok(None);
            }
            let before = cpu_time();
            tracer.forget_ended();
            let later = tracer.read()?;
            // Names are of no interest.
            let report = Report::between(&self.setup, &[], &earlier, &later, None);
            let sample = Sample::of(&report, step.limit_ns, cpu_time().saturating_sub(before));
            step = auto.step(self.started.elapsed(), &sample);
            self.carry_out(&step)?;
            earlier = later;
        }
    }

    fn carry_out(&mut self, step: &Step) -> anyhow::Result<()> {
        self.holding.set(&Change::limit(step.limit_ns)).map_err(stepped_back)?;
        step.decision.as_ref().map_or(Ok(()), |decision| self.print(decision))
    }

    fn print(&self, decision: &Decision) -> anyhow::Result<()> {
        if self.json {
            outln!("{}", serde_json::to_string(decision)?)?;
        } else {
            outln!("{decision}")?;
        }
        Ok(())
    }

    /// Waits until then. False at the end.
    fn wait(&mut self, until: Instant) -> anyhow::Result<bool> {
        let end = self.end.unwrap_or(until);
        Ok(wait(&mut self.signals, until.min(end))? && self.end.is_none_or(|end| Instant::now() < end))
    }
}

fn stepped_back(error: gleaner_host::halt_poll::HoldError) -> anyhow::Error {
    if error.is_theirs() { anyhow!("{error}; this ends here") } else { error.into() }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    // Every Linux has this clock.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}
