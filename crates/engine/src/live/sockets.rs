//! What the workload sends through sockets, counted where the kernel's own account shows too little of it.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use gleaner_policy::{Sockets, WorkloadInterval};

/// Counts what one workload sends through sockets. Ends with the process, however that ends.
pub trait TrafficSensor: fmt::Debug {
    /// Begins to make ready for counting, and does not wait for that.
    fn start(&mut self);

    /// Ends the counting: it costs nothing from then on.
    fn stop(&mut self);

    /// What was counted since the start, or since the last call; `None` until it is ready. Does not wait.
    ///
    /// # Errors
    /// It cannot be had here; the text says why. It is not asked again then.
    fn read(&mut self) -> Result<Option<Sockets>, Box<dyn Error + Send + Sync>>;
}

/// Below this rate, in bytes per second, a block of ten milliseconds shows too little of what read and write calls move:
/// they are not what the workload is there for.
const LITTLE: f64 = 400e3;
/// From here on they show enough. Further than any change of the setting moves the rate.
const PLENTY: f64 = 8.0 * LITTLE;
/// With fewer switches per second there is nothing to judge.
const SWITCHES: f64 = 500.0;
/// Over so much time the rates are taken...
const SPAN: Duration = Duration::from_millis(40);
/// ...and over so much before the counting ends.
const LONG_SPAN: Duration = Duration::from_secs(1);
/// A workload without a socket is asked for one again after this long, then after twice as long, and so on.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(60));

/// What is known of the workload's sockets.
#[derive(Debug)]
pub(super) struct Traffic {
    sensor: Option<Box<dyn TrafficSensor>>,
    state: State,
    /// Since the rates were last judged.
    span: Span,
    /// How long to wait from a look without a socket to the next, and how long it still is.
    pause: Duration,
    left: Duration,
    note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Off,
    /// Started, and not ready at the begin of this interval.
    Starting,
    Counting,
}

/// What read and write calls moved, and how often threads were switched to.
#[derive(Debug, Clone, Copy, Default)]
struct Span {
    length: Duration,
    moved: u64,
    switches: u64,
}

impl Span {
    fn add(&mut self, period: Duration, workload: &WorkloadInterval) {
        self.length += period;
        self.moved = self.moved.saturating_add(workload.moved_bytes.unwrap_or(0));
        self.switches = self.switches.saturating_add(workload.switches);
    }

    fn per_second(&self, amount: u64) -> f64 {
        amount as f64 / self.length.as_secs_f64().max(1e-6)
    }
}

impl Traffic {
    pub(super) fn new(sensor: Option<Box<dyn TrafficSensor>>) -> Self {
        Self {
            sensor,
            state: State::Off,
            span: Span::default(),
            pause: ASK_AGAIN.0,
            left: Duration::ZERO,
            note: None,
        }
    }

    /// The traffic of the interval that ends now, of length `period`; `None` where it was not counted for all of it.
    /// `has_sockets` says whether the workload has any; it is asked only where counting could be worth it.
    pub(super) fn of(
        &mut self,
        period: Duration,
        workload: &WorkloadInterval,
        has_sockets: impl FnOnce() -> bool,
    ) -> Option<Sockets> {
        let counted = self.read();
        self.span.add(period, workload);
        self.left = self.left.saturating_sub(period);
        let long_enough = if self.state == State::Off { SPAN } else { LONG_SPAN };
        if self.sensor.is_some() && self.span.length >= long_enough {
            let span = std::mem::take(&mut self.span);
            self.judge(&span, has_sockets);
        }
        counted
    }

    pub(super) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    fn read(&mut self) -> Option<Sockets> {
        let sensor = self.sensor.as_mut().filter(|_| self.state != State::Off)?;
        match sensor.read() {
            Ok(Some(counted)) => {
                let before = std::mem::replace(&mut self.state, State::Counting);
                // What came before it was ready is missing in the first one.
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
        let Some(sensor) = &mut self.sensor else { return };
        let (moved, switches) = (span.per_second(span.moved), span.per_second(span.switches));
        if self.state != State::Off {
            if moved > PLENTY {
                sensor.stop();
                self.state = State::Off;
            }
            return;
        }
        if moved >= LITTLE || switches < SWITCHES || !self.left.is_zero() {
            return;
        }
        if has_sockets() {
            sensor.start();
            self.state = State::Starting;
        } else {
            self.left = self.pause;
            self.pause = (self.pause * 2).min(ASK_AGAIN.1);
        }
    }
}

#[cfg(test)]
mod tests;
