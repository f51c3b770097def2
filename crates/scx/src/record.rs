//! Writes down what the scheduler sees and decides ([`gleaner_coordination::record`]).

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::rc::Rc;

use gleaner_coordination::record::{Choice, Decision, Header, Line, MOST_PCPUS, Means, What};
use gleaner_kernel::Root;
use gleaner_kernel::topology::online;
use gleaner_policy::CpuId;
use gleaner_trace::bpf::from_bytes;
use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};
use serde::Serialize;

use crate::ScxError;
use crate::skeleton::types::{choice, event, event_kind, queueing, vector_use};

/// For the events between two readings.
pub(crate) const RING_BYTES: u32 = 1 << 25;

/// A record that is being written. It has to be read often enough that the ring does not overflow.
pub(crate) struct Recording {
    ring: RingBuffer<'static>,
    sink: Rc<RefCell<Sink>>,
}

struct Sink {
    out: BufWriter<File>,
    /// The first failure; nothing is written afterwards.
    failed: Option<io::Error>,
}

impl Recording {
    /// Writes the header; events follow at each [`Recording::read`].
    pub(crate) fn start(events: &impl MapCore, header: &Header, file: File) -> Result<Self, ScxError> {
        file.set_len(0).map_err(failed)?;
        let sink = Rc::new(RefCell::new(Sink { out: BufWriter::new(file), failed: None }));
        sink.borrow_mut().put(header);
        let to = Rc::clone(&sink);
        let mut ring = RingBufferBuilder::new();
        let on_event = move |bytes: &[u8]| {
            if let Some(line) = from_bytes::<event>(bytes).as_ref().and_then(line) {
                to.borrow_mut().put(&line);
            }
            0
        };
        ring.add(events, on_event).map_err(failed)?;
        let recording = Self { ring: ring.build().map_err(failed)?, sink };
        recording.check()?;
        Ok(recording)
    }

    /// Writes what happened since it was last called, at most what the ring holds: it can be filled faster than it is read.
    pub(crate) fn read(&self) -> Result<(), ScxError> {
        let most = RING_BYTES as usize / size_of::<event>();
        let read = self.ring.consume_raw_n(most);
        if read < 0 {
            return Err(failed(io::Error::from_raw_os_error(-read)));
        }
        self.check()
    }

    /// The same, and ends the record. `lost`: events that did not fit into the ring.
    pub(crate) fn end(self, lost: u64) -> Result<(), ScxError> {
        self.read()?;
        let mut sink = self.sink.borrow_mut();
        sink.put(&Line { on: 0, what: What::End { lost } });
        sink.out.flush().map_err(failed)?;
        drop(sink);
        self.check()
    }

    fn check(&self) -> Result<(), ScxError> {
        self.sink.borrow().failed.as_ref().map_or(Ok(()), |error| Err(failed(error)))
    }
}

