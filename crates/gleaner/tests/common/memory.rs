//! What is known of a program before its run, as if an earlier one had proven it; and what its journal says.

use std::fs;
use std::path::Path;
use std::time::Duration;

use gleaner_engine::MemoryDir;
use gleaner_kernel::Root;
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::preempt::KernelVersion;
use gleaner_policy::{
    Evidence, KnownLoad, KnownRetention, KnownVcpus, Method, PolicyConfig, Retention, Signal,
};
use gleaner_proto::journal::{self, Record};
use gleaner_proto::memory::{LoadMemory, MachineIdentity, ProgramMemory};

use super::process::GLEANER;

const EVIDENCE: Evidence = Evidence { signal: Signal::Moved, ratio: 3.5, low: 3.4, high: 3.6, pairs: 2 };
/// The least load that is told from others.
const LEAST_LOAD: f64 = 1.0 / 64.0;

/// The product's path as its memory names it.
pub(crate) fn product() -> String {
    fs::canonicalize(GLEANER).unwrap().to_str().unwrap().to_owned()
}

/// Short polling paid, with every vCPU active.
pub(crate) fn polling() -> KnownLoad {
    let setting = Retention { method: Method::Haltpoll, limit: Duration::from_micros(30) };
    let retention = Some(KnownRetention { setting, evidence: EVIDENCE });
    KnownLoad { load: 0.0, retention, vcpus: None, refuted: 0 }
}

/// One vCPU paid, without retention.
pub(crate) fn packing() -> KnownLoad {
    let vcpus = Some(KnownVcpus { active: 1, runnable: 1, evidence: EVIDENCE });
    KnownLoad { load: 0.0, retention: None, vcpus, refuted: 0 }
}

/// Makes `dir` know `what` of `program` under every load, from one run on this machine by `method`.
pub(crate) fn seed(dir: &Path, program: &str, method: Method, what: KnownLoad) -> ProgramMemory {
    let root = Root::system();
    let machine = MachineIdentity {
        id: root.read_opt("/etc/machine-id").unwrap().unwrap_or_default(),
        kernel: KernelVersion::read(&root).unwrap().release,
        vcpus: Affinity::of_caller().unwrap().len(),
        method,
        poll_price: PolicyConfig::default().poll_price,
    };
    // Loads within this factor are of one kind. The last one is of more CPU time than there is.
    let steps = (0..14).map(|step| LEAST_LOAD * 2.0_f64.sqrt().powi(step));
    let loads = steps.map(|load| LoadMemory {
        known: KnownLoad { load, ..what },
        proven_unix_ms: Some(1),
        refuted_unix_ms: None,
    });
    let new = ProgramMemory::new(program.to_owned(), machine);
    let memory = ProgramMemory { runs: 1, used_unix_ms: 1, loads: loads.collect(), ..new };
    MemoryDir::at(dir).save(&memory).unwrap();
    memory
}

/// What the run of a journal knew at its start; `None` where that is not written yet.
pub(crate) fn known_at_start(file: &Path) -> Option<Vec<KnownLoad>> {
    journal::read(file).unwrap_or_default().into_iter().find_map(|record| match record {
        Record::Start { config, .. } => Some(config.known),
        _ => None,
    })
}

/// What a run knows that has this memory.
pub(crate) fn loads(memory: &ProgramMemory) -> Vec<KnownLoad> {
    memory.loads.iter().map(|load| load.known).collect()
}
