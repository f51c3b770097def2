//! Fast unfold: an event within a millisecond or two when threads queue up on too few vCPUs.

use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use gleaner_policy::{CpuId, CpuSet};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, OpenObject, ProgramInput, RingBuffer, RingBufferBuilder};
use nix::sched::{sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::load::is_root;
use crate::unavailable::{NotAvailable, Why, text};
use crate::unfold_skeleton::{UnfoldSkel, UnfoldSkelBuilder};

/// `UNFOLD_CPUS` of `src/bpf/unfold.h`.
const MAX_CPUS: u32 = 1024;
/// `struct overdue` of `src/bpf/unfold.h`.
const EVENT_BYTES: usize = 24;

/// A thread had waited too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overdue {
    /// When that was noticed, on `CLOCK_MONOTONIC`.
    pub at: Duration,
    /// How long it had waited then.
    pub waited: Duration,
    /// For which vCPU.
    pub cpu: CpuId,
    /// The thread.
    pub tid: u32,
}

/// Why the watch cannot be set.
#[derive(Debug, thiserror::Error)]
pub enum UnfoldError {
    /// This kernel, or this user's rights, do not allow it.
    #[error(transparent)]
    NotAvailable(#[from] NotAvailable),
    /// Not these vCPUs.
    #[error("cannot watch vCPUs `{active}`: name at least one, each below {MAX_CPUS}")]
    NoSuchCpus {
        /// What was asked for.
        active: CpuSet,
    },
    /// A program or map failed.
    #[error("fast unfold: cannot {operation}: {detail}")]
    Failed {
        /// What was being done.
        operation: &'static str,
        /// The kernel's answer.
        detail: String,
    },
}

/// Watches the run queues of a set of vCPUs for threads that wait too long, also such that never get to run. Kernel
/// threads do not count, nor those of nice 19 or `SCHED_IDLE`.
///
/// While armed it costs a few dozen nanoseconds at each switch on these vCPUs and a timer interrupt per half threshold
/// on one of them; while not armed, nothing. Dropping it takes everything back, and so does the end of the process.
pub struct FastUnfold {
    skel: UnfoldSkel<'static>,
    links: Vec<Link>,
    ring: RingBuffer<'static>,
    events: Receiver<Overdue>,
    active: CpuSet,
}

impl fmt::Debug for FastUnfold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FastUnfold").field("active", &self.active).finish_non_exhaustive()
    }
}

impl FastUnfold {
    /// Loads the programs; nothing is watched yet.
    ///
    /// # Errors
    /// Why there can be none here.
    pub fn load() -> Result<Self, NotAvailable> {
        libbpf_rs::set_print(None);
        let refused = |error: libbpf_rs::Error| {
            let why = Why::from_load("unfold", error.kind(), text(&error), is_root());
            NotAvailable::new("fast unfold", why)
        };
        // A few bytes stay when it is dropped; the programs and maps do not.
        let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
        let open = UnfoldSkelBuilder::default().open(place).map_err(refused)?;
        let skel = open.load().map_err(refused)?;
        let (sender, events) = channel();
        let mut ring = RingBufferBuilder::new();
        ring.add(&skel.maps.events, move |bytes| pass_on(&sender, bytes)).map_err(refused)?;
        let ring = ring.build().map_err(refused)?;
        Ok(Self { skel, links: Vec::new(), ring, events, active: CpuSet::new() })
    }

