//! Memory of a program, as if an earlier run had proven it.

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
use gleaner_proto::memory::{LoadMemory, MachineIdentity, ProgramMemory};

use super::process::GLEANER;

const EVIDENCE: Evidence = Evidence { signal: Signal::Moved, ratio: 3.5, low: 3.4, high: 3.6, pairs: 2 };
/// The lowest load that is distinguished from others.
const MIN_LOAD: f64 = 1.0 / 64.0;

/// The product's path, as used in its memory.
pub(crate) fn product() -> String {
    fs::canonicalize(GLEANER).unwrap().to_str().unwrap().to_owned()
}

/// The name under which a built-in workload is known that runs already: `gleaner workload` becomes `gleaner-bench`.
pub(crate) fn running_workload() -> String {
    format!("{}-bench", product())
}

/// Short polling pays, with every vCPU active.
pub(crate) fn polling() -> KnownLoad {
    let setting = Retention { method: Method::Haltpoll, limit: Duration::from_micros(30) };
    let retention = Some(KnownRetention { setting, evidence: EVIDENCE });
    KnownLoad { load: 0.0, retention, vcpus: None, refuted: 0, refuted_vcpus: 0 }
}

/// A single active vCPU pays, without retention.
pub(crate) fn consolidated() -> KnownLoad {
    let vcpus = Some(KnownVcpus { active: 1, runnable: 1, evidence: EVIDENCE });
    KnownLoad { load: 0.0, retention: None, vcpus, refuted: 0, refuted_vcpus: 0 }
}

/// Stores in `dir` that one run on this machine, using `method`, proved `what` of `program` under every load.
pub(crate) fn seed(dir: &Path, program: &str, method: Method, what: KnownLoad) -> ProgramMemory {
    let root = Root::system();
    let machine = MachineIdentity {
        id: root.read_opt("/etc/machine-id").unwrap().unwrap_or_default(),
        kernel: KernelVersion::read(&root).unwrap().release,
        vcpus: Affinity::of_caller().unwrap().len(),
        method,
        poll_price: PolicyConfig::default().poll_price,
    };
    // Loads within this factor are of the same kind. The last one exceeds all vCPUs.
    let steps = (0..14).map(|step| MIN_LOAD * 2.0_f64.sqrt().powi(step));
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

/// What a run with this memory knows.
pub(crate) fn loads(memory: &ProgramMemory) -> Vec<KnownLoad> {
    memory.loads.iter().map(|load| load.known).collect()
}

/// A command whose two processes pass a byte back and forth until SIGTERM. Each is bound to its own vCPU, so that each
/// wakes the other on an idle vCPU: unbound, the pair could stay on one. The second ends before the first. Perl is part
/// of every Debian. `None` if there is only one vCPU.
pub(crate) fn pair() -> Option<[String; 3]> {
    let all = Affinity::of_caller().unwrap();
    let (first, last) = (all.iter().next()?, all.iter().next_back()?);
    let script = format!(
        "pipe A, B; pipe C, D;
sub pin {{ system(qq(taskset -cp $_[0] $$ >/dev/null)) and die }}
if (fork) {{ $SIG{{TERM}} = sub {{ close B; wait; exit 0 }}; close A; close D; pin {first};
do {{ syswrite B, 'x' }} while sysread C, $x, 1; exit 0 }}
close B; close C; pin {last}; syswrite D, 'x' while sysread A, $x, 1"
    );
    let perl = fs::canonicalize("/usr/bin/perl").unwrap().to_str().unwrap().to_owned();
    (first != last).then(|| [perl, "-e".to_owned(), script])
}
