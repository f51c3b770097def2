//! What the workload sends through sockets, counted if the kernel's I/O accounting leaves it out.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use gleaner_policy::{Sockets, WorkloadInterval};

/// Counts what one workload sends through sockets. Ends with the process, however that ends.
pub trait TrafficSensor: fmt::Debug {
    /// Starts to prepare counting, without waiting for it.
    fn start(&mut self);

    /// Stops counting, which then costs nothing.
    fn stop(&mut self);

    /// The traffic since the start or the last call; `None` until it is ready. Does not block.
    ///
    /// # Errors
    /// It is not available here; the text says why. It is not tried again.
    fn read(&mut self) -> Result<Option<Sockets>, Box<dyn Error + Send + Sync>>;
}

/// A server that answers by write calls makes at least one of them in this many context switches. What else it reads
/// and writes, say tables and logs, may have nothing to do with its answers.
const SWITCHES_PER_WRITE: u64 = 4;
/// Below this rate of context switches there is nothing to judge.
const MIN_SWITCH_RATE: f64 = 500.0;
/// Rates are averaged over this time to start counting...
const START_SPAN: Duration = Duration::from_millis(40);
/// ...and over this time to end it.
const STOP_SPAN: Duration = Duration::from_secs(1);
/// First and longest time until a workload without sockets is checked again; doubles in between.
const RECHECK_DELAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

/// The state of counting the workload's socket traffic.
#[derive(Debug)]
pub(super) struct Traffic {
    sensor: Option<Box<dyn TrafficSensor>>,
    state: State,
    /// Totals since the rates were last judged.
    span: Span,
    /// The time from a check without sockets to the next, and what is left of it.
    recheck_delay: Duration,
    until_recheck: Duration,
    note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not judged yet.
    Unknown,
    Off,
    /// Started, but not ready at the start of this interval.
    Starting,
    Counting,
}

/// Write calls and context switches.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    length: Duration,
    writes: u64,
    switches: u64,
}

impl Traffic {
    pub(super) fn new(sensor: Option<Box<dyn TrafficSensor>>) -> Self {
        Self {
            sensor,
            state: State::Unknown,
            span: Span::default(),
            recheck_delay: RECHECK_DELAY.0,
            until_recheck: Duration::ZERO,
            note: None,
        }
    }

    /// Completes what the workload did in the interval of length `period` that ends now, with so many `writes`: adds
    /// the traffic if it was counted for all of it, and whether it may be counted soon. Where traffic is the answer,
    /// other bytes are none and not reported. `has_sockets` is called only if counting could be worth it.
    pub(super) fn observe(
        &mut self,
        period: Duration,
        workload: &mut WorkloadInterval,
        writes: Option<u64>,
        has_sockets: impl FnOnce() -> bool,
    ) {
        workload.sockets = self.read();
        self.span.length += period;
        self.span.writes = self.span.writes.saturating_add(writes.unwrap_or(0));
        self.span.switches = self.span.switches.saturating_add(workload.switches);
        self.until_recheck = self.until_recheck.saturating_sub(period);
        let long_enough = if self.is_on() { STOP_SPAN } else { START_SPAN };
        if self.sensor.is_some() && self.span.length >= long_enough {
            let span = std::mem::take(&mut self.span);
            self.judge(&span, has_sockets);
        }
        if self.is_on() {
            workload.moved_bytes = None;
        }
        workload.incomplete = self.sensor.is_some() && matches!(self.state, State::Unknown | State::Starting);
    }

    fn is_on(&self) -> bool {
        matches!(self.state, State::Starting | State::Counting)
    }

    pub(super) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn read(&mut self) -> Option<Sockets> {
        let is_on = self.is_on();
        let sensor = self.sensor.as_mut().filter(|_| is_on)?;
        match sensor.read() {
            Ok(Some(counted)) => {
                let before = std::mem::replace(&mut self.state, State::Counting);
                // The first reading lacks what came before it was ready.
                (before == State::Counting).then_some(counted)
            }
            Ok(None) => None,
            Err(error) => {
                self.note = Some(format!("{error}; what is sent by send judges no change"));
                (self.sensor, self.state) = (None, State::Off);
                None
            }
        }
    }

    fn judge(&mut self, span: &Span, has_sockets: impl FnOnce() -> bool) {
        let is_on = self.is_on();
        let Some(sensor) = &mut self.sensor else { return };
        if is_on {
            if span.writes > span.switches {
                sensor.stop();
                self.state = State::Off;
            }
            return;
        }
        self.state = State::Off;
        let few_switches = (span.switches as f64) < MIN_SWITCH_RATE * span.length.as_secs_f64();
        let by_writes = span.writes.saturating_mul(SWITCHES_PER_WRITE) >= span.switches;
        if few_switches || by_writes || !self.until_recheck.is_zero() {
            return;
        }
        if has_sockets() {
            sensor.start();
            self.state = State::Starting;
        } else {
            self.until_recheck = self.recheck_delay;
            self.recheck_delay = (self.recheck_delay * 2).min(RECHECK_DELAY.1);
        }
    }
}

#[cfg(test)]
mod tests;