    /// Watches the vCPUs of `active` from now on, in place of others: an event comes when a thread has waited for one
    /// of them for longer than `threshold` (100 us at least), and then none until it is armed again.
    ///
    /// # Errors
    /// No vCPU or too high a number, or the kernel refuses what it did not refuse at the load.
    pub fn arm(&mut self, active: &CpuSet, threshold: Duration) -> Result<(), UnfoldError> {
        let end = active.iter().last().map_or(0, |cpu| cpu.0 + 1);
        if end == 0 || end > MAX_CPUS {
            return Err(UnfoldError::NoSuchCpus { active: active.clone() });
        }
        self.set_armed(0);
        self.forget(active)?;
        while self.read().is_some() {}
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.active.fill(0);
            for cpu in active.iter() {
                data.active[cpu.0 as usize / 64] |= 1 << (cpu.0 % 64);
            }
            data.active_end = end;
            let least = Duration::from_micros(100);
            data.threshold_ns = u64::try_from(threshold.max(least).as_nanos()).unwrap_or(u64::MAX);
        }
        if self.links.is_empty() {
            let attach = |error| failed("attach to the scheduler", &error);
            let progs = &self.skel.progs;
            let wanted = [&progs.on_wakeup, &progs.on_wakeup_new, &progs.on_migrate, &progs.on_switch];
            self.links = wanted.iter().map(|p| p.attach_trace().map_err(attach)).collect::<Result<_, _>>()?;
        }
        self.set_armed(1);
        self.active = active.clone();
        self.start_clock()
    }

    /// Watches nothing any more.
    pub fn disarm(&mut self) {
        self.set_armed(0);
        self.links.clear();
        self.active = CpuSet::new();
    }

    /// Becomes readable when there is an event; to be polled beside others.
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's epoll descriptor is open for as long as the ring, which `self` owns.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// The event, if there is one. Does not wait.
    pub fn read(&mut self) -> Option<Overdue> {
        // A ring that cannot be read holds no event.
        let _ = self.ring.consume();
        self.events.try_recv().ok()
    }

    fn set_armed(&mut self, armed: u32) {
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.armed = armed;
        }
    }

    /// Nobody waits as far as is known.
    fn forget(&self, active: &CpuSet) -> Result<(), UnfoldError> {
        let waiting = &self.skel.maps.waiting;
        let nobody = vec![0; waiting.value_size() as usize];
        for cpu in active.iter() {
            let cleared = waiting.update(&cpu.0.to_ne_bytes(), &nobody, MapFlags::ANY);
            cleared.map_err(|error| failed("clear what waited before", &error))?;
        }
        Ok(())
    }

    /// Starts the timer on one of the active vCPUs, so that it wakes none of the others.
    fn start_clock(&self) -> Result<(), UnfoldError> {
        let me = Pid::from_raw(0);
        let before = sched_getaffinity(me).ok();
        let mut there = nix::sched::CpuSet::new();
        let first = self.active.iter().next().map_or(0, |cpu| cpu.0 as usize);
        // Where the caller may not run there, the timer starts where it is: it then costs that vCPU its rest.
        let moved = there.set(first).and_then(|()| sched_setaffinity(me, &there)).is_ok();
        let outcome = self.skel.progs.start_clock.test_run(ProgramInput::default());
        if let Some(before) = before.filter(|_| moved) {
            let _ = sched_setaffinity(me, &before);
        }
        let answer = outcome.map_err(|error| failed("start the timer", &error))?.return_value.cast_signed();
        if answer == 0 {
            return Ok(());
        }
        Err(failed("start the timer", &libbpf_rs::Error::from_raw_os_error(-answer)))
    }
}

fn failed(operation: &'static str, error: &libbpf_rs::Error) -> UnfoldError {
    UnfoldError::Failed { operation, detail: text(error) }
}

/// From the ring buffer to whoever reads; 0 asks for more.
fn pass_on(sender: &Sender<Overdue>, bytes: &[u8]) -> i32 {
    if let Some(event) = parse(bytes) {
        // The receiver lives as long as the ring.
        let _ = sender.send(event);
    }
    0
}

fn parse(bytes: &[u8]) -> Option<Overdue> {
    let bytes: &[u8; EVENT_BYTES] = bytes.first_chunk()?;
    let (words, _) = bytes.as_chunks::<8>();
    let [at, waited, place] = words else { return None };
    let (place, _) = place.as_chunks::<4>();
    let [cpu, tid] = place else { return None };
    Some(Overdue {
        at: Duration::from_nanos(u64::from_ne_bytes(*at)),
        waited: Duration::from_nanos(u64::from_ne_bytes(*waited)),
        cpu: CpuId(u32::from_ne_bytes(*cpu)),
        tid: u32::from_ne_bytes(*tid),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_read_field_by_field() {
        let mut bytes = [0; EVENT_BYTES];
        bytes[8..16].copy_from_slice(&7_000_u64.to_ne_bytes());
        bytes[16..20].copy_from_slice(&3_u32.to_ne_bytes());
        bytes[20..24].copy_from_slice(&99_u32.to_ne_bytes());
        let event = parse(&bytes).unwrap();
        assert_eq!((event.waited, event.cpu, event.tid), (Duration::from_micros(7), CpuId(3), 99));
        assert_eq!(parse(&bytes[..20]), None);
    }
}
