use std::cell::RefCell;
use std::rc::Rc;

use super::*;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// What a fake sensor was asked for, and what it returns.
#[derive(Debug, Default)]
struct Log {
    started: u32,
    stopped: u32,
    ready: bool,
    armed: bool,
    refuses: bool,
}

#[derive(Debug)]
struct Fake(Rc<RefCell<Log>>);

impl TrafficSensor for Fake {
    fn start(&mut self) {
        self.0.borrow_mut().started += 1;
    }

    fn is_ready(&mut self) -> Result<bool, Box<dyn Error + Send + Sync>> {
        let log = self.0.borrow();
        if log.refuses {
            return Err("traffic through sockets: no BPF here".into());
        }
        Ok(log.ready)
    }

    fn arm(&mut self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let mut log = self.0.borrow_mut();
        assert!(log.ready && !log.armed);
        log.armed = true;
        Ok(())
    }

    fn disarm(&mut self) {
        self.0.borrow_mut().armed = false;
    }

    fn stop(&mut self) {
        let mut log = self.0.borrow_mut();
        (log.stopped, log.armed) = (log.stopped + 1, false);
    }

    fn read(&mut self) -> Option<Sockets> {
        assert!(self.0.borrow().armed);
        Some(Sockets { messages: 1, bytes: 7 })
    }
}

fn traffic() -> (Traffic, Rc<RefCell<Log>>) {
    let log = Rc::new(RefCell::new(Log::default()));
    let mut traffic = Traffic::new(Some(Box::new(Fake(Rc::clone(&log)))));
    traffic.set_wanted(true);
    (traffic, log)
}

/// A second of a workload.
fn second(switches: u64) -> WorkloadInterval {
    WorkloadInterval { switches, moved_bytes: Some(300_000_000), ..WorkloadInterval::default() }
}

/// Observes `time` of a workload with so many switches and write calls in a second, and sockets.
fn observe(traffic: &mut Traffic, time: Duration, switches: u64, writes: u64) -> WorkloadInterval {
    let of = |per_second: u64| per_second * u64::try_from(time.as_millis()).unwrap() / 1000;
    let mut workload = second(of(switches));
    traffic.observe(time, &mut workload, Some(of(writes)), || true);
    workload
}

#[test]
fn answers_that_no_write_call_sends_are_counted_from_the_first_whole_interval_on() {
    let (mut traffic, log) = traffic();
    let mut next = || observe(&mut traffic, 20 * MS, 40_000, 2_000);
    let undecided = WorkloadInterval { incomplete: true, ..second(800) };
    assert_eq!(next(), undecided);
    assert_eq!(log.borrow().started, 0, "20 ms say too little");
    let unknown = WorkloadInterval { moved_bytes: None, ..undecided };
    assert_eq!(next(), unknown, "what it reads and writes are no answers");
    assert_eq!(log.borrow().started, 1);
    assert_eq!(next(), unknown, "not ready yet");
    log.borrow_mut().ready = true;
    let uncounted = WorkloadInterval { incomplete: false, ..unknown };
    assert_eq!(next(), uncounted, "ready for a part of it only");
    assert_eq!(next().sockets.map(|s| s.bytes), Some(7));
    assert_eq!((next().moved_bytes, log.borrow().started), (None, 1));
}

#[test]
fn programs_that_answer_by_write_calls_or_hardly_run_do_not_pay() {
    for (switches, writes) in [(40_000, 15_000), (100, 0)] {
        let (mut traffic, log) = traffic();
        for _ in 0..10 {
            let seen = observe(&mut traffic, SECOND, switches, writes);
            assert!(!seen.incomplete);
            assert_eq!((seen.sockets, seen.moved_bytes.is_some()), (None, true));
        }
        assert_eq!(log.borrow().started, 0, "{switches} {writes}");
    }
}

