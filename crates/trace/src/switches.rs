//! An alarm that a load begins, where the kernel refuses perf events: by a program at the scheduler's switches.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore as _, MapFlags, RingBuffer, RingBufferBuilder, num_possible_cpus};

use crate::load::object_place;
use crate::switches_skeleton::{SwitchesSkel, SwitchesSkelBuilder};
use crate::unavailable::{NotAvailable, refusal};

/// Fires once when a vCPU has switched between threads so often since it was armed. Until then nothing wakes up, and
/// afterwards nothing is counted, until it is armed again.
///
/// While it is armed the program runs at each switch on the machine. Dropping it, or the end of the process, frees
/// everything. It needs `CAP_BPF` and `CAP_PERFMON`.
pub struct SwitchAlarm {
    skel: SwitchesSkel<'static>,
    ring: RingBuffer<'static>,
    fired: Arc<AtomicBool>,
    /// While it is armed and has not fired.
    link: Option<Link>,
}

impl fmt::Debug for SwitchAlarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwitchAlarm").field("armed", &self.link.is_some()).finish_non_exhaustive()
    }
}

impl SwitchAlarm {
    /// Loads the program; not armed yet.
    ///
    /// # Errors
    /// The program cannot be loaded here.
    pub fn load() -> Result<Self, NotAvailable> {
        libbpf_rs::set_print(None);
        let open = SwitchesSkelBuilder::default().open(object_place()).map_err(refused)?;
        let skel = open.load().map_err(refused)?;
        let fired = Arc::new(AtomicBool::new(false));
        let report = Arc::clone(&fired);
        let mut ring = RingBufferBuilder::new();
        let on_report = move |_: &[u8]| {
            report.store(true, Ordering::Relaxed);
            0
        };
        ring.add(&skel.maps.reports, on_report).map_err(refused)?;
        let ring = ring.build().map_err(refused)?;
        Ok(Self { skel, ring, fired, link: None })
    }

    /// Fires once one vCPU has switched `switches` times from now on. Takes some hundred microseconds if it has fired:
    /// the kernel patches its code, and interrupts every vCPU for that. Otherwise the program goes on, and a vCPU that
    /// reaches the earlier number in this very moment can make the alarm a false one.
    ///
    /// # Errors
    /// The program cannot be attached.
    pub fn arm(&mut self, switches: u64) -> Result<(), NotAvailable> {
        self.read();
        self.fired.store(false, Ordering::Relaxed);
        let none = vec![0_u64.to_ne_bytes().to_vec(); num_possible_cpus().map_err(refused)?];
        let map = &self.skel.maps.switches;
        map.update_percpu(&0_u32.to_ne_bytes(), &none, MapFlags::ANY).map_err(refused)?;
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.at_least = switches;
            data.reported = 0;
        }
        if self.link.is_none() {
            self.link = Some(self.skel.progs.on_switch.attach().map_err(refused)?);
        }
        Ok(())
    }

    /// Becomes readable when it fires, for poll(2).
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring, which `self` owns, keeps its epoll descriptor open.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }

    /// Whether it has fired since it was armed. Costs no system call while it is false.
    pub fn has_fired(&mut self) -> bool {
        self.read();
        let fired = self.fired.load(Ordering::Relaxed);
        if fired {
            self.link = None;
        }
        fired
    }

    fn read(&self) {
        // A ring that cannot be read has no report.
        let _ = self.ring.consume();
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for `map_err`")]
fn refused(error: libbpf_rs::Error) -> NotAvailable {
    NotAvailable::new("the alarm at context switches", refusal("switches", &error))
}
