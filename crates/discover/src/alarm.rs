//! An alarm that a load has begun: a file descriptor that becomes readable after so many context switches.

mod counter;

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use gleaner_kernel::Root;
use gleaner_policy::CpuSet;
use gleaner_trace::SwitchAlarm;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use counter::Counter;

/// Why there is no alarm. The machine is then to be read at a fixed pace.
#[derive(Debug, thiserror::Error)]
pub enum AlarmUnavailable {
    /// The caller lacks the privilege.
    #[error(
        "counting the machine's context switches is refused: run as root, grant CAP_PERFMON and CAP_BPF, or allow \
         perf_event_open or bpf in the container"
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
pub struct Alarm(By);

/// What counts the switches.
#[derive(Debug)]
enum By {
    /// The kernel itself.
    Counters(Counters),
    /// A program, where perf events are refused: `kernel.perf_event_paranoid=3` of Debian's kernels asks for
    /// `CAP_SYS_ADMIN` there, BPF does not.
    Program(Box<SwitchAlarm>),
}

impl Alarm {
    /// Finds out whether there can be an alarm; not armed yet. Counts on the running system: a fake root only has the
    /// list of online vCPUs.
    ///
    /// # Errors
    /// Why there is no alarm here.
    pub fn new(root: &Root) -> Result<Self, AlarmUnavailable> {
        match Counters::new(root) {
            Ok(counters) => Ok(Self(By::Counters(counters))),
            // Where BPF is refused, too, the first reason names both remedies.
            Err(refused @ AlarmUnavailable::NotPermitted) => {
                SwitchAlarm::load().map(|program| Self(By::Program(Box::new(program)))).map_err(|_| refused)
            }
            Err(error) => Err(error),
        }
    }

    /// Fires once one vCPU has switched `switches` times from now on. Takes about 0.1 ms. A vCPU that was offline in
    /// between might not be counted any more, so arm it anew from time to time.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn arm(&mut self, switches: u64) -> Result<(), AlarmUnavailable> {
        match &mut self.0 {
            By::Counters(counters) => counters.arm(switches),
            By::Program(program) => {
                program.arm(switches).map_err(|why| AlarmUnavailable::of("attach", io::Error::other(why)))
            }
        }
    }

    /// Whether it has fired since it was armed. The descriptor is readable only once per alarm and only for the first
    /// who polls it, but this stays true until the alarm is armed again. Costs no system call while it is false.
    pub fn has_fired(&mut self) -> bool {
        match &mut self.0 {
            By::Counters(counters) => counters.has_fired(),
            By::Program(program) => program.has_fired(),
        }
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.0 {
            By::Counters(counters) => counters.epoll.0.as_fd(),
            By::Program(program) => program.fd(),
        }
    }
}

/// Counters of the kernel's, one for each vCPU that was online when they were armed.
#[derive(Debug)]
struct Counters {
    root: Root,
    /// Readable when a counter is, so that callers wait for one descriptor.
    epoll: Epoll,
    of_vcpus: Vec<Counter>,
    fired: bool,
}

impl Counters {
    fn new(root: &Root) -> Result<Self, AlarmUnavailable> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC);
        let epoll = epoll.map_err(|error| AlarmUnavailable::of("wait for", error))?;
        let mut counters = Self { root: root.clone(), epoll, of_vcpus: Vec::new(), fired: false };
        counters.arm(u64::MAX >> 1)?;
        counters.of_vcpus.clear();
        Ok(counters)
    }

    fn arm(&mut self, switches: u64) -> Result<(), AlarmUnavailable> {
        self.fired = false;
        // Closing the last descriptor takes a counter out of the epoll, too.
        self.of_vcpus.clear();
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
            self.of_vcpus.push(counter);
        }
        Ok(())
    }

    /// `fired` outlives the report that makes the descriptor readable, which `perf_poll` clears.
    fn has_fired(&mut self) -> bool {
        if self.of_vcpus.iter().any(Counter::has_reported) {
            self.fired = true;
            self.of_vcpus.clear();
        }
        self.fired
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    /// One of each kind.
    fn alarms() -> Vec<Alarm> {
        if !gleaner_testing::is_root() {
            gleaner_testing::skipped("needs root");
            return Vec::new();
        }
        let by_counters = Alarm::new(&Root::system()).unwrap();
        assert!(matches!(by_counters.0, By::Counters(_)), "root may open perf events");
        vec![by_counters, Alarm(By::Program(Box::new(SwitchAlarm::load().unwrap())))]
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
        for mut alarm in alarms() {
            let mut partner = hand_off();
            bounce(&mut partner, 2000);
            assert!(!alarm.has_fired(), "not armed yet: {alarm:?}");
            alarm.arm(500).unwrap();
            bounce(&mut partner, 2000);
            assert!(is_readable(&alarm, Duration::from_secs(10)), "{alarm:?}");
            assert!(alarm.has_fired(), "{alarm:?}");
            bounce(&mut partner, 2000);
            let silent = !is_readable(&alarm, Duration::ZERO);
            assert!(silent && alarm.has_fired(), "silent, but not forgotten: {alarm:?}");
            alarm.arm(500).unwrap();
            let anew = !is_readable(&alarm, Duration::ZERO) && !alarm.has_fired();
            assert!(anew, "it counts in full again: {alarm:?}");
            bounce(&mut partner, 2000);
            assert!(is_readable(&alarm, Duration::from_secs(10)) && alarm.has_fired(), "{alarm:?}");
        }
    }

    #[test]
    fn a_waiting_thread_is_woken() {
        for mut alarm in alarms() {
            alarm.arm(2000).unwrap();
            let started = Instant::now();
            let load = std::thread::spawn(|| bounce(&mut hand_off(), 20_000));
            assert!(is_readable(&alarm, Duration::from_secs(10)), "{alarm:?}");
            assert!(alarm.has_fired(), "after {:?}: {alarm:?}", started.elapsed());
            load.join().unwrap();
        }
    }

    #[test]
    fn a_long_period_does_not_end_early() {
        for mut alarm in alarms() {
            alarm.arm(u64::from(u32::MAX)).unwrap();
            bounce(&mut hand_off(), 2000);
            assert!(!is_readable(&alarm, Duration::ZERO) && !alarm.has_fired(), "{alarm:?}");
        }
    }

    #[test]
    fn reasons_name_the_remedy() {
        let reason = |errno| AlarmUnavailable::of("open", io::Error::from_raw_os_error(errno)).to_string();
        assert!(reason(libc::EACCES).contains("CAP_PERFMON"));
        assert!(reason(libc::ENOSYS).contains("CONFIG_PERF_EVENTS"));
        assert!(reason(libc::EMFILE).contains("cannot open the counter of context switches: Too many"));
    }
}
