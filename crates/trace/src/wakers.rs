//! Which process wakes which.

use std::fmt;
use std::mem::MaybeUninit;

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use crate::attach::Attachment;
use crate::unavailable::{NotAvailable, refusal};
use crate::wakers_skeleton::WakersSkelBuilder;

/// Wake-ups of one process's threads by those of another, or by its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wakeups {
    /// The PID of the process that ran: it woke the other, or was interrupted by what did; 0 for an idle vCPU.
    pub waker: u32,
    /// The PID of the process that was woken.
    pub wakee: u32,
    /// How often.
    pub number: u64,
}

/// Counts which process wakes which, all over the machine, with a short program (`src/bpf/wakers.bpf.c`) at
/// `sched_waking`. While it counts, every wake-up takes some 0.2 us longer. Dropping it detaches the program, as does the
/// end of the process. It can be made in one thread and used in another.
pub struct WakerSensor {
    program: Attachment,
    wakeups: MapHandle,
}

impl fmt::Debug for WakerSensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WakerSensor").field("counts", &self.program.is_attached()).finish_non_exhaustive()
    }
}

impl WakerSensor {
    /// Prepares to count. Takes tens of milliseconds of CPU time, mostly for the kernel's types.
    ///
    /// # Errors
    /// Counting is not possible here.
    pub fn load() -> Result<Self, NotAvailable> {
        libbpf_rs::set_print(None);
        load().map_err(|error| refused(&error))
    }

    /// Counts from now on. The kernel patches its code and interrupts every vCPU for less than a millisecond.
    ///
    /// # Errors
    /// The program cannot be attached.
    pub fn start(&mut self) -> Result<(), NotAvailable> {
        self.program.attach().map_err(|error| refused(&error.into()))
    }

    /// Ends counting; what was counted.
    pub fn stop(mut self) -> Vec<Wakeups> {
        self.program.detach();
        let counted = |key: Vec<u8>| {
            let pid = |at: usize| Some(u32::from_ne_bytes(key.get(at..at + 4)?.try_into().ok()?));
            let number = self.wakeups.lookup(&key, MapFlags::ANY).ok()??;
            let number = u64::from_ne_bytes(number.try_into().ok()?);
            Some(Wakeups { waker: pid(0)?, wakee: pid(4)?, number })
        };
        self.wakeups.keys().filter_map(counted).collect()
    }
}

fn load() -> libbpf_rs::Result<WakerSensor> {
    // Program and map stand on their own; the rest, including the kernel's types, is freed when this function returns.
    let mut place = MaybeUninit::uninit();
    let skel = WakersSkelBuilder::default().open(&mut place)?.load()?;
    let program = Attachment::new(&skel.progs.on_waking)?;
    Ok(WakerSensor { program, wakeups: MapHandle::try_from(&skel.maps.wakeups)? })
}

fn refused(error: &libbpf_rs::Error) -> NotAvailable {
    NotAvailable::new("who wakes whom", refusal("wakers", error))
}
