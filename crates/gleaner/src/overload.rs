//! The sensor of run-queue overload as the engine wants it: loaded when first needed, then armed again and again.

use std::error::Error;
use std::os::fd::BorrowedFd;

use gleaner_engine::live::{OverloadQuery, OverloadWatch};
use gleaner_policy::{Overload, OverloadSource};
use gleaner_trace::OverloadSensor;

use crate::cli::ControlArgs;

/// What reports overload to a run, unless its user wants no BPF.
pub(crate) fn watch(args: &ControlArgs) -> Option<Box<dyn OverloadWatch>> {
    (!args.no_bpf).then(|| Box::new(OnDemand(None)) as Box<dyn OverloadWatch>)
}

/// Most workloads are never consolidated on fewer vCPUs: nothing is loaded for them.
#[derive(Debug)]
struct OnDemand(Option<OverloadSensor>);

impl OverloadWatch for OnDemand {
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