impl Sink {
    fn put(&mut self, value: &impl Serialize) {
        if self.failed.is_some() {
            return;
        }
        let written = serde_json::to_writer(&mut self.out, value).map_err(io::Error::from);
        self.failed = written.and_then(|()| self.out.write_all(b"\n")).err();
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn failed(detail: impl ToString) -> ScxError {
    ScxError::Record { detail: detail.to_string() }
}

/// The pCPUs that are online, a bit for each.
///
/// # Errors
/// There are more than a record can have.
pub(crate) fn online_bits(root: &Root) -> Result<u64, ScxError> {
    let bit = |cpu: CpuId| {
        let too_many = || failed(format!("there are more than {MOST_PCPUS} pCPUs"));
        1_u64.checked_shl(cpu.0).ok_or_else(too_many)
    };
    online(root)?.iter().try_fold(0, |bits, cpu| Ok(bits | bit(cpu)?))
}

/// `None`: of a kind that this program does not know, which a scheduler of the same build does not send.
fn line(event: &event) -> Option<Line> {
    let &event { at, value, burst, allowed, idle, task, other, on, .. } = event;
    let (cpu, last) = (event.cpu.cast_unsigned(), event.place.cast_unsigned());
    let flag = event.flag != 0;
    let what = match event_kind(event.kind.into()) {
        event_kind::EVENT_ENTERS => What::Enters { task },
        event_kind::EVENT_LEAVES => What::Leaves { task },
        event_kind::EVENT_VCPU => What::Vcpu { at, task, vm: other.cast_unsigned(), cpu },
        event_kind::EVENT_RUNNABLE => What::Runnable { at, task, cpu },
        event_kind::EVENT_QUIESCENT => What::Quiescent { at, task, sleeps: flag },
        event_kind::EVENT_WOKEN => {
            What::Woken { at, task, waker: other, cpu, last, allowed, idle, burst, ours: flag }
        }
        event_kind::EVENT_QUEUED => match queueing(event.what.into()) {
            queueing::QUEUE_LOCAL => What::Next { task, cpu },
            how => {
                let (weight, woken) = (u32::try_from(value).ok()?, how == queueing::QUEUE_WOKEN);
                What::Queued { at, task, cpu, weight, allowed, idle, woken }
            }
        },
        event_kind::EVENT_ASKS => What::Asks { at, cpu, running: task, burst },
        event_kind::EVENT_RUNS => What::Runs { at, task, cpu, weight: u32::try_from(value).ok()?, burst },
        event_kind::EVENT_STOPS => What::Stops { at, task },
        event_kind::EVENT_INTERRUPT => {
            let means = match vector_use(event.what.into()) {
                vector_use::USE_SHOOTDOWN => Means::Shootdown,
                _ => Means::Reschedule,
            };
            What::Interrupt { at, from: task, to: other, means, halted: flag }
        }
        event_kind::EVENT_SENT => What::Sent { from: task },
        event_kind::EVENT_DELIVERED => What::Delivered { from: task },
        event_kind::EVENT_ACKNOWLEDGES => What::Acknowledges { task },
        event_kind::EVENT_HALTS => What::Halts { at, task },
        event_kind::EVENT_SPINS => What::Spins { at, task },
        event_kind::EVENT_YIELDS => What::Yields { at, task, to: other },
        event_kind::EVENT_PLACED => What::Decides(Decision::Placed { task, cpu, idle: flag }),
        event_kind::EVENT_KICKED => What::Decides(Decision::Kicked { cpu, idle: flag }),
        event_kind::EVENT_PREEMPTS => What::Decides(Decision::Preempts { task, cpu }),
        event_kind::EVENT_TIMED => What::Decides(Decision::Timed { ns: value }),
        event_kind::EVENT_CHOSE => What::Decides(Decision::Chose { cpu, choice: choice_of(event.what)? }),
        event_kind::EVENT_YIELDED => What::Decides(Decision::Yielded { task, gives: flag }),
        _ => return None,
    };
    Some(Line { on, what })
}

fn choice_of(number: u8) -> Option<Choice> {
    Some(match choice(number.into()) {
        choice::CHOICE_IDLE => Choice::Idle,
        choice::CHOICE_GOES_ON => Choice::GoesOn,
        choice::CHOICE_PROTECTED => Choice::Protected,
        choice::CHOICE_URGENT_GOES_ON => Choice::UrgentGoesOn,
        choice::CHOICE_URGENT => Choice::Urgent,
        choice::CHOICE_FIRST => Choice::First,
        choice::CHOICE_PULLED => Choice::Pulled,
        choice::CHOICE_STOLEN => Choice::Stolen,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use gleaner_testing::tree::tree;

    use super::*;

    #[test]
    fn a_record_has_a_bit_for_each_pcpu() {
        let bits = |list: &str| {
            let dir = tree(&[("sys/devices/system/cpu/online", list)]);
            online_bits(&Root::at(dir.path()))
        };
        assert_eq!(bits("0-2,63").unwrap(), 0b111 | 1 << 63);
        assert!(bits("0-64").unwrap_err().to_string().contains("more than 64 pCPUs"));
    }

    #[test]
    fn events_become_lines() {
        let event = |kind: event_kind, what: u32, flag| event {
            at: 7,
            value: 200,
            burst: 5,
            allowed: 3,
            idle: 1,
            task: 11,
            other: 12,
            cpu: 1,
            place: 0,
            on: 2,
            kind: u8::try_from(kind.0).unwrap(),
            what: u8::try_from(what).unwrap(),
            flag,
            ..event::default()
        };
        let what = |kind, what, flag| line(&event(kind, what, flag)).map(|line| line.what);
        let queued =
            |woken| What::Queued { at: 7, task: 11, cpu: 1, weight: 200, allowed: 3, idle: 1, woken };
        assert_eq!(what(event_kind::EVENT_QUEUED, queueing::QUEUE_WOKEN.0, 0), Some(queued(true)));
        assert_eq!(what(event_kind::EVENT_QUEUED, queueing::QUEUE_FAIR.0, 0), Some(queued(false)));
        let next = Some(What::Next { task: 11, cpu: 1 });
        assert_eq!(what(event_kind::EVENT_QUEUED, queueing::QUEUE_LOCAL.0, 0), next);
        let sent = What::Interrupt { at: 7, from: 11, to: 12, means: Means::Shootdown, halted: true };
        assert_eq!(what(event_kind::EVENT_INTERRUPT, vector_use::USE_SHOOTDOWN.0, 1), Some(sent));
        let chose = What::Decides(Decision::Chose { cpu: 1, choice: Choice::Pulled });
        assert_eq!(what(event_kind::EVENT_CHOSE, choice::CHOICE_PULLED.0, 0), Some(chose));
        assert_eq!(what(event_kind::EVENT_CHOSE, 99, 0), None);
        assert_eq!(line(&event(event_kind::EVENT_SPINS, 0, 0)).map(|line| line.on), Some(2));
    }
}
