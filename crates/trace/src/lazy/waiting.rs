//! Adapts the sensor of wake-up latencies to the engine.

use std::error::Error;

use gleaner_engine::live::WaitingSensor;
use gleaner_policy::{Waiting, WaitingSource};

use crate::{Latencies, LatencySensor, Scope};

/// The sensor of how long the threads of `scope` wait after a wake-up.
pub fn waiting_sensor(scope: Scope) -> Box<dyn WaitingSensor> {
    Box::new(LazyLatencySensor { scope, loaded: None })
}

#[derive(Debug)]
struct LazyLatencySensor {
    scope: Scope,
    loaded: Option<LatencySensor>,
}

impl WaitingSensor for LazyLatencySensor {
    fn arm(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let sensor = match &mut self.loaded {
            Some(loaded) => loaded,
            none => none.insert(LatencySensor::load(&self.scope)?),
        };
        Ok(sensor.arm()?)
    }

    fn disarm(&mut self) {
        if let Some(sensor) = &mut self.loaded {
            sensor.disarm();
        }
    }

    fn read(&mut self) -> Option<Waiting> {
        self.loaded.as_mut()?.read().and_then(|latencies| waiting(&latencies))
    }
}

/// `None` if threads were woken but no latency is known yet, which is not the same as no waiting.
fn waiting(latencies: &Latencies) -> Option<Waiting> {
    const TAIL: f64 = 0.99;
    if latencies.wake_ups > 0 && latencies.known.count == 0 {
        return None;
    }
    Some(Waiting {
        wake_ups: latencies.wake_ups,
        total: latencies.total().unwrap_or_default(),
        tail: latencies.known.quantile(TAIL).unwrap_or_default(),
        source: WaitingSource::Traced,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use crate::Histogram;

    use super::*;

    #[test]
    fn nothing_known_is_not_no_waiting() {
        let unknown = Latencies { wake_ups: 3, known: Histogram::default() };
        assert_eq!(waiting(&unknown), None);
        let quiet = waiting(&Latencies::default()).unwrap();
        assert_eq!((quiet.wake_ups, quiet.total, quiet.tail), (0, Duration::ZERO, Duration::ZERO));
        let known = Histogram { count: 2, total_ns: 3000, buckets: BTreeMap::from([(64, 1), (72, 1)]) };
        let some = waiting(&Latencies { wake_ups: 4, known }).unwrap();
        assert_eq!((some.wake_ups, some.total), (4, Duration::from_micros(6)));
        assert!(some.tail > Duration::from_micros(1), "{some:?}");
    }
}
