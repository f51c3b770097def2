//! Fast expansion: reports within a millisecond or two that more threads queue up on a few vCPUs than these can run.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use gleaner_kernel::lever::visit;
use gleaner_kernel::{Root, topology};
use gleaner_policy::{CpuId, CpuSet};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Iter, ProgramInput, RingBuffer, RingBufferBuilder};
use nix::sched::sched_getcpu;

use crate::load::object_place;
use crate::overload_skeleton::{OverloadSkel, OverloadSkelBuilder, types};
use crate::plain::from_bytes;
use crate::unavailable::{NotAvailable, Rights, from_load, text};

const MAX_CPUS: usize = length(|data: types::bss| data.queues);
/// Sampling interval of the run queues. Each sample is a timer interrupt, which costs a vCPU some 30 us in a VM: half a
/// millisecond is the longest interval that expands within 2 ms in the median.
const PERIOD: Duration = Duration::from_micros(500);
/// Shortest overload that is reported. Its four samples are a third of it apart.
const MIN_PERSISTENCE: Duration = Duration::from_micros(300);

/// As many threads as asked for wanted to run on the vCPUs, for long enough.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overload {
    /// When it was reported, on `CLOCK_MONOTONIC`.
    pub at: Duration,
    /// How long it had lasted by then.
    pub lasted: Duration,
    /// Runnable threads at the end.
    pub runnable: u32,
    /// How many of them waited, on average.
    pub waiting: f64,
}

/// Why the sensor cannot be armed.
#[derive(Debug, thiserror::Error)]
pub enum OverloadError {
    /// No vCPU was named, or one with too high a number.
    #[error("cannot watch vCPUs `{active}`: name at least one, each below {MAX_CPUS}")]
    NoSuchCpus {
        /// The vCPUs asked for.
        active: CpuSet,
    },
    /// No thread was on this vCPU when the programs were loaded: it was offline.
    #[error("fast expansion: the run queue of vCPU {cpu} is not known")]
    NoQueue {
        /// The vCPU without a known run queue.
        cpu: CpuId,
    },
    /// The timer cannot be started.
    #[error("fast expansion: cannot start the timer: {detail}")]
    Timer {
        /// The kernel's error.
        detail: String,
    },
}

/// Reports when at least a given number of threads want to run on a set of vCPUs. Threads of the kernel, of nice 19, of
/// `SCHED_IDLE` and of real-time policies do not count.
///
/// While armed it costs two timer interrupts per millisecond on another online vCPU, if there is one, so that the
/// watched threads are not slowed down. It is fewer if idle vCPUs poll for long, and a quarter while nothing runs on
/// the watched vCPUs. Nothing is attached to the scheduler's events. After 256 more samples while disarmed it costs
/// nothing. Dropping it, or the end of the process, frees everything.
pub struct OverloadSensor {
    skel: OverloadSkel<'static>,
    ring: RingBuffer<'static>,
    events: Receiver<Overload>,
    /// Number of the latest arming.
    arming: u32,
    /// Where the timer was last started.
    clock: Option<CpuId>,
    /// Poll limit of idle vCPUs.
    polled: Duration,
}

impl fmt::Debug for OverloadSensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OverloadSensor").field("arming", &self.arming).finish_non_exhaustive()
    }
}

impl OverloadSensor {
    /// Loads the programs; nothing is watched yet.
    ///
    /// # Errors
    /// The programs cannot be loaded here.
    pub fn load() -> Result<Self, NotAvailable> {
        libbpf_rs::set_print(None);
        let refused = |error: libbpf_rs::Error| {
            let why = from_load("overload", error.kind(), text(&error), Rights::now());
            NotAvailable::new("fast expansion", why)
        };
        let open = OverloadSkelBuilder::default().open(object_place()).map_err(refused)?;
        let skel = open.load().map_err(refused)?;
        let (sender, events) = channel();
        let mut ring = RingBufferBuilder::new();
        ring.add(&skel.maps.events, move |bytes| pass_on(&sender, bytes)).map_err(refused)?;
        let ring = ring.build().map_err(refused)?;
        let queues = skel.progs.find_queues.attach().and_then(|link| Iter::new(&link)).map_err(refused)?;
        read_to_end(queues).map_err(|error| refused(error.into()))?;
        Ok(Self { skel, ring, events, arming: 0, clock: None, polled: Duration::ZERO })
    }

    /// Sets the poll limit of idle vCPUs, zero at first, from the next arming on. The sampling interval is then long
    /// enough for the vCPU of the timer to halt between two samples.
    pub fn polling(&mut self, limit: Duration) {
        self.polled = limit;
    }

