use std::cell::RefCell;
use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::rc::Rc;

use super::*;
use crate::live::wait::{self, Signals};

const PERSISTENCE: Duration = Duration::from_micros(750);

/// What a fake watch was asked for, and what it reports.
#[derive(Debug, Default)]
struct Log {
    armed: Vec<OverloadQuery>,
    disarmed: u32,
    refuses: bool,
    reporter: Option<UnixStream>,
}

#[derive(Debug)]
struct Fake {
    log: Rc<RefCell<Log>>,
    receiver: UnixStream,
}

impl OverloadWatch for Fake {
    fn arm(&mut self, asked: &OverloadQuery) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut log = self.log.borrow_mut();
        if log.refuses {
            return Err("fast expansion is not available: no BPF here".into());
        }
        log.armed.push(asked.clone());
        Ok(())
    }

    fn disarm(&mut self) {
        self.log.borrow_mut().disarmed += 1;
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.receiver.as_fd())
    }

    fn read(&mut self) -> Option<Overload> {
        let mut byte = [0];
        self.receiver.read_exact(&mut byte).ok()?;
        Some(Overload { runnable: byte[0].into(), waiting: 2.0, source: OverloadSource::RunQueues })
    }
}

fn monitor() -> (OverloadMonitor, Rc<RefCell<Log>>) {
    let (reporter, receiver) = UnixStream::pair().unwrap();
    receiver.set_nonblocking(true).unwrap();
    let log = Rc::new(RefCell::new(Log { reporter: Some(reporter), ..Log::default() }));
    (OverloadMonitor::new(Some(Box::new(Fake { log: Rc::clone(&log), receiver }))), log)
}

fn report(log: &Rc<RefCell<Log>>, runnable: u8) {
    log.borrow_mut().reporter.as_mut().unwrap().write_all(&[runnable]).unwrap();
}

fn watch(at_least: Option<u32>, at_most: Option<u32>) -> Watch {
    Watch { every: Duration::from_millis(5), at_least, at_most, times: 3, persistence: PERSISTENCE }
}

#[test]
fn it_is_armed_once_for_the_same_set_and_anew_for_another() {
    let (mut monitor, log) = monitor();
    let (one, two) = (CpuSet::first(1), CpuSet::first(2));
    assert!(monitor.fd().is_none(), "nothing is armed");
    let polled = Duration::from_micros(200);
    let asked = |active: &CpuSet, at_least, polled| OverloadQuery {
        active: active.clone(),
        at_least,
        persistence: PERSISTENCE,
        polled,
    };
    let armed = [
        asked(&one, 3, Duration::ZERO),
        asked(&two, 4, Duration::ZERO),
        asked(&one, 3, Duration::ZERO),
        asked(&one, 3, polled),
    ];
    for question in [&armed[0], &armed[0], &armed[1], &armed[2], &armed[3]] {
        let watch = Some(watch(Some(question.at_least), None));
        assert!(monitor.arm(watch, &question.active, question.polled));
    }
    assert_eq!(log.borrow().armed, armed);
    assert!(monitor.fd().is_some());
    for other in [None, Some(watch(None, Some(1)))] {
        assert!(!monitor.arm(other, &one, Duration::ZERO), "what is not about overload is not reported");
        assert_eq!(log.borrow().disarmed, 1);
        assert!(monitor.fd().is_none());
    }
}

#[test]
fn an_overload_ends_the_wait_and_is_reported_once() {
    let (mut monitor, log) = monitor();
    monitor.rearm_delay = Duration::from_secs(3600);
    let one = CpuSet::first(1);
    let signals = Signals::block().unwrap();
    let asked = Some(watch(Some(3), None));
    assert!(monitor.arm(asked, &one, Duration::ZERO));
    assert_eq!(monitor.reported(), None);
    report(&log, 16);
    let far = Instant::now() + Duration::from_secs(3600);
    assert!(wait::wait(&signals, monitor.fd().into_iter().collect(), far).unwrap());
    let overload = Overload { runnable: 16, waiting: 2.0, source: OverloadSource::RunQueues };
    assert_eq!(monitor.reported(), Some(overload));
    assert_eq!(monitor.reported(), None);
    // The policy left the set alone: sampling takes over for a while, while other sets are still reported.
    assert!(!monitor.arm(asked, &one, Duration::ZERO));
    assert!(monitor.fd().is_none());
    assert!(monitor.arm(asked, &CpuSet::first(2), Duration::ZERO));
    assert_eq!(log.borrow().armed.len(), 2);
}

#[test]
fn what_is_not_available_is_reported_once_and_not_asked_again() {
    let (mut monitor, log) = monitor();
    log.borrow_mut().refuses = true;
    let one = CpuSet::first(1);
    assert!(!monitor.arm(Some(watch(Some(3), None)), &one, Duration::ZERO));
    let note = monitor.take_note().unwrap();
    assert!(note.contains("no BPF here") && note.contains("counted"), "{note}");
    log.borrow_mut().refuses = false;
    assert!(!monitor.arm(Some(watch(Some(3), None)), &one, Duration::ZERO));
    assert_eq!((monitor.take_note(), monitor.fd().is_none()), (None, true));
    assert!(!OverloadMonitor::new(None).arm(Some(watch(Some(3), None)), &one, Duration::ZERO));
}

/// The outcome of each sample; run delay grows by an hour per reading.
fn delays(samples: &mut Samples, runnable: &[u32], mut delay: Duration) -> Vec<(bool, Option<Overload>)> {
    let mut outcomes = Vec::new();
    for n in runnable {
        let outcome = samples.take(*n, || {
            delay += Duration::from_secs(3600);
            Ok::<_, Infallible>(delay)
        });
        outcomes.push(outcome.unwrap_or_else(|never| match never {}));
    }
    outcomes
}

#[test]
fn sampling_reports_the_same_overload_after_three_samples_in_a_row() {
    let mut samples = Samples::new(watch(Some(3), None));
    let mut found = delays(&mut samples, &[3, 2, 3, 4, 5], Duration::ZERO);
    let (enough, overload) = found.pop().unwrap();
    assert!(found.iter().all(|(enough, overload)| !enough && overload.is_none()), "{found:?}");
    let overload = overload.unwrap();
    assert_eq!((enough, overload.runnable, overload.source), (true, 5, OverloadSource::Counts));
    // An hour of delay in far less time.
    assert!(overload.waiting > 1.0, "{overload:?}");
}

#[test]
fn vcpus_that_fall_idle_are_no_overload() {
    let mut samples = Samples::new(watch(None, Some(1)));
    let never = || -> Result<Duration, Infallible> { panic!("nobody needs the run delay") };
    assert_eq!(samples.take(1, never).unwrap(), (false, None));
    assert_eq!(samples.take(0, never).unwrap(), (false, None));
    assert_eq!(samples.take(1, never).unwrap(), (true, None));
}
