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
    refuses: bool,
}

#[derive(Debug)]
struct Fake(Rc<RefCell<Log>>);

impl TrafficSensor for Fake {
    fn start(&mut self) {
        self.0.borrow_mut().started += 1;
    }

    fn stop(&mut self) {
        self.0.borrow_mut().stopped += 1;
    }

    fn read(&mut self) -> Result<Option<Sockets>, Box<dyn Error + Send + Sync>> {
        let log = self.0.borrow();
        if log.refuses {
            return Err("traffic through sockets: no BPF here".into());
        }
        Ok(log.ready.then_some(Sockets { messages: 1, bytes: 7 }))
    }
}

fn traffic() -> (Traffic, Rc<RefCell<Log>>) {
    let log = Rc::new(RefCell::new(Log::default()));
    (Traffic::new(Some(Box::new(Fake(Rc::clone(&log))))), log)
}

/// A second of a workload: switches, and bytes by read and write calls.
fn second(switches: u64, moved: u64) -> WorkloadInterval {
    WorkloadInterval { switches, moved_bytes: Some(moved), ..WorkloadInterval::default() }
}

/// A fiftieth of a second.
fn part(switches: u64, moved: u64) -> WorkloadInterval {
    second(switches / 50, moved / 50)
}

#[test]
fn what_read_and_write_do_not_show_is_counted_from_the_first_whole_interval_on() {
    let (mut traffic, log) = traffic();
    let server = part(40_000, 2_000);
    assert_eq!(traffic.observe(20 * MS, &server, || true), None);
    assert_eq!(log.borrow().started, 0, "20 ms say too little");
    assert_eq!(traffic.observe(20 * MS, &server, || true), None);
    assert_eq!(log.borrow().started, 1);
    assert_eq!(traffic.observe(20 * MS, &server, || true), None, "not ready yet");
    log.borrow_mut().ready = true;
    assert_eq!(traffic.observe(20 * MS, &server, || true), None, "ready for a part of it only");
    assert_eq!(traffic.observe(20 * MS, &server, || true).map(|s| s.bytes), Some(7));
    assert_eq!(log.borrow().started, 1);
}

#[test]
fn programs_that_read_and_write_or_hardly_run_do_not_pay() {
    for workload in [second(40_000, 900_000), second(100, 0)] {
        let (mut traffic, log) = traffic();
        for _ in 0..10 {
            assert_eq!(traffic.observe(SECOND, &workload, || true), None);
        }
        assert_eq!(log.borrow().started, 0, "{workload:?}");
    }
}

#[test]
fn a_convoy_without_sockets_is_asked_more_and_more_rarely_and_never_counted() {
    let (mut traffic, log) = traffic();
    let mut asked = 0;
    for _ in 0..50 * 60 {
        traffic.observe(20 * MS, &part(40_000, 0), || {
            asked += 1;
            false
        });
    }
    assert!((5..=10).contains(&asked), "{asked}");
    assert_eq!(log.borrow().started, 0);
    // It could open one later.
    traffic.observe(60 * SECOND, &second(60 * 40_000, 0), || true);
    assert_eq!(log.borrow().started, 1);
}

#[test]
fn counting_ends_where_read_and_write_show_plenty() {
    let (mut traffic, log) = traffic();
    traffic.observe(SECOND, &second(40_000, 0), || true);
    log.borrow_mut().ready = true;
    traffic.observe(SECOND, &second(40_000, 0), || true);
    // Four times as fast by retention is still the same program.
    assert!(traffic.observe(SECOND, &second(160_000, 1_500_000), || true).is_some());
    assert_eq!(log.borrow().stopped, 0);
    assert!(traffic.observe(SECOND, &second(160_000, 50_000_000), || true).is_some());
    assert_eq!(log.borrow().stopped, 1);
    assert_eq!(traffic.observe(SECOND, &second(160_000, 50_000_000), || true), None);
}

#[test]
fn what_cannot_be_had_is_said_once() {
    let (mut traffic, log) = traffic();
    log.borrow_mut().refuses = true;
    for _ in 0..5 {
        assert_eq!(traffic.observe(SECOND, &second(40_000, 0), || true), None);
    }
    assert!(traffic.take_note().unwrap().contains("no BPF here"));
    assert_eq!(traffic.take_note(), None);
    assert_eq!(log.borrow().started, 1);
}

#[test]
fn without_a_sensor_nobody_is_asked_for_sockets() {
    let mut traffic = Traffic::new(None);
    for _ in 0..3 {
        let of = traffic.observe(SECOND, &second(40_000, 0), || unreachable!("there is nothing to start"));
        assert_eq!(of, None);
    }
    assert_eq!(traffic.take_note(), None);
}
