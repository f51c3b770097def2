//! Round trips, truncation at every byte, changed bits; and the reconstruction of a known trace.

use std::time::Duration;

use gleaner_policy::{CpuId, CpuSet, PolicyConfig};
use proptest::prelude::*;

use super::{
    DamageKind, End, Event, EventKind, Header, PrevState, Reader, Reconstruction, Task, TraceFileError,
    Writer,
};

fn header() -> Header {
    Header {
        unix_ms: 1_735_689_599_500,
        workload: "a b".to_owned(),
        vcpus: CpuSet::first(2),
        config: Box::new(PolicyConfig::default()),
        limits: vec!["assumed".to_owned()],
    }
}

fn write(events: &[Event], max: u64) -> (Vec<u8>, End) {
    let mut writer = Writer::new(Vec::new(), &header(), max).unwrap();
    for event in events {
        writer.event(event).unwrap();
    }
    writer.finish(events.last().map_or(0, |event| event.at_ns)).unwrap()
}

fn process_all<'a>(reconstruction: &mut Reconstruction, events: impl IntoIterator<Item = &'a Event>) {
    for event in events {
        reconstruction.event(event);
    }
}

fn read(bytes: &[u8]) -> Vec<Event> {
    Reader::open(bytes).unwrap().collect()
}

/// Events in order of time; threads are introduced before they occur.
fn events() -> impl Strategy<Value = Vec<Event>> {
    let one = (0..2_000_000_u64, 0..5_u8, 0..4_u32, any::<[u32; 2]>(), "\\PC{0,9}");
    proptest::collection::vec(one, 0..60).prop_map(|parts| {
        let (mut at_ns, mut threads) = (0, 0);
        let mut events = Vec::new();
        for (later, kind, cpu, [a, b], name) in parts {
            at_ns += later;
            let cpu = CpuId(cpu);
            let task = |n: u32| match n % 4 {
                0 => Task::Nobody,
                1 => Task::Other,
                _ if threads == 0 => Task::Nobody,
                _ => Task::Thread(n % threads),
            };
            let what = match kind {
                0 => {
                    let prev_state =
                        [PrevState::Runnable, PrevState::Blocked, PrevState::BlockedIo, PrevState::Exited]
                            [a as usize % 4];
                    EventKind::Switch { cpu, from: task(a), prev_state, to: task(b) }
                }
                1 => EventKind::Wake { cpu, waker: task(a), wakee: task(b) },
                2 if threads > 0 => EventKind::Renamed { thread: a % threads, name },
                3 => EventKind::Lost { events: u64::from(a) },
                _ => {
                    threads += 1;
                    EventKind::Thread { tid: a, process: b, name }
                }
            };
            events.push(Event { at_ns, what });
        }
        events
    })
}

/// A trace of several blocks.
fn long() -> Vec<Event> {
    let thread = |tid| EventKind::Thread { tid, process: 9, name: format!("t{tid}") };
    let mut events = vec![Event { at_ns: 5, what: thread(10) }, Event { at_ns: 5, what: thread(11) }];
    for round in 0..20_000_u64 {
        let (a, b) = (Task::Thread(u32::from(round % 2 == 0)), Task::Thread(u32::from(round % 2 == 1)));
        let cpu = CpuId(0);
        let at_ns = 1000 * (round + 1);
        events.push(Event { at_ns, what: EventKind::Wake { cpu, waker: a, wakee: b } });
        let prev_state = PrevState::Blocked;
        events
            .push(Event { at_ns: at_ns + 100, what: EventKind::Switch { cpu, from: a, prev_state, to: b } });
    }
    events
}

#[test]
fn what_is_lost_at_the_end_is_reported_and_the_rest_is_read() {
    let events = long();
    let (bytes, end) = write(&events, u64::MAX);
    assert_eq!(end.events, events.len() as u64);
    assert_eq!(read(&bytes), events);
    assert!(bytes.len() < 6 * events.len(), "{} bytes for {} events", bytes.len(), events.len());
    // Truncated between the blocks, in each of them, and in the end.
    for length in (0..bytes.len()).step_by(997).chain(bytes.len() - 300..bytes.len()) {
        let Ok(mut reader) = Reader::open(&bytes[..length]) else { continue };
        let found: Vec<Event> = reader.by_ref().collect();
        assert!(events.starts_with(&found), "truncated at {length}");
        assert!(length < bytes.len() / 2 || !found.is_empty(), "truncated at {length}");
        let damage = reader.damage().unwrap();
        assert!(damage.offset <= length as u64);
        assert!(matches!(damage.kind, DamageKind::Truncated | DamageKind::NoEnd), "{damage}");
        assert_eq!(reader.end(), None);
    }
}

