//! An alarm that a load has begun: a file descriptor that becomes readable after so many context switches.

mod counter;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use gleaner_kernel::Root;
use gleaner_policy::CpuSet;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use counter::Counter;

/// Why there is no alarm. The machine is then to be read at a fixed pace.
#[derive(Debug, thiserror::Error)]
pub enum AlarmUnavailable {
    /// The caller lacks the privilege.
    #[error(
        "counting the machine's context switches is refused: run as root, grant CAP_PERFMON (on Debian, whose kernel \
         asks for more by default, with kernel.perf_event_paranoid=2), or allow perf_event_open in the container"
    )]
    NotPermitted,
    /// The kernel lacks it.
    #[error("the kernel was built without CONFIG_PERF_EVENTS, so it cannot report that a load begins")]
    Unsupported,
    /// Another error.
    #[error("cannot {operation} the counter of context switches: {source}")]
    Failed {
        /// What was attempted.
        operation: &'static str,
        /// The kernel's error.
        r#source: io::Error,
    },
}

impl AlarmUnavailable {
    fn of(operation: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        match source.raw_os_error() {
            Some(libc::EACCES | libc::EPERM) => Self::NotPermitted,
            Some(libc::ENOSYS | libc::ENOENT) => Self::Unsupported,
            _ => Self::Failed { operation, source },
        }
    }
}

/// Becomes readable once a vCPU has switched between threads so often since it was armed. Until then nothing wakes
/// up, and afterwards nothing is counted, until it is armed again.
#[derive(Debug)]
pub struct Alarm {
    root: Root,
    /// Readable when a counter is, so that callers wait for one descriptor.
    epoll: Epoll,
    /// One for each vCPU that was online when it was armed.
    counters: Vec<Counter>,
    fired: bool,
}

impl Alarm {
    /// Finds out whether there can be an alarm; not armed yet. Counts on the running system: a fake root only has the
    /// list of online vCPUs.
    ///
    /// # Errors
    /// Why there is no alarm here.
    pub fn new(root: &Root) -> Result<Self, AlarmUnavailable> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC);
        let epoll = epoll.map_err(|error| AlarmUnavailable::of("wait for", error))?;
        let mut alarm = Self { root: root.clone(), epoll, counters: Vec::new(), fired: false };
        alarm.arm(u64::MAX >> 1)?;
        alarm.counters.clear();
        Ok(alarm)
    }

    /// Fires once one vCPU has switched `switches` times from now on. Opens a counter on each online vCPU, in about
    /// 0.1 ms: one of a vCPU that was offline in between would count no more, so arm it anew from time to time.
    ///
    /// # Errors
    /// A counter cannot be opened.
    pub fn arm(&mut self, switches: u64) -> Result<(), AlarmUnavailable> {
        self.fired = false;
        // Closing the last descriptor takes a counter out of the epoll, too.
        self.counters.clear();
        let online: CpuSet = self
            .root
            .parse("/sys/devices/system/cpu/online", "a CPU list")
            .map_err(|error| AlarmUnavailable::of("find the vCPUs of", io::Error::other(error)))?;
        for cpu in online.iter() {
            let counter = match Counter::open(cpu, switches) {
                // It went offline after the list was read.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                counter => counter.map_err(|error| AlarmUnavailable::of("open", error))?,
            };
            let event = EpollEvent::new(EpollFlags::EPOLLIN, u64::from(cpu.0));
            self.epoll.add(&counter, event).map_err(|error| AlarmUnavailable::of("wait for", error))?;
            self.counters.push(counter);
        }
        Ok(())
    }

    /// Whether it has fired since it was armed. The descriptor is readable only once per alarm and only for the first
    /// who polls it (`perf_poll` clears that), but this stays true until the alarm is armed again. Costs no system call
    /// while it is false.
    pub fn has_fired(&mut self) -> bool {
        if self.counters.iter().any(Counter::has_reported) {
            self.fired = true;
            self.counters.clear();
        }
        self.fired
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn alarm() -> Option<Alarm> {
        gleaner_testing::is_root().then(|| Alarm::new(&Root::system()).unwrap())
    }

    fn is_readable(alarm: &Alarm, timeout: Duration) -> bool {
        let mut fds = [PollFd::new(alarm.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(timeout).unwrap()).unwrap() == 1
    }

    /// Two threads that hand a byte to each other, until the caller drops its end.
    fn hand_off() -> UnixStream {
        let (one, mut other) = UnixStream::pair().unwrap();
        std::thread::spawn(move || {
            let mut byte = [0];
            while other.read_exact(&mut byte).is_ok() && other.write_all(&byte).is_ok() {}
        });
        one
    }

    fn bounce(stream: &mut UnixStream, times: u32) {
        let mut byte = [7];
        for _ in 0..times {
            stream.write_all(&byte).unwrap();
            stream.read_exact(&mut byte).unwrap();
        }
    }

    #[test]
    fn fires_after_so_many_switches_and_then_not_until_armed_again() {
        let Some(mut alarm) = alarm() else { return };
        let mut partner = hand_off();
        bounce(&mut partner, 2000);
        assert!(!alarm.has_fired(), "not armed yet");
        alarm.arm(500).unwrap();
        bounce(&mut partner, 2000);
        assert!(is_readable(&alarm, Duration::from_secs(10)));
        assert!(alarm.has_fired());
        bounce(&mut partner, 2000);
        assert!(!is_readable(&alarm, Duration::ZERO) && alarm.has_fired(), "silent, but not forgotten");
        alarm.arm(500).unwrap();
        assert!(!is_readable(&alarm, Duration::ZERO) && !alarm.has_fired(), "it counts in full again");
        bounce(&mut partner, 2000);
        assert!(is_readable(&alarm, Duration::from_secs(10)) && alarm.has_fired());
    }

    #[test]
    fn a_waiting_thread_is_woken() {
        let Some(mut alarm) = alarm() else { return };
        alarm.arm(2000).unwrap();
        let started = Instant::now();
        let load = std::thread::spawn(|| bounce(&mut hand_off(), 20_000));
        assert!(is_readable(&alarm, Duration::from_secs(10)));
        assert!(alarm.has_fired(), "after {:?}", started.elapsed());
        load.join().unwrap();
    }

    #[test]
    fn a_long_period_does_not_end_early() {
        let Some(mut alarm) = alarm() else { return };
        alarm.arm(u64::from(u32::MAX)).unwrap();
        bounce(&mut hand_off(), 2000);
        assert!(!is_readable(&alarm, Duration::ZERO) && !alarm.has_fired());
    }

    #[test]
    fn reasons_name_the_remedy() {
        let reason = |errno| AlarmUnavailable::of("open", io::Error::from_raw_os_error(errno)).to_string();
        assert!(reason(libc::EACCES).contains("CAP_PERFMON"));
        assert!(reason(libc::ENOSYS).contains("CONFIG_PERF_EVENTS"));
        assert!(reason(libc::EMFILE).contains("cannot open the counter of context switches: Too many"));
    }
}
