//! One vCPU's counter of context switches, which reports after so many: a software event of `perf_event_open`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};

use gleaner_policy::CpuId;
use nix::errno::Errno;
use perf_event_open_sys as perf;
use perf_event_open_sys::bindings;

/// Counts on one vCPU, whoever runs there, from its opening until it is dropped.
#[derive(Debug)]
pub(super) struct Counter {
    ring: Ring,
    file: OwnedFd,
}

impl Counter {
    /// Reports after each `period` switches of `cpu`.
    ///
    /// # Errors
    /// `EACCES` and `EPERM` without the privilege, `ENOSYS` where the kernel lacks it, `ENODEV` for an offline vCPU.
    pub(super) fn open(cpu: CpuId, period: u64) -> io::Result<Self> {
        let mut attr = bindings::perf_event_attr {
            type_: bindings::PERF_TYPE_SOFTWARE,
            // It has some hundred bytes.
            #[allow(clippy::cast_possible_truncation)]
            size: size_of::<bindings::perf_event_attr>() as u32,
            config: u64::from(bindings::PERF_COUNT_SW_CONTEXT_SWITCHES),
            ..Default::default()
        };
        // 0 would mean that it only counts.
        attr.__bindgen_anon_1.sample_period = period.max(1);
        attr.__bindgen_anon_2.wakeup_events = 1;
        let cpu = i32::try_from(cpu.0).map_err(io::Error::other)?;
        let flags = libc::c_ulong::from(bindings::PERF_FLAG_FD_CLOEXEC);
        // SAFETY: `attr` is a valid structure of the size that it states, and outlives the call.
        let file = unsafe { perf::perf_event_open(&raw mut attr, -1, cpu, -1, flags) };
        let file = Errno::result(file)?;
        // SAFETY: the descriptor was just opened, and nothing else has it.
        let file = unsafe { OwnedFd::from_raw_fd(file) };
        Ok(Self { ring: Ring::map(file.as_fd())?, file })
    }

    /// Whether it has reported since it was opened.
    pub(super) fn has_reported(&self) -> bool {
        self.ring.written() > 0
    }
}

impl AsFd for Counter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The smallest ring buffer: without one the kernel reports an event as hung up, never as readable (`perf_poll`). It is
/// not writable, so that the kernel overwrites old records and nobody has to read them.
#[derive(Debug)]
struct Ring {
    start: NonNull<bindings::perf_event_mmap_page>,
    length: usize,
}

impl Ring {
    /// A page that describes the buffer, and one for the records.
    const PAGES: usize = 2;

    fn map(file: BorrowedFd<'_>) -> io::Result<Self> {
        let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?;
        let length = Self::PAGES * page.and_then(|page| usize::try_from(page).ok()).unwrap_or(4096);
        // SAFETY: a new mapping at an address that the kernel chooses; it aliases nothing of this program.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), length, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        match NonNull::new(start) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED => Ok(Self { start: start.cast(), length }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Bytes that the kernel has written.
    fn written(&self) -> u64 {
        // SAFETY: the first page of the mapping is this structure. The kernel writes this field at any time: a volatile
        // read through a raw pointer makes no reference to it, and the field is aligned.
        unsafe { (&raw const (*self.start.as_ptr()).data_head).read_volatile() }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: exactly what `map` mapped, and nobody has a reference into it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

// SAFETY: the mapping belongs to the process rather than to a thread.
unsafe impl Send for Ring {}