#[test]
fn a_full_file_ends_in_order_and_says_so() {
    let events = long();
    let (whole, _) = write(&events, u64::MAX);
    let max = whole.len() as u64 * 3 / 4;
    let (bytes, end) = write(&events, max);
    assert!(end.full && bytes.len() as u64 <= max);
    let mut reader = Reader::open(&bytes).unwrap();
    let found: Vec<Event> = reader.by_ref().collect();
    assert!(!found.is_empty() && events.starts_with(&found));
    assert_eq!((reader.end(), reader.damage()), (Some(&end), None));
    assert_eq!(end.events, found.len() as u64);
    assert!(Writer::new(Vec::new(), &header(), 100).is_err());
}

#[test]
fn other_files_and_versions_are_refused() {
    let (mut bytes, _) = write(&[], u64::MAX);
    assert!(matches!(Reader::open(b"{\"record\":"), Err(TraceFileError::NotATrace)));
    assert!(matches!(Reader::open(&bytes[..9]), Err(TraceFileError::Header(_))));
    bytes[8] = 2;
    let error = Reader::open(&bytes).unwrap_err().to_string();
    assert!(error.contains("version 2"), "{error}");
}

#[test]
fn an_end_that_is_not_at_the_end_is_reported() {
    let (mut bytes, _) = write(&[], u64::MAX);
    let end = bytes.len();
    bytes.push(0);
    let mut reader = Reader::open(&bytes).unwrap();
    assert_eq!(reader.next(), None);
    assert!(matches!(reader.damage().unwrap().kind, DamageKind::Malformed(_)), "{end}");
}

proptest! {
    #[test]
    fn writing_and_reading_are_inverse(events in events()) {
        let (bytes, end) = write(&events, u64::MAX);
        let mut reader = Reader::open(&bytes).unwrap();
        prop_assert_eq!(reader.header(), &header());
        let found: Vec<Event> = reader.by_ref().collect();
        prop_assert_eq!(&found, &events);
        prop_assert_eq!((reader.end(), reader.damage()), (Some(&end), None));
    }

    #[test]
    fn a_trace_truncated_anywhere_is_read_up_to_there(events in events(), length: prop::sample::Index) {
        let (bytes, _) = write(&events, u64::MAX);
        let length = length.index(bytes.len());
        if let Ok(mut reader) = Reader::open(&bytes[..length]) {
            let found: Vec<Event> = reader.by_ref().collect();
            prop_assert!(events.starts_with(&found));
            prop_assert!(reader.damage().is_some());
        }
    }

    #[test]
    fn a_changed_bit_is_found(events in events(), at: prop::sample::Index, bit in 0..8_u32) {
        let (mut bytes, _) = write(&events, u64::MAX);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(mut reader) = Reader::open(&bytes) {
            let found: Vec<Event> = reader.by_ref().collect();
            prop_assert!(events.starts_with(&found));
            prop_assert!(reader.damage().is_some());
        }
    }

    #[test]
    fn bytes_that_pass_the_checksum_never_panic(payload in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (mut bytes, _) = write(&[], u64::MAX);
        let end = bytes.len() - end_block(&bytes);
        bytes.truncate(end);
        let mut head = vec![2];
        head.extend(u32::try_from(payload.len()).unwrap().to_le_bytes());
        let checksum = super::read::checksum(&head, &payload);
        bytes.extend(head.iter().copied().chain(checksum.to_le_bytes()).chain(payload));
        let events = read(&bytes);
        let mut reconstruction = Reconstruction::new(&CpuSet::first(2), events.iter().cloned());
        process_all(&mut reconstruction, &events);
        reconstruction.observe(Duration::from_secs(1));
    }

    #[test]
    fn no_vcpu_has_more_time_than_there_is(events in events()) {
        let mut reconstruction = Reconstruction::new(&CpuSet::first(4), events.iter().cloned());
        process_all(&mut reconstruction, &events);
        let at = Duration::from_nanos(events.last().map_or(1, |event| event.at_ns + 1));
        let o = reconstruction.observe(at);
        let idle: Duration = o.vcpus.iter().map(|vcpu| vcpu.halt_time).sum();
        prop_assert!(idle + o.workload.cpu_time <= at * 4);
        let threads = reconstruction.pattern().threads;
        prop_assert_eq!(threads.iter().map(|t| t.cpu_time).sum::<Duration>(), o.workload.cpu_time);
    }
}

