//! Samples the kernel's counters and the tracer's, any of which can be missing, with a reason.

use std::time::{Duration, Instant};

use gleaner_kernel::idle::{IdleCounters, IdleSensor};
use gleaner_kernel::interrupts::{InterruptCounters, InterruptSensor};
use gleaner_kernel::lever::haltpoll;
use gleaner_kernel::stat::{StatSensor, SystemStat};
use gleaner_kernel::{KernelError, Root};
use gleaner_policy::CpuId;
use gleaner_trace::{Part, Parts, Scope, ScopeError, Snapshot, TraceError, Tracer};

/// Counters at one moment, since boot (the tracer's: since its start).
#[derive(Debug, Clone)]
pub(super) struct Reading {
    /// Since the first sample.
    pub(super) at: Duration,
    pub(super) idle: Option<Vec<IdleCounters>>,
    pub(super) interrupts: Option<Vec<(CpuId, InterruptCounters)>>,
    pub(super) stat: Option<SystemStat>,
    /// Wake-up counters, or why there are none.
    pub(super) trace: Result<Snapshot, String>,
    /// The haltpoll governor's poll limit; `None` if another governor is in charge.
    pub(super) haltpoll: Option<Duration>,
    /// What cannot be read here, and why.
    pub(super) missing: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Sensors {
    root: Root,
    started: Instant,
    idle: Result<IdleSensor, KernelError>,
    interrupts: Result<InterruptSensor, KernelError>,
    stat: Result<StatSensor, KernelError>,
    haltpoll: bool,
    tracer: Result<Tracer, String>,
}

impl Sensors {
    /// Opens what is available, and traces the wake-ups of `scope` (`None`: none).
    ///
    /// # Errors
    /// There is no such scope. What this machine lacks is not an error, but missing in each reading.
    pub(super) fn new(root: Root, scope: Option<&Scope>) -> Result<Self, ScopeError> {
        // Idle periods show whether a wakee's vCPU had halted.
        let parts = Parts::of([Part::Idle]);
        let tracer = match scope.map(|scope| Tracer::start(scope, &parts)) {
            Some(Ok(tracer)) => Ok(tracer),
            Some(Err(TraceError::Scope(error))) => return Err(error),
            Some(Err(error)) => Err(error.to_string()),
            None => Err("not traced, as asked for with --no-trace".to_owned()),
        };
        Ok(Self {
            started: Instant::now(),
            idle: IdleSensor::new(&root),
            interrupts: InterruptSensor::new(&root),
            stat: StatSensor::new(&root),
            // True even while a Gleaner holds the governor's parameters.
            haltpoll: haltpoll::is_in_use(&root).is_ok(),
            tracer,
            root,
        })
    }

    pub(super) fn read(&mut self) -> Reading {
        let mut missing = Vec::new();
        let idle = sample("idle periods", &mut self.idle, IdleSensor::read, &mut missing);
        let interrupts = sample("interrupts", &mut self.interrupts, InterruptSensor::read, &mut missing);
        let stat = sample("CPU times", &mut self.stat, StatSensor::read, &mut missing);
        let trace = match &self.tracer {
            Ok(tracer) => tracer.snapshot().map_err(|error| error.to_string()),
            Err(why) => Err(why.clone()),
        };
        let haltpoll = self.haltpoll.then(|| haltpoll::limit(&self.root).ok()).flatten();
        Reading { at: self.started.elapsed(), idle, interrupts, stat, trace, haltpoll, missing }
    }
}

/// Reads a sensor; on failure adds the reason to `missing`.
fn sample<S, T>(
    what: &str,
    sensor: &mut Result<S, KernelError>,
    read: impl FnOnce(&mut S) -> Result<T, KernelError>,
    missing: &mut Vec<String>,
) -> Option<T> {
    let result = match sensor {
        Ok(sensor) => read(sensor).map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    };
    result.map_err(|error| missing.push(format!("{what}: {error}"))).ok()
}