#[test]
fn a_convoy_without_sockets_is_asked_more_and_more_rarely_and_never_counted() {
    let (mut traffic, log) = traffic();
    let mut asked = 0;
    traffic.observe(20 * MS, &mut second(800), Some(0), || false);
    for _ in 0..50 * 60 {
        let mut workload = second(800);
        traffic.observe(20 * MS, &mut workload, Some(0), || {
            asked += 1;
            false
        });
        assert_eq!(workload, second(800), "nothing is known better");
    }
    assert!((5..=10).contains(&asked), "{asked}");
    assert_eq!(log.borrow().started, 0);
    // It could open one later.
    observe(&mut traffic, 60 * SECOND, 40_000, 0);
    assert_eq!(log.borrow().started, 1);
}

#[test]
fn counting_ends_where_write_calls_send_the_answers() {
    let (mut traffic, log) = traffic();
    observe(&mut traffic, SECOND, 40_000, 0);
    log.borrow_mut().ready = true;
    observe(&mut traffic, 20 * MS, 40_000, 0);
    // Its log is no answer.
    assert!(observe(&mut traffic, SECOND, 40_000, 30_000).sockets.is_some());
    assert_eq!(log.borrow().stopped, 0);
    assert!(observe(&mut traffic, SECOND, 40_000, 50_000).sockets.is_some());
    assert_eq!(log.borrow().stopped, 1);
    let seen = observe(&mut traffic, SECOND, 40_000, 50_000);
    assert_eq!((seen.sockets, seen.moved_bytes.is_some()), (None, true));
}

#[test]
fn nothing_is_counted_while_nobody_wants_it() {
    let (mut traffic, log) = traffic();
    traffic.set_wanted(false);
    log.borrow_mut().ready = true;
    let mut seen = observe(&mut traffic, SECOND, 40_000, 0);
    for _ in 0..3 {
        seen = observe(&mut traffic, 20 * MS, 40_000, 0);
        assert_eq!((seen.sockets, log.borrow().armed), (None, false));
    }
    assert!(!seen.incomplete, "a trial can begin");
    assert_eq!(seen.moved_bytes, None, "and must not be judged by what is no answer");
    traffic.set_wanted(true);
    assert_eq!(observe(&mut traffic, 20 * MS, 40_000, 0).sockets, None, "from the next one on");
    assert!(observe(&mut traffic, 20 * MS, 40_000, 0).sockets.is_some());
    // It goes on for a second after the last who wanted it.
    for wanted in [false, true, false] {
        traffic.set_wanted(wanted);
        for _ in 0..45 {
            traffic.set_wanted(wanted);
            assert!(observe(&mut traffic, 20 * MS, 40_000, 0).sockets.is_some());
        }
    }
    observe(&mut traffic, 200 * MS, 40_000, 0);
    assert_eq!((observe(&mut traffic, 20 * MS, 40_000, 0).sockets, log.borrow().armed), (None, false));
    assert_eq!(log.borrow().stopped, 0, "it stays prepared");
}

#[test]
fn what_cannot_be_had_is_said_once() {
    let (mut traffic, log) = traffic();
    log.borrow_mut().refuses = true;
    for _ in 0..5 {
        assert_eq!(observe(&mut traffic, SECOND, 40_000, 0).sockets, None);
    }
    assert!(observe(&mut traffic, SECOND, 40_000, 0).moved_bytes.is_some(), "the next best");
    assert!(traffic.take_note().unwrap().contains("no BPF here"));
    assert_eq!(traffic.take_note(), None);
    assert_eq!(log.borrow().started, 1);
}

#[test]
fn without_a_sensor_nobody_is_asked_for_sockets() {
    let mut traffic = Traffic::new(None);
    for _ in 0..3 {
        let mut workload = second(40_000);
        traffic.observe(SECOND, &mut workload, Some(0), || unreachable!("there is nothing to start"));
        assert_eq!(workload, second(40_000));
    }
    assert_eq!(traffic.take_note(), None);
}
