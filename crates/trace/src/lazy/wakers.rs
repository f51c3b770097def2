//! Counts for a moment which process wakes which. Loading the program takes tens of milliseconds, so a thread of its own
//! does it while whoever asked goes on.

use std::error::Error;
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::unavailable::NotAvailable;
use crate::{WakerSensor, Wakeups};

/// How often to check whether it is loaded.
const LOADING: Duration = Duration::from_millis(20);

/// A count of wake-ups that is under way.
#[derive(Debug)]
pub struct WakerCount {
    span: Duration,
    state: State,
    due: Instant,
}

#[derive(Debug)]
enum State {
    /// Receives the sensor from the thread that loads it. If this end is dropped, so is the sensor.
    Loading(Receiver<Result<WakerSensor, NotAvailable>>),
    Counting(WakerSensor),
    Done,
}

/// Starts to count for `span`.
///
/// # Errors
/// There is no thread for it.
pub fn count_wakers(span: Duration) -> std::io::Result<WakerCount> {
    let (sender, receiver) = sync_channel(1);
    let load = move || drop(sender.send(WakerSensor::load()));
    thread::Builder::new().name("wakers".to_owned()).spawn(load)?;
    Ok(WakerCount { span, state: State::Loading(receiver), due: Instant::now() + LOADING })
}

impl WakerCount {
    /// When to call [`WakerCount::advance`] next.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Continues, if that is due; does not block. The result, once there is one.
    ///
    /// # Errors
    /// Counting is not possible here.
    pub fn advance(&mut self) -> Result<Option<Vec<Wakeups>>, Box<dyn Error + Send + Sync>> {
        let now = Instant::now();
        if now < self.due {
            return Ok(None);
        }
        match std::mem::replace(&mut self.state, State::Done) {
            State::Loading(receiver) => match receiver.try_recv() {
                Ok(loaded) => {
                    let mut sensor = loaded?;
                    sensor.start()?;
                    (self.state, self.due) = (State::Counting(sensor), Instant::now() + self.span);
                    Ok(None)
                }
                Err(TryRecvError::Empty) => {
                    (self.state, self.due) = (State::Loading(receiver), now + LOADING);
                    Ok(None)
                }
                Err(TryRecvError::Disconnected) => Err("the thread that loads it has ended".into()),
            },
            State::Counting(sensor) => Ok(Some(sensor.stop())),
            State::Done => Err("it has ended".into()),
        }
    }
}
