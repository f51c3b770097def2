//! What the workload sends through sockets, counted if the kernel's I/O accounting leaves it out.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use gleaner_policy::{Sockets, WorkloadInterval};

/// Counts what one workload sends through sockets. Ends with the process, however that ends.
pub trait TrafficSensor: fmt::Debug {
    /// Starts to prepare counting, without waiting for it.
    fn start(&mut self);

    /// Whether it is prepared. Does not block.
    ///
    /// # Errors
    /// It is not available here; the text says why. It is not tried again.
    fn is_ready(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>>;

    /// Counts from now on, if it is prepared. Takes a millisecond at most.
    ///
    /// # Errors
    /// As for [`TrafficSensor::is_ready`].
    fn arm(&mut self) -> Result<(), Box<dyn Error + Send + Sync>>;

    /// Stops counting until it is armed again, and costs nothing meanwhile.
    fn disarm(&mut self);

    /// Stops counting, and frees what was prepared.
    fn stop(&mut self);

    /// The traffic since it was armed or the last call; `None` if it cannot be read. Does not block.
    fn read(&mut self) -> Option<Sockets>;
}

/// A server that answers by write calls makes at least one of them in this many context switches. What else it reads
/// and writes, say tables and logs, may have nothing to do with its answers.
const SWITCHES_PER_WRITE: u64 = 4;
/// Below this rate of context switches there is nothing to judge.
const MIN_SWITCH_RATE: f64 = 500.0;
/// Rates are averaged over this time to start counting...
const START_SPAN: Duration = Duration::from_millis(40);
/// ...and over this time to end it. For so long nobody wants the traffic before counting pauses.
const STOP_SPAN: Duration = Duration::from_secs(1);
/// First and longest time until a workload without sockets is checked again; doubles in between.
const RECHECK_DELAY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

/// The state of counting the workload's socket traffic.
#[derive(Debug)]
pub(super) struct Traffic {
    sensor: Option<Box<dyn TrafficSensor>>,
    state: State,
    /// For how long nobody has wanted to know the traffic; `None` while somebody does.
    unwanted: Option<Duration>,
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
    /// Being prepared.
    Starting,
    /// Prepared, but nobody needs it.
    Paused,
    /// Counting, from the start of this interval or earlier.
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
            unwanted: Some(Duration::ZERO),
            span: Span::default(),
            recheck_delay: RECHECK_DELAY.0,
            until_recheck: Duration::ZERO,
            note: None,
        }
    }

    /// Whether the traffic should be counted, from the next interval on.
    pub(super) fn set_wanted(&mut self, wanted: bool) {
        self.unwanted = if wanted { None } else { self.unwanted.or(Some(Duration::ZERO)) };
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
        if self.state == State::Counting {
            workload.sockets = self.sensor.as_mut().and_then(|sensor| sensor.read());
        }
        self.unwanted = self.unwanted.map(|time| time + period);
        if let Err(error) = self.start_and_pause() {
            self.note = Some(format!("{error}; what is sent by send judges no change"));
            (self.sensor, self.state) = (None, State::Off);
        }
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
        matches!(self.state, State::Starting | State::Paused | State::Counting)
    }

    pub(super) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Between two intervals, so that traffic is counted for all of an interval or not at all.
    fn start_and_pause(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let Some(sensor) = &mut self.sensor else { return Ok(()) };
        if self.state == State::Starting && sensor.is_ready()? {
            self.state = State::Paused;
        }
        match (self.state, self.unwanted) {
            (State::Paused, None) => {
                sensor.arm()?;
                self.state = State::Counting;
            }
            (State::Counting, Some(time)) if time >= STOP_SPAN => {
                sensor.disarm();
                self.state = State::Paused;
            }
            _ => {}
        }
        Ok(())
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
