//! Attaches and detaches the tracer's programs, and reads the kernel's statistics about them.

use std::io;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::time::Duration;

use libbpf_rs::libbpf_sys;

use crate::part::Program;

/// A loaded program of the tracer.
#[derive(Debug)]
pub(crate) struct Probe {
    pub(crate) program: &'static Program,
    pub(crate) attachment: Attachment,
}

/// A loaded program with BTF, and its link while it is attached. Stands on its own: the object that it was loaded with can be
/// freed.
#[derive(Debug)]
pub(crate) struct Attachment {
    fd: OwnedFd,
    link: Option<OwnedFd>,
}

/// Total run time and number of runs, since the kernel's statistics were first enabled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunTime {
    /// Time in the program, without the overhead of getting there.
    pub time: Duration,
    /// Number of runs.
    pub runs: u64,
}

impl Attachment {
    /// A loaded program that is not attached yet.
    ///
    /// # Errors
    /// Out of file descriptors.
    pub(crate) fn new(loaded: &impl AsFd) -> io::Result<Self> {
        Ok(Self { fd: loaded.as_fd().try_clone_to_owned()?, link: None })
    }

    /// Attaches the program to the event that it was loaded for; does nothing if it is attached. Takes some hundred
    /// microseconds: the kernel patches its code, and interrupts every vCPU for that.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn attach(&mut self) -> io::Result<()> {
        if self.link.is_none() {
            // SAFETY: the call takes an open descriptor and, for a program with BTF, no name; it returns a new
            // descriptor or a negative number.
            let fd = unsafe { libbpf_sys::bpf_raw_tracepoint_open(std::ptr::null(), self.fd.as_raw_fd()) };
            if fd < 0 {
                return Err(io::Error::from_raw_os_error(-fd));
            }
            // SAFETY: the descriptor is open and has no other owner.
            self.link = Some(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(())
    }

    /// Detaches it, which costs as much as attaching.
    pub(crate) fn detach(&mut self) {
        self.link = None;
    }

    /// Whether it is attached.
    pub(crate) fn is_attached(&self) -> bool {
        self.link.is_some()
    }

    /// The kernel's statistics; zeros before Linux 5.8, which has none.
    pub(crate) fn run_time(&self) -> RunTime {
        run_time(&self.fd)
    }
}

/// The kernel's statistics about a loaded program; zeros before Linux 5.8, which has none.
pub fn run_time(program: &impl AsFd) -> RunTime {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = u32::try_from(size_of_val(&info)).unwrap_or_default();
    // SAFETY: `info` is as long as `length` says and asks for no further buffers, and both outlive the call.
    let answer = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_fd().as_raw_fd(), &raw mut info, &raw mut length)
    };
    if answer != 0 {
        return RunTime::default();
    }
    RunTime { time: Duration::from_nanos(info.run_time_ns), runs: info.run_cnt }
}

impl RunTime {
    /// The difference from `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self { time: self.time.saturating_sub(earlier.time), runs: self.runs.saturating_sub(earlier.runs) }
    }
}

/// Enables the kernel's statistics about BPF programs while the descriptor is open. `None` before Linux 5.8.
pub fn enable_statistics() -> Option<OwnedFd> {
    // SAFETY: the call takes a number and returns a new descriptor, or a negative number.
    let fd = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
    // SAFETY: the descriptor is open and has no other owner.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}