/// The length of the block at the end of a trace without events.
fn end_block(bytes: &[u8]) -> usize {
    let header = 12 + 9 + u32::from_le_bytes(*bytes[13..].first_chunk().unwrap()) as usize;
    bytes.len() - header
}

fn us(us: u64) -> u64 {
    us * 1000
}

/// Every 100 us thread 0 on vCPU 0 wakes thread 1 on vCPU 1, which computes for 20 us and sleeps again.
fn tick_tock() -> Vec<Event> {
    let thread = |tid| EventKind::Thread { tid, process: 1, name: format!("t{tid}") };
    let (a, b) = (Task::Thread(0), Task::Thread(1));
    let mut events = vec![Event { at_ns: 0, what: thread(1) }, Event { at_ns: 0, what: thread(2) }];
    let zero = Event {
        at_ns: 0,
        what: EventKind::Switch { cpu: CpuId(0), from: Task::Other, prev_state: PrevState::Runnable, to: a },
    };
    events.push(zero);
    for round in 0..1000 {
        let at = us(100 * round);
        let on_1 = |from, prev_state, to| EventKind::Switch { cpu: CpuId(1), from, prev_state, to };
        events
            .push(Event { at_ns: at + us(10), what: EventKind::Wake { cpu: CpuId(0), waker: a, wakee: b } });
        events.push(Event { at_ns: at + us(15), what: on_1(Task::Nobody, PrevState::Runnable, b) });
        events.push(Event { at_ns: at + us(35), what: on_1(b, PrevState::Blocked, Task::Nobody) });
    }
    events
}

#[test]
fn an_interval_has_what_happened_in_it() {
    let events = tick_tock();
    let mut reconstruction = Reconstruction::new(&CpuSet::first(2), events.iter().cloned());
    let (first, second): (Vec<&Event>, Vec<&Event>) = events.iter().partition(|e| e.at_ns < us(50_000));
    process_all(&mut reconstruction, first);
    let half = Duration::from_millis(50);
    let o = reconstruction.observe(half);
    assert_eq!((o.at, o.period), (half, half));
    assert_eq!((o.vcpus[0].halts, o.vcpus[0].halt_time), (0, Duration::ZERO));
    // Idle at the start, and after each of the 500 rounds.
    assert_eq!(o.vcpus[1].halts, 501);
    let of_b = Duration::from_micros(20) * 500;
    assert_eq!(o.vcpus[1].halt_time + of_b, half);
    assert_eq!(o.workload.cpu_time, half + of_b);
    assert_eq!(o.workload.run_delay, Duration::from_micros(5) * 500);
    assert_eq!((o.workload.switches, o.workload.threads, o.runnable), (500, 2, 1));
    process_all(&mut reconstruction, second);
    let o = reconstruction.observe(half * 2);
    assert_eq!((o.period, o.vcpus[1].halts), (half, 500));
    let pattern = reconstruction.pattern();
    let [a, b] = pattern.threads.as_slice() else { panic!("{pattern:?}") };
    assert_eq!((a.switches, a.cpu_time), (0, half * 2));
    assert_eq!((b.tid, b.name.as_str(), b.switches, b.waits, b.woken), (2, "t2", 1000, 1000, 1000));
    assert_eq!(b.cpu_time, Duration::from_millis(20));
    // From 35 us of one round to 10 us of the next.
    assert_eq!(b.wait_time, Duration::from_micros(75) * 999);
    let [edge] = pattern.edges.as_slice() else { panic!("{pattern:?}") };
    assert_eq!((edge.waker, edge.wakee, edge.count), (Some(0), 1, 1000));
}
