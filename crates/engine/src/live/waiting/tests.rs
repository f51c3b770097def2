use std::cell::RefCell;
use std::rc::Rc;

use gleaner_policy::CpuId;

use super::*;

const US: Duration = Duration::from_micros(1);
const WAKE_COST: Duration = Duration::from_micros(40);

fn vcpus(halts: [u64; 2]) -> Vec<VcpuInterval> {
    let vcpu = |(cpu, halts)| VcpuInterval {
        cpu: CpuId(cpu),
        halts,
        halt_time: Duration::ZERO,
        polls: 0,
        poll_time: Duration::ZERO,
        steal: Duration::ZERO,
    };
    (0..).zip(halts).map(vcpu).collect()
}

fn workload(switches: u64, run_delay: Duration) -> WorkloadInterval {
    WorkloadInterval { switches, run_delay, ..WorkloadInterval::default() }
}

#[test]
fn run_delay_leaves_out_the_halt_and_the_estimate_adds_it() {
    let waiting = estimate(&workload(100, 200 * US), &vcpus([30, 20]), WAKE_COST);
    assert_eq!(waiting.source, WaitingSource::Estimated);
    assert_eq!((waiting.wake_ups, waiting.total), (100, 200 * US + 50 * WAKE_COST));
    assert_eq!(waiting.tail, 22 * US, "an estimate knows no spread");
    let polling = estimate(&workload(100, 200 * US), &vcpus([0, 0]), WAKE_COST);
    assert_eq!(polling.total, 200 * US, "a vCPU that polls is not woken");
}

#[test]
fn halts_that_the_workload_cannot_have_ended_do_not_count() {
    let waiting = estimate(&workload(10, Duration::ZERO), &vcpus([500, 500]), WAKE_COST);
    assert_eq!(waiting.total, 10 * WAKE_COST);
    let idle = estimate(&workload(0, Duration::ZERO), &vcpus([500, 500]), WAKE_COST);
    assert_eq!((idle.wake_ups, idle.total, idle.tail), (0, Duration::ZERO, Duration::ZERO));
}

#[test]
fn absurd_counters_give_an_absurd_estimate_and_no_panic() {
    let waiting = estimate(&workload(u64::MAX, Duration::MAX), &vcpus([u64::MAX; 2]), Duration::MAX);
    assert_eq!(waiting.total, Duration::MAX);
    assert_eq!(estimate(&workload(1, Duration::MAX), &vcpus([1, 0]), WAKE_COST).total, Duration::MAX);
}

/// What a fake sensor was asked for.
#[derive(Debug, Default)]
struct Log {
    armed: u32,
    disarmed: u32,
    reads: u32,
    refuses: bool,
}

#[derive(Debug)]
struct Fake(Rc<RefCell<Log>>);

impl WaitingSensor for Fake {
    fn arm(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut log = self.0.borrow_mut();
        log.armed += 1;
        if log.refuses { Err("waiting: no BPF here".into()) } else { Ok(()) }
    }

    fn disarm(&mut self) {
        self.0.borrow_mut().disarmed += 1;
    }

    fn read(&mut self) -> Option<Waiting> {
        self.0.borrow_mut().reads += 1;
        Some(Waiting { wake_ups: 7, total: 7 * US, tail: 2 * US, source: WaitingSource::Traced })
    }
}

fn waits() -> (Waits, Rc<RefCell<Log>>) {
    let log = Rc::new(RefCell::new(Log::default()));
    (Waits::new(Some(Box::new(Fake(Rc::clone(&log)))), WAKE_COST), log)
}

#[test]
fn only_whole_intervals_are_traced() {
    let (mut waits, log) = waits();
    assert_eq!(waits.observe(&workload(10, US), &vcpus([1, 1])).source, WaitingSource::Estimated);
    assert_eq!(log.borrow().armed, 0, "nobody asked for it");
    waits.set_wanted(true);
    let mut source = || waits.observe(&workload(10, US), &vcpus([1, 1])).source;
    assert_eq!(source(), WaitingSource::Estimated, "armed at the end of the first interval");
    assert_eq!(source(), WaitingSource::Traced);
    waits.set_wanted(false);
    let mut source = || waits.observe(&workload(10, US), &vcpus([1, 1])).source;
    assert_eq!(source(), WaitingSource::Traced, "it measured to the end of this one");
    assert_eq!(source(), WaitingSource::Estimated);
    waits.set_wanted(true);
    let mut source = || waits.observe(&workload(10, US), &vcpus([1, 1])).source;
    assert_eq!((source(), source()), (WaitingSource::Estimated, WaitingSource::Traced));
    let log = log.borrow();
    assert_eq!((log.armed, log.disarmed, log.reads), (2, 1, 3));
}

#[test]
fn what_cannot_be_had_is_said_once_and_estimated() {
    let (mut waits, log) = waits();
    log.borrow_mut().refuses = true;
    waits.set_wanted(true);
    for _ in 0..3 {
        assert_eq!(waits.observe(&workload(10, US), &vcpus([1, 1])).source, WaitingSource::Estimated);
    }
    assert_eq!(log.borrow().armed, 1, "it is not armed again");
    assert!(waits.take_note().unwrap().contains("no BPF here"));
    assert_eq!(waits.take_note(), None);
}