    /// Watches the vCPUs of `active` in place of any others: an event is reported once at least `at_least` threads have
    /// wanted to run on them for `persistence` (at least 300 us), and then none until armed again. Arming again soon
    /// costs a few microseconds; the first time, or after a while, it has to visit another vCPU.
    ///
    /// # Errors
    /// No vCPU, one with too high a number, or the kernel refuses the timer.
    pub fn arm(
        &mut self,
        active: &CpuSet,
        at_least: u32,
        persistence: Duration,
    ) -> Result<(), OverloadError> {
        let end = active.iter().last().map_or(0, |cpu| cpu.0 + 1);
        if active.is_empty() || end as usize > MAX_CPUS {
            return Err(OverloadError::NoSuchCpus { active: active.clone() });
        }
        let known =
            |cpu: CpuId| self.skel.maps.bss_data.as_deref().is_some_and(|d| d.queues[cpu.0 as usize] != 0);
        if let Some(cpu) = active.iter().find(|cpu| !known(*cpu)) {
            return Err(OverloadError::NoQueue { cpu });
        }
        self.disarm();
        while self.read().is_some() {}
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.active.fill(0);
            for cpu in active.iter() {
                data.active[cpu.0 as usize / 64] |= 1 << (cpu.0 % 64);
            }
            data.active_end = end;
            data.at_least = at_least;
            data.persistence_ns = ns(persistence.max(MIN_PERSISTENCE));
            data.period_ns = ns(period(self.polled));
        }
        // 0 stands for disarmed.
        let arming = self.arming.checked_add(1).unwrap_or(1);
        self.arming = arming;
        self.armed().store(arming, Ordering::SeqCst);
        let out_of_the_way = self.clock.is_some_and(|cpu| !active.contains(cpu));
        if out_of_the_way && self.is_ticking() {
            return Ok(());
        }
        self.start_clock(active)
    }

    /// Stops watching.
    pub fn disarm(&mut self) {
        self.armed().store(0, Ordering::SeqCst);
    }

    /// Whether the timer runs: while armed, and for a while after.
    pub fn is_ticking(&mut self) -> bool {
        self.ticking().load(Ordering::SeqCst) != 0
    }

    /// Becomes readable when there is an event, for poll(2).
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring, which `self` owns, keeps its epoll descriptor open.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// The event, if there is one. Does not block.
    pub fn read(&mut self) -> Option<Overload> {
        // A ring that cannot be read has no event.
        let _ = self.ring.consume();
        self.events.try_recv().ok()
    }

    fn armed(&mut self) -> &AtomicU32 {
        shared(self.skel.maps.bss_data.as_deref_mut().map(|data| &raw mut data.armed))
    }

    fn ticking(&mut self) -> &AtomicU32 {
        shared(self.skel.maps.bss_data.as_deref_mut().map(|data| &raw mut data.ticking))
    }

    /// Starts the timer on an inactive vCPU if there is one, and pins it there: interrupts are expensive in a VM, and
    /// the active vCPUs should not pay for them.
    fn start_clock(&mut self, active: &CpuSet) -> Result<(), OverloadError> {
        let others = topology::online(&Root::system()).unwrap_or_default().difference(active);
        let there = if others.is_empty() { active } else { &others };
        let program = &self.skel.progs.start_clock;
        let (outcome, cpu) = visit(there, || (program.test_run(ProgramInput::default()), sched_getcpu()));
        let refused = |error: libbpf_rs::Error| OverloadError::Timer { detail: text(&error) };
        let answer = outcome.map_err(refused)?.return_value.cast_signed();
        if answer != 0 {
            return Err(refused(libbpf_rs::Error::from_raw_os_error(-answer)));
        }
        self.clock = cpu.ok().and_then(|cpu| u32::try_from(cpu).ok()).map(CpuId);
        Ok(())
    }
}

/// Sampling interval for a poll limit of `polled`. The vCPU that takes a sample polls before it halts again, and the
/// governor gives up a limit only after halts longer than it (drivers/cpuidle/governors/haltpoll.c), so the halts
/// between two samples have to be longer.
fn period(polled: Duration) -> Duration {
    PERIOD.max(polled * 9 / 4)
}

/// Length of an array in a struct, for which the types have no constant.
const fn length<S, T, const N: usize>(_array: fn(S) -> [T; N]) -> usize {
    N
}

/// A word that the BPF programs access, too.
fn shared<'a>(word: Option<*mut u32>) -> &'a AtomicU32 {
    static ABSENT_WORD: AtomicU32 = AtomicU32::new(0);
    let Some(word) = word else { return &ABSENT_WORD };
    // SAFETY: the word is aligned and lies in the mapping of the program's data, which the skeleton keeps while it
    // lives; callers borrow the skeleton, and access the word in no other way.
    unsafe { AtomicU32::from_ptr(word) }
}

/// Runs the iterator over all threads. It prints nothing.
fn read_to_end(mut queues: Iter) -> io::Result<u64> {
    io::copy(&mut queues, &mut io::sink())
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Passes an event from the ring buffer on; 0 asks for more.
fn pass_on(sender: &Sender<Overload>, bytes: &[u8]) -> i32 {
    if let Some(event) = parse(bytes) {
        // The receiver lives as long as the ring.
        let _ = sender.send(event);
    }
    0
}

fn parse(bytes: &[u8]) -> Option<Overload> {
    let event: types::overload = from_bytes(bytes)?;
    Some(Overload {
        at: Duration::from_nanos(event.at_ns),
        lasted: Duration::from_nanos(event.lasted_ns),
        runnable: event.runnable,
        waiting: event.waiting as f64 / f64::from(event.samples.max(1)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn between_two_samples_a_vcpu_halts_for_longer_than_it_polls() {
        assert_eq!(period(Duration::ZERO), PERIOD);
        for polled in [50, 200, 422, 2000].map(Duration::from_micros) {
            let interrupt = Duration::from_micros(30);
            assert!(period(polled) > polled + interrupt + polled, "{polled:?}");
        }
    }
}
