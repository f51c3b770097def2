//! Adapts the sensor of run-queue overload to the engine.

use std::error::Error;
use std::os::fd::BorrowedFd;

use gleaner_engine::live::{OverloadQuery, OverloadWatch};
use gleaner_policy::{Overload, OverloadSource};

use crate::OverloadSensor;

/// Reports run-queue overload. Each has programs of its own, which are loaded when it is first armed: most workloads
/// are never consolidated.
pub fn overload_watch() -> Box<dyn OverloadWatch> {
    Box::new(LazyOverloadSensor(None))
}

#[derive(Debug)]
struct LazyOverloadSensor(Option<OverloadSensor>);

impl OverloadWatch for LazyOverloadSensor {
    fn arm(&mut self, asked: &OverloadQuery) -> Result<(), Box<dyn Error + Send + Sync>> {
        let sensor = match &mut self.0 {
            Some(loaded) => loaded,
            none => none.insert(OverloadSensor::load()?),
        };
        sensor.polling(asked.polled);
        Ok(sensor.arm(&asked.active, asked.at_least, asked.persistence)?)
    }

    fn disarm(&mut self) {
        if let Some(sensor) = &mut self.0 {
            sensor.disarm();
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(OverloadSensor::fd)
    }

    fn read(&mut self) -> Option<Overload> {
        let crate::Overload { runnable, waiting, .. } = self.0.as_mut()?.read()?;
        Some(Overload { runnable, waiting, source: OverloadSource::RunQueues })
    }
}
