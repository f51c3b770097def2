//! Adapts the sensor of run-queue overload to the engine.

use std::error::Error;
use std::os::fd::BorrowedFd;

use gleaner_engine::live::{OverloadQuery, OverloadWatch};
use gleaner_policy::{Overload, OverloadSource};
use gleaner_trace::OverloadSensor;

use crate::options::ControlArgs;

/// The sensor, unless the user wants no BPF.
pub(crate) fn watch(args: &ControlArgs) -> Option<Box<dyn OverloadWatch>> {
    (!args.no_bpf).then(|| Box::new(LazyOverloadSensor(None)) as Box<dyn OverloadWatch>)
}

/// Loads the programs when first armed: most workloads are never consolidated.
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
        let gleaner_trace::Overload { runnable, waiting, .. } = self.0.as_mut()?.read()?;
        Some(Overload { runnable, waiting, source: OverloadSource::RunQueues })
    }
}
