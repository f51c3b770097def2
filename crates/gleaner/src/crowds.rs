//! The fast unfold as the engine wants it: loaded when first needed, then armed again and again.

use std::error::Error;
use std::os::fd::BorrowedFd;

use gleaner_engine::live::{CrowdQuestion, CrowdWatch};
use gleaner_policy::{Crowd, CrowdSource};
use gleaner_trace::FastUnfold;

use crate::cli::ControlArgs;

/// What tells a run of crowds, unless its user wants no BPF.
pub(crate) fn watch(args: &ControlArgs) -> Option<Box<dyn CrowdWatch>> {
    (!args.no_bpf).then(|| Box::new(OnDemand(None)) as Box<dyn CrowdWatch>)
}

/// Most workloads are never gathered on fewer vCPUs: nothing is loaded for them.
#[derive(Debug)]
struct OnDemand(Option<FastUnfold>);

impl CrowdWatch for OnDemand {
    fn arm(&mut self, asked: &CrowdQuestion) -> Result<(), Box<dyn Error + Send + Sync>> {
        let unfold = match &mut self.0 {
            Some(loaded) => loaded,
            none => none.insert(FastUnfold::load()?),
        };
        unfold.polling(asked.polled);
        Ok(unfold.arm(&asked.active, asked.at_least, asked.patience)?)
    }

    fn disarm(&mut self) {
        if let Some(unfold) = &mut self.0 {
            unfold.disarm();
        }
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.as_ref().map(FastUnfold::fd)
    }

    fn read(&mut self) -> Option<Crowd> {
        let crowding = self.0.as_mut()?.read()?;
        Some(Crowd { runnable: crowding.runnable, waiting: crowding.waiting, source: CrowdSource::RunQueues })
    }
}
